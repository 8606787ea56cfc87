"""What the hardware forms share: exact numbers in float64, one rounding, table look-ups.

Operands of 8 bits (BF16), 17 bits (tables) and 24 bits (FP32) have exact products in float64 as
long as no more than 53 bits come together; each function says how many do. So a hardware form
computes in float64 what the RTL computes in integers, and rounds it once with
`model.formats.floats.round_scaled`.

Contract: sections 8, 11 and 12.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from model.formats.bf16 import check_finite
from model.formats.bfp import pow2
from model.formats.checks import check_choice, check_tensor
from model.formats.floats import BF16, round_scaled
from model.formats.special_tables import SegmentTable

#: The two forms of a function: torch float32, and what the RTL computes.
FORMS = ("reference", "hardware")


def is_hardware(form: str) -> bool:
    """Whether `form` is "hardware"; ValueError for neither form."""
    return check_choice("form", form, FORMS) == "hardware"


def check_dtype(name: str, values: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns `values`, a tensor of `dtype`; TypeError otherwise."""
    given = check_tensor(name, values).dtype
    if given != dtype:
        raise TypeError(f"{name} must be {dtype}, not {given}")
    return values


def check_numbers(name: str, values: Tensor, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Returns `values`, finite numbers of `dtype`.

    Raises:
        TypeError: another type.
        ValueError: an Inf or NaN, named by index.
    """
    return check_finite(check_dtype(name, values, dtype), name)


def check_shapes(name: str, values: Tensor, shape: torch.Size, like: str) -> None:
    """ValueError unless `values` has `shape`, that of the tensor called `like`."""
    if values.shape != shape:
        raise ValueError(
            f"{name} must have the shape of {like}, {tuple(shape)}, not {tuple(values.shape)}"
        )


def rounded(exact: Tensor) -> Tensor:
    """BF16 of exact float64 numbers, rounded once: to nearest, ties to even.

    Subnormals are kept, a number that rounds to zero keeps its sign, 0 and -0 give +0, overflow
    gives Inf (contract section 8).
    """
    mantissas, exponents = torch.frexp(exact)
    integers = mantissas.mul_(2.0**53).to(torch.int64)
    return round_scaled(integers, exponents - 53, BF16).numbers(BF16)


def round_24(exact: Tensor) -> Tensor:
    """Float64 numbers rounded to 24 significant bits, to nearest, ties to even.

    That is FP32 with an exponent that neither overflows nor has subnormals.
    """
    mantissas, exponents = torch.frexp(exact)
    return mantissas.to(torch.float32).to(torch.float64) * pow2(exponents.to(torch.int64))


@functools.cache
def _entries(table: SegmentTable) -> tuple[Tensor, Tensor]:
    """Bases and slopes, int64; slopes of a falling function are negative."""
    return torch.tensor(table.bases), torch.tensor(table.slopes)


def look_up(table: SegmentTable, index: Tensor) -> Tensor:
    """Values of a table, as `SegmentTable.value` gives them: int64 of the shape of `index`.

    Args:
        index: int64, 0..2^index_bits - 1.
    """
    bases, slopes = _entries(table)
    segment = index >> table.step_bits
    change = (index & ((1 << table.step_bits) - 1)).mul_(slopes[segment])
    change.bitwise_right_shift_(table.step_bits)
    return bases[segment] - change if table.falling else bases[segment] + change
