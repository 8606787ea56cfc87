"""Tiles for the benches: random ones with the corners that hide faults."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hw.config import RISE_BITS, TILE, Config
from sim.words import Array

#: Kinds of tiles; each is drawn for whole tiles, many are mixed in one run.
KINDS = (
    "plain",
    "wide",
    "subnormal",
    "outlier",
    "zero_groups",
    "zero_rows",
    "dead",
    "maximum",
    "cancelling",
    "residue",
    "sparse",
    "far_apart",
)


@dataclass
class Tile:
    """One tile as it enters the core.

    Attributes
    ----------
    activations : (t_m, 64) uint16, BF16 codes
    exponents : (64,) uint8
    signs, magnitudes : (64, 64) ``[k, n]``; magnitudes below ``2**(p - 1)``
    p, midpoint, first, last, context, fp32, rows : as in the tile's word
    scales : (64,) uint8 or None
    rises : of the rows
    """

    activations: Array
    exponents: Array
    signs: Array
    magnitudes: Array
    p: int
    midpoint: int = 0
    first: int = 1
    last: int = 1
    context: int = 0
    fp32: int = 0
    rows: int = 0
    scales: Array | None = field(default=None)
    rises: Sequence[int] = ()


def bf16(rng: np.random.Generator, shape: tuple[int, ...], low: int, high: int) -> Array:
    """BF16 codes with exponent fields ``low .. high`` and random signs and mantissas."""
    exponent = rng.integers(low, high + 1, shape)
    mantissa = rng.integers(0, 128, shape)
    sign = rng.integers(0, 2, shape)
    return ((sign << 15) | (exponent << 7) | mantissa).astype(np.uint16)


def random_rises(rng: np.random.Generator, rows: int) -> list[int]:
    """Rises of some rows or of none: by 1, by what an accumulator holds, beyond every exponent."""
    if rng.random() < 0.6:
        return []
    near, far = int(rng.integers(2, 70)), int(rng.integers(70, 640))
    return [int(rng.choice([0, 1, near, far, (1 << RISE_BITS) - 1])) for _ in range(rows)]


def aligned_rows(config: Config, rng: np.random.Generator, rows: int, length: int) -> Array:
    """Aligned activations, (rows, length): whole range, small, mostly zero, corners, pairs."""
    top = config.a_max
    result = np.zeros((rows, length), np.int64)
    for row in result:
        kind = rng.integers(0, 8)
        if kind < 3:
            row[:] = rng.integers(-top, top + 1, length)
        elif kind == 3:
            row[:] = rng.integers(-2, 3, length)
        elif kind == 4:
            row[rng.integers(0, length)] = rng.choice([-top, -1, 1, top])
        elif kind == 5:
            row[:] = top * rng.choice([-1, 1], length)
        elif kind == 6:
            row[:] = rng.choice([-top, -1, 0, 1, top], length)
        else:
            row[::2] = rng.integers(-top, top + 1, len(row[::2]))
            row[1::2] = -row[::2][: len(row[1::2])]
    return result


def tile(config: Config, rng: np.random.Generator, kind: str, p: int) -> Tile:
    """One tile of a kind; single-tile output by default, all rows."""
    t_m = config.t_m
    top = (1 << (p - 1)) - 1
    activations = bf16(rng, (t_m, 64), 118, 130)
    exponents = rng.integers(116, 126, 64).astype(np.uint8)
    signs = rng.integers(0, 2, (64, 64))
    magnitudes = rng.integers(0, top + 1, (64, 64))
    if kind == "wide":
        activations = bf16(rng, (t_m, 64), 1, 254)
        exponents = rng.integers(1, 255, 64).astype(np.uint8)
    elif kind == "subnormal":
        activations = bf16(rng, (t_m, 64), 0, 2)
        exponents = rng.integers(0, 4, 64).astype(np.uint8)
    elif kind == "outlier":
        row = rng.integers(0, t_m)
        activations[row, rng.integers(0, 64)] = bf16(rng, (), 150, 160)
        exponents[rng.integers(0, 64)] = 140
    elif kind == "zero_groups":
        exponents[rng.random(64) < 0.5] = 0
    elif kind == "zero_rows":
        activations[rng.random(t_m) < 0.5] = 0
        activations[rng.random((t_m, 64)) < 0.3] = 0x8000
    elif kind == "dead":
        exponents[:] = 0
    elif kind == "maximum":
        code = 0x7F7F if rng.random() < 0.5 else 0x40FF
        activations[:] = code
        exponents[:] = 254 if code == 0x7F7F else 130
        magnitudes[:] = top
        signs[:] = rng.integers(0, 2)
        signs[:, rng.random(64) < 0.3] ^= 1
    elif kind in ("cancelling", "residue"):
        exponents[1::2] = exponents[::2]
        activations[:, 1::2] = activations[:, ::2] ^ 0x8000
        signs[1::2] = signs[::2]
        magnitudes[1::2] = magnitudes[::2]
        if kind == "residue":
            # What is left of the sum is so small that FP32 shows its lowest bit.
            exponents[:] = 120
            activations[:, :60] = (activations[:, :60] & 0x807F) | (130 << 7)
            low = 130 - 8 - config.align_guard_bits
            activations[:, 60:] = bf16(rng, (t_m, 4), low + 1, low + 7)
            signs[60:] = rng.integers(0, 2, (4, 64))
            magnitudes[60:] = rng.integers(0, top + 1, (4, 64))
    elif kind == "sparse":
        magnitudes[rng.random((64, 64)) < 0.9] = 0
        activations[rng.random((t_m, 64)) < 0.8] = 0
    elif kind == "far_apart":
        exponents[:] = rng.choice([1, 40, 90, 127, 170, 230, 254])
    elif kind != "plain":
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    return Tile(activations, exponents, signs, magnitudes, p, rows=(1 << t_m) - 1, midpoint=0)


def outputs(
    config: Config, rng: np.random.Generator, count: int, *, interleave: bool = True
) -> list[Tile]:
    """Tiles of ``count`` output tiles, contexts interleaved, everything changing every tile."""
    pick = random.Random(int(rng.integers(1 << 30)))
    left = count
    open_tiles: dict[int, int] = {}
    result: list[Tile] = []
    settings: dict[int, tuple[int, int]] = {}
    risen: set[int] = set()
    while left or open_tiles:
        context = pick.randrange(config.contexts) if interleave else 0
        first = context not in open_tiles
        if first:
            if not left:
                context = pick.choice(list(open_tiles))
                first = False
            else:
                left -= 1
                open_tiles[context] = min(pick.choice((1, 1, 2, 3, 5)), config.max_k // TILE)
        p = pick.choice([5, 5, 6, 7, 8, 9, config.p_max, pick.randint(5, config.p_max)])
        if first:
            # One precision for an output tile, as the contract has it; modes may differ.
            settings[context] = (p, pick.randrange(2))
            risen.discard(context)
        p, fp32 = settings[context]
        made = tile(config, rng, pick.choice(KINDS), p)
        open_tiles[context] -= 1
        made.first = int(first)
        made.last = int(open_tiles[context] == 0)
        made.context = context
        made.fp32 = fp32
        made.midpoint = pick.randrange(2)
        made.rises = random_rises(rng, config.t_m)
        if made.rises:
            risen.add(context)
        if pick.random() < 0.3:
            made.rows = pick.getrandbits(config.t_m)
        if made.last:
            del open_tiles[context]
            if pick.random() < 0.3 and context not in risen:
                made.scales = rng.integers(0, 254, 64).astype(np.uint8)
        result.append(made)
    return result
