"""Accumulators of whole products, vectorised over rows and output tiles.

Two routes give the same integers, and each row of activations takes one of them:

*In one sum.* The floors of contract section 7 lose nothing where no tile exponent of a row and
output tile lies more than f below the last running exponent R: whatever R was when a tile was
added, in all its sum I << f has been shifted by R - X <= f places, over zeros. Then

    A_n = sum over tiles of I_n 2^(f - (R - X)) = sum over all k of (a'_k 2^(f - (R - X))) c_kn

which is one product over K for each output tile, exact in float64 while the bound of |A_n| is
below 2^53. Nearly every row of a language model goes this way.

*Tile by tile.* All other rows (a tile holds an outlier that lifts R by more than f above another
tile's exponent): the sum of every tile, then the running exponent in ascending k.

The work is cut into spans of output tiles that fit the cache; no result depends on the cut.

Contract: sections 5 and 7.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from model.datapath.prepared import PreparedWeight
from model.datapath.primitives import (
    Terms,
    accumulate,
    align_,
    fold_exponents,
    fold_values,
    tile_exponents,
    tile_sums,
)
from model.formats.bfp import pow2
from model.formats.constants import TILE_K, TILE_N

#: Elements of a span's folded activations, and of its weights: 1 and 4 MiB as float64.
SPAN_ELEMENTS = 1 << 17
WEIGHT_ELEMENTS = 1 << 19

#: Reduction indices that one matrix product sums; more are added up product by product.
PRODUCT_K = 4096


def accumulated(
    rows: Terms, weight: PreparedWeight, *, g: int, f: int, one_sum_bound: int
) -> tuple[Tensor, Tensor]:
    """The accumulators and running exponents of a product.

    Args:
        rows: terms of the activations, (M, K padded).
        weight: the prepared load.
        g, f: guard bits of the aligner and of the accumulator.
        one_sum_bound: bound of |A_n| over the padded K.

    Returns:
        A, int64 (n-tiles, M, 64), and R, int16 (n-tiles, M), 0 for none.
    """
    n_tiles, padded_k, _ = weight.c.shape
    m = len(rows.values)
    if m == 0 or n_tiles == 0 or padded_k == 0:
        return (
            torch.zeros(n_tiles, m, TILE_N, dtype=torch.int64),
            torch.zeros(n_tiles, m, dtype=torch.int16),
        )
    exponents = _tile_exponents(rows, weight)
    running = exponents.amax(-1)
    distance = running.unsqueeze(-1) - exponents
    lossy = (distance > f) & (exponents > 0)
    in_one_sum = one_sum_bound < 1 << 53
    if in_one_sum and not bool(lossy.any()):
        return _in_one_sum(rows.values, exponents, distance, weight, g, f), running
    tile_by_tile = lossy.any(-1).any(0) if in_one_sum else torch.ones(m, dtype=torch.bool)
    accumulators = torch.empty(n_tiles, m, TILE_N, dtype=torch.int64)
    for chosen, route in ((~tile_by_tile, _in_one_sum), (tile_by_tile, _tile_by_tile)):
        index = chosen.nonzero().squeeze(-1)
        if len(index):
            accumulators[:, index] = route(
                rows.values[index], exponents[:, index], distance[:, index], weight, g, f
            )
    return accumulators, running


def _spans(n_tiles: int, elements: int, budget: int) -> Iterator[slice]:
    """Cuts `n_tiles` output tiles of `elements` each into spans of at most `budget`."""
    step = max(1, budget // max(elements, 1))
    for first in range(0, n_tiles, step):
        yield slice(first, min(n_tiles, first + step))


def _by_tile(values: Tensor) -> Tensor:
    """(..., K) as (..., k-tiles, 64)."""
    return values.unflatten(-1, (-1, TILE_K))


def _tile_exponents(rows: Terms, weight: PreparedWeight) -> Tensor:
    """X of every row and tile: int16 (n-tiles, M, k-tiles)."""
    n_tiles, padded_k, _ = weight.c.shape
    m = len(rows.exponents)
    result = torch.empty(n_tiles, m, padded_k // TILE_K, dtype=torch.int16)
    for span in _spans(n_tiles, m * padded_k, SPAN_ELEMENTS):
        folded = fold_exponents(rows.exponents, weight.group_exponents[span].unsqueeze(1))
        result[span] = tile_exponents(_by_tile(folded))
    return result


def _aligned(
    values: Tensor, exponents: Tensor, weight: PreparedWeight, span: slice, g: int
) -> Tensor:
    """a' of a span of output tiles: float64 (tiles of the span, M, k-tiles, 64)."""
    folded = fold_values(values, weight.group_values[span].unsqueeze(1))
    return align_(_by_tile(folded), exponents[span], g)


