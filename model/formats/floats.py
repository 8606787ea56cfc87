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

    def numbers(self, fmt: FloatFormat | str) -> Tensor:
        """The codes as bfloat16 or float32 numbers, in the format that they were rounded to."""
        if isinstance(fmt, str):
            fmt = float_format(fmt)
        return self.codes.to(fmt.code_dtype).view(fmt.dtype)


def round_scaled(integers: Tensor, exponents: Tensor | int, fmt: FloatFormat | str) -> Rounded:
    """Rounds integers * 2^exponents once, to nearest, ties to even.

    Subnormals are kept; a non-zero value that rounds to zero keeps its sign; 0 gives +0;
    overflow is judged after rounding and gives Inf.

    Args:
        integers: int64, any shape; every |integer| below 2^62.
        exponents: an int, or integers that broadcast to the shape of `integers`.
        fmt: BF16 or FP32, or its name.

    Returns:
        Codes and overflow, of the shape of `integers`.

    Raises:
        TypeError: integers are not int64.
        ValueError: an integer of 2^62 or more in magnitude, named by index.
    """
    if isinstance(fmt, str):
        fmt = float_format(fmt)
    if integers.dtype != torch.int64:
        raise TypeError(f"integers must be int64, not {integers.dtype}")
    magnitudes = integers.abs()
    _check_magnitudes(integers, magnitudes)
    # From 2^256 on every non-zero integer overflows either format.
    if isinstance(exponents, Tensor):
        exponents = exponents.to(torch.int64).clamp_max(256)
    else:
        exponents = min(exponents, 256)
    least = 1 - fmt.offset  # exponent of the last bit of a subnormal

    # The bit length is the exponent of the number as a float64 (far below all others for 0).
    # One that the conversion carries to the next power of two is within 2^-53 of it, and so
    # becomes that power at either length.
    length = (magnitudes.to(torch.float64).view(torch.int64) >> 52).sub_(1022)
    # The last bit to keep has this exponent; `shift` bits lie below it, or -shift are missing.
    unit = length.add_(exponents - fmt.significand_bits).clamp_min_(least)
    shift = unit - exponents
    missing = (-shift).clamp_(0, fmt.significand_bits)
    shift.clamp_(0, 63)
    # To nearest, ties to even: add half a unit less one, and one more where the unit is odd.
    kept = (magnitudes >> shift).bitwise_and_(1)
    kept.add_((torch.ones_like(shift) << shift).sub_(1)).bitwise_right_shift_(1)
    kept.add_(magnitudes).bitwise_right_shift_(shift).bitwise_left_shift_(missing)
    # A significand adds its leading one to the exponent field, and a carry one more.
    codes = unit.sub_(least).bitwise_left_shift_(fmt.fraction_bits).add_(kept)
    overflow = codes >= fmt.infinity
    codes.clamp_max_(fmt.infinity)
    codes.bitwise_or_((integers >> 63).bitwise_and_(1 << fmt.sign_bit))
    return Rounded(codes, overflow)


def _check_magnitudes(integers: Tensor, magnitudes: Tensor) -> None:
    """ValueError for an integer of 2^62 or more; -2^63 has a negative magnitude."""
    if integers.numel() == 0:
        return
    least, most = torch.aminmax(magnitudes)
    if int(least) < 0 or int(most) >= 1 << 62:
        index = first_index((magnitudes < 0) | (magnitudes >= 1 << 62))
        raise ValueError(
            f"{at('integers', index)} must be below 2^62 in magnitude, not {int(integers[index])}",
        )


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
