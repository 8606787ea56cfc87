"""RMSNorm of rows, QK-norm included (contract section 11; ``model/datapath/special/norm.py``)."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.library import Unique, instantiate
from hw.special.elementwise import Elementwise, Lane
from hw.special.floats import Rounder, Unpack, leading_one_up, shift_right_sticky
from hw.special.flow import Stages
from hw.special.layouts import BF16, FP32, STATUS, beat_layout, check_elements
from hw.special.squares import SquareSum, square_sum_bits, square_sum_layout
from hw.special.tables import SegmentTable
from model.formats.special_tables import NORM_GUARD_BITS, rsqrt_table

#: Significant bits of the scalar steps.
_BITS = 24
#: Exponents of the scalar steps: squares of BF16 numbers span 2^-266 to 2^296.
_EXPONENT_BITS = 11
_VALUE_BITS = rsqrt_table().base_bits + 1

#: r = value * 2**exponent.
SCALE = data.StructLayout({"value": unsigned(_VALUE_BITS), "exponent": signed(9)})


def round_significand(m: Module, name: str, bits: Value) -> tuple[Value, Value]:
    """A significand of 24 bits from one with the leading one at the top, ties to even.

    Returns
    -------
    significand : 24 bits, leading one at the top
    carry : whether rounding made it the next power of two: the exponent is one more
    """
    keep = bits[-_BITS:]
    half, below = bits[-_BITS - 1], bits[: -_BITS - 1].any()
    rounded = Signal(_BITS + 1, name=f"{name}_rounded")
    m.d.comb += rounded.eq(keep + (half & (below | keep[0])))
    carry = rounded[_BITS]
    # After a carry all other bits are 0.
    return Cat(rounded[: _BITS - 1], rounded[_BITS - 1] | carry), carry


class InverseRoot(Unique):
    """``r = (mean + eps)^-1/2`` from a sum of squares; latency 6, one a cycle.

    Scalars have 24 significant bits and exponents that neither overflow nor have subnormals; each
    step is rounded to nearest, ties to even: the sum, its product with 1/d, the sum with eps. The
    table ``rsqrt`` reads the parity of the exponent and 16 bits below the leading one.

    Parameters
    ----------
    longest : int
        Longest row.

    Members
    -------
    sums : stream of :func:`~hw.special.squares.square_sum_layout`
    scales : stream of :data:`SCALE`
    inverse_width, eps
        FP32(1/d) and FP32(eps), normal numbers above 0. They may change only while nothing is on
        its way.
    """

    module_name = "bsspec_inverse_root"
    label = "inverse root of the mean square"

    def __init__(self, *, longest: int) -> None:
        self.longest = longest
        super().__init__(
            {
                "sums": In(stream.Signature(square_sum_layout(longest))),
                "scales": Out(stream.Signature(SCALE)),
                "inverse_width": In(FP32),
                "eps": In(FP32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        stages = Stages(m, entering=self.sums.valid, ready=self.scales.ready, count=6)
        m.d.comb += [
            self.sums.ready.eq(stages.advance),
            self.scales.valid.eq(stages.valid[-1]),
        ]
        exponent_shape = signed(_EXPONENT_BITS)

        # Stage 1: leading one to the top. Exponents are those of the leading one.
        width = square_sum_bits(self.longest)
        up, zeros = leading_one_up(m, "total", self.sums.payload.total, width)
        top = width - 1 - 2 * (134 + NORM_GUARD_BITS)
        s1_total = stages.register("s1_total", width, up)
        s1_exponent = stages.register(
            "s1_exponent", exponent_shape, (self.sums.payload.exponent << 1) + top - zeros
        )

        # Stage 2: the sum in 24 bits, times 1/d.
        sum_bits, sum_carry = round_significand(m, "sum", s1_total)
        inverse = Cat(self.inverse_width.mantissa, Const(1, 1))
        s2_product = stages.register("s2_product", 2 * _BITS, sum_bits * inverse)
        s2_exponent = stages.register(
            "s2_exponent",
            exponent_shape,
            s1_exponent + sum_carry + self.inverse_width.exponent - 127,
        )

        # Stage 3: the mean in 24 bits; a product of two significands has its leading one in the
        # highest bit or the one below.
        high = s2_product[-1]
        normal = Mux(high, s2_product, s2_product << 1)[: 2 * _BITS]
        mean_bits, mean_carry = round_significand(m, "mean", normal)
        s3_mean = stages.register("s3_mean", _BITS, mean_bits)
        s3_exponent = stages.register(
            "s3_exponent", exponent_shape, s2_exponent + high + mean_carry
        )

        # Stage 4: plus eps. Both are positive, so two bits and a sticky bit below the larger one
        # are enough. A mean of 0 gives way to any eps.
        eps_exponent = Signal(exponent_shape)
        larger = Signal()
        distance = Signal(signed(_EXPONENT_BITS + 1))
        amount = Signal(5)
        eps_bits = Cat(self.eps.mantissa, Const(1, 1))
        m.d.comb += [
            eps_exponent.eq(self.eps.exponent - 127),
            larger.eq(s3_mean[-1] & (s3_exponent > eps_exponent)),
            distance.eq(
                Mux(larger, s3_exponent - eps_exponent, eps_exponent - s3_exponent),
            ),
            amount.eq(Mux(distance[5:].any(), 31, distance[:5])),
        ]
        large = Cat(Const(0, 3), Mux(larger, s3_mean, eps_bits))
        small = Cat(Const(0, 3), Mux(larger, eps_bits, s3_mean))
        moved = shift_right_sticky(m, "smaller", small, amount)
        s4_sum = stages.register("s4_sum", _BITS + 4, large + moved)
        s4_exponent = stages.register(
            "s4_exponent", exponent_shape, Mux(larger, s3_exponent, eps_exponent)
        )

        # Stage 5: z in 24 bits.
        carried = s4_sum[-1]
        z_bits, z_carry = round_significand(m, "z", Mux(carried, s4_sum, s4_sum << 1)[: _BITS + 4])
        z_exponent = Signal(exponent_shape)
        m.d.comb += z_exponent.eq(s4_exponent + carried + z_carry)
        fraction_bits = rsqrt_table().index_bits - 1
        s5_index = stages.register(
            "s5_index",
            fraction_bits + 1,
            Cat(z_bits[_BITS - 1 - fraction_bits : _BITS - 1], z_exponent[0]),
        )
        s5_half = stages.register("s5_half", signed(9), z_exponent >> 1)

        # Stage 6: the table.
        root = instantiate(m, "rsqrt", SegmentTable, function="rsqrt")
        scale = self.scales.payload
        m.d.comb += [
            root.index.eq(s5_index),
            scale.value.eq(stages.register("s6_value", _VALUE_BITS, root.value)),
            scale.exponent.eq(
                stages.register("s6_exponent", signed(9), -s5_half - rsqrt_table().fraction_bits)
            ),
        ]
        return m


class NormLane(Lane):
    """``y = x r w``, rounded once; latency 3, one a cycle.

    Stages: x by r (25 bits); times w (33 bits); rounding.
    """

    module_name = "bsspec_norm_lane"
    label = "norm lane"
    operand_shape = data.StructLayout({"x": BF16, "weight": BF16})
    result_shape = BF16
    latency = 3
    shared = {"scale": SCALE}

    def elaborate(self, platform: object) -> Module:
        m = Module()
        x = instantiate(m, "x", Unpack, mantissa_bits=7, normal=True)
        weight = instantiate(m, "weight", Unpack, mantissa_bits=7, normal=True)
        s1_weight = self.register(m, "s1_weight", 8, weight.significand)
        s1_product = self.register(
            m, "s1_product", 8 + _VALUE_BITS, x.significand * self.scale.value
        )
        s1_sign = self.register(m, "s1_sign", 1, x.sign ^ weight.sign)
        exponent = x.exponent + weight.exponent + self.scale.exponent - 2 * 134
        s1_exponent = self.register(m, "s1_exponent", signed(11), exponent)
        width = 16 + _VALUE_BITS
        # Three factors with their leading ones at the top: the product has it in three places.
        rounder = instantiate(m, "rounder", Rounder, width=width, spread=3, exponent_bits=11)
        m.d.comb += [
            x.number.eq(self.operand.x),
            weight.number.eq(self.operand.weight),
            self.refused.eq(x.refused | weight.refused),
            rounder.sign.eq(self.register(m, "s2_sign", 1, s1_sign)),
            rounder.magnitude.eq(self.register(m, "s2_product", width, s1_product * s1_weight)),
            rounder.exponent.eq(self.register(m, "s2_exponent", signed(11), s1_exponent)),
            self.result.eq(self.register(m, "s3_number", BF16, rounder.number)),
            self.overflow.eq(self.register(m, "s3_overflow", 1, rounder.overflow)),
        ]
        return m


class NormLanes(Elementwise):
    """Elements of a row times its r and their weights; see :class:`NormLane`."""

    module_name = "bsspec_norm_lanes"
    label = "norm lanes"
    lane = NormLane


class RmsNorm(Unique):
    """RMSNorm: a row comes twice, first for its sum of squares, then with its weights.

    Throughput: a beat a cycle in each pass; the first pass of a row goes beside the second one of
    the row before. Latency: :class:`~hw.special.squares.SquareSum`, then 7 cycles to the first
    operands; 3 from operands to results.

    Parameters
    ----------
    elements : int
        Elements of a beat: 1, 2, 4 or 8.
    longest : int
        Longest row, 64 to 2^20.

    Members
    -------
    numbers : stream of beats of BF16
        The first pass. ``last`` ends a row.
    operands : stream of beats of ``x`` and ``weight``
        The second pass of the same rows.
    results : stream of beats of BF16
    inverse_width, eps
        As in :class:`InverseRoot`.
    status, clear
        Of both passes.
    """

    module_name = "bsspec_rms_norm"
    label = "RMSNorm"

    def __init__(self, *, elements: int, longest: int) -> None:
        self.elements = check_elements(elements)
        self.longest = longest
        operand = NormLanes.lane.operand_shape
        super().__init__(
            {
                "numbers": In(stream.Signature(beat_layout(BF16, elements, "last"))),
                "operands": In(stream.Signature(beat_layout(operand, elements, "last"))),
                "results": Out(stream.Signature(beat_layout(BF16, elements, "last"))),
                "inverse_width": In(FP32),
                "eps": In(FP32),
                "status": Out(STATUS),
                "clear": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        squares = instantiate(m, "squares", SquareSum, elements=self.elements, longest=self.longest)
        root = instantiate(m, "root", InverseRoot, longest=self.longest)
        lanes = instantiate(m, "lanes", NormLanes, elements=self.elements)
        loaded = Signal()
        ends = Signal()
        scale = Signal(SCALE, reset_less=True)
        m.d.comb += [
            squares.numbers.valid.eq(self.numbers.valid),
            squares.numbers.payload.eq(self.numbers.payload),
            self.numbers.ready.eq(squares.numbers.ready),
            root.sums.valid.eq(squares.sums.valid),
            root.sums.payload.eq(squares.sums.payload),
            squares.sums.ready.eq(root.sums.ready),
            root.inverse_width.eq(self.inverse_width),
            root.eps.eq(self.eps),
            root.scales.ready.eq(~loaded | ends),
            lanes.scale.eq(scale),
            lanes.operands.valid.eq(self.operands.valid & loaded),
            lanes.operands.payload.eq(self.operands.payload),
            self.operands.ready.eq(lanes.operands.ready & loaded),
            ends.eq(self.operands.valid & self.operands.ready & self.operands.payload.last),
            self.results.valid.eq(lanes.results.valid),
            self.results.payload.eq(lanes.results.payload),
            lanes.results.ready.eq(self.results.ready),
            squares.clear.eq(self.clear),
            lanes.clear.eq(self.clear),
            self.status.eq(squares.status.as_value() | lanes.status.as_value()),
        ]
        with m.If(root.scales.valid & root.scales.ready):
            m.d.sync += [loaded.eq(1), scale.eq(root.scales.payload)]
        with m.Elif(ends):
            m.d.sync += loaded.eq(0)
        return m