def _in_one_sum(
    values: Tensor,
    exponents: Tensor,
    distance: Tensor,
    weight: PreparedWeight,
    g: int,
    f: int,
) -> Tensor:
    """A of rows whose floors lose nothing: int64 (n-tiles, M, 64)."""
    n_tiles, padded_k, _ = weight.c.shape
    m = len(values)
    scale = pow2(f - distance.to(torch.int64)).mul_(weight.unit).unsqueeze(-1)
    sums = torch.empty(n_tiles, m, TILE_N, dtype=torch.float64)
    for span in _spans(n_tiles, m * padded_k, SPAN_ELEMENTS):
        scaled = _aligned(values, exponents, weight, span, g).mul_(scale[span]).flatten(-2)
        _add_products(scaled, weight.c[span], sums[span])
    return sums.to(torch.int64)


def _add_products(terms: Tensor, c: Tensor, sums: Tensor) -> None:
    """sums = terms @ c, with c converted a piece at a time: cheaper than reading it as float64.

    Args:
        terms: float64 (tiles, M, K).
        c: int16 (tiles, K, 64).
        sums: float64 (tiles, M, 64), overwritten.
    """
    tiles, padded_k, _ = c.shape
    piece_k = min(padded_k, PRODUCT_K)
    for span in _spans(tiles, piece_k * TILE_N, WEIGHT_ELEMENTS):
        for first in range(0, padded_k, piece_k):
            ks = slice(first, first + piece_k)
            torch.baddbmm(
                sums[span],
                terms[span, :, ks],
                c[span, ks].to(torch.float64),
                beta=1 if first else 0,
                out=sums[span],
            )


def _tile_by_tile(
    values: Tensor,
    exponents: Tensor,
    distance: Tensor,
    weight: PreparedWeight,
    g: int,
    f: int,
) -> Tensor:
    """A of any rows, through the sums of all tiles: int64 (n-tiles, M, 64)."""
    n_tiles, padded_k, _ = weight.c.shape
    m, k_tiles = len(values), padded_k // TILE_K
    result = torch.empty(n_tiles, m, TILE_N, dtype=torch.int64)
    for outer in _spans(n_tiles, m * padded_k, SPAN_ELEMENTS << 5):
        # (k-tile, n-tile, row, column), so that a step of the loop below reads one piece
        sums = torch.empty(k_tiles, outer.stop - outer.start, m, TILE_N, dtype=torch.int64)
        for inner in _spans(outer.stop - outer.start, m * padded_k, SPAN_ELEMENTS):
            span = slice(outer.start + inner.start, outer.start + inner.stop)
            aligned = _aligned(values, exponents, weight, span, g).mul_(weight.unit)
            for tile in range(span.start, span.stop):
                c = weight.c[tile].to(torch.float64).unflatten(0, (k_tiles, TILE_K))
                sums[:, tile - outer.start] = tile_sums(
                    aligned[tile - span.start].transpose(0, 1), c
                )
        accumulators = torch.zeros(outer.stop - outer.start, m, TILE_N, dtype=torch.int64)
        running = torch.zeros(outer.stop - outer.start, m, dtype=torch.int64)
        for tile in range(k_tiles):
            accumulators, running = accumulate(
                accumulators, running, sums[tile], exponents[outer, :, tile].to(torch.int64), f
            )
        result[outer] = accumulators
    return result
