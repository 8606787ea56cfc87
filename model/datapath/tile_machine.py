"""The array as a state machine of tiles: the golden model of the array's bench.

A machine has `rows` rows of activations and, for each, some accumulator contexts; a context is
the running exponent R and the 64 accumulators A_n of one output tile. Each call of `tile` is
what the hardware does with one broadcast tile; `result` is what leaves it.

Inputs are taken as the hardware meets them: already loaded magnitudes, Inf and NaN and exponents
of 255 as dead terms that set the sticky `refused` flag, `midpoint` literally also at full
precision. `first` starts the named context anew in every row, masked rows included; a masked row
adds nothing and its activations are not looked at.

Contract: sections 5, 7, 8 and 12.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from model.datapath.bounds import acc_bits, check_guard_bits, largest_k
from model.datapath.operands import check_column_exponents
from model.datapath.primitives import (
    BIAS,
    LEAST_EXPONENT,
    accumulate,
    activation_terms,
    align_,
    fold_exponents,
    fold_values,
    group_terms,
    round_result,
    signed_weights,
    tile_exponents,
    tile_sums,
)
from model.formats.bf16 import from_codes
from model.formats.checks import check_int, check_integers, check_tensor
from model.formats.constants import P_FULL_MAX, P_FULL_MIN, P_MIN_STUDY, TILE_K, TILE_N
from model.formats.floats import Rounded, float_format


@dataclass(frozen=True, eq=False)
class TileTrace:
    """What one tile did, row by row. 0 stands for "no exponent" in X and R.

    Attributes:
        folded: eps_k, int64 (rows, 64); 0 where the term is dead.
        tile_exponent: X, int64 (rows,); 0 where the tile was skipped.
        aligned: a'_k, int64 (rows, 64).
        sums: I_n, int64 (rows, 64).
        running: R after the tile, int64 (rows,).
        accumulators: A_n after the tile, int64 (rows, 64).
        refused: bool (rows,), a row met Inf, NaN or (for all unmasked rows) an exponent of 255.
    """

    folded: Tensor
    tile_exponent: Tensor
    aligned: Tensor
    sums: Tensor
    running: Tensor
    accumulators: Tensor
    refused: Tensor


class TileMachine:
    """Rows of activations on one broadcast of tiles.

    Args:
        rows: rows of activations (T_M).
        contexts: accumulator contexts of each row.
        align_guard_bits: g, 0..16.
        acc_guard_bits: f, 0..16.
        p_max: longest load, 9..16.
        max_k: most reduction indices of one result; by default what 63-bit accumulators hold.

    Attributes:
        accumulators: A_n, int64 (contexts, rows, 64).
        refused: sticky; an Inf, a NaN or an exponent of 255 was met.
        overflow: sticky; a result overflowed its format.

    Raises:
        TypeError, ValueError: an argument out of range, by name.
    """

    def __init__(
        self,
        rows: int,
        *,
        contexts: int = 1,
        align_guard_bits: int = 8,
        acc_guard_bits: int = 8,
        p_max: int = P_FULL_MAX,
        max_k: int | None = None,
    ) -> None:
        self.rows = check_int("rows", rows, 1, 1 << 20)
        self.contexts = check_int("contexts", contexts, 1, 1 << 20)
        self.g, self.f = check_guard_bits(align_guard_bits, acc_guard_bits)
        self.p_max = check_int("p_max", p_max, P_FULL_MIN, P_FULL_MAX)
        limit = largest_k(self.p_max, self.g, self.f, literal_midpoint=True)
        limit -= limit % TILE_K  # a last tile is padded, but its padding may hold anything
        self.max_k = limit if max_k is None else check_int("max_k", max_k, 1, limit)
        self.reset()

    @property
    def running(self) -> Tensor:
        """R, int64 (contexts, rows); 0 for none. Rises bring it below, to -1000 at most."""
        running = (self._running - BIAS).clamp_min(LEAST_EXPONENT)
        return torch.where(self._running > 0, running, 0)

    @property
    def acc_bits(self) -> int:
        """Bits of a signed accumulator that holds every sum over `max_k`."""
        return acc_bits(self.max_k, self.p_max, self.g, self.f)

    def reset(self) -> None:
        """Clears every context and both flags."""
        self._running = torch.zeros(self.contexts, self.rows, dtype=torch.int64)
        self.accumulators = torch.zeros(self.contexts, self.rows, TILE_N, dtype=torch.int64)
        self.refused = False
        self.overflow = False
        self._depth = [0] * self.contexts

    def tile(
        self,
        activations: Tensor,
        exponents: Tensor,
        signs: Tensor,
        magnitudes_q: Tensor,
        *,
        p: int,
        midpoint: bool = False,
        first: bool = False,
        context: int = 0,
        row_mask: Tensor | None = None,
        rises: Tensor | None = None,
    ) -> TileTrace:
        """Runs one tile.

        Args:
            activations: (rows, 64): bfloat16, or BF16 codes of any integer type.
            exponents: (64,) [k], integers in 0..255: shared exponents.
            signs: (64, 64) [k, n], 0 or 1.
            magnitudes_q: (64, 64) [k, n], 0..2^(p - 1) - 1: the p - 1 loaded bits.
            p: bits of the load, 2..p_max.
            midpoint: c = 2q + 1 rather than 2q.
            first: start R and A of the context anew, in every row, before this tile.
            context: 0..contexts - 1.
            row_mask: (rows,), true where the row takes part; all by default.
            rises: (rows,), integers 0..2^20 that are taken off R before the tile, whether the row
                takes part or not (contract section 11, softmax); 0 by default.

        Returns:
            The tile's intermediate values. Nothing changes when an argument is refused.

        Raises:
            TypeError: an argument of another type.
            ValueError: a wrong shape or an element out of range, by name and index; more than
                `max_k` reduction indices since `first`.
        """
        check_int("p", p, P_MIN_STUDY, self.p_max)
        check_int("context", context, 0, self.contexts - 1)
        values = _activations(activations)
        _check_shape("activations", values, (self.rows, TILE_K))
        _check_part("exponents", exponents, (TILE_K,), 255)
        _check_part("signs", signs, (TILE_K, TILE_N), 1)
        _check_part("magnitudes_q", magnitudes_q, (TILE_K, TILE_N), (1 << (p - 1)) - 1)
        mask = _row_mask(row_mask, self.rows)
        falls = torch.zeros(self.rows, dtype=torch.int64) if rises is None else rises
        check_integers("rises", falls, 0, 1 << 20)
        _check_shape("rises", falls, (self.rows,))
        depth = TILE_K + (0 if first else self._depth[context])
        if depth - TILE_K >= self.max_k:
            raise ValueError(
                f"context {context} must sum at most max_k = {self.max_k} reduction indices "
                f"since its first tile, not {depth}",
            )

        row_terms = activation_terms(values).where(mask.unsqueeze(-1))
        groups = group_terms(exponents)
        folded = fold_exponents(row_terms.exponents, groups.exponents)
        tile_exponent = tile_exponents(folded)
        aligned = align_(fold_values(row_terms.values, groups.values), tile_exponent, self.g)
        weights = signed_weights(signs, magnitudes_q, midpoint).to(torch.float64)
        sums = tile_sums(aligned, weights).to(torch.int64)

        if first:
            self._running[context] = 0
            self.accumulators[context] = 0
        before = self._running[context]
        exponent = tile_exponent.to(torch.int64)
        self.accumulators[context], self._running[context] = accumulate(
            self.accumulators[context],
            torch.where(before > 0, (before - falls).clamp_min(1), 0),
            sums,
            torch.where(exponent > 0, exponent + BIAS, 0),
            self.f,
        )
        self._depth[context] = depth
        refused = row_terms.refused.any(-1) | (mask & groups.refused.any())
        self.refused = self.refused or bool(refused.any())
        return TileTrace(
            folded=folded.clamp_min(0).to(torch.int64),
            tile_exponent=exponent,
            aligned=aligned.to(torch.int64),
            sums=sums,
            running=self.running[context],
            accumulators=self.accumulators[context].clone(),
            refused=refused,
        )

    def result(
        self,
        context: int = 0,
        *,
        p: int,
        fmt: str = "bf16",
        column_exponents: Tensor | None = None,
    ) -> Rounded:
        """Rounds the accumulators of a context; they stay as they are.

        Args:
            context: 0..contexts - 1.
            p: bits of the loads that were summed, 2..p_max.
            fmt: "bf16" or "fp32".
            column_exponents: r_n, (64,), added to each column's power of two; 0 by default.

        Returns:
            Codes, int64 (rows, 64), and overflow, bool (rows,).

        Raises:
            TypeError, ValueError: an argument of another type or out of range, by name.
        """
        check_int("context", context, 0, self.contexts - 1)
        check_int("p", p, P_MIN_STUDY, self.p_max)
        codes, overflow = round_result(
            self.accumulators[context],
            self.running[context],
            p=p,
            g=self.g,
            f=self.f,
            fmt=float_format(fmt),
            column_exponents=check_column_exponents(column_exponents, TILE_N),
        )
        by_row = overflow.any(-1)
        self.overflow = self.overflow or bool(by_row.any())
        return Rounded(codes, by_row)


def _activations(activations: Tensor) -> Tensor:
    check_tensor("activations", activations)
    if activations.dtype == torch.bfloat16:
        return activations
    check_integers("activations", activations, 0, 0xFFFF)
    return from_codes(activations)


def _check_shape(name: str, values: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(values.shape) != shape:
        raise ValueError(f"{name} must have shape {shape}, not {tuple(values.shape)}")


def _check_part(name: str, values: Tensor, shape: tuple[int, ...], high: int) -> None:
    check_integers(name, values, 0, high)
    _check_shape(name, values, shape)


def _row_mask(row_mask: Tensor | None, rows: int) -> Tensor:
    if row_mask is None:
        return torch.ones(rows, dtype=torch.bool)
    check_tensor("row_mask", row_mask)
    _check_shape("row_mask", row_mask, (rows,))
    if row_mask.dtype == torch.bool:
        return row_mask
    return check_integers("row_mask", row_mask, 0, 1) != 0
