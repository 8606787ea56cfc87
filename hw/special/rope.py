"""RoPE (contract section 11; ``model/datapath/special/rope.py``)."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data

from hw.library import instantiate
from hw.special.elementwise import Elementwise, Lane
from hw.special.floats import Rounder, Unpack
from hw.special.layouts import BF16
from hw.special.sums import AlignedSum
from model.formats.special_tables import ROPE_FRACTION_BITS

#: A Q1.14 number is -2^14 .. 2^14: its magnitude has 15 bits.
FACTOR_BITS = ROPE_FRACTION_BITS + 1
#: An exact product: 255 times 2^14.
PRODUCT_BITS = 8 + ROPE_FRACTION_BITS


class RopeLane(Lane):
    """One pair of channels, turned; latency 3, a pair a cycle.

        low'  = low c - high s
        high' = high c + low s

    Stages: four products of 8 by 15 bits, 22 bits; two sums; rounding, once each.

    A factor below -1 or above 1 (beyond 2^14) has no meaning.
    """

    module_name = "bsspec_rope_lane"
    label = "RoPE lane"
    operand_shape = data.StructLayout(
        {"low": BF16, "high": BF16, "cosine": signed(16), "sine": signed(16)}
    )
    result_shape = data.StructLayout({"low": BF16, "high": BF16})
    latency = 3

    def elaborate(self, platform: object) -> Module:
        m = Module()
        channels = {}
        for name in ("low", "high"):
            channels[name] = instantiate(m, name, Unpack, mantissa_bits=7, normal=False)
            m.d.comb += channels[name].number.eq(self.operand[name])
        m.d.comb += self.refused.eq(channels["low"].refused | channels["high"].refused)
        factors = {}
        for name in ("cosine", "sine"):
            magnitude = Signal(FACTOR_BITS, name=f"{name}_magnitude")
            factor = self.operand[name]
            m.d.comb += magnitude.eq(Mux(factor < 0, -factor, factor))
            factors[name] = (factor < 0, magnitude)

        exponents = {
            name: self.register(m, f"s1_{name}_exponent", signed(9), channel.exponent)
            for name, channel in channels.items()
        }
        swap = Signal()
        m.d.comb += swap.eq(exponents["high"] > exponents["low"])

        overflow = Signal(2)
        for number, (name, first, second) in enumerate(
            (("low", "cosine", "sine"), ("high", "sine", "cosine"))
        ):
            # The low channel's product is x, the high one's y.
            total = instantiate(m, f"{name}_sum", AlignedSum, width=PRODUCT_BITS, least=7)
            for side, channel, factor_name in (("x", "low", first), ("y", "high", second)):
                negative, factor_magnitude = factors[factor_name]
                minus = number == 0 and side == "y"
                sign = channels[channel].sign ^ negative ^ minus
                product = channels[channel].significand * factor_magnitude
                prefix = f"s1_{name}_{channel}"
                m.d.comb += [
                    getattr(total, f"{side}_sign").eq(self.register(m, f"{prefix}_sign", 1, sign)),
                    getattr(total, f"{side}_magnitude").eq(
                        self.register(m, f"{prefix}_product", PRODUCT_BITS, product)
                    ),
                    getattr(total, f"{side}_exponent").eq(exponents[channel]),
                ]
            width = len(total.magnitude)
            rounder = instantiate(
                m, f"{name}_rounder", Rounder, width=width, spread=width, exponent_bits=10
            )
            s2_exponent = self.register(m, f"s2_{name}_exponent", signed(9), total.exponent)
            m.d.comb += [
                total.swap.eq(swap),
                rounder.sign.eq(self.register(m, f"s2_{name}_sign", 1, total.sign)),
                rounder.magnitude.eq(
                    self.register(m, f"s2_{name}_magnitude", width, total.magnitude)
                ),
                rounder.exponent.eq(s2_exponent - (134 + ROPE_FRACTION_BITS)),
                self.result[name].eq(self.register(m, f"s3_{name}_number", BF16, rounder.number)),
                overflow[number].eq(self.register(m, f"s3_{name}_overflow", 1, rounder.overflow)),
            ]
        m.d.comb += self.overflow.eq(overflow.any())
        return m


class Rope(Elementwise):
    """RoPE of a head: beats of pairs (channel i, channel i + d/2) with their cosines and sines.

    A beat has ``elements`` pairs, so twice as many channels; see :class:`RopeLane`.
    """

    module_name = "bsspec_rope"
    label = "RoPE"
    lane = RopeLane
