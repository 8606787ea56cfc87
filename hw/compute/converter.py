"""From an accumulator to a BF16 or FP32 number, rounded once (contract section 8)."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib.wiring import In, Out

from hw.compute.arithmetic import conditional_negate
from hw.compute.layouts import RESULT_EXPONENT_BITS
from hw.config import Config
from hw.library import Unique

#: Bits of an FP32 significand, leading one included.
SIGNIFICAND_BITS = 24


class Converter(Unique):
    """One result a cycle: ``acc * 2**(exponent - 260 - g - f)``, nearest, ties to even.

    Three register stages, all moved by ``advance``; latency 3. BF16 is rounded from the integer,
    never through FP32. Subnormals are kept, a result that rounds to zero keeps its sign, an
    accumulator of 0 gives +0, overflow gives Inf and raises ``overflow``.

    Stages: magnitude; leading one to the top (24 bits, a guard bit and a sticky bit stay);
    subnormal shift, rounding and packing.

    Members
    -------
    acc : accumulator
    exponent : ``R - p + r_n``
    fp32 : format of the number that is in the *last* stage
    code : FP32 code, or BF16 code in the low 16 bits
    """

    module_name = "bsspec_converter"
    label = "converter"

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "advance": In(1),
                "acc": In(signed(config.acc_width)),
                "exponent": In(signed(RESULT_EXPONENT_BITS)),
                "fp32": In(1),
                "code": Out(32),
                "overflow": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        # |acc| is below 2**(width - 1): the bound of contract section 7 is not a power of two.
        width = max(config.acc_width - 1, SIGNIFICAND_BITS + 2)

        # Stage 1: sign and magnitude.
        s1_sign = Signal(reset_less=True)
        s1_magnitude = Signal(width, reset_less=True)
        s1_exponent = Signal(signed(RESULT_EXPONENT_BITS), reset_less=True)
        sign = self.acc[-1]
        low = self.acc[:-1].as_unsigned()
        with m.If(self.advance):
            m.d.sync += [
                s1_sign.eq(sign),
                s1_magnitude.eq(conditional_negate(m, "magnitude", low, sign)[: len(low)]),
                s1_exponent.eq(self.exponent),
            ]

        # Stage 2: shift the leading one to the top, in steps from large to small.
        levels = (width - 1).bit_length()
        zeros = Signal(levels)
        shifted = s1_magnitude
        for level in reversed(range(levels)):
            step = 1 << level
            empty = Signal(name=f"empty_{step}")
            following = Signal(width, name=f"normal_{step}")
            m.d.comb += [
                empty.eq(~shifted[-step:].any()),
                zeros[level].eq(empty),
                following.eq(Mux(empty, shifted << step, shifted)),
            ]
            shifted = following
        s2_sign = Signal(reset_less=True)
        s2_significand = Signal(SIGNIFICAND_BITS + 2, reset_less=True)
        # Biased exponent of the leading one; its range: below.
        bias = 127 - 260 - config.align_guard_bits - config.acc_guard_bits + width - 1
        exponent_bits = RESULT_EXPONENT_BITS + 1
        s2_exponent = Signal(signed(exponent_bits), reset_less=True)
        kept = SIGNIFICAND_BITS + 1
        with m.If(self.advance):
            m.d.sync += [
                s2_sign.eq(s1_sign),
                s2_significand.eq(Cat(shifted[: width - kept].any(), shifted[width - kept :])),
                s2_exponent.eq(s1_exponent + bias - zeros),
            ]

        # Stage 3: below the normal range the significand moves right under exponent field 0.
        normal = Signal()
        nonzero = Signal()
        shortfall = Signal(signed(exponent_bits + 1))
        amount = Signal(5)
        m.d.comb += [
            normal.eq(s2_exponent > 0),
            nonzero.eq(s2_significand[-1]),
            shortfall.eq(1 - s2_exponent),
            amount.eq(Mux(normal, 0, Mux(shortfall[5:].any(), 31, shortfall[:5]))),
        ]
        aligned = s2_significand
        for level in range(len(amount)):
            step = 1 << level
            lost = aligned[: min(step + 1, len(aligned))].any()
            following = Signal(SIGNIFICAND_BITS + 2, name=f"subnormal_{step}")
            moved = Cat(lost, (aligned >> (step + 1))[: SIGNIFICAND_BITS + 1])
            m.d.comb += following.eq(Mux(amount[level], moved, aligned))
            aligned = following

        def rounded(bits: int) -> Signal:
            """Exponent field and fraction of a format with ``bits`` significand bits, rounded."""
            drop = SIGNIFICAND_BITS + 2 - bits
            code = Signal(8 + bits, name=f"code_{bits}")
            fraction = aligned[drop : drop + bits - 1]
            field = Signal(9, name=f"field_{bits}")
            half = aligned[drop - 1]
            sticky = aligned[: drop - 1].any()
            m.d.comb += [
                field.eq(Mux(normal, s2_exponent[:9], 0)),
                code.eq(Cat(fraction, field) + (half & (sticky | aligned[drop]))),
            ]
            return code

        code32 = rounded(SIGNIFICAND_BITS)
        code16 = rounded(8)
        infinite32 = Signal()
        infinite16 = Signal()
        too_large = Signal()
        m.d.comb += [
            too_large.eq(s2_exponent > 254),
            infinite32.eq(nonzero & (too_large | code32[23:31].all())),
            infinite16.eq(nonzero & (too_large | code16[7:15].all())),
        ]
        code = Signal(32, reset_less=True)
        overflow = Signal(reset_less=True)
        result32 = Mux(infinite32, 0x7F800000, code32[:31])
        result16 = Mux(infinite16, 0x7F80, code16[:15])
        with m.If(self.advance):
            m.d.sync += overflow.eq(Mux(self.fp32, infinite32, infinite16))
            with m.If(~nonzero):
                m.d.sync += code.eq(0)
            with m.Elif(self.fp32):
                m.d.sync += code.eq(Cat(result32[:31], s2_sign))
            with m.Else():
                m.d.sync += code.eq(Cat(result16[:15], s2_sign, Const(0, 16)))
        m.d.comb += [self.code.eq(code), self.overflow.eq(overflow)]
        return m
