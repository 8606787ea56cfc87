"""Exact attention: rows of queries on block floating point keys and values.

One row is one query head at one position. Key tiles of 64 tokens come in ascending order; the
softmax runs over them with an integer running maximum M, so that nothing is rescaled: when M
rises by D, the exponent R of the P.V sums falls by D and the integer sum L is shifted by D.

    y      = q . K                                     FP32 (sections 5 to 8)
    x      = floor(y C 2^16)
    M      = max(M, floor(max x of the tile));  D = its rise
    R     -= D;  L >>= D
    P      = BF16(2^(x - M)), +0 for tokens behind the row's position
    L     += sum floor(P 2^32)
    A, R   = P.V accumulated (sections 5 and 7)
    o      = BF16(FP32(A) recip(L))                    after the last tile

A tile without a token at or below the row's position is skipped. All rows, heads and sequences
of a pass are computed side by side; no row looks at another, so the batch changes no bit.

Contract: sections 5 to 9 and 11; the key's form (closed or open) is the caller's choice by block.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from model.datapath.primitives import (
    BIAS,
    LEAST_EXPONENT,
    Terms,
    accumulate,
    activation_terms,
    align_,
    fold_exponents,
    fold_values,
    round_result,
    tile_exponents,
)
from model.datapath.special import attention_output, exponentials, fixed_scores, integer_sum
from model.formats.constants import TILE_K
from model.formats.floats import FP32

#: Guard bits of the aligner and of the accumulator (the machine's defaults).
GUARD_BITS = 8

#: A fixed-point score below every real one, so that it never makes a maximum.
_NEVER = -(1 << 40)


class KeyTiles(NamedTuple):
    """Key tiles of 64 tokens, in one of the two forms.

    Attributes:
        c: signed weights, float32 (batch, heads, tiles, d, 64).
        groups: terms of the shared exponents, (batch, heads, tiles, d), or (1, 1, 1, 1) where all
            are the same.
        p: bits of the load.
        column_exponents: r_n, int64 (batch, heads, tiles, 1, 64), or None for 0.
    """

    c: Tensor
    groups: Terms
    p: int
    column_exponents: Tensor | None = None


class ValueTiles(NamedTuple):
    """Value tiles: 64 tokens by the channels of a head.

    Attributes:
        c: signed weights, float32 (batch, heads, tiles, 64, d).
        groups: terms of the shared exponents, (batch, heads, tiles, 64, n-tiles).
        p: bits of the load.
    """

    c: Tensor
    groups: Terms
    p: int


def scores(queries: Tensor, keys: KeyTiles) -> Tensor:
    """y = q . K of every row and token of the tiles.

    Args:
        queries: bfloat16 (batch, heads, rows, d).
        keys: tiles.

    Returns:
        float32 (batch, heads, tiles, rows, 64).
    """
    rows = activation_terms(queries)
    d = queries.shape[-1]
    shape = (*keys.c.shape[:3], queries.shape[2])
    sums = torch.zeros(*shape, TILE_K, dtype=torch.int64)
    running = torch.zeros(shape, dtype=torch.int64)
    for first in range(0, d, TILE_K):
        ks = slice(first, min(d, first + TILE_K))
        row_exponents, row_values = rows.exponents[..., ks], rows.values[..., ks]
        group_exponents, group_values = keys.groups.exponents, keys.groups.values
        if group_exponents.shape[-1] > 1:
            group_exponents, group_values = group_exponents[..., ks], group_values[..., ks]
        eps = fold_exponents(row_exponents.unsqueeze(2), group_exponents.unsqueeze(3))
        tile_exponent = tile_exponents(eps).to(torch.int64)
        folded = fold_values(row_values.unsqueeze(2), group_values.unsqueeze(3))
        aligned = align_(folded, tile_exponent, GUARD_BITS)
        tile = (aligned @ keys.c[..., ks, :].to(torch.float64)).to(torch.int64)
        sums, running = accumulate(sums, running, tile, tile_exponent.expand(shape), GUARD_BITS)
    rounded = round_result(
        sums,
        running,
        p=keys.p,
        g=GUARD_BITS,
        f=GUARD_BITS,
        fmt=FP32,
        column_exponents=keys.column_exponents,
    )
    return rounded.numbers(FP32)


def own_blocks(positions: Tensor) -> Tensor:
    """The block of 64 tokens that each position lies in; -1 for a row that is none."""
    return torch.where(positions >= 0, positions // TILE_K, -1)


def attend(
    queries: Tensor,
    positions: Tensor,
    opened: KeyTiles,
    closed: KeyTiles | None,
    values: ValueTiles,
) -> Tensor:
    """Attention of rows that see their own block in the open form and those before it closed.

    Args:
        queries: bfloat16 (batch, heads, rows, d).
        positions: int64 (batch, rows), at least one of them a row; -1 for a row that is none.
        opened: tiles from the least own block of a row to the largest, T - 1.
        closed: tiles 0 .. T - 2; None where T is 1.
        values: tiles 0 .. T - 1.

    Returns:
        bfloat16 (batch, heads, rows, d); +0 for a row that is none.
    """
    own = own_blocks(positions)
    tiles = int(own.max()) + 1
    row_scores = torch.zeros(*queries.shape[:2], tiles, queries.shape[2], TILE_K)
    row_scores[:, :, tiles - opened.c.shape[2] :] = scores(queries, opened)
    if closed is not None:
        before = slice(0, tiles - 1)
        is_own = torch.arange(tiles - 1).view(-1, 1) == own.unsqueeze(1)
        row_scores[:, :, before] = torch.where(
            is_own[:, None, :, :, None], row_scores[:, :, before], scores(queries, closed)
        )
    return mix(row_scores, positions, values, queries.shape[-1])


def mix(row_scores: Tensor, positions: Tensor, values: ValueTiles, width: int) -> Tensor:
    """The softmax over key tiles and P.V: the rest of attention, from scores to its output.

    Args:
        row_scores: float32 (batch, heads, tiles, rows, 64), each token's score in the form that
            the row sees.
        positions: int64 (batch, rows): tokens behind it take no part; -1 for a row that is none.
        values: tiles.
        width: d_h.

    Returns:
        bfloat16 (batch, heads, rows, d_h); +0 for a row that is none.
    """
    tiles = row_scores.shape[2]
    tokens = torch.arange(tiles * TILE_K).view(tiles, 1, TILE_K)
    alive = (tokens <= positions[:, None, :, None])[:, None]  # (batch, 1, tiles, rows, 64)
    # The score of a token that takes no part may be anything, Inf too: it must not be looked at.
    x = fixed_scores(row_scores.masked_fill(~alive, 0.0), width).masked_fill_(~alive, _NEVER)
    maxima = x.amax(-1).cummax(2).values >> 16
    p = exponentials(x, maxima.unsqueeze(-1)).masked_fill_(~alive, 0.0)
    totals = integer_sum(p).sum(-1)
    rises = maxima.diff(dim=2)
    total = totals[:, :, 0]
    for tile in range(1, tiles):
        total = (total >> rises[:, :, tile - 1].clamp_max(63)) + totals[:, :, tile]

    rows = activation_terms(p)
    parts = []
    for n_tile in range(values.groups.exponents.shape[-1]):
        columns = slice(n_tile * TILE_K, min(width, (n_tile + 1) * TILE_K))
        groups = Terms(*(part[..., n_tile].unsqueeze(3) for part in values.groups))
        eps = fold_exponents(rows.exponents, groups.exponents)
        tile_exponent = tile_exponents(eps).to(torch.int64)
        aligned = align_(fold_values(rows.values, groups.values), tile_exponent, GUARD_BITS)
        sums = (aligned @ values.c[..., columns].to(torch.float64)).to(torch.int64)
        biased = torch.where(tile_exponent > 0, tile_exponent + BIAS, 0)
        result = torch.zeros_like(sums[:, :, 0])
        running = torch.zeros_like(biased[:, :, 0])
        for tile in range(tiles):
            if tile:
                running = torch.where(running > 0, running - rises[:, :, tile - 1], 0)
            result, running = accumulate(
                result, running, sums[:, :, tile], biased[:, :, tile], GUARD_BITS
            )
        exponents = (running - BIAS).clamp_min_(LEAST_EXPONENT)
        rounded = round_result(result, exponents, p=values.p, g=GUARD_BITS, f=GUARD_BITS, fmt=FP32)
        parts.append(rounded.numbers(FP32))
    return attention_output(torch.cat(parts, -1), total)
