"""Attention output: sums of P.V over L (contract section 11, softmax, step 5)."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.library import Unique, instantiate
from hw.special.elementwise import Elementwise, Lane
from hw.special.floats import Rounder, Unpack, leading_one_up
from hw.special.layouts import BF16, FP32, STATUS, beat_layout, check_elements
from hw.special.softmax import TOTAL_BITS
from hw.special.tables import SegmentTable
from model.formats.special_tables import SUM_FRACTION_BITS, reciprocal_table

_VALUE_BITS = reciprocal_table().base_bits + 1
_INDEX_BITS = reciprocal_table().index_bits
_EXPONENT_BITS = 10

#: 1 / L = value * 2**exponent; value 0 for L = 0.
RECIPROCAL = data.StructLayout({"value": unsigned(_VALUE_BITS), "exponent": signed(7)})


class OutputLane(Lane):
    """``o = sum * reciprocal``, rounded once; latency 2, one a cycle.

    Stages: the exact product of 24 and 17 bits; rounding.
    """

    module_name = "bsspec_output_lane"
    label = "output lane"
    operand_shape = FP32
    result_shape = BF16
    latency = 2
    shared = {"reciprocal": RECIPROCAL}

    def elaborate(self, platform: object) -> Module:
        m = Module()
        total = instantiate(m, "sum", Unpack, mantissa_bits=23, normal=True)
        width = 24 + _VALUE_BITS
        # Both factors have their leading one at the top, so the product has it in two places.
        rounder = instantiate(
            m, "rounder", Rounder, width=width, spread=2, exponent_bits=_EXPONENT_BITS
        )
        product = total.significand * self.reciprocal.value
        exponent = total.exponent + self.reciprocal.exponent - 150
        m.d.comb += [
            total.number.eq(self.operand),
            self.refused.eq(total.refused),
            rounder.sign.eq(self.register(m, "s1_sign", 1, total.sign)),
            rounder.magnitude.eq(self.register(m, "s1_product", width, product)),
            rounder.exponent.eq(self.register(m, "s1_exponent", signed(_EXPONENT_BITS), exponent)),
            self.result.eq(self.register(m, "s2_number", BF16, rounder.number)),
            self.overflow.eq(self.register(m, "s2_overflow", 1, rounder.overflow)),
        ]
        return m


class OutputLanes(Elementwise):
    """Sums of a row times one reciprocal; see :class:`OutputLane`."""

    module_name = "bsspec_output_lanes"
    label = "output lanes"
    lane = OutputLane


class AttentionOutput(Unique):
    """Sums of P.V of a row, divided by its L, to BF16.

    Throughput: a beat a cycle, also from row to row. Latency: 2 from sums to outputs; the first
    sums of a row are taken 2 cycles after its L at the earliest.

    Parameters
    ----------
    elements : int
        Elements of a beat: 1, 2, 4 or 8.

    Members
    -------
    totals : stream of L, 53 bits, in units of 2^-32
        One a row. L = 0 gives +0.
    sums : stream of beats of FP32
        ``last`` ends a row.
    outputs : stream of beats of BF16
    status, clear
        As in :class:`~hw.special.elementwise.Elementwise`.
    """

    module_name = "bsspec_attention_output"
    label = "attention output"

    def __init__(self, *, elements: int) -> None:
        self.elements = check_elements(elements)
        super().__init__(
            {
                "totals": In(stream.Signature(unsigned(TOTAL_BITS))),
                "sums": In(stream.Signature(beat_layout(FP32, elements, "last"))),
                "outputs": Out(stream.Signature(beat_layout(BF16, elements, "last"))),
                "status": Out(STATUS),
                "clear": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Stage 1: L = m 2^k, m in 1..2.
        up, zeros = leading_one_up(m, "total", self.totals.payload, TOTAL_BITS)
        waits = Signal()
        s1_index = Signal(_INDEX_BITS, reset_less=True)
        s1_zeros = Signal(len(zeros), reset_less=True)
        s1_live = Signal(reset_less=True)
        # Stage 2: the reciprocal, while the row's sums pass.
        moves = Signal()
        loaded = Signal()
        ends = Signal()
        reciprocal = Signal(RECIPROCAL, reset_less=True)
        recip = instantiate(m, "recip", SegmentTable, function="recip")
        m.d.comb += [
            moves.eq(waits & (~loaded | ends)),
            self.totals.ready.eq(~waits | moves),
            recip.index.eq(s1_index),
        ]
        with m.If(self.totals.ready):
            m.d.sync += [
                waits.eq(self.totals.valid),
                s1_index.eq(up[TOTAL_BITS - 1 - _INDEX_BITS : TOTAL_BITS - 1]),
                s1_zeros.eq(zeros),
                s1_live.eq(up[-1]),
            ]
        # 1 / L = 1/m 2^-k, with k counted from the binary point of L.
        top = TOTAL_BITS - 1 - SUM_FRACTION_BITS + reciprocal_table().fraction_bits
        with m.If(moves):
            m.d.sync += [
                loaded.eq(1),
                reciprocal.value.eq(Mux(s1_live, recip.value, 0)),
                reciprocal.exponent.eq(s1_zeros - top),
            ]
        with m.Elif(ends):
            m.d.sync += loaded.eq(0)

        lanes = instantiate(m, "lanes", OutputLanes, elements=self.elements)
        m.d.comb += [
            lanes.reciprocal.eq(reciprocal),
            lanes.operands.valid.eq(self.sums.valid & loaded),
            lanes.operands.payload.eq(self.sums.payload),
            self.sums.ready.eq(lanes.operands.ready & loaded),
            ends.eq(self.sums.valid & self.sums.ready & self.sums.payload.last),
            self.outputs.valid.eq(lanes.results.valid),
            self.outputs.payload.eq(lanes.results.payload),
            lanes.results.ready.eq(self.outputs.ready),
            lanes.clear.eq(self.clear),
            self.status.eq(lanes.status),
        ]
        return m
