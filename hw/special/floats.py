"""Floating-point numbers to integers and back: what all units of a slice begin and end with."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from hw.library import Unique
from hw.special.layouts import BF16, FP32

#: Signed width of an exponent of an unpacked number: -22 .. 254.
UNPACKED_EXPONENT_BITS = 9
#: Bits of a BF16 significand, and with them the bits of one on its way to being rounded: a guard
#: bit and a sticky bit more.
SIGNIFICAND_BITS = 8
ROUNDING_BITS = SIGNIFICAND_BITS + 2


def leading_one_up(m: Module, name: str, value: Value, spread: int) -> tuple[Value, Signal]:
    """``value`` shifted left until its leading one is at the top, and how far that was.

    Parameters
    ----------
    spread : int
        The leading one is among so many of the highest bits, or the value is 0.
    """
    levels = (spread - 1).bit_length()
    zeros = Signal(max(levels, 1), name=f"{name}_zeros")
    # From large steps to small ones.
    for level in reversed(range(levels)):
        step = 1 << level
        empty = Signal(name=f"{name}_empty_{step}")
        following = Signal(len(value), name=f"{name}_up_{step}")
        m.d.comb += [
            empty.eq(~value[len(value) - step :].any()),
            zeros[level].eq(empty),
            following.eq(Mux(empty, value << step, value)),
        ]
        value = following
    return value, zeros


def shift_right_sticky(m: Module, name: str, value: Value, amount: Value) -> Value:
    """``value >> amount`` with the lowest bit 1 where a 1 was shifted out."""
    width = len(value)
    for level in range(len(amount)):
        step = 1 << level
        lost = value[: min(step + 1, width)].any()
        following = Signal(width, name=f"{name}_right_{step}")
        moved = Cat(lost, (value >> (step + 1))[: width - 1])
        m.d.comb += following.eq(Mux(amount[level], moved, value))
        value = following
    return value


class Unpack(Unique):
    """A number to sign, significand and exponent; combinational.

    ``x = (-1)**sign * significand * 2**(exponent - offset)`` with offset 134 for BF16 and 150 for
    FP32. An Inf or NaN is ``refused`` and has significand 0.

    Parameters
    ----------
    mantissa_bits : int
        7 for BF16, 23 for FP32.
    normal : bool
        Whether subnormals are shifted too until their leading one is at the top; then ``exponent``
        falls below 1. Otherwise it is the effective exponent, 1 for subnormals and zeros.

    Members
    -------
    number -> sign, significand, exponent, refused
    """

    label = "unpacked number"
    sequential = False

    def __init__(self, *, mantissa_bits: int, normal: bool) -> None:
        if mantissa_bits not in (7, 23):
            raise ValueError(f"mantissa_bits must be 7 or 23, not {mantissa_bits!r}")
        self.normal = normal
        self.mantissa_bits = mantissa_bits
        self.module_name = f"bsspec_unpack_{mantissa_bits + 9}{'_normal' if normal else ''}"
        self.label = f"unpack {'BF16' if mantissa_bits == 7 else 'FP32'}" + (
            ", subnormals shifted" if normal else ""
        )
        super().__init__(
            {
                "number": In(BF16 if mantissa_bits == 7 else FP32),
                "sign": Out(1),
                "significand": Out(mantissa_bits + 1),
                "exponent": Out(signed(UNPACKED_EXPONENT_BITS)),
                "refused": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        number = self.number
        leading = Signal()
        effective = Signal(8)
        significand = Signal(self.mantissa_bits + 1)
        m.d.comb += [
            self.sign.eq(number.sign),
            self.refused.eq(number.exponent.all()),
            leading.eq(number.exponent.any()),
            effective.eq(Cat(number.exponent[0] | ~leading, number.exponent[1:])),
            significand.eq(
                Cat(number.mantissa, leading) & (~self.refused).replicate(self.mantissa_bits + 1)
            ),
        ]
        if self.normal:
            up, zeros = leading_one_up(m, "significand", significand, self.mantissa_bits + 1)
            m.d.comb += [self.significand.eq(up), self.exponent.eq(effective - zeros)]
        else:
            m.d.comb += [self.significand.eq(significand), self.exponent.eq(effective)]
        return m


class Rounder(Unique):
    """``(-1)**sign * magnitude * 2**exponent`` to BF16, nearest, ties to even; combinational.

    Subnormals are kept, a result that rounds to zero keeps its sign, a magnitude of 0 gives +0,
    overflow gives Inf and raises ``overflow``. The lowest bit of the magnitude may be a sticky
    bit, where that is below all that BF16 keeps.

    Parameters
    ----------
    width : int
        Bits of the magnitude.
    spread : int
        The leading one is among so many of its highest bits, or the magnitude is 0. That bounds
        the shifter.
    exponent_bits : int
        Signed width of the exponent.

    Members
    -------
    sign, magnitude, exponent -> number, overflow
    """

    sequential = False

    def __init__(self, *, width: int, spread: int, exponent_bits: int) -> None:
        if not 1 <= spread <= width:
            raise ValueError(f"spread must be 1 to {width}, the width, not {spread!r}")
        self.width = width
        self.spread = spread
        self.exponent_bits = exponent_bits
        self.module_name = f"bsspec_rounder_{width}_{spread}_{exponent_bits}"
        self.label = f"rounder of {width} bits"
        super().__init__(
            {
                "sign": In(1),
                "magnitude": In(width),
                "exponent": In(signed(exponent_bits)),
                "number": Out(BF16),
                "overflow": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        up, zeros = leading_one_up(m, "magnitude", self.magnitude, self.spread)
        if self.width < ROUNDING_BITS:
            up = Cat(Const(0, ROUNDING_BITS - self.width), up)
        cut = len(up) - ROUNDING_BITS + 1
        significand = Cat(up[:cut].any(), up[cut:])
        nonzero = up[-1]

        # Biased exponent of the leading one. Two bits more than the given one hold it: the bias
        # and the width add less than 256 to a range that reaches that far itself.
        exponent = Signal(signed(max(self.exponent_bits, 9) + 2))
        normal = Signal()
        shortfall = Signal(signed(len(exponent) + 1))
        amount = Signal(4)
        m.d.comb += [
            exponent.eq(self.exponent + (127 + self.width - 1) - zeros),
            normal.eq(exponent > 0),
            shortfall.eq(1 - exponent),
            # Ten bits are gone after ten places.
            amount.eq(Mux(normal, 0, Mux(shortfall[4:].any(), 15, shortfall[:4]))),
        ]
        aligned = shift_right_sticky(m, "subnormal", significand, amount)
        field = Signal(9)
        code = Signal(8 + SIGNIFICAND_BITS)
        infinite = Signal()
        m.d.comb += [
            field.eq(Mux(normal, exponent[:9], 0)),
            # A carry out of the fraction is one of the exponent, and a subnormal that becomes
            # normal needs no more than that.
            code.eq(Cat(aligned[2:9], field) + (aligned[1] & (aligned[0] | aligned[2]))),
            infinite.eq(nonzero & ((exponent > 254) | code[7:15].all())),
            self.overflow.eq(infinite),
        ]
        with m.If(infinite):
            m.d.comb += self.number.eq(Cat(Const(0x7F80, 15), self.sign))
        with m.Elif(nonzero):
            m.d.comb += self.number.eq(Cat(code[:15], self.sign))
        return m
