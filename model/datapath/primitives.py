"""The steps of the exact data path, one function each.

The fast form and the tile machine call these functions; each step of contract sections 5, 7 and
8 has exactly one vectorised implementation, here.

    activation_terms, group_terms -> fold -> tile_exponents -> align -> tile_sums
        -> accumulate -> round_result

Exponents are small integers (int16). Folded activations, aligned activations and tile sums are
held in float64, where all of them are exact: a folded activation is 8 bits times a power of two
up to 2^508, an aligned one an integer below 2^24, and a tile sum at the widest (p 16, 16 guard
bits) an integer below 2^46. So the sums can run on the BLAS. Accumulators are int64.

A term that does not count (a zero or refused activation, an all-zero or refused group, a masked
row) has the value 0 and the exponent `DEAD`, which no live exponent can lift above 0; "no
exponent" is 0, below every live one (the least is 1 + 1).

Contract: sections 5, 7 and 8.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from model.formats.bfp import pow2
from model.formats.constants import EXPONENT_MAX, EXPONENT_OFFSET, RESULT_OFFSET
from model.formats.floats import FloatFormat, Rounded, round_scaled

#: Exponent of a term that does not count; far enough below 0 that a sum with it stays there.
DEAD = -4096


#: Where rises are taken off a running exponent it is kept this far above its value, since it may
#: fall below 0, which means "none".
BIAS = 1 << 20
#: Below this exponent nothing is left of any sum in FP32.
LEAST_EXPONENT = -1000


class Terms(NamedTuple):
    """One side of the products a_k * 2^E_k: activations, or shared exponents.

    Attributes:
        values: float64: (-1)^s sig 2^e of an activation, 2^E of a group; 0 where dead.
        exponents: int16: e or E; `DEAD` where dead.
        refused: bool: Inf or NaN, or an exponent of 255; these are dead.
    """

    values: Tensor
    exponents: Tensor
    refused: Tensor

    def where(self, mask: Tensor) -> Terms:
        """The terms where `mask` (which broadcasts) holds; dead ones, not refused, elsewhere."""
        return Terms(
            values=torch.where(mask, self.values, 0.0),
            exponents=torch.where(mask, self.exponents, DEAD),
            refused=self.refused & mask,
        )


def activation_terms(activations: Tensor) -> Terms:
    """The terms of activations: bfloat16, any shape."""
    codes = activations.contiguous().view(torch.int16)
    exponents = (codes >> 7).bitwise_and_(0xFF)
    refused = exponents == EXPONENT_MAX + 1
    dead = ((codes & 0x7FFF) == 0).logical_or_(refused)
    exponents.clamp_min_(1).masked_fill_(dead, DEAD)
    # Exact: a BF16 number is sig * 2^(e - 134), subnormals too.
    values = activations.to(torch.float64).mul_(2.0**EXPONENT_OFFSET)
    return Terms(values.masked_fill_(refused, 0.0), exponents, refused)


def group_terms(exponents: Tensor) -> Terms:
    """The terms of shared exponents: integers in 0..255, any shape."""
    wide = exponents.to(torch.int16)
    refused = wide > EXPONENT_MAX
    dead = (wide == 0) | refused
    values = pow2(wide.to(torch.int64)).masked_fill_(dead, 0.0)
    return Terms(values, wide.masked_fill(dead, DEAD), refused)


def fold_exponents(activations: Tensor, groups: Tensor) -> Tensor:
    """eps_k = e_k + E_k, int16 of the broadcast shape; not above 0 where a side is dead."""
    return activations + groups


def fold_values(activations: Tensor, groups: Tensor) -> Tensor:
    """(-1)^s_k sig_k 2^eps_k, float64 of the broadcast shape; 0 where a side is dead."""
    return activations * groups


def tile_exponents(folded: Tensor) -> Tensor:
    """The tile exponent X = max eps_k over the last dimension (64 k); 0 if no k is live.

    Args:
        folded: eps, int16 (..., 64).

    Returns:
        int16, (...).
    """
    return folded.amax(-1).clamp_min_(0)


def align_(folded: Tensor, tile_exponent: Tensor, g: int) -> Tensor:
    """a'_k = (-1)^s ((sig << g) >> (X - eps)), truncated toward zero, in place of `folded`.

    As a quotient of powers of two: a folded activation over 2^(X - g), truncated.

    Args:
        folded: folded values, float64 (..., 64).
        tile_exponent: X, integers (...).
        g: guard bits.

    Returns:
        `folded`, now integers below 2^(8 + g).
    """
    unit = pow2(tile_exponent.to(torch.int64) - g).unsqueeze(-1)
    return torch.div(folded, unit, rounding_mode="trunc", out=folded)


def signed_weights(signs: Tensor, magnitudes: Tensor, midpoint: bool) -> Tensor:
    """c = (-1)^s 2q, or (-1)^s (2q + 1) under midpoint: int32 of the same shape.

    Args:
        signs: integers 0 or 1.
        magnitudes: q, the loaded magnitudes.
        midpoint: which of the two.
    """
    doubled = 2 * magnitudes.to(torch.int32) + int(midpoint)
    return doubled * (1 - 2 * signs.to(torch.int32))


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
