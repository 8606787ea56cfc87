"""RMSNorm: y = x / sqrt(mean(x^2) + eps) * w, also of a head's channels (QK-norm).

The hardware form, for each row:

1. For 64 elements at a time: X = the largest exponent of a non-zero one (none: skip the 64);
   a = (sig << 8) >> (X - e), 16 bits; S = sum of a^2, exact, 38 bits.
2. Across the 64s, a running exponent as in contract section 7, without guard bits and with
   doubled shifts, since a^2 is in units of 2^(2 X - 284):

       R' = max(R, X);  A' = (A >> 2 (R' - R)) + (S >> 2 (R' - X))

   A has 38 + ceil(log2(d / 64)) bits: 52 for the d of 2^20 that is the limit here.
3. Scalars of 24 significant bits, each step rounded to nearest, ties to even, with an exponent
   of 10 bits in place of FP32's 8 (squares of BF16 numbers span 2^-266 to 2^276):

       s = round(A 2^(2 R - 284));  mean = round(s * FP32(1/d));  z = round(mean + FP32(eps))

4. r = z^-1/2: z = m 4^h with m in 1..4; the table `rsqrt` has 64 segments for each parity of
   the exponent and reads the 16 bits below the leading one of z; r has 17 bits.
5. y = round(x * r * w), one rounding of the exact product of 8 + 17 + 8 bits.

No flush: subnormals are data. A product of 0 gives +0.

Contract: section 11.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from model.datapath.primitives import activation_terms, align_, tile_exponents
from model.datapath.special.exact import (
    check_dtype,
    check_numbers,
    is_hardware,
    look_up,
    round_24,
    rounded,
)
from model.formats.bf16 import check_finite
from model.formats.bfp import pow2
from model.formats.constants import EXPONENT_OFFSET, GROUP
from model.formats.special_tables import NORM_GUARD_BITS, rsqrt_table

#: Longest row.
WIDTH_MAX = 1 << 20

#: Least eps: the least normal FP32 number.
EPS_MIN = 2.0**-126

#: A sum of squares A is in units of 2^(2 R - 284).
SQUARE_OFFSET = 2 * (EXPONENT_OFFSET + NORM_GUARD_BITS)


def rms_norm(x: Tensor, weight: Tensor, eps: float, *, form: str) -> Tensor:
    """RMSNorm of rows.

    Args:
        x: bfloat16 (..., d), d up to 2^20; no multiple of 64 is asked for.
        weight: bfloat16 (d,).
        eps: added to the mean square, rounded to FP32; 2^-126..2^127.
        form: "reference" or "hardware".

    Returns:
        bfloat16 (..., d). Inf where the product overflows. The reference squares in FP32: it
        gives zeros for a row whose squares overflow (elements from 2^63 on).

    Raises:
        TypeError: an argument of another type.
        ValueError: an Inf or NaN, named by index; a shape, eps or form that does not fit.
    """
    hardware = is_hardware(form)
    check_dtype("x", x, torch.bfloat16)
    check_numbers("weight", weight)
    if x.dim() == 0:
        raise ValueError("x must have at least one dimension, not none")
    width = x.shape[-1]
    if weight.shape != (width,):
        raise ValueError(f"weight must have shape ({width},), not {tuple(weight.shape)}")
    if width > WIDTH_MAX:
        raise ValueError(f"x must have rows of at most {WIDTH_MAX} elements, not {width}")
    if not isinstance(eps, float):
        raise TypeError(f"eps must be a float, not {eps!r}")
    if not EPS_MIN <= eps <= 2.0**127:
        raise ValueError(f"eps must be in 2^-126..2^127, not {eps}")
    if x.numel() == 0:
        return torch.empty_like(x)
    if hardware:
        return _hardware(x, weight, eps)
    single = check_finite(x, "x").to(torch.float32)
    mean = single.square().mean(-1, keepdim=True)
    return (single * torch.rsqrt(mean + eps) * weight.to(torch.float32)).to(torch.bfloat16)


def _hardware(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    width = x.shape[-1]
    chunks = -(-width // GROUP)
    padded = torch.nn.functional.pad(x, (0, chunks * GROUP - width))
    terms = activation_terms(padded.unflatten(-1, (chunks, GROUP)))
    if bool(terms.refused.any()):
        check_finite(x, "x")
    exponents = tile_exponents(terms.exponents)
    aligned = align_(terms.values, exponents, NORM_GUARD_BITS)
    # Exact: 64 squares of 16 bits.
    sums = aligned.square_().sum(-1).to(torch.int64)
    total, running = accumulate_squares(sums, exponents)
    r = inverse_root(total, running, width, eps)
    # Exact: 8 + 17 + 8 bits.
    product = x.to(torch.float64).mul_(r.unsqueeze(-1)).mul_(weight.to(torch.float64))
    return rounded(product)


def accumulate_squares(sums: Tensor, exponents: Tensor) -> tuple[Tensor, Tensor]:
    """Step 2: sums of squares under a running exponent.

    Between two rises of R nothing is shifted, so a stretch of sums is added at once; the old
    sum is shifted where R rises in one of the rows (by 0 in the others).

    Args:
        sums: S, int64 (..., chunks), in ascending order; 0 where skipped.
        exponents: X, integers (..., chunks); 0 where skipped.

    Returns:
        A, int64 (...), and R, int64 (...); R is 0 if every chunk was skipped.
    """
    exponents = exponents.to(torch.int64)
    running = exponents.cummax(-1).values
    # 38 bits at most: a shift of 63 leaves nothing.
    sums = sums >> (running - exponents).mul_(2).clamp_max_(63)
    rises = running.diff(dim=-1)
    rows = rises.reshape(rises.shape[:-1].numel(), rises.shape[-1])
    where = rows.amax(0).nonzero().flatten().tolist()
    total = torch.zeros_like(running[..., 0])
    start = 0
    for rise in where:
        total += sums[..., start : rise + 1].sum(-1)
        total >>= (2 * rises[..., rise]).clamp_max_(63)
        start = rise + 1
    return total + sums[..., start:].sum(-1), running[..., -1]


def inverse_root(total: Tensor, running: Tensor, width: int, eps: float) -> Tensor:
    """Steps 3 and 4: r = (mean + eps)^-1/2.

    Args:
        total: A, int64.
        running: R, int64 of the same shape.
        width: d.
        eps: not yet rounded to FP32.

    Returns:
        r, float64 of the same shape: 17 bits times a power of two.
    """
    # A 2^(2 R - 284), exact: A has 52 bits.
    exact = total.to(torch.float64) * pow2(2 * running - SQUARE_OFFSET)
    mean = round_24(round_24(exact) * _single(1 / width))
    # Two numbers of 24 bits: their sum rounded to 53 bits and then to 24 is rounded rightly,
    # since 53 >= 2 * 24 + 2.
    z = round_24(mean + _single(eps))
    codes = z.view(torch.int64)
    exponents = (codes >> 52) - 1023
    table = rsqrt_table()
    # The index: parity of the exponent, then 16 bits below the leading one.
    fraction_bits = table.index_bits - 1
    fractions = (codes >> (52 - fraction_bits)) & ((1 << fraction_bits) - 1)
    values = look_up(table, ((exponents & 1) << fraction_bits) | fractions)
    return values.to(torch.float64) * pow2(-(exponents >> 1) - table.fraction_bits)


def _single(value: float) -> float:
    """`value` rounded to FP32 (normal numbers only)."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(math.ldexp(mantissa, 24)), exponent - 24)
