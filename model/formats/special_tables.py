"""Tables and constants of the special functions, as plain integers.

No torch here: `hw` reads this module, so that the RTL and the model hold the same numbers.

A function is a chord in each of its segments. An argument is an index of `segment_bits` bits
(the segment) and, below them, `step_bits` bits (the step within it):

    value(index) = base[segment] +- ((slope[segment] * step) >> step_bits)

The slope is the change of the chord over its segment in units of the value, rounded to the
integer that leaves the smaller error; the base is the integer that centres the error over the
segment, the floor of the shift included. Entries are made in decimal arithmetic with 40 digits,
so that they are the same on every machine. Values are within 2^-15.5 of the function.

    table   argument                          value           entries  base  slope  step
    exp2    2^f, f in 0..1, 16 bits           1.16, 1..2           64  16 b   11 b  10 b
    recip   1/m, m in 1..2, 16 bits           0.17, 1/2..1        128  16 b   10 b   9 b
    rsqrt   m^-1/2, m in 1..4: the parity     0.17, 1/2..1        128  16 b   10 b  10 b
            of the exponent and 16 bits

The leading one of a base is not stored.

Contract: section 11.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext

#: log2(e), to the digits of a float64.
LOG2_E = 1.4426950408889634

#: Significant bits of C = log2(e) / sqrt(d_h), the factor of the scores.
SCORE_FACTOR_BITS = 18

#: Significant bits of log2(e) before the exponential of SiLU: the largest product, 126, then is
#: off by no more than the last of its 16 fraction bits.
LOG2_E_BITS = 23

#: Fraction bits of an exponent: of the scores x, and of |g| log2(e).
EXPONENT_FRACTION_BITS = 16

#: 2^x is +0 below 2^-126: no subnormal probability.
EXP2_LEAST = -126

#: A probability P counts as floor(P * 2^32) in the sum L.
SUM_FRACTION_BITS = 32

#: Fraction bits of cosines and sines, Q1.14.
ROPE_FRACTION_BITS = 14

#: Guard bits below a significand in the sum of squares of RMSNorm.
NORM_GUARD_BITS = 8

#: Parts of a segment at whose ends which the error is centred.
_POINTS = 16

_DIGITS = 40


@dataclass(frozen=True)
class SegmentTable:
    """A function in linear segments.

    Attributes:
        name: as comments and errors write it.
        segment_bits: bits of the index that select the segment.
        step_bits: bits of the index below them.
        fraction_bits: the value is an integer in units of 2^-fraction_bits.
        falling: whether the slope is taken off.
        bases: value at step 0, one for each segment.
        slopes: change over a segment, one for each, not negative.
    """

    name: str
    segment_bits: int
    step_bits: int
    fraction_bits: int
    falling: bool
    bases: tuple[int, ...]
    slopes: tuple[int, ...]

    @property
    def index_bits(self) -> int:
        """Bits of the argument, segment and step."""
        return self.segment_bits + self.step_bits

    @property
    def base_bits(self) -> int:
        """Stored bits of a base, without the leading one that all bases share."""
        return max(self.bases).bit_length() - 1

    @property
    def slope_bits(self) -> int:
        """Stored bits of a slope."""
        return max(self.slopes).bit_length()

    @property
    def bits(self) -> int:
        """Stored bits of the table."""
        return len(self.bases) * (self.base_bits + self.slope_bits)

    def value(self, index: int) -> int:
        """The value of one index, 0..2^index_bits - 1."""
        segment, step = index >> self.step_bits, index & ((1 << self.step_bits) - 1)
        change = (self.slopes[segment] * step) >> self.step_bits
        return self.bases[segment] - change if self.falling else self.bases[segment] + change


def _table(
    name: str,
    function: Callable[[Decimal], Decimal],
    *,
    segment_bits: int,
    step_bits: int,
    fraction_bits: int,
    falling: bool,
    cut: bool,
) -> SegmentTable:
    """Makes a table.

    Args:
        function: of the index in units of a segment, 0..2^segment_bits.
        cut: whether bits of the argument below the step are cut off; an index then stands for
            the middle of its interval.
    """
    steps = 1 << step_bits
    bases, slopes = [], []
    with localcontext() as context:
        context.prec = _DIGITS
        scale = Decimal(2) ** fraction_bits
        half = Decimal(1) / 2
        centre = half / steps if cut else Decimal(0)
        sign = -1 if falling else 1
        for segment in range(1 << segment_bits):
            start = segment + centre
            chord = int(sign * (function(start + 1) - function(start)) * scale)
            points = [Decimal(point) / _POINTS for point in range(_POINTS + 1)]
            exact = [function(start + point) * scale for point in points]
            found = []
            for slope in (chord, chord + 1):
                # What the base would have to be at each point.
                wanted = [
                    value - sign * slope * point for value, point in zip(exact, points, strict=True)
                ]
                found.append((max(wanted) - min(wanted), slope, (max(wanted) + min(wanted)) / 2))
            _, slope, base = min(found)
            # The floor takes half a unit off the change, on average.
            bases.append(int(base + sign * half + half))
            slopes.append(slope)
    return SegmentTable(
        name=name,
        segment_bits=segment_bits,
        step_bits=step_bits,
        fraction_bits=fraction_bits,
        falling=falling,
        bases=tuple(bases),
        slopes=tuple(slopes),
    )


@functools.cache
def exp2_table() -> SegmentTable:
    """2^f for a fraction f of 16 bits: 1.16, from 2^16 to below 2^17."""
    return _table(
        "exp2",
        lambda index: Decimal(2) ** (index / 64),
        segment_bits=6,
        step_bits=10,
        fraction_bits=16,
        falling=False,
        cut=False,
    )


@functools.cache
def reciprocal_table() -> SegmentTable:
    """1 / (1 + f) for a fraction f of 16 bits: 0.17, from 2^16 to below 2^17."""
    return _table(
        "recip",
        lambda index: 1 / (1 + index / 128),
        segment_bits=7,
        step_bits=9,
        fraction_bits=17,
        falling=True,
        cut=True,
    )


@functools.cache
def rsqrt_table() -> SegmentTable:
    """m^-1/2 for m = (1 + f) 2^odd, index (odd, f) of 1 + 16 bits: 0.17, 2^16 to below 2^17."""

    def function(index: Decimal) -> Decimal:
        m = 1 + index / 64 if index < 64 else 2 * (1 + (index - 64) / 64)
        return 1 / m.sqrt()

    return _table(
        "rsqrt",
        function,
        segment_bits=7,
        step_bits=10,
        fraction_bits=17,
        falling=True,
        cut=True,
    )


@dataclass(frozen=True)
class Factor:
    """A positive constant of few significant bits, integer * 2^exponent."""

    integer: int
    exponent: int

    @property
    def value(self) -> float:
        """The constant, exact."""
        return math.ldexp(self.integer, self.exponent)


def _factor(value: float, bits: int) -> Factor:
    """`value` rounded to `bits` significant bits, to nearest."""
    mantissa, exponent = math.frexp(value)
    return Factor(round(math.ldexp(mantissa, bits)), exponent - bits)


@functools.cache
def score_factor(width: int) -> Factor:
    """C = log2(e) / sqrt(width), 18 significant bits.

    Args:
        width: d_h, channels of a head, at least 1.
    """
    return _factor(LOG2_E / math.sqrt(width), SCORE_FACTOR_BITS)


@functools.cache
def log2_e_factor() -> Factor:
    """log2(e), 23 significant bits."""
    return _factor(LOG2_E, LOG2_E_BITS)
