"""The residual sum (contract section 11; ``model/datapath/special/residual.py``)."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import data

from hw.library import instantiate
from hw.special.elementwise import Elementwise, Lane
from hw.special.floats import Rounder, Unpack
from hw.special.layouts import BF16
from hw.special.sums import AlignedSum


class ResidualLane(Lane):
    """``x + y``, the exact sum rounded once; latency 2, one a cycle.

    Stages: the sum (:class:`~hw.special.sums.AlignedSum`); rounding.
    """

    module_name = "bsspec_residual_lane"
    label = "residual lane"
    operand_shape = data.StructLayout({"x": BF16, "y": BF16})
    result_shape = BF16
    latency = 2

    def elaborate(self, platform: object) -> Module:
        m = Module()
        x = instantiate(m, "x", Unpack, mantissa_bits=7, normal=False)
        y = instantiate(m, "y", Unpack, mantissa_bits=7, normal=False)
        total = instantiate(m, "sum", AlignedSum, width=8, least=7)
        m.d.comb += [
            x.number.eq(self.operand.x),
            y.number.eq(self.operand.y),
            self.refused.eq(x.refused | y.refused),
            total.swap.eq(y.exponent > x.exponent),
        ]
        for side, operand in (("x", x), ("y", y)):
            m.d.comb += [
                getattr(total, f"{side}_sign").eq(operand.sign),
                getattr(total, f"{side}_magnitude").eq(operand.significand),
                getattr(total, f"{side}_exponent").eq(operand.exponent),
            ]
        width = len(total.magnitude)
        rounder = instantiate(m, "rounder", Rounder, width=width, spread=width, exponent_bits=10)
        s1_exponent = self.register(m, "s1_exponent", total.exponent.shape(), total.exponent)
        m.d.comb += [
            rounder.sign.eq(self.register(m, "s1_sign", 1, total.sign)),
            rounder.magnitude.eq(self.register(m, "s1_magnitude", width, total.magnitude)),
            rounder.exponent.eq(s1_exponent - 134),
            self.result.eq(self.register(m, "s2_number", BF16, rounder.number)),
            self.overflow.eq(self.register(m, "s2_overflow", 1, rounder.overflow)),
        ]
        return m


class Residual(Elementwise):
    """Residual sum: beats of ``x`` and ``y`` to beats of BF16; see :class:`ResidualLane`."""

    module_name = "bsspec_residual"
    label = "residual sum"
    lane = ResidualLane
