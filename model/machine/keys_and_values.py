"""STORE and ATTEND: keys and values in memory, byte by byte.

A pass of attention is what the hardware does at a time: one sequence, one KV head, and
`floor(T_M / group)` positions; its key tiles come in ascending order. Passes change no number
(no row looks at another), so all rows of a segment are computed at once here and the passes
are counted.

Contract: section 9; docs/chip.md, "What a command moves".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from model.datapath.attention import KeyTiles, ValueTiles
from model.datapath.attention import attend as attend_tiles
from model.datapath.primitives import group_terms, signed_weights
from model.datapath.special import rms_norm, rotate
from model.formats.bf16 import check_finite
from model.formats.bfp import Bfp, quantize
from model.formats.commands import LINE_BYTES, OPEN_ROWS, Region, Status
from model.formats.constants import EXPONENT_MAX, TILE_K, TILE_N
from model.formats.planes import Bytes, to_image
from model.formats.tiles import load_blocks, put_rows
from model.lm.cache import BLOCK, OPEN_P
from model.lm.precision import Load
from model.machine.encode import Segment
from model.machine.memory import Memory
from model.machine.state import Model, State

Fields = Mapping[str, int]


class Places:
    """Where the keys and values of a layer's heads lie, in lines of their regions."""

    def __init__(self, fields: Fields, model: Model) -> None:
        self.fields, self.model = fields, model
        self.key_block = model.head_tiles * model.tile_lines

    def keys(self, sequence: int, head: int, block: int) -> int:
        """A closed block."""
        model = self.model
        start = self.fields["keys"] + sequence * model.key_sequence + head * model.key_head
        return start + block * self.key_block

    def values(self, sequence: int, head: int, n_tile: int, k_tile: int) -> int:
        """A tile of values."""
        model = self.model
        start = self.fields["values"] + sequence * model.value_sequence + head * model.value_head
        return start + n_tile * model.value_channels + k_tile * model.tile_lines

    def open_keys(self, sequence: int, head: int, position: int) -> int:
        """A row of BF16 keys."""
        start = self.fields["open_keys"] + sequence * self.model.open_sequence
        return start + (head * OPEN_ROWS + position % OPEN_ROWS) * 2 * self.model.head_tiles


