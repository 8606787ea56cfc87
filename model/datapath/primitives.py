"""The steps of the exact data path, one function each.

The fast form, the tile machine and whoever else computes a product call these functions; each
step of contract sections 5, 7 and 8 has exactly one vectorised implementation, here.

    fold_exponents -> tile_exponents -> align -> tile_sums -> accumulate -> round_result

Exponents are small integers (int16). Aligned activations and tile sums are integers held in
float64, so that the sums can run on the BLAS: at the widest (p 16, 16 guard bits) a tile sum is
below 2^46, far from the 2^53 where float64 stops being exact. Accumulators are int64.

A term that does not count (a zero or refused activation, an all-zero or refused group, a masked
row) has exponent `DEAD`, which no live exponent can lift above 0; "no exponent" is 0, below
every live one (the least is 1 + 1).

Contract: sections 5, 7 and 8.
"""

from __future__ import annotations

import torch
from torch import Tensor

from model.formats.bf16 import fields
from model.formats.bfp import pow2
from model.formats.constants import EXPONENT_MAX, RESULT_OFFSET
from model.formats.floats import FloatFormat, Rounded, round_scaled

#: Exponent of a term that does not count; far enough below 0 that a sum with it stays there.
DEAD = -4096


def activation_terms(activations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Splits activations into what the aligner sees.

    Args:
        activations: bfloat16, any shape.

    Returns:
        Signed significands (float64, integers, 0 where dead), exponents (int16, `DEAD` where
        dead) and the refused ones (bool: Inf and NaN, which are dead), all of the same shape.
    """
    parts = fields(activations)
    live = parts.finite & (parts.significand != 0)
    significands = torch.where(live, parts.signed_significand(), 0).to(torch.float64)
    exponents = torch.where(live, parts.exponent, DEAD).to(torch.int16)
    return significands, exponents, ~parts.finite


def group_terms(exponents: Tensor) -> tuple[Tensor, Tensor]:
    """Shared exponents as the aligner sees them.

    Args:
        exponents: integers in 0..255, any shape.

    Returns:
        Exponents (int16, `DEAD` for all-zero and refused groups) and the refused ones (bool:
        255), of the same shape.
    """
    wide = exponents.to(torch.int16)
    refused = wide > EXPONENT_MAX
    return torch.where((wide == 0) | refused, DEAD, wide), refused


def fold_exponents(activation_exponents: Tensor, group_exponents: Tensor) -> Tensor:
    """eps_k = e_k + E_k (int16), of the broadcast shape; not above 0 where a side is dead."""
    return activation_exponents + group_exponents


def tile_exponents(folded: Tensor) -> Tensor:
    """The tile exponent X = max eps_k over the last dimension (64 k); 0 if no k is live.

    Args:
        folded: int16, (..., 64).

    Returns:
        int16, (...).
    """
    return folded.amax(-1).clamp_min(0)


def align(significands: Tensor, folded: Tensor, tile_exponent: Tensor, g: int) -> Tensor:
    """a'_k = (-1)^s ((sig << g) >> (X - eps)), truncated toward zero; 0 for dead terms.

    Args:
        significands: signed significands, float64 integers, broadcasts to `folded`.
        folded: eps, int16.
        tile_exponent: X, int16, broadcasts to `folded`.
        g: guard bits.

    Returns:
        float64 integers, the shape of `folded`.
    """
    # A significand has 8 bits, so at 2^-64 nothing of it is left above the point.
    shift = (folded - tile_exponent + g).clamp_min(-64)
    return (significands * pow2(shift.to(torch.int64))).trunc_()


def signed_weights(signs: Tensor, magnitudes: Tensor, midpoint: bool) -> Tensor:
    """c = (-1)^s 2q, or (-1)^s (2q + 1) under midpoint: int32 of the same shape.

    Args:
        signs: integers 0 or 1.
        magnitudes: q, the loaded magnitudes.
    """
    doubled = 2 * magnitudes.to(torch.int32) + int(midpoint)
    return torch.where(signs != 0, -doubled, doubled)


def tile_sums(aligned: Tensor, weights: Tensor) -> Tensor:
    """I_n = sum_k a'_k c_kn, exact.

    Args:
        aligned: float64 integers, (..., M, 64).
        weights: c, float64 integers, (..., 64, N).

    Returns:
        float64 integers, (..., M, N).
    """
    return aligned @ weights


def accumulate(
    accumulators: Tensor,
    running: Tensor,
    sums: Tensor,
    tile_exponent: Tensor,
    f: int,
) -> tuple[Tensor, Tensor]:
    """Adds tile sums to accumulators under a running exponent.

        R' = max(R, X);  A' = (A >> (R' - R)) + ((I << f) >> (R' - X))       floor shifts

    A skipped tile (X = 0, and so I = 0) changes nothing; a first one (R = 0, and so A = 0)
    sets R.

    Args:
        accumulators: A, int64, (..., N).
        running: R, integers, (...).
        sums: I, int64, (..., N).
        tile_exponent: X, integers, (...).
        f: guard bits.

    Returns:
        A' and R'.
    """
    latest = torch.maximum(running, tile_exponent)
    # At or beyond the width a floor shift leaves 0 or -1, and so does 63.
    old = (latest - running).to(torch.int64).clamp_max(63).unsqueeze(-1)
    new = (latest - tile_exponent).to(torch.int64).clamp_max(63).unsqueeze(-1)
    return (accumulators >> old) + ((sums << f) >> new), latest


def round_result(
    accumulators: Tensor,
    running: Tensor,
    *,
    p: int,
    g: int,
    f: int,
    fmt: FloatFormat,
    column_exponents: Tensor | None = None,
) -> Rounded:
    """y_n = A_n * 2^(R - 260 - p - g - f + r_n), rounded once.

    Args:
        accumulators: A, int64, (..., N).
        running: R, integers, (...); 0 for none.
        p, g, f: bits of the load, guard bits of the aligner and of the accumulator.
        fmt: format of the result.
        column_exponents: r_n, integers, (N,); 0 by default.

    Returns:
        Codes and overflow, (..., N).
    """
    exponents = running.to(torch.int64).unsqueeze(-1) - (RESULT_OFFSET + p + g + f)
    if column_exponents is not None:
        exponents = exponents + column_exponents.to(torch.int64)
    return round_scaled(accumulators, exponents, fmt)
