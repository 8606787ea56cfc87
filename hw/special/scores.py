"""Scores to fixed-point exponents (contract section 11, softmax, step 1)."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data

from hw.library import instantiate
from hw.special.elementwise import Elementwise, Lane
from hw.special.floats import UNPACKED_EXPONENT_BITS, Unpack
from hw.special.layouts import FP32
from model.formats.special_tables import EXPONENT_FRACTION_BITS, SCORE_FACTOR_BITS

#: The factor C of a head: ``integer * 2**exponent``, 2^17 <= integer < 2^18.
FACTOR = data.StructLayout({"integer": unsigned(SCORE_FACTOR_BITS), "exponent": signed(6)})
#: x has 32 bits, signed, in units of 2^-16; |x| is clamped to 2^31 - 1.
X_BITS = 32
#: An exact product of 24 and 18 bits. For a normal score it has at least 41.
_PRODUCT_BITS = 24 + SCORE_FACTOR_BITS
#: A shift right by fewer places leaves more than |x| may be. (A subnormal score moves by more than
#: a hundred.)
_LEAST_SHIFT = _PRODUCT_BITS - 1 - (X_BITS - 1)


class ScoreLane(Lane):
    """``x = floor(y C 2^16)``, clamped; latency 2, one a cycle.

    Stages: the product of 24 and 18 bits; the shift, to the right only, whose lost bits round a
    negative number down; the clamp.
    """

    module_name = "bsspec_score_lane"
    label = "score lane"
    operand_shape = FP32
    result_shape = signed(X_BITS)
    latency = 2
    shared = {"factor": FACTOR}

    def elaborate(self, platform: object) -> Module:
        m = Module()
        score = instantiate(m, "score", Unpack, mantissa_bits=23, normal=False)
        m.d.comb += [
            score.number.eq(self.operand),
            self.refused.eq(score.refused),
            self.overflow.eq(0),
        ]
        sign = self.register(m, "s1_sign", 1, score.sign)
        product = self.register(
            m, "s1_product", _PRODUCT_BITS, score.significand * self.factor.integer
        )
        exponent = self.register(
            m,
            "s1_exponent",
            signed(UNPACKED_EXPONENT_BITS + 1),
            score.exponent + self.factor.exponent,
        )

        # The shift beyond the least one; the bits that the least one drops are lost in any case.
        shift = Signal(signed(UNPACKED_EXPONENT_BITS + 1))
        high_bits = _PRODUCT_BITS - _LEAST_SHIFT
        high = product[_LEAST_SHIFT:]
        levels = high_bits.bit_length()
        lost = [product[:_LEAST_SHIFT].any()]
        m.d.comb += shift.eq(150 - EXPONENT_FRACTION_BITS - _LEAST_SHIFT - exponent)
        for level in range(levels):
            step = 1 << level
            moved = Signal(high_bits, name=f"shifted_{step}")
            m.d.comb += moved.eq(Mux(shift[level], high >> step, high))
            lost.append(shift[level] & high[:step].any())
            high = moved
        far = Signal()
        below = Signal()
        too_large = Signal()
        magnitude = Signal(high_bits + 1)
        m.d.comb += [
            far.eq((shift >= 0) & shift[levels:].any()),
            below.eq(Cat(lost).any() | (far & product.any())),
            magnitude.eq(Mux(far, 0, high) + (sign & below)),
            too_large.eq(product.any() & ((shift < 0) | magnitude[X_BITS - 1 :].any())),
        ]
        limited = Signal(X_BITS - 1)
        m.d.comb += [
            limited.eq(Mux(too_large, (1 << (X_BITS - 1)) - 1, magnitude)),
            self.result.eq(self.register(m, "s2_x", signed(X_BITS), Mux(sign, -limited, limited))),
        ]
        return m


class Scores(Elementwise):
    """Scores of a row to fixed-point exponents x: beats of FP32 to beats of 32 bits, signed.

    ``tile_last`` ends a tile of at most 64 tokens, ``last`` a row; see :class:`ScoreLane`.
    """

    module_name = "bsspec_scores"
    label = "scores to exponents"
    lane = ScoreLane
    marks = ("tile_last", "last")
