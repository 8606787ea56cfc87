"""The stepwise form of the exact data path: one output tile with every step visible by name.

For an engineer beside a wave: every folded and aligned activation, look-up table, decoded sign
pattern, look-up, plane sum, tile sum, running exponent and accumulator is an attribute, and
`Stepwise.describe` prints them. The tile sums really come from the look-up tables, and from the
folding to the accumulators no step shares code with the fast form, so that each checks the other.

Glossary (rows m, LUTs l = 0..15 of 4 activations each, columns n, planes):

    T(v)       signed sum v_0 a'_4l + .. + v_3 a'_4l+3, every v_i = +1 or -1
    v          as a number: bit i is 1 where v_i = -1, so v = 0 is the sum of all four
    half       the entries v = 0..7, with v_3 = +1; T(v) = -half[15 - v] for v = 8..15
    plane      0: the signs; 1..P: the magnitude bits, most significant first (P = p - 1)
    pattern    the v of a plane, LUT and column: the signs themselves in plane 0, then sign XNOR
               bit (a bit of 1 keeps the sign, a bit of 0 flips it)
    plane sum  S_plane = sum over the 16 LUTs of T(pattern)
    tile sum   I = 2^P S_0 + sum_b 2^b S_(P - b), less S_0 under truncate

Contract: sections 5 to 8.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from model.datapath.bounds import check_guard_bits, check_k
from model.datapath.describe import describe_result, describe_tile
from model.datapath.operands import check_column_exponents, check_operands
from model.formats.bf16 import check_finite, fields
from model.formats.bfp import Bfp, is_midpoint
from model.formats.checks import check_int, check_integers, check_p
from model.formats.constants import EXPONENT_MAX, MU, RESULT_OFFSET, TILE_K, TILE_N
from model.formats.floats import Rounded, float_format, round_scaled
from model.formats.planes import tile_counts

LUTS = TILE_K // MU
HALF = 1 << (MU - 1)


@dataclass(frozen=True, eq=False)
class TileSteps:
    """Every step of one k-tile. int64 throughout; "none" is 0 in X and R.

    Attributes:
        k_tile: which tile.
        activation_exponents: e_k, (M, 64).
        group_exponents: E_k, (64,).
        folded: eps_k = e_k + E_k, (M, 64); 0 where the term does not count.
        tile_exponent: X, (M,).
        aligned: a'_k, (M, 64).
        lut_half: T(0..7), (M, 16, 8).
        lut: T(0..15), (M, 16, 16).
        patterns: v of each look-up, (p, 16, 64): plane, LUT, column.
        lookups: T(v), (M, p, 16, 64): row, plane, LUT, column.
        plane_sums: sums of the look-ups over the LUTs, (M, p, 64).
        tile_sum: I_n, (M, 64).
        running_before, running: R, (M,).
        accumulators_before: A_n, (M, 64).
        shifted_accumulators: A_n >> (R' - R), (M, 64).
        addends: (I_n << f) >> (R' - X), (M, 64).
        accumulators: A_n after the tile, (M, 64).
    """

    k_tile: int
    activation_exponents: Tensor
    group_exponents: Tensor
    folded: Tensor
    tile_exponent: Tensor
    aligned: Tensor
    lut_half: Tensor
    lut: Tensor
    patterns: Tensor
    lookups: Tensor
    plane_sums: Tensor
    tile_sum: Tensor
    running_before: Tensor
    running: Tensor
    accumulators_before: Tensor
    shifted_accumulators: Tensor
    addends: Tensor
    accumulators: Tensor


@dataclass(frozen=True, eq=False)
class Stepwise:
    """One output tile of a product, step by step.

    Attributes:
        p, midpoint, g, f: the load and the guard bits.
        n_tile: which output tile; its columns are n = 64 n_tile .. 64 n_tile + 63.
        tiles: the k-tiles in ascending order.
        running: R at the end, int64 (M,); 0 for none.
        accumulators: A_n at the end, int64 (M, 64).
        column_exponents: r_n, int64 (64,).
    """

    p: int
    midpoint: bool
    g: int
    f: int
    n_tile: int
    tiles: tuple[TileSteps, ...]
    running: Tensor
    accumulators: Tensor
    column_exponents: Tensor

    @property
    def result_exponents(self) -> Tensor:
        """The power of two of each result's unit, int64 (M, 64)."""
        unit = RESULT_OFFSET + self.p + self.g + self.f
        return self.running.unsqueeze(-1) - unit + self.column_exponents

    def result(self, fmt: str = "bf16") -> Rounded:
        """y_n = A_n * 2^(R - 260 - p - g - f + r_n), rounded once: codes, overflow (M, 64).

        Columns beyond N, which are padding, give +0.
        """
        return round_scaled(self.accumulators, self.result_exponents, float_format(fmt))

    def describe(self, *, row: int = 0, column: int = 0, k_tile: int | None = None) -> str:
        """Text of every step of one row and column; of one k-tile or of all.

        Raises:
            TypeError, ValueError: an index out of range, by name.
        """
        check_int("row", row, 0, len(self.running) - 1)
        check_int("column", column, 0, TILE_N - 1)
        chosen = self.tiles
        if k_tile is not None:
            chosen = (self.tiles[check_int("k_tile", k_tile, 0, len(self.tiles) - 1)],)
        parts = [describe_tile(self, tile, row, column) for tile in chosen]
        return "\n\n".join([*parts, describe_result(self, row, column)])


def stepwise(
    activations: Tensor,
    weight: Bfp,
    *,
    p: int,
    n_tile: int = 0,
    reconstruct: str = "truncate",
    align_guard_bits: int = 8,
    acc_guard_bits: int = 8,
    column_exponents: Tensor | None = None,
) -> Stepwise:
    """Computes one output tile through the look-up tables, keeping every step.

    Args:
        activations: bfloat16 (M, K).
        weight: shape (K, N), groups of 64 along N.
        p: bits of the load, 2..p_full.
        n_tile: output tile, 0..ceil(N / 64) - 1.
        reconstruct: "truncate" or "midpoint" (the same at p = p_full).
        align_guard_bits: g, 0..16.
        acc_guard_bits: f, 0..16.
        column_exponents: r_n, integers (N,); 0 by default.

    Raises:
        TypeError, ValueError: as in `matmul`.
    """
    m, k, n = check_operands(activations, weight)
    check_finite(activations, "activations")
    check_integers("weight exponents", weight.exponents, 0, EXPONENT_MAX)
    check_p(p, weight.p_full)
    midpoint = is_midpoint(reconstruct, p, weight.p_full)
    g, f = check_guard_bits(align_guard_bits, acc_guard_bits)
    check_k(k, p, g, f)
    check_column_exponents(column_exponents, n)
    k_tiles, n_tiles = tile_counts(k, n)
    check_int("n_tile", n_tile, 0, n_tiles - 1)

    columns = slice(n_tile * TILE_N, min(n, (n_tile + 1) * TILE_N))
    running = torch.zeros(m, dtype=torch.int64)
    accumulators = torch.zeros(m, TILE_N, dtype=torch.int64)
    tiles = []
    for k_tile in range(k_tiles):
        rows = slice(k_tile * TILE_K, min(k, (k_tile + 1) * TILE_K))
        step = _tile(
            k_tile,
            _padded(activations[:, rows], (m, TILE_K)),
            _padded(weight.exponents[rows, n_tile], (TILE_K,)).to(torch.int64),
            _padded(weight.signs[rows, columns], (TILE_K, TILE_N)).to(torch.int64),
            _padded(weight.load(p)[rows, columns], (TILE_K, TILE_N)).to(torch.int64),
            (p, midpoint, g, f),
            running,
            accumulators,
        )
        running, accumulators = step.running, step.accumulators
        tiles.append(step)
    shifts = torch.zeros(TILE_N, dtype=torch.int64)
    if column_exponents is not None:
        shifts = _padded(column_exponents[columns], (TILE_N,)).to(torch.int64)
    return Stepwise(p, midpoint, g, f, n_tile, tuple(tiles), running, accumulators, shifts)


def _tile(
    k_tile: int,
    activations: Tensor,
    group_exponents: Tensor,
    signs: Tensor,
    magnitudes: Tensor,
    parameters: tuple[int, bool, int, int],
    running: Tensor,
    accumulators: Tensor,
) -> TileSteps:
    p, midpoint, g, f = parameters
    parts = fields(activations)
    exponents = parts.exponent.to(torch.int64)
    live = (parts.significand != 0) & (group_exponents != 0)
    folded = torch.where(live, exponents + group_exponents, 0)
    tile_exponent = folded.max(dim=-1).values
    distance = (tile_exponent.unsqueeze(-1) - folded).clamp_max(63)
    cut = (parts.significand.to(torch.int64) << g) >> distance
    aligned = torch.where(live, torch.where(parts.sign != 0, -cut, cut), 0)

    lut_half = half_tables(aligned)
    lut = full_tables(lut_half)
    patterns = plane_patterns(signs, magnitudes, p)
    lookups = _look_up(lut_half, patterns)
    plane_sums = lookups.sum(dim=2)
    # Most significant first, as the planes arrive: S_0 stands for 2^P S_0 / 2^P.
    tile_sum = plane_sums[:, 0]
    for plane in range(1, p):
        tile_sum = 2 * tile_sum + plane_sums[:, plane]
    if not midpoint:
        tile_sum = tile_sum - plane_sums[:, 0]

    latest = torch.where(tile_exponent > running, tile_exponent, running)
    shifted = accumulators >> (latest - running).clamp_max(63).unsqueeze(-1)
    addends = (tile_sum << f) >> (latest - tile_exponent).clamp_max(63).unsqueeze(-1)
    return TileSteps(
        k_tile=k_tile,
        activation_exponents=exponents,
        group_exponents=group_exponents,
        folded=folded,
        tile_exponent=tile_exponent,
        aligned=aligned,
        lut_half=lut_half,
        lut=lut,
        patterns=patterns,
        lookups=lookups,
        plane_sums=plane_sums,
        tile_sum=tile_sum,
        running_before=running,
        running=latest,
        accumulators_before=accumulators,
        shifted_accumulators=shifted,
        addends=addends,
        accumulators=shifted + addends,
    )


def half_tables(aligned: Tensor) -> Tensor:
    """T(0..7) of every LUT, (M, 16, 8), from a'_k, (M, 64)."""
    a0, a1, a2, a3 = aligned.reshape(-1, LUTS, MU).unbind(-1)
    entries = [
        (-a0 if v & 1 else a0) + (-a1 if v & 2 else a1) + (-a2 if v & 4 else a2) + a3
        for v in range(HALF)
    ]
    return torch.stack(entries, dim=-1)


def full_tables(lut_half: Tensor) -> Tensor:
    """T(0..15) of every LUT, (M, 16, 16), from T(0..7)."""
    return torch.cat([lut_half, -lut_half.flip(-1)], dim=-1)


def plane_patterns(signs: Tensor, magnitudes: Tensor, p: int) -> Tensor:
    """The v of each look-up, (p, 16, 64), from signs and q, (64, 64) [k, n]."""
    patterns = []
    for plane in range(p):
        flips = signs
        if plane > 0:
            bit = (magnitudes >> (p - 1 - plane)) & 1
            flips = 1 - (signs ^ bit)  # XNOR
        by_lut = flips.reshape(LUTS, MU, TILE_N)
        patterns.append(by_lut[:, 0] + 2 * by_lut[:, 1] + 4 * by_lut[:, 2] + 8 * by_lut[:, 3])
    return torch.stack(patterns)


def _look_up(lut_half: Tensor, patterns: Tensor) -> Tensor:
    """T(v) out of the half tables, (M, p, 16, 64)."""
    mirrored = patterns >= HALF
    entry = torch.where(mirrored, 2 * HALF - 1 - patterns, patterns)
    lut = torch.arange(LUTS).reshape(1, LUTS, 1)
    values = lut_half[:, lut, entry]
    return torch.where(mirrored, -values, values)


def _padded(values: Tensor, shape: tuple[int, ...]) -> Tensor:
    result = torch.zeros(shape, dtype=values.dtype)
    result[tuple(slice(0, size) for size in values.shape)] = values
    return result
