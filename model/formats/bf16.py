"""BF16 numbers: codes, fields, and the one checked conversion from other floats.

Every tensor that enters the machine passes `to_bf16`: it rounds FP32, FP16 and FP64 once
(nearest, ties to even) and refuses what is not data, by name and index.

Contract: section 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from model.formats.checks import at, check_tensor, first_index
from model.formats.floats import BF16, Fields, Rounded, fields, round_scaled, to_codes
from model.formats.floats import from_codes as _from_codes

__all__ = [
    "Fields",
    "Rounded",
    "check_finite",
    "fields",
    "from_codes",
    "round_scaled",
    "to_bf16",
    "to_codes",
]

_FLOAT_DTYPES = (torch.bfloat16, torch.float32, torch.float16, torch.float64)


def from_codes(codes: Tensor) -> Tensor:
    """The BF16 numbers whose codes (any integer type, 0..65535) are given."""
    return _from_codes(codes, BF16)


def check_finite(values: Tensor, name: str = "values") -> Tensor:
    """Returns `values`; ValueError names the first Inf or NaN."""
    bad = ~torch.isfinite(values)
    if bool(bad.any()):
        index = first_index(bad)
        raise ValueError(f"{at(name, index)} must be finite, not {float(values[index])}")
    return values


def _round_float64(values: Tensor) -> Tensor:
    """BF16 of finite float64 numbers, rounded once (torch would go through float32)."""
    codes = values.contiguous().view(torch.int64)
    stored = (codes >> 52) & 0x7FF
    significand = (codes & ((1 << 52) - 1)) | ((stored != 0).to(torch.int64) << 52)
    integers = torch.where(codes < 0, -significand, significand)
    rounded = round_scaled(integers, stored.clamp_min(1) - 1075, BF16).codes
    # An integer has no -0.
    rounded = torch.where((significand == 0) & (codes < 0), 1 << BF16.sign_bit, rounded)
    return from_codes(rounded)


def to_bf16(values: Tensor, name: str = "values") -> Tensor:
    """Converts to BF16, rounding once to nearest, ties to even.

    Args:
        values: bfloat16, float32, float16 or float64, any shape.
        name: what messages call the tensor.

    Returns:
        bfloat16, the same shape; `values` itself where it is BF16 already.

    Raises:
        TypeError: another type.
        ValueError: an Inf or NaN, or a finite value that rounds to Inf, named by index.
    """
    check_tensor(name, values)
    if values.dtype not in _FLOAT_DTYPES:
        raise TypeError(
            f"{name} must be bfloat16, float32, float16 or float64, not {values.dtype}",
        )
    check_finite(values, name)
    if values.dtype == torch.bfloat16:
        return values
    result = _round_float64(values) if values.dtype == torch.float64 else values.bfloat16()
    overflow = torch.isinf(result)
    if bool(overflow.any()):
        index = first_index(overflow)
        raise ValueError(
            f"{at(name, index)} must round to a finite BF16 number (below 2^128 - 2^119 in "
            f"magnitude), not {float(values[index])!r}",
        )
    return result
