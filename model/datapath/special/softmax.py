"""Softmax in parts: scores to exponents, probabilities, their sum, and the division at the end.

One row is one query head at one position; key tiles come in ascending order. With y a score,
d_h the width of a head and C = log2(e) / sqrt(d_h) in 18 significant bits:

1. `fixed_scores`: x = floor(y C 2^16), from the exact product of 24 + 18 bits; |x| is clamped to
   2^31 - 1, so x is a signed number of 32 bits in units of 2^-16.
2. The running maximum M is the floor of the largest x / 2^16 so far: 16 bits, signed. When it
   rises by D, the caller takes D off the running exponent of P.V and shifts L right by D.
3. `exponentials`: P = BF16(2^(x - M)). With d = x - M 2^16, below 2^16, the table `exp2` reads the
   low 16 bits of d and gives 17 bits (1.16), which are rounded once to 8, ties to even; the
   exponent is d >> 16. Flushed: +0 where d < -126 2^16.
4. `integer_sum`: floor(P 2^32), of the rounded P; the caller sums these to L.
5. `attention_output`: o = BF16(sums * recip(L)). L = m 2^k with m in 1..2; the table `recip` reads
   the 16 bits below the leading one and gives 17 bits (0.17); the exact product of 24 + 17 bits is
   rounded once.

Contract: section 11.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from model.datapath.special.exact import check_dtype, check_numbers, look_up, rounded
from model.formats.bfp import pow2
from model.formats.checks import at, check_int, first_index
from model.formats.floats import BF16, round_scaled
from model.formats.special_tables import (
    EXP2_LEAST,
    EXPONENT_FRACTION_BITS,
    SUM_FRACTION_BITS,
    exp2_table,
    reciprocal_table,
    score_factor,
)

#: Clamp of |x|: x is a signed number of 32 bits.
SCORE_LIMIT = (1 << 31) - 1

#: Largest L: 2^20 probabilities of nearly 2, and one bit to spare.
TOTAL_LIMIT = (1 << 53) - 1

#: Widest head.
WIDTH_MAX = 1 << 16

_UNIT = 1 << EXPONENT_FRACTION_BITS


def fixed_scores(scores: Tensor, width: int) -> Tensor:
    """x = floor(y * C * 2^16), clamped to +-(2^31 - 1).

    Args:
        scores: y, float32, any shape.
        width: d_h, channels of a head.

    Returns:
        int64, the same shape, in units of 2^-16.

    Raises:
        TypeError: an argument of another type.
        ValueError: an Inf or NaN, named by index; a width out of range.
    """
    check_numbers("scores", scores, torch.float32)
    factor = score_factor(check_int("width", width, 1, WIDTH_MAX)).value
    # Exact: 24 + 18 bits.
    scaled = scores.to(torch.float64).mul_(factor * _UNIT).floor_()
    return scaled.clamp_(-SCORE_LIMIT, SCORE_LIMIT).to(torch.int64)


def exponentials(x: Tensor, maximum: Tensor | int) -> Tensor:
    """P = BF16(2^(x - M)), +0 where x - M is below -126.

    Args:
        x: int64 in units of 2^-16, any shape.
        maximum: M, int64 (or an int) in units of 1, broadcast to the shape of x; above
            x / 2^16 - 1.

    Returns:
        bfloat16, the shape of x: +0 or 2^-126..2.

    Raises:
        TypeError: an argument of another type.
        ValueError: an x that is 1 or more above M, named by index.
    """
    check_dtype("x", x, torch.int64)
    if isinstance(maximum, Tensor):
        check_dtype("maximum", maximum, torch.int64)
    below = x - maximum * _UNIT
    if below.numel() and int(below.max()) >= _UNIT:
        index = first_index(below >= _UNIT)
        raise ValueError(
            f"{at('x', index)} must be less than 1 (2^16) above the maximum, not "
            f"{int(below[index])} 2^-16 above it"
        )
    table = exp2_table()
    least = EXP2_LEAST * _UNIT
    values = look_up(table, below & (_UNIT - 1)).masked_fill_(below < least, 0)
    exponents = (below >> EXPONENT_FRACTION_BITS).clamp_min_(EXP2_LEAST - 1)
    return round_scaled(values, exponents.sub_(table.fraction_bits), BF16).numbers(BF16)


def integer_sum(p: Tensor) -> Tensor:
    """floor(P * 2^32), the part of each probability in the sum L.

    Args:
        p: bfloat16, any shape, 0..2.

    Returns:
        int64, the same shape, 0..2^33.

    Raises:
        TypeError: an argument of another type.
        ValueError: a P that is not in 0..2, named by index.
    """
    check_dtype("p", p, torch.bfloat16)
    if p.numel():
        least, most = torch.aminmax(p)
        if not (float(least) >= 0 and float(most) <= 2):  # a NaN is neither
            index = first_index(~((p >= 0) & (p <= 2)))
            raise ValueError(f"{at('p', index)} must be in 0..2, not {float(p[index])}")
    return p.to(torch.float64).mul_(2.0**SUM_FRACTION_BITS).to(torch.int64)


def attention_output(sums: Tensor, total: Tensor) -> Tensor:
    """o = BF16(sums * recip(L)).

    Args:
        sums: float32 (..., d): P.V, the sums of section 8 as FP32.
        total: L, int64 (...), 0..2^53 - 1, in units of 2^-32; 0 gives +0.

    Returns:
        bfloat16 (..., d); Inf where the product overflows.

    Raises:
        TypeError: an argument of another type.
        ValueError: an Inf or NaN, an L out of range, named by index; a shape that does not fit.
    """
    check_numbers("sums", sums, torch.float32)
    check_dtype("total", total, torch.int64)
    if sums.dim() == 0 or total.shape != sums.shape[:-1]:
        raise ValueError(
            f"total must have the shape of sums without its last dimension, "
            f"{tuple(sums.shape[:-1])}, not {tuple(total.shape)}"
        )
    if total.numel():
        least, most = torch.aminmax(total)
        if int(least) < 0 or int(most) > TOTAL_LIMIT:
            index = first_index((total < 0) | (total > TOTAL_LIMIT))
            raise ValueError(
                f"{at('total', index)} must be in 0..2^53 - 1, not {int(total[index])}"
            )
    # Exact: 24 + 17 bits.
    return rounded(sums.to(torch.float64).mul_(_reciprocals(total).unsqueeze(-1)))


def _reciprocals(total: Tensor) -> Tensor:
    """recip(L) in units of 1 (L in units of 2^-32), float64: 17 bits times a power of two."""
    table = reciprocal_table()
    codes = total.to(torch.float64).view(torch.int64)  # exact: the leading one is explicit
    index = (codes >> (52 - table.index_bits)) & ((1 << table.index_bits) - 1)
    scale = (SUM_FRACTION_BITS + 1023 - table.fraction_bits) - (codes >> 52)
    return (look_up(table, index) * pow2(scale)).masked_fill_(total == 0, 0.0)


def softmax_reference(scores: Tensor, width: int) -> Tensor:
    """Softmax of scores / sqrt(width) over the last dimension, in FP32.

    Args:
        scores: float32 (..., tokens); -Inf for a token that is masked.
        width: d_h, channels of a head.

    Returns:
        float32, the same shape; 0 for masked tokens, also where all of a row are.

    Raises:
        TypeError: an argument of another type.
        ValueError: a NaN or +Inf, named by index; a width out of range.
    """
    check_dtype("scores", scores, torch.float32)
    check_int("width", width, 1, WIDTH_MAX)
    bad = ~(scores < math.inf)
    if bool(bad.any()):
        index = first_index(bad)
        raise ValueError(
            f"{at('scores', index)} must be finite or -inf, not {float(scores[index])}"
        )
    shares = torch.softmax(scores / math.sqrt(width), -1)
    # A row without any token is 0 / 0.
    return shares.masked_fill_(torch.isnan(shares), 0.0)
