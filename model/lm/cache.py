"""The KV cache: keys and values in block floating point, and the keys of open blocks in BF16.

For every layer, sequence and KV head the cache keeps

- **values** token-wise: a row is quantised when it is written;
- **key rows** in BF16, after RoPE;
- **closed keys** channel-wise: when a pass writes the last row of a block of 64 positions, the
  block is quantised from the 64 rows that it sees.

`lengths` counts the committed tokens of each sequence. What lies beyond is dead: a draft writes
its keys and values there and closes blocks from them for its own use, verification writes the
same positions again and closes the same blocks again, and committing or dropping tokens is nothing
but a change of `lengths`. A closed block is therefore final as soon as the committed length
reaches its end, and no query can reach one that was closed by rejected keys: it would stand
behind that block's last row, which the same or an earlier row of its own pass has written anew.

Readers (`model.lm.exact`, `model.lm.fast`) hold what they need of these codes in their own form;
they are told of every write.

Contract: section 9.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from model.formats.bfp import Bfp, quantize
from model.formats.checks import check_int
from model.formats.constants import TILE_K, TILE_N
from model.lm.config import ModelConfig
from model.lm.rows import Rows

#: Positions of a key block.
BLOCK = 64

#: Bits of a key in the open form, its sign included: token-wise BFP16.
OPEN_P = 16


class Reader(Protocol):
    """What a cache tells of its writes."""

    def rows_written(self, layer: int, rows: Rows, keys: Bfp, values: Bfp) -> None:
        """Rows are new: keys in the open form and values, both (rows, KV heads, d_h)."""

    def block_closed(self, layer: int, sequence: int, block: int) -> None:
        """A closed key block is new."""


class KVCache:
    """Keys and values of a batch of sequences.

    Args:
        config: the model's shape.
        batch: sequences.
        capacity: positions of each sequence, rounded up to whole blocks.
        p_full: bits of a stored number, 9..16.
        device: where the codes are kept.

    Attributes:
        lengths: committed tokens of each sequence.
        key_rows: for each layer, bfloat16 (batch, KV heads, capacity, d_h).
        closed_exponents: for each layer, uint8 (batch, KV heads, blocks, d_h).
        closed_signs, closed_magnitudes: for each layer, uint8 and int16
            (batch, KV heads, blocks, d_h, 64): a group is the last dimension.
        value_exponents: for each layer, uint8 (batch, KV heads, capacity, n-tiles).
        value_signs, value_magnitudes: for each layer, uint8 and int16
            (batch, KV heads, capacity, d_h).

    Raises:
        TypeError, ValueError: an argument out of range, by name.
    """

    def __init__(
        self,
        config: ModelConfig,
        batch: int,
        capacity: int,
        *,
        p_full: int = 9,
        device: str | torch.device = "cpu",
    ) -> None:
        check_int("batch", batch, 1, 1 << 20)
        check_int("capacity", capacity, 1, 1 << 24)
        self.config, self.batch, self.p_full = config, batch, p_full
        self.device = torch.device(device)
        self.capacity = -(-capacity // BLOCK) * BLOCK
        self.lengths = [0] * batch
        heads, d = config.kv_heads, config.head_width
        blocks, n_tiles = self.capacity // BLOCK, -(-d // TILE_N)

        def zeros(dtype: torch.dtype, *shape: int) -> list[Tensor]:
            return [
                torch.zeros(batch, heads, *shape, dtype=dtype, device=self.device)
                for _ in range(config.layers)
            ]

        self.key_rows = zeros(torch.bfloat16, self.capacity, d)
        self.closed_exponents = zeros(torch.uint8, blocks, d)
        self.closed_signs = zeros(torch.uint8, blocks, d, BLOCK)
        self.closed_magnitudes = zeros(torch.int16, blocks, d, BLOCK)
        self.value_exponents = zeros(torch.uint8, self.capacity, n_tiles)
        self.value_signs = zeros(torch.uint8, self.capacity, d)
        self.value_magnitudes = zeros(torch.int16, self.capacity, d)
        self._readers: list[weakref.ref[Reader]] = []

    def _told(self) -> Iterator[Reader]:
        """Readers that are still in use.

        They hold the cache, so the cache holds them weakly: a circle of them would keep gigabytes
        until Python's collector, which counts objects and not bytes, happens to run.
        """
        for reference in self._readers:
            reader = reference()
            if reader is not None:
                yield reader

    def write(self, layer: int, rows: Rows, keys: Tensor, values: Tensor) -> None:
        """Writes keys and values of a pass, and closes the blocks whose last row is among them.

        Args:
            layer: the block of the transformer.
            rows: where they belong; positions of a sequence ascend without a gap.
            keys: bfloat16 (rows, KV heads, d_h), after RoPE.
            values: bfloat16 (rows, KV heads, d_h).

        Raises:
                ValueError: Inf or NaN, by index; positions beyond the capacity, by sequence.
        """
        self._check_rows(rows)
        # Both converters refuse Inf and NaN, before anything is written.
        opened = quantize(keys, group=self.config.head_width, p_full=OPEN_P)
        stored = quantize(values, p_full=self.p_full)
        at = (rows.sequence, slice(None), rows.position)
        self.key_rows[layer][at] = keys
        self.value_exponents[layer][at] = stored.exponents
        self.value_signs[layer][at] = stored.signs
        self.value_magnitudes[layer][at] = stored.magnitudes
        for reader in self._told():
            reader.rows_written(layer, rows, opened, stored)
        for b in rows.active:
            first, end = rows.starts[b], rows.starts[b] + rows.counts[b]
            for block in range(first // BLOCK, end // BLOCK):
                self._close(layer, b, block)

    def attach(self, reader: Reader) -> None:
        """Tells a reader of all that is committed, and of every write while it lives."""
        self._readers.append(weakref.ref(reader))
        rows = Rows.of([[0] * length for length in self.lengths], [0] * self.batch, self.device)
        if not rows.active:
            return
        at = (rows.sequence, slice(None), rows.position)
        for layer in range(self.config.layers):
            values = Bfp(
                self.value_exponents[layer][at],
                self.value_signs[layer][at],
                self.value_magnitudes[layer][at],
                group_dim=2,
                p_full=self.p_full,
            )
            keys = self.key_rows[layer][at]
            opened = quantize(keys, group=self.config.head_width, p_full=OPEN_P)
            reader.rows_written(layer, rows, opened, values)
            for b in rows.active:
                for block in range(self.final_blocks(b)):
                    reader.block_closed(layer, b, block)

    def _check_rows(self, rows: Rows) -> None:
        for b in rows.active:
            end = rows.starts[b] + rows.counts[b]
            if end > self.capacity:
                raise ValueError(
                    f"sequence {b} must end at or below the capacity of {self.capacity}, not {end}"
                )

    def _close(self, layer: int, b: int, block: int) -> None:
        keys = self.key_rows[layer][b, :, block * BLOCK : (block + 1) * BLOCK]
        stored = quantize(keys.transpose(1, 2), p_full=self.p_full)
        self.closed_exponents[layer][b, :, block] = stored.exponents.squeeze(-1)
        self.closed_signs[layer][b, :, block] = stored.signs
        self.closed_magnitudes[layer][b, :, block] = stored.magnitudes
        for reader in self._told():
            reader.block_closed(layer, b, block)

    def commit(self, counts: Sequence[int]) -> None:
        """Adds `counts[b]` tokens, whose keys and values are written, to sequence b."""
        for b, count in enumerate(counts):
            self.lengths[b] += check_int(f"counts[{b}]", count, 0, self.capacity - self.lengths[b])

    def final_blocks(self, b: int) -> int:
        """Key blocks of sequence b that are final."""
        return self.lengths[b] // BLOCK

    def committed(self, b: int) -> list[Tensor]:
        """All that is defined of sequence b, for comparisons: codes below the committed length.

        Returns:
            For each layer: values' exponents, signs and magnitudes, the final key blocks'
            exponents, signs and magnitudes, and the BF16 keys of the open block.
        """
        length, blocks = self.lengths[b], self.final_blocks(b)
        parts = []
        for layer in range(self.config.layers):
            parts += [
                part[layer][b, :, :length]
                for part in (self.value_exponents, self.value_signs, self.value_magnitudes)
            ]
            parts += [
                part[layer][b, :, :blocks]
                for part in (self.closed_exponents, self.closed_signs, self.closed_magnitudes)
            ]
            parts.append(self.key_rows[layer][b, :, blocks * BLOCK : length])
        return parts


assert BLOCK == TILE_K == TILE_N
