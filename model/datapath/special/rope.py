"""Rotary positions: a table of cosines and sines made by the host, and the rotation.

The table holds Q1.14 integers, rounded from float64 to nearest; both forms of the rotation read
it. The pair of channels (i, i + d/2) becomes

    y_i       = x_i c_i       - x_(i+d/2) s_i
    y_(i+d/2) = x_(i+d/2) c_i + x_i       s_i

In the hardware form the products are exact (8 bits by 15 bits and a sign), and so is their sum;
it is rounded once. How far apart the exponents of the two products are does not matter to the
result: the RTL keeps the smaller one's lost bits as a sticky bit.

Contract: section 11.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from model.datapath.special.exact import check_dtype, check_numbers, is_hardware, rounded
from model.formats.checks import check_int
from model.formats.special_tables import ROPE_FRACTION_BITS

_UNIT = 2.0**-ROPE_FRACTION_BITS


class Scaling(Protocol):
    """What `rope_table` reads of a scaling; `RopeScaling` is one."""

    @property
    def factor(self) -> float: ...
    @property
    def low_freq_factor(self) -> float: ...
    @property
    def high_freq_factor(self) -> float: ...
    @property
    def original_positions(self) -> int: ...


@dataclass(frozen=True)
class RopeScaling:
    """Scaling of frequencies as Llama 3.1 and later do it.

    Attributes:
        factor: frequencies of long waves are divided by it.
        low_freq_factor: waves longer than original_positions / low_freq_factor are long.
        high_freq_factor: waves shorter than original_positions / high_freq_factor are kept;
            those between are mixed.
        original_positions: positions of the first training.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_positions: int

    def __post_init__(self) -> None:
        if not 0 < self.low_freq_factor < self.high_freq_factor or self.factor <= 0:
            raise ValueError(
                "a scaling must have factor > 0 and 0 < low_freq_factor < high_freq_factor, not "
                f"{self.factor}, {self.low_freq_factor}, {self.high_freq_factor}"
            )
        check_int("original_positions", self.original_positions, 1, 1 << 31)


@dataclass(frozen=True, eq=False)
class RopeTable:
    """Cosines and sines of positions.

    Attributes:
        cosines, sines: int16 (count, width / 2), Q1.14: -16384..16384.
    """

    cosines: Tensor
    sines: Tensor


def rope_table(count: int, width: int, base: float, scaling: Scaling | None = None) -> RopeTable:
    """The table of positions 0..count - 1.

    Args:
        count: positions.
        width: d_h, channels of a head; even.
        base: the frequency of pair i is base^(-2 i / width) radians a position.
        scaling: of the frequencies; none by default.

    Raises:
        TypeError: count or width is not an int.
        ValueError: an argument out of range.
    """
    check_int("count", count, 0, 1 << 31)
    check_int("width", width, 2, 1 << 16)
    if width % 2:
        raise ValueError(f"width must be even, not {width}")
    if not 0 < base < math.inf:
        raise ValueError(f"base must be above 0 and finite, not {base}")
    frequencies = float(base) ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)
    if scaling is not None:
        frequencies = _scaled(frequencies, scaling)
    angles = torch.outer(torch.arange(count, dtype=torch.float64), frequencies)

    def integers(values: Tensor) -> Tensor:
        return values.mul_(1 << ROPE_FRACTION_BITS).round_().to(torch.int16)

    return RopeTable(integers(angles.cos()), integers(angles.sin()))


def _scaled(frequencies: Tensor, scaling: Scaling) -> Tensor:
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    # Waves that fit into the positions of the first training.
    waves = scaling.original_positions * frequencies / (2 * math.pi)
    # 0 for long waves, 1 for short ones, and the share of the kept frequency between.
    kept = ((waves - low) / (high - low)).clamp(0, 1)
    return (1 - kept) * frequencies / scaling.factor + kept * frequencies


def rotate(x: Tensor, cosines: Tensor, sines: Tensor, *, form: str) -> Tensor:
    """Rotates pairs of channels.

    Args:
        x: bfloat16 (..., d), d even.
        cosines, sines: int16 Q1.14, shapes that broadcast to (..., d / 2).
        form: "reference" or "hardware".

    Returns:
        bfloat16 (..., d).

    Raises:
        TypeError: an argument of another type.
        ValueError: an Inf or NaN, named by index; a shape or form that does not fit.
    """
    hardware = is_hardware(form)
    check_numbers("x", x)
    if x.dim() == 0 or x.shape[-1] % 2:
        raise ValueError(f"x must have an even last dimension, not shape {tuple(x.shape)}")
    half = (*x.shape[:-1], x.shape[-1] // 2)
    for name, table in (("cosines", cosines), ("sines", sines)):
        check_dtype(name, table, torch.int16)
        try:
            fits = torch.broadcast_shapes(table.shape, half) == half
        except RuntimeError:
            fits = False
        if not fits:
            raise ValueError(f"{name} must broadcast to {half}, not shape {tuple(table.shape)}")
    dtype = torch.float64 if hardware else torch.float32
    low, high = x.to(dtype).chunk(2, -1)
    c, s = cosines.to(dtype).mul_(_UNIT), sines.to(dtype).mul_(_UNIT)
    # 23 bits: exact in either type.
    first, second = (low * c, high * s), (high * c, low * s)
    if not hardware:
        return torch.cat([first[0] - first[1], second[0] + second[1]], -1).to(torch.bfloat16)
    left = torch.cat([first[0], second[0]], -1)
    right = torch.cat([first[1].neg_(), second[1]], -1)
    return rounded(sum_to_odd(left, right))


def sum_to_odd(left: Tensor, right: Tensor) -> Tensor:
    """left + right in float64, with the last bit 1 where bits were lost.

    A later rounding to fewer than 52 bits then gives what it would give for the exact sum. Of
    two numbers of 23 bits bits are lost only where the exponents are 30 or more apart.
    """
    total = left + right
    # Knuth's two-sum: what was lost, exactly.
    shifted = total - left
    lost = (left - (total - shifted)).add_(right - shifted)
    if bool(lost.any()):
        # The neighbour towards the exact sum is the odd one where the nearest is even.
        even = total.view(torch.int64) & 1 == 0
        towards = torch.where(lost > 0, math.inf, -math.inf).to(torch.float64)
        total = torch.where((lost != 0) & even, torch.nextafter(total, towards), total)
    return total
