"""SiLU of the gate, times up (contract section 11; ``model/datapath/special/silu.py``)."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data

from hw.library import instantiate
from hw.special.elementwise import Elementwise, Lane
from hw.special.floats import Rounder, Unpack
from hw.special.layouts import BF16
from hw.special.tables import SegmentTable
from model.formats.special_tables import (
    EXP2_LEAST,
    EXPONENT_FRACTION_BITS,
    LOG2_E_BITS,
    exp2_table,
    log2_e_factor,
    reciprocal_table,
)

#: v = |g| log2(e) in units of 2^-16 is of interest up to 126, beyond which 2^-v is 0: 23 bits.
_FIXED_BITS = (-EXP2_LEAST).bit_length() + EXPONENT_FRACTION_BITS
#: The product of the two significands and log2(e) has 31 bits and, for a normal gate, at least 30.
_SCALED_BITS = 8 + LOG2_E_BITS
#: |g| log2(e) 2^16 is that product shifted right by _SHIFT - e.
_SHIFT = 134 - EXPONENT_FRACTION_BITS - log2_e_factor().exponent
#: Width of the exponent of the product, in units of 1: both unpacked exponents and that of 2^-v.
_EXPONENT_BITS = 11


class SiluLane(Lane):
    """``y = g / (1 + e^-g) * u``, rounded once; latency 4, one a cycle.

    Stages: ``v = floor(|g| log2(e) 2^16)`` (8 by 23 bits) and g by u (16 bits); ``t = 2^-v`` from
    ``exp2``; ``s = 1 / (1 + t)`` from ``recip``; the factor of g, 18 bits (``s``, or ``s t`` for
    g < 0), times g by u, 34 bits, rounded.

    Flushed: t = 0 where v is above 126, so y = +0 where g <= -87.5.
    """

    module_name = "bsspec_silu_lane"
    label = "SiLU lane"
    operand_shape = data.StructLayout({"gate": BF16, "up": BF16})
    result_shape = BF16
    latency = 4

    def elaborate(self, platform: object) -> Module:
        m = Module()
        gate = instantiate(m, "gate", Unpack, mantissa_bits=7, normal=True)
        up = instantiate(m, "up", Unpack, mantissa_bits=7, normal=True)
        m.d.comb += [
            gate.number.eq(self.operand.gate),
            up.number.eq(self.operand.up),
            self.refused.eq(gate.refused | up.refused),
        ]

        # Stage 1. A shift by fewer than 30 - 23 places leaves a number beyond the flush border,
        # whatever the significand. What becomes of a gate of 0 or a refused one does not matter:
        # its product with u is 0.
        shift = Signal(signed(10))
        scaled = Signal(_SCALED_BITS)
        least_shift = _SCALED_BITS - 1 - _FIXED_BITS
        shifted = Signal(_FIXED_BITS + 1)
        far = Signal()
        flushed = Signal()
        m.d.comb += [
            scaled.eq(gate.significand * log2_e_factor().integer),
            shift.eq(_SHIFT - least_shift - gate.exponent),
            far.eq(shift[5:9].any()),
            shifted.eq(Mux(far, 0, scaled[least_shift:] >> shift[:5])),
            flushed.eq((shift < 0) | (shifted > (-EXP2_LEAST << EXPONENT_FRACTION_BITS))),
        ]
        fixed = self.register(m, "s1_fixed", _FIXED_BITS, shifted)
        s1_flushed = self.register(m, "s1_flushed", 1, flushed)
        s1_negative = self.register(m, "s1_negative", 1, gate.sign)
        s1_sign = self.register(m, "s1_sign", 1, gate.sign ^ up.sign)
        s1_product = self.register(m, "s1_product", 16, gate.significand * up.significand)
        s1_exponent = self.register(
            m, "s1_exponent", signed(10), gate.exponent + up.exponent - 2 * 134
        )

        # Stage 2: -v as a fraction and an integer below it, n = -drop.
        minus = Signal(signed(_FIXED_BITS + 1))
        exp2 = instantiate(m, "exp2", SegmentTable, function="exp2")
        m.d.comb += [
            minus.eq(-fixed),
            exp2.index.eq(minus[:EXPONENT_FRACTION_BITS]),
        ]
        drop_bits = _FIXED_BITS - EXPONENT_FRACTION_BITS
        drop = Signal(drop_bits)
        m.d.comb += drop.eq(-(minus >> EXPONENT_FRACTION_BITS))
        value_bits = exp2_table().fraction_bits + 1
        power = self.register(m, "s2_power", value_bits, Mux(s1_flushed, 0, exp2.value))
        s2_drop = self.register(m, "s2_drop", drop_bits, drop)
        s2_negative = self.register(m, "s2_negative", 1, s1_negative)
        s2_sign = self.register(m, "s2_sign", 1, s1_sign)
        s2_product = self.register(m, "s2_product", 16, s1_product)
        s2_exponent = self.register(m, "s2_exponent", signed(10), s1_exponent)

        # Stage 3: the fraction bits of 1 + t; t = 1 counts as the largest fraction.
        recip = instantiate(m, "recip", SegmentTable, function="recip")
        fraction = Signal(value_bits)
        top = value_bits - 1
        m.d.comb += [
            fraction.eq(Mux(s2_drop[5:].any(), 0, power >> s2_drop[:5])),
            recip.index.eq(fraction[:top] | fraction[top].replicate(top)),
        ]
        sigmoid = self.register(m, "s3_sigmoid", len(recip.value), recip.value)
        s3_power = self.register(m, "s3_power", value_bits, power)
        s3_negative = self.register(m, "s3_negative", 1, s2_negative)
        s3_sign = self.register(m, "s3_sign", 1, s2_sign)
        s3_product = self.register(m, "s3_product", 16, s2_product)
        s3_exponent = self.register(
            m,
            "s3_exponent",
            signed(_EXPONENT_BITS),
            s2_exponent - Mux(s2_negative, s2_drop, 0) - reciprocal_table().fraction_bits,
        )

        # Stage 4. The factor's leading one is bit 16 or 17, that of g by u bit 14 or 15.
        below = Signal(2 * value_bits)
        factor = Signal(18)
        rounder = instantiate(
            m, "rounder", Rounder, width=34, spread=4, exponent_bits=_EXPONENT_BITS
        )
        m.d.comb += [
            below.eq(sigmoid * s3_power),
            factor.eq(Mux(s3_negative, below[exp2_table().fraction_bits :], sigmoid)),
            rounder.sign.eq(s3_sign),
            rounder.magnitude.eq(s3_product * factor),
            rounder.exponent.eq(s3_exponent),
            self.result.eq(self.register(m, "s4_number", BF16, rounder.number)),
            self.overflow.eq(self.register(m, "s4_overflow", 1, rounder.overflow)),
        ]
        return m


class Silu(Elementwise):
    """SiLU times up: beats of ``gate`` and ``up`` to beats of BF16; see :class:`SiluLane`."""

    module_name = "bsspec_silu"
    label = "SiLU times up"
    lane = SiluLane
