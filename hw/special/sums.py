"""The sum of two numbers with exponents of their own, exact but for a sticky bit."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib.wiring import In, Out

from hw.library import Unique
from hw.special.floats import SIGNIFICAND_BITS, UNPACKED_EXPONENT_BITS


class AlignedSum(Unique):
    """``x + y`` of sign, magnitude and exponent, to a sum of the same kind; combinational.

    The magnitude with the larger exponent moves left, so nothing is lost, up to ``reach`` places.
    Beyond that the other one is far below all that BF16 keeps, and counts as a sticky bit: 1 where
    it is not 0. Far below, because a magnitude with the larger exponent is 0 or at least
    ``2**least``. If it is 0 the sum is the other one.

    With the larger one at least ``2**(least + reach)`` and the other below ``2**(width - 1)`` in
    the same unit, at ``reach + 1`` places, the sum rounds as if exact if
    ``least + reach - (SIGNIFICAND_BITS + 2) >= width - 1``: that gives ``reach``.

    Parameters
    ----------
    width : int
        Bits of a magnitude.
    least : int
        See above.

    Members
    -------
    x_sign, x_magnitude, x_exponent, y_sign, y_magnitude, y_exponent
    swap
        Whether the exponent of y is the larger one.
    sign, magnitude, exponent
        The sum; ``sign`` has no meaning where the magnitude is 0.
    """

    label = "aligned sum"
    sequential = False

    def __init__(self, *, width: int, least: int) -> None:
        if not 0 <= least < width:
            raise ValueError(f"least must be 0 to {width - 1}, the width less 1, not {least!r}")
        self.width = width
        self.reach = width - 1 + SIGNIFICAND_BITS + 2 - least
        self.module_name = f"bsspec_aligned_sum_{width}"
        self.label = f"aligned sum of {width} bits"
        operand = {"sign": 1, "magnitude": width, "exponent": signed(UNPACKED_EXPONENT_BITS)}
        super().__init__(
            {
                **{f"{side}_{name}": In(s) for side in "xy" for name, s in operand.items()},
                "swap": In(1),
                "sign": Out(1),
                "magnitude": Out(width + self.reach + 1),
                "exponent": Out(signed(UNPACKED_EXPONENT_BITS)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width, reach = self.width, self.reach
        large_sign = Signal()
        small_sign = Signal()
        large = Signal(width)
        small = Signal(width)
        large_exponent = Signal(signed(UNPACKED_EXPONENT_BITS))
        small_exponent = Signal(signed(UNPACKED_EXPONENT_BITS))
        m.d.comb += [
            large_sign.eq(Mux(self.swap, self.y_sign, self.x_sign)),
            small_sign.eq(Mux(self.swap, self.x_sign, self.y_sign)),
            large.eq(Mux(self.swap, self.y_magnitude, self.x_magnitude)),
            small.eq(Mux(self.swap, self.x_magnitude, self.y_magnitude)),
            large_exponent.eq(Mux(self.swap, self.y_exponent, self.x_exponent)),
            small_exponent.eq(Mux(self.swap, self.x_exponent, self.y_exponent)),
        ]
        distance = Signal(UNPACKED_EXPONENT_BITS)
        far = Signal()
        places = Signal(reach.bit_length())
        moved = Signal(width + reach)
        kept = Signal(width)
        m.d.comb += [
            distance.eq(large_exponent - small_exponent),
            far.eq((distance > reach) & large.any()),
            places.eq(Mux(far, reach, distance[: len(places)])),
            moved.eq(large << places),
            kept.eq(Mux(far, small.any(), small)),
            self.exponent.eq(Mux(far, large_exponent - reach, small_exponent)),
        ]
        # One adder: the smaller is added or taken off; where that falls below zero, the sum has
        # the sign of the smaller and is negated.
        total = Signal(signed(width + reach + 2))
        negative = Signal()
        m.d.comb += [
            total.eq(Mux(large_sign ^ small_sign, moved - kept, moved + kept)),
            negative.eq(total[-1]),
            self.magnitude.eq(Mux(negative, -total, total)),
            self.sign.eq(Mux(negative, small_sign, large_sign)),
        ]
        return m
