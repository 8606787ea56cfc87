"""Attention once more: one query row, element by element, in integers and exact fractions.

Written from contract sections 5 to 9 and 11, without a tensor and without the model's code. Keys
and values come as the BF16 codes that were written; the forms in which a row sees them are made
here, from the row's position alone. Floats are codes (ints).
"""

from __future__ import annotations

from tests.model.reference import (
    Group,
    aligned_tile,
    floor_shift,
    quantize_group,
    result,
    value,
)
from tests.model.special.reference import attended, exponential, fixed_score, floor

GUARD = 8
BLOCK = 64


def loaded(group: Group, place: int, p_full: int, p: int, midpoint: bool) -> int:
    """c of one number of a group: its sign and twice its loaded magnitude, or that plus one."""
    c = 2 * (group.magnitudes[place] // 2 ** (p_full - p)) + int(midpoint and p < p_full)
    return -c if group.signs[place] else c


class Sums:
    """R and A of one row under a running exponent: contract section 7."""

    def __init__(self, columns: int) -> None:
        self.running: int | None = None
        self.totals = [0] * columns

    def add(self, tile: list[int], x: int | None) -> None:
        if x is None:
            return
        if self.running is None:
            self.running = x
        if x > self.running:
            self.totals = [floor_shift(a, x - self.running) for a in self.totals]
            self.running = x
        shift = self.running - x
        self.totals = [
            a + floor_shift(i * 2**GUARD, shift) for a, i in zip(self.totals, tile, strict=True)
        ]

    def lower(self, places: int) -> None:
        if self.running is not None:
            self.running -= places


def key_scores(
    query: list[int], keys: list[list[int]], *, closed: bool, p: int, midpoint: bool
) -> list[int]:
    """FP32 codes of q . K for the keys of one block, 64 in closed form and any number in open."""
    width, count = len(query), len(keys)
    sums = Sums(count)
    if closed:
        groups = [quantize_group([key[k] for key in keys], 9) for k in range(width)]
    else:
        tokens = [quantize_group(key, 16) for key in keys]
    for first in range(0, width, 64):
        ks = range(first, min(width, first + 64))
        exponents = [groups[k].exponent if closed else 1 for k in ks]
        x, aligned = aligned_tile([query[k] for k in ks], exponents, GUARD)
        tile = []
        for n in range(count):
            c = [
                loaded(groups[k], n, 9, p, midpoint)
                if closed
                else loaded(tokens[n], k, 16, 16, False)
                for k in ks
            ]
            tile.append(sum(a * b for a, b in zip(aligned, c, strict=True)))
        sums.add(tile, x)
    return [
        result(
            total,
            sums.running,
            p=p if closed else 16,
            g=GUARD,
            f=GUARD,
            fmt="fp32",
            column_exponent=0 if closed else tokens[n].exponent - 1,
        )
        for n, total in enumerate(sums.totals)
    ]


def attention(
    query: list[int],
    position: int,
    keys: list[list[int]],
    values: list[list[int]],
    *,
    p: int,
    midpoint: bool,
) -> list[int]:
    """BF16 codes of one row's output.

    Args:
        query: d codes.
        position: of the row; -1 for a row that is none.
        keys, values: d codes of each token, those behind the position included.
        p, midpoint: the load of closed keys and of values.
    """
    width = len(query)
    own = position // BLOCK
    parts = [Sums(min(64, width - first)) for first in range(0, width, 64)]
    maximum, total = None, 0
    for block in range(own + 1 if position >= 0 else 0):
        last = min(position + 1, BLOCK * (block + 1))
        tokens = range(BLOCK * block, last)
        codes = key_scores(
            query, [keys[t] for t in tokens], closed=block < own, p=p, midpoint=midpoint
        )
        x = [fixed_score(code, width) for code in codes]
        highest = max(x) // 65536
        if maximum is None:
            maximum = highest
        rise = max(0, highest - maximum)
        maximum += rise
        total = floor_shift(total, rise)
        weights = [exponential(each - maximum * 65536) for each in x]
        total += sum(floor(value(code) * 2**32) for code in weights)
        for n_tile, sums in enumerate(parts):
            sums.lower(rise)
            columns = slice(64 * n_tile, min(width, 64 * (n_tile + 1)))
            groups = [quantize_group(values[t][columns], 9) for t in tokens]
            tile_exponent, aligned = aligned_tile(
                weights, [group.exponent for group in groups], GUARD
            )
            sums.add(
                [
                    sum(
                        a * loaded(group, n, 9, p, midpoint)
                        for a, group in zip(aligned, groups, strict=True)
                    )
                    for n in range(len(sums.totals))
                ],
                tile_exponent,
            )
    outputs = []
    for sums in parts:
        for each in sums.totals:
            code = result(each, sums.running, p=p, g=GUARD, f=GUARD, fmt="fp32")
            outputs.append(attended(code, total))
    return outputs
