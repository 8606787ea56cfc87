"""The cost model of this project's machine: what its passes load, in bits.

Beside the paper's Eqs. 2 to 4 it counts

- the exponents, 8 bits a group, and the padding of tiles to 64 by 64;
- the keys of the open block, 16 bits each, in drafts and target;
- linear layers and the head, not norms and tables: what a pass reads. A pass has at most `rows`
  rows, and a larger batch, or the gamma + 1 rows of each sequence in verification, take several
  passes that each read the weights;
- attention passes: one serves floor(rows / G) positions of a sequence (G query heads a KV head),
  and each reads the sequence's cache;
- an embedding row of 16-bit numbers for each row;
- the growth of the sequence during a round.

Bits are time: a plane takes the core as long as the memory, whether one row or all are in use. So
T_V follows here and is no argument. Not counted: norms, writes of keys and values, logits, special
functions, the latency between commands, and rows of one sequence that fall into two passes because
others came before it.

The baseline is 16-bit autoregressive decoding by a machine with as many rows and no padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from model.calibration.cost import LONGEST, check_config, check_number, omega
from model.formats.checks import check_int, check_p_full
from model.lm.config import ModelConfig
from model.lm.footprint import (
    HALF,
    bfp_kv_bits,
    bfp_weight_bits,
    plain_kv_numbers,
    plain_weights,
)
from model.lm.precision import Precision

#: Rows of the paper's array.
ROWS = 32

#: Most rows that a description of a machine may have: a mistaken argument's.
_MANY_ROWS = 1 << 16


@lru_cache(maxsize=256)
def _weight_bits(config: ModelConfig, p: int) -> int:
    return bfp_weight_bits(config, p)


@lru_cache(maxsize=64)
def _half_weight_bits(config: ModelConfig) -> int:
    return plain_weights(config) * HALF


@dataclass(frozen=True)
class MachineCost:
    """Bits that the machine loads as its cost.

    Attributes:
        config: the model's shape.
        p_full: bits of the target, 9..16.
        rows: rows of activations that the array holds (T_M).

    Raises:
        TypeError: an attribute of another kind.
        ValueError: rows that do not hold the query heads of one KV head; p_full not in 9..16.
    """

    config: ModelConfig
    p_full: int = 9
    rows: int = ROWS

    def __post_init__(self) -> None:
        check_config(self.config)
        check_p_full(self.p_full)
        check_int("rows", self.rows, 1, _MANY_ROWS)
        if self.rows < self.ratio:
            raise ValueError(
                f"rows must be {self.ratio} or more, the query heads of a KV head, not {self.rows}"
            )

    @property
    def name(self) -> str:
        """As commands and files write it."""
        return f"machine of {self.rows} rows"

    @property
    def ratio(self) -> int:
        """G, query heads of a KV head."""
        return self.config.heads // self.config.kv_heads

    def attention_passes(self, positions: int) -> int:
        """Times that the cache of a sequence is read for so many of its positions."""
        return -(-positions // (self.rows // self.ratio))

    def weight_passes(self, rows: int) -> int:
        """Times that the weights are read for so many rows."""
        return -(-rows // self.rows)

    def _embedding_bits(self, rows: int) -> int:
        return rows * self.config.width * HALF

    def step_bits(self, precision: Precision, batch: int, positions: int, length: int) -> int:
        """Bits of a target or draft step.

        Args:
            precision: what it loads.
            batch: sequences.
            positions: rows of each.
            length: cached tokens of each, these rows included.
        """
        rows = batch * positions
        weights = self.weight_passes(rows) * _weight_bits(self.config, precision.w.p)
        cache = batch * bfp_kv_bits(self.config, length, precision.kv.p)
        return weights + self.attention_passes(positions) * cache + self._embedding_bits(rows)

    def half_bits(self, batch: int, length: int) -> int:
        """Bits of a step of 16-bit autoregressive decoding."""
        weights = self.weight_passes(batch) * _half_weight_bits(self.config)
        cache = batch * plain_kv_numbers(self.config, length) * HALF
        return weights + cache + self._embedding_bits(batch)

    def verify_ratio(self, gamma: int, batch: int, sequence: int) -> float:
        """t_v = T_V / T_T of a round behind `sequence` committed tokens of each sequence."""
        full = Precision.full(self.p_full)
        verify = self.step_bits(full, batch, gamma + 1, sequence + gamma + 1)
        return verify / self.step_bits(full, batch, 1, sequence + 1)

    def speedup(
        self, precision: Precision, gamma: int, alpha: float, batch: int, sequence: int
    ) -> float:
        """Modelled speedup over 16-bit autoregressive decoding; gamma 0: the target alone.

        Args:
            precision: of the draft.
            gamma: drafted tokens a round, 0..255.
            alpha: acceptance rate, 0..1.
            batch, sequence: sequences, committed tokens of each.

        Raises:
            TypeError, ValueError: an argument, by name.
        """
        check_int("batch", batch, 1, LONGEST)
        check_int("sequence", sequence, 1, LONGEST)
        check_number("alpha", alpha, 0, 1)
        tokens = omega(gamma, float(alpha))
        exact, full = precision.exact(self.p_full), Precision.full(self.p_full)
        bits = self.step_bits(full, batch, gamma + 1, sequence + gamma + 1)
        for step in range(1, gamma + 1):
            bits += self.step_bits(exact, batch, 1, sequence + step)
        return tokens * self.half_bits(batch, sequence + 1) / bits
