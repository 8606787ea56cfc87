"""Fields of BF16 and FP32 numbers, and exact rounding of scaled integers to them.

A finite number of either format is

    x = (-1)^sign * significand * 2^(exponent - offset)

with the leading one of `significand` explicit and `exponent` the *effective* biased exponent:
a subnormal has no leading one and exponent 1, a zero has significand 0.

Rounding starts from an integer and a power of two and happens once, in integer arithmetic:
BF16 is never reached through FP32.

Contract: sections 1 and 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from model.formats.checks import at, check_choice, check_integers, first_index


@dataclass(frozen=True)
class FloatFormat:
    """A binary floating-point format with 8 exponent bits.

    Attributes:
        name: as messages and arguments write it.
        significand_bits: bits of a significand, the leading one included.
        dtype: the torch type of its numbers.
        code_dtype: the unsigned torch type of its codes.
    """

    name: str
    significand_bits: int
    dtype: torch.dtype
    code_dtype: torch.dtype

    @property
    def fraction_bits(self) -> int:
        """Bits of a significand that are stored."""
        return self.significand_bits - 1

    @property
    def offset(self) -> int:
        """The number is significand * 2^(exponent - offset)."""
        return 127 + self.fraction_bits

    @property
    def sign_bit(self) -> int:
        """Position of the sign in a code."""
        return 8 + self.fraction_bits

    @property
    def infinity(self) -> int:
        """The code of +Inf; anything above it, sign aside, is NaN."""
        return 255 << self.fraction_bits


BF16 = FloatFormat("bf16", 8, torch.bfloat16, torch.uint16)
FP32 = FloatFormat("fp32", 24, torch.float32, torch.uint32)

_FORMATS = {"bf16": BF16, "fp32": FP32}


def float_format(name: str) -> FloatFormat:
    """The format called "bf16" or "fp32"; ValueError for any other name."""
    return _FORMATS[check_choice("format", name, tuple(_FORMATS))]


class Fields(NamedTuple):
    """Fields of floating-point numbers; every member has the shape of the numbers.

    Attributes:
        sign: int32, 1 for negative numbers and -0.
        significand: int32, leading one explicit; 0 for zeros.
        exponent: int32, the effective biased exponent: 1..254, 255 for Inf and NaN.
        finite: bool, false for Inf and NaN (whose significand has no meaning).
    """

    sign: Tensor
    significand: Tensor
    exponent: Tensor
    finite: Tensor

    def signed_significand(self) -> Tensor:
        """(-1)^sign * significand, int32."""
        return self.significand * (1 - 2 * self.sign)


def fields(values: Tensor) -> Fields:
    """Splits BF16 or FP32 numbers into their fields.

    Args:
        values: bfloat16 or float32, any shape.

    Raises:
        TypeError: any other type.
    """
    if values.dtype == torch.bfloat16:
        fmt, codes = BF16, values.contiguous().view(torch.int16).to(torch.int32)
    elif values.dtype == torch.float32:
        fmt, codes = FP32, values.contiguous().view(torch.int32)
    else:
        raise TypeError(f"values must be bfloat16 or float32, not {values.dtype}")
    stored = (codes >> fmt.fraction_bits) & 0xFF
    leading_one = (stored != 0).to(torch.int32) << fmt.fraction_bits
    return Fields(
        sign=(codes >> fmt.sign_bit) & 1,
        significand=(codes & ((1 << fmt.fraction_bits) - 1)) | leading_one,
        exponent=stored.clamp_min(1),
        finite=stored != 255,
    )


class Rounded(NamedTuple):
    """Rounded numbers as codes.

    Attributes:
        codes: int64, the bits of each number as a non-negative integer.
        overflow: bool, true where a finite value became Inf.
    """

    codes: Tensor
    overflow: Tensor


def _bit_length(magnitudes: Tensor) -> Tensor:
    """Bit lengths of int64 numbers in 0..2^63 - 1; 0 for 0."""
    _, length = torch.frexp(magnitudes.to(torch.float64))
    length = length.to(torch.int64)
    # The conversion may have rounded up to the next power of two.
    too_long = (magnitudes >> (length - 1).clamp(0, 62)) == 0
    return torch.where(too_long & (length > 0), length - 1, length)


def round_scaled(integers: Tensor, exponents: Tensor | int, fmt: FloatFormat | str) -> Rounded:
    """Rounds integers * 2^exponents once, to nearest, ties to even.

    Subnormals are kept; a non-zero value that rounds to zero keeps its sign; 0 gives +0;
    overflow is judged after rounding and gives Inf.

    Args:
        integers: int64, any shape; every |integer| below 2^63.
        exponents: an int or integers that broadcast to the same shape.
        fmt: BF16 or FP32, or its name.

    Returns:
        Codes and overflow, of the broadcast shape.

    Raises:
        TypeError: integers are not int64.
        ValueError: an integer is -2^63, which has no magnitude in 64 bits.
    """
    if isinstance(fmt, str):
        fmt = float_format(fmt)
    if integers.dtype != torch.int64:
        raise TypeError(f"integers must be int64, not {integers.dtype}")
    magnitudes = integers.abs()
    if magnitudes.numel() and int(magnitudes.min()) < 0:
        index = first_index(magnitudes < 0)
        raise ValueError(f"{at('integers', index)} must be above -2^63, not {-(1 << 63)}")
    if isinstance(exponents, Tensor):
        exponents = exponents.to(torch.int64)
    least = 1 - fmt.offset  # exponent of the last bit of a subnormal
    length = _bit_length(magnitudes)
    unit = (length + (exponents - fmt.significand_bits)).clamp_min(least)
    shift = unit - exponents  # bits to drop; negative: zeros to append
    kept = (magnitudes >> shift.clamp(0, 63)) << (-shift).clamp(0, 63)
    # Round to nearest. A shift beyond the length leaves less than half a unit: rounds to 0.
    near = (shift > 0) & (shift <= length)
    bit = torch.where(near, shift - 1, 0)
    half = torch.ones_like(bit) << bit
    rest = magnitudes & (2 * half - 1)
    up = near & ((rest > half) | ((rest == half) & (kept & 1 == 1)))
    kept = torch.where(shift > length, 0, kept + up.to(torch.int64))
    # A normal significand adds its leading one to the exponent field; so does a carry.
    codes = ((unit - least) << fmt.fraction_bits) + kept
    codes = torch.where(kept == 0, 0, codes)
    overflow = codes >= fmt.infinity
    codes = codes.clamp_max(fmt.infinity)
    return Rounded(codes | ((integers < 0).to(torch.int64) << fmt.sign_bit), overflow)


def from_codes(codes: Tensor, fmt: FloatFormat | str) -> Tensor:
    """The numbers whose codes are given, as bfloat16 or float32.

    Args:
        codes: any integer type, any shape, each code in 0..2^16 - 1 (or 2^32 - 1).

    Raises:
        TypeError: not a tensor of integers.
        ValueError: a code outside the range, named by index.
    """
    if isinstance(fmt, str):
        fmt = float_format(fmt)
    if codes.dtype == fmt.code_dtype:
        return codes.view(fmt.dtype)
    check_integers("codes", codes, 0, (2 << fmt.sign_bit) - 1)
    return codes.to(torch.int64).to(fmt.code_dtype).view(fmt.dtype)


def to_codes(values: Tensor) -> Tensor:
    """The codes of bfloat16 or float32 numbers, as uint16 or uint32.

    Raises:
        TypeError: any other type.
    """
    for fmt in _FORMATS.values():
        if values.dtype == fmt.dtype:
            return values.contiguous().view(fmt.code_dtype)
    raise TypeError(f"values must be bfloat16 or float32, not {values.dtype}")