def store(
    fields: Fields,
    state: State,
    memory: Memory,
    norms: tuple[Tensor, ...] | None,
    eps: float,
) -> None:
    """STORE.

    Args:
        fields: of the command.
        state: rows and bank.
        memory: what is written.
        norms: weights of the norms of queries and keys; None without QK-norm.
        eps: of both norms.

    Raises:
        ValueError: Inf or NaN.
    """
    model = state.the_model
    heads, kv_heads, d = model.heads, model.kv_heads, model.head_width
    wide = state.words(fields["source"], (heads + 2 * kv_heads) * model.head_tiles)
    q, k, v = check_finite(wide, "qkv").unflatten(-1, (-1, d)).split([heads, kv_heads, kv_heads], 1)
    if norms is not None:
        q = rms_norm(q.contiguous(), norms[0], eps, form="hardware")
        k = rms_norm(k.contiguous(), norms[1], eps, form="hardware")
    cosines, sines = _rope(state, memory)
    q, k = (rotate(part, cosines, sines, form="hardware") for part in (q, k))
    stored = quantize(v.contiguous(), p_full=model.p_full)
    check_finite(k, "keys")
    places = Places(fields, model)
    wide.unflatten(-1, (-1, d))[:, : heads + kv_heads] = torch.cat([q, k], 1)
    first = 0
    for segment in state.segments:
        rows = slice(first, first + segment.rows)
        first = rows.stop
        for head in range(kv_heads):
            _write_open(memory, places, segment, head, k[rows, head])
            values = Bfp(
                stored.exponents[rows, head],
                stored.signs[rows, head],
                stored.magnitudes[rows, head],
                1,
                p_full=model.p_full,
            )
            _write_values(memory, places, segment, head, values)
    for segment in state.segments:
        end = segment.start + segment.rows
        for block in range(segment.start // BLOCK, end // BLOCK):
            for head in range(kv_heads):
                _close(memory, places, segment.sequence, head, block)


def _rope(state: State, memory: Memory) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rows: int16 (rows, 1, d_h / 2)."""
    lines = 2 * state.the_model.head_tiles
    rows = [
        memory.read("READ_ROPE", Region.ROPE, position * lines, lines)
        for position in state.positions
    ]
    pairs = torch.from_numpy(np.stack(rows)).view(torch.int16).unflatten(-1, (1, -1, 2))
    cosines, sines = pairs.unbind(-1)
    return cosines.contiguous(), sines.contiguous()


def _write_open(memory: Memory, places: Places, segment: Segment, head: int, keys: Tensor) -> None:
    for i, row in enumerate(keys.contiguous().view(torch.int16).numpy()):
        line = places.open_keys(segment.sequence, head, segment.start + i)
        content = row.astype("<i2", copy=False).tobytes()
        memory.write("WRITE_OPEN_KEYS", Region.OPEN_KEYS, line * LINE_BYTES, content)


def _write_values(memory: Memory, places: Places, segment: Segment, head: int, values: Bfp) -> None:
    """Rows into tiles: 8 bytes of each plane and one exponent a row."""
    tile_bytes = places.model.tile_lines * LINE_BYTES
    done = 0
    while done < segment.rows:
        position = segment.start + done
        k_tile, row = divmod(position, TILE_K)
        count = min(TILE_K - row, segment.rows - done)
        rows = slice(done, done + count)
        for n_tile in range(places.model.head_tiles):
            columns = slice(n_tile * TILE_N, (n_tile + 1) * TILE_N)
            line = places.values(segment.sequence, head, n_tile, k_tile)
            tile = memory.at(Region.VALUES, line * LINE_BYTES, tile_bytes, Status.WRITE)
            part = Bfp(
                values.exponents[rows, n_tile : n_tile + 1],
                values.signs[rows, columns],
                values.magnitudes[rows, columns],
                1,
                p_full=values.p_full,
            )
            put_rows(tile, row, part)
            memory.count("WRITE_VALUES", count * (1 + 8 * values.p_full))
        done += count


def _close(memory: Memory, places: Places, sequence: int, head: int, block: int) -> None:
    """Quantises the 64 keys of a block, all read from memory, into KEYS."""
    model = places.model
    line = places.open_keys(sequence, head, block * BLOCK)
    rows = memory.read("READ_OPEN_KEYS", Region.OPEN_KEYS, line, BLOCK * 2 * model.head_tiles)
    keys = torch.from_numpy(rows.copy()).view(torch.bfloat16).unflatten(0, (BLOCK, -1))
    closed = to_image(quantize(keys.T, p_full=model.p_full), tiles_per_block=model.head_tiles)
    place = places.keys(sequence, head, block) * LINE_BYTES
    memory.write("WRITE_KEYS", Region.KEYS, place, closed)


def attend(fields: Fields, state: State, memory: Memory) -> None:
    """ATTEND.

    Raises:
        ValueError: Inf or NaN.
    """
    model, load = state.the_model, state.precision.kv
    tiles = model.heads * model.head_tiles
    queries = check_finite(state.words(fields["source"], tiles), "queries")
    target = state.words(fields["target"], tiles)
    places = Places(fields, model)
    first = 0
    for segment in state.segments:
        rows = slice(first, first + segment.rows)
        first = rows.stop
        laid = queries[rows].unflatten(-1, (model.kv_heads, model.group, -1))
        laid = laid.permute(1, 0, 2, 3).flatten(1, 2).unsqueeze(0)
        positions = torch.arange(segment.start, segment.start + segment.rows)
        mixed = attend_tiles(
            laid.contiguous(),
            positions.repeat_interleave(model.group).unsqueeze(0),
            _opened(memory, places, segment),
            _closed(memory, places, segment, load),
            _values(memory, places, segment, load),
        )
        mixed = mixed.squeeze(0).unflatten(1, (segment.rows, model.group)).transpose(0, 1)
        target[rows] = mixed.flatten(1)
        _count_passes(memory, state, segment, load.p)


def _blocks(segment: Segment) -> tuple[int, int]:
    """The least and the largest own block of the rows."""
    return segment.start // BLOCK, (segment.start + segment.rows - 1) // BLOCK


def _opened(memory: Memory, places: Places, segment: Segment) -> KeyTiles:
    """Keys from the start of the first row's block to the last row, in the open form.

    What lies behind the last row is not looked at: it may hold anything.
    """
    model = places.model
    least, most = _blocks(segment)
    line = places.open_keys(segment.sequence, 0, 0)
    lines = model.kv_heads * OPEN_ROWS * 2 * model.head_tiles
    ring = memory.at(Region.OPEN_KEYS, line * LINE_BYTES, lines * LINE_BYTES)
    ring_rows = torch.from_numpy(ring.copy()).view(torch.bfloat16)
    positions = torch.arange(least * BLOCK, segment.start + segment.rows)
    keys = ring_rows.unflatten(0, (model.kv_heads, OPEN_ROWS, -1))[:, positions % OPEN_ROWS]
    bfp = quantize(keys, group=model.head_width, p_full=OPEN_P)
    blocks = most - least + 1
    c = torch.zeros(model.kv_heads, blocks * BLOCK, model.head_width)
    exponents = torch.zeros(model.kv_heads, blocks * BLOCK, dtype=torch.int64)
    c[:, : len(positions)] = signed_weights(bfp.signs, bfp.magnitudes, midpoint=False).float()
    exponents[:, : len(positions)] = bfp.exponents.squeeze(-1).to(torch.int64) - 1
    return KeyTiles(
        c.unflatten(1, (blocks, BLOCK)).transpose(2, 3).unsqueeze(0).contiguous(),
        group_terms(torch.ones(1, 1, 1, 1, dtype=torch.uint8)),
        OPEN_P,
        exponents.view(1, model.kv_heads, blocks, 1, BLOCK),
    )


def _closed(memory: Memory, places: Places, segment: Segment, load: Load) -> KeyTiles | None:
    """Closed blocks before the last row's own, at p_kv."""
    model = places.model
    count = _blocks(segment)[1]
    if count == 0:
        return None
    heads = [
        _run(memory, Region.KEYS, places.keys(segment.sequence, head, 0), count, places.key_block)
        for head in range(model.kv_heads)
    ]
    loaded = load_blocks(np.stack(heads), model.head_tiles, load.p)
    if bool((loaded.exponents > EXPONENT_MAX).any()):
        raise ValueError("a block of keys has a shared exponent of 255")
    c = signed_weights(loaded.signs, loaded.magnitudes, load.midpoint).float()
    return KeyTiles(
        c.flatten(2, 3).unsqueeze(0),
        group_terms(loaded.exponents.flatten(2).unsqueeze(0)),
        load.p,
    )


def _values(memory: Memory, places: Places, segment: Segment, load: Load) -> ValueTiles:
    """Value tiles up to the last row's, at p_kv."""
    model = places.model
    count = _blocks(segment)[1] + 1
    heads = [
        [
            _run(
                memory,
                Region.VALUES,
                places.values(segment.sequence, head, n_tile, 0),
                count,
                model.tile_lines,
            )
            for n_tile in range(model.head_tiles)
        ]
        for head in range(model.kv_heads)
    ]
    loaded = load_blocks(np.stack([np.stack(tiles) for tiles in heads]), 1, load.p)
    c = signed_weights(loaded.signs, loaded.magnitudes, load.midpoint).float()
    # (heads, n-tiles, k-tiles, 1, 64, 64) to (1, heads, k-tiles, 64, d)
    c = c.squeeze(3).permute(0, 2, 3, 1, 4).flatten(3).unsqueeze(0)
    exponents = loaded.exponents.squeeze(3).permute(0, 2, 3, 1).unsqueeze(0)
    return ValueTiles(c.contiguous(), group_terms(exponents), load.p)


def _run(memory: Memory, region: Region, line: int, count: int, lines: int) -> Bytes:
    """Neighbouring blocks: uint8 (count, bytes of one)."""
    found = memory.at(region, line * LINE_BYTES, count * lines * LINE_BYTES)
    return found.reshape(count, lines * LINE_BYTES)


def passes(segment: Segment, rows: int) -> Iterator[Segment]:
    """The passes of a segment over one head, of so many positions each."""
    for first in range(0, segment.rows, rows):
        yield Segment(segment.sequence, segment.start + first, min(rows, segment.rows - first))


def _count_passes(memory: Memory, state: State, segment: Segment, p: int) -> None:
    """What the passes of a segment read, over all heads."""
    model = state.the_model
    unit = model.kv_heads * model.head_tiles * LINE_BYTES
    for each in passes(segment, state.shape.t_m // model.group):
        least, most = _blocks(each)
        rows = each.start + each.rows - least * BLOCK
        memory.count("READ_KEYS", unit * most * (1 + 8 * p))
        memory.count("READ_VALUES", unit * (most + 1) * (1 + 8 * p))
        memory.count("READ_OPEN_KEYS", unit * rows * 2)
