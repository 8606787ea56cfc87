"""Probabilities of a row and their sum (contract section 11, softmax, steps 2 to 4)."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.config import TILE
from hw.library import Unique, instantiate
from hw.special.elementwise import masked
from hw.special.flow import Queue
from hw.special.groups import GROUPS_WAITING, GroupLargest, Groups
from hw.special.layouts import BF16, beat_layout, check_elements
from hw.special.scores import X_BITS
from hw.special.tables import SegmentTable
from model.formats.special_tables import (
    EXP2_LEAST,
    EXPONENT_FRACTION_BITS,
    SUM_FRACTION_BITS,
    exp2_table,
)

#: M is the integer part of an x.
MAXIMUM_BITS = X_BITS - EXPONENT_FRACTION_BITS
#: L: 2^20 probabilities of at most 2^33, and what the shifts leave of them.
TOTAL_BITS = 53
#: A rise beyond all of L counts as this one.
_RISE_LIMIT = 63
#: x - M 2^16 is of interest down to -126 2^16, and below 2^16: 24 bits, signed.
_BELOW_BITS = 8 + EXPONENT_FRACTION_BITS
#: floor(P 2^32) of a P up to 2.
_TERM_BITS = SUM_FRACTION_BITS + 2

#: How far M rises with a tile: ``rise`` is taken off the running exponent of P.V before the tile.
#: A tile without a live token is ``skipped``; its rise is 0.
RISE = data.StructLayout({"rise": unsigned(MAXIMUM_BITS), "skipped": 1})


class ExponentialLane(Unique):
    """``P = BF16(2^(x - M))``; latency 3, all registers moved by ``advance``.

    Stages: the difference, clamped to 24 bits; the table, 17 bits; rounding to 8. +0 where
    ``x - M`` is below -126. No result is subnormal or above 2.

    Members
    -------
    advance, x, maximum -> number
    """

    module_name = "bsspec_exponential_lane"
    label = "exponential lane"

    def __init__(self) -> None:
        super().__init__(
            {
                "advance": In(1),
                "x": In(signed(X_BITS)),
                "maximum": In(signed(MAXIMUM_BITS)),
                "number": Out(BF16),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        fraction_bits = EXPONENT_FRACTION_BITS
        difference = Signal(signed(X_BITS + 1))
        least = -1 << (_BELOW_BITS - 1)
        s1_below = Signal(signed(_BELOW_BITS), reset_less=True)
        m.d.comb += difference.eq(self.x - (self.maximum << fraction_bits))

        exp2 = instantiate(m, "exp2", SegmentTable, function="exp2")
        integer = Signal(signed(_BELOW_BITS - fraction_bits))
        s2_value = Signal(len(exp2.value), reset_less=True)
        s2_field = Signal(8, reset_less=True)
        m.d.comb += [
            exp2.index.eq(s1_below[:fraction_bits]),
            integer.eq(s1_below >> fraction_bits),
        ]

        drop = exp2_table().fraction_bits - 7
        code = Signal(15)
        number = Signal(BF16, reset_less=True)
        m.d.comb += [
            code.eq(
                Cat(s2_value[drop:-1], s2_field)
                + (s2_value[drop - 1] & (s2_value[: drop - 1].any() | s2_value[drop]))
            ),
            self.number.eq(number),
        ]
        with m.If(self.advance):
            m.d.sync += [
                s1_below.eq(Mux(difference < least, least, difference)),
                # A field of 0 marks what is flushed.
                s2_field.eq(Mux(integer < EXP2_LEAST, 0, 127 + integer)),
                s2_value.eq(exp2.value),
                number.eq(masked(code, s2_field.any())),
            ]
        return m


class ProbabilityTerm(Unique):
    """``floor(P 2^32)`` of a P from 0 to 2; combinational.

    Members
    -------
    number -> term
        34 bits.
    """

    module_name = "bsspec_probability_term"
    label = "probability as an integer"
    sequential = False

    def __init__(self) -> None:
        super().__init__({"number": In(BF16), "term": Out(_TERM_BITS)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # P = 2 has the exponent field 128 and does not move.
        places = Signal(7)
        # The leading one only where there is one: P is 0 or normal.
        significand = Cat(self.number.mantissa, self.number.exponent.any())
        term = Cat(Const(0, _TERM_BITS - 8), significand)
        m.d.comb += [
            places.eq(128 - self.number.exponent),
            self.term.eq(Mux(places[6], 0, term >> places[:6])),
        ]
        return m


class Probabilities(Unique):
    """Fixed-point exponents of a row to probabilities, to the rises of M, and to the sum L.

    A tile waits in a memory until its maximum is known; meanwhile the tile before it leaves. M and
    L start anew after the beat that is ``last``. Tokens that are not live have probability +0 and
    take no part in the maximum. A tile is at most 64 tokens: one without ``tile_last`` ends by
    itself there.

    Throughput: a beat a cycle, for tiles of four beats or more. Latency: the first probabilities of
    a tile are valid 6 cycles after its last beat was taken, its rise 2; the sum 2 cycles after the
    transfer of the row's last probabilities.

    Parameters
    ----------
    elements : int
        Elements of a beat: 1, 2, 4 or 8.

    Members
    -------
    exponents : stream of beats of x, 32 bits, signed, in units of 2^-16
    rises : stream of :data:`RISE`
        One a tile, also where it is skipped.
    probabilities : stream of beats of BF16
        Marks as they came; a tile that ended by itself has ``tile_last``.
    totals : stream of L, 53 bits, in units of 2^-32
        One a row. While one waits, the last beat of the next row does not leave.
    """

    module_name = "bsspec_probabilities"
    label = "probabilities"

    def __init__(self, *, elements: int) -> None:
        self.elements = check_elements(elements)
        marks = ("tile_last", "last")
        super().__init__(
            {
                "exponents": In(stream.Signature(beat_layout(signed(X_BITS), elements, *marks))),
                "rises": Out(stream.Signature(RISE)),
                "probabilities": Out(stream.Signature(beat_layout(BF16, elements, *marks))),
                "totals": Out(stream.Signature(unsigned(TOTAL_BITS))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat = self.exponents.payload
        left = Signal()
        rises_taken = Signal(range(GROUPS_WAITING + 1))
        record = data.StructLayout(
            {"maximum": signed(MAXIMUM_BITS), "rise": _RISE_LIMIT.bit_length()}
        )
        tiles = Groups(
            m,
            purpose="exponents",
            source=self.exponents,
            closes=beat.tile_last | beat.last,
            rows=TILE // self.elements,
            note=record,
            left=left,
            stages=4,
            room=rises_taken != GROUPS_WAITING,
        )

        # M and its rise with a tile, from the largest integer part of its live tokens.
        candidates = [
            (beat.live[i], beat.values[i] >> EXPONENT_FRACTION_BITS) for i in range(self.elements)
        ]
        top = GroupLargest(m, tiles, candidates, signed(MAXIMUM_BITS))
        row_ends = Signal(reset_less=True)
        m.d.sync += row_ends.eq(beat.last)
        begun = Signal()
        maximum = Signal(signed(MAXIMUM_BITS), reset_less=True)
        raises = Signal()
        new_maximum = Signal(signed(MAXIMUM_BITS))
        rise = Signal(MAXIMUM_BITS)
        rises = Queue(m, "rises", RISE, GROUPS_WAITING)
        m.d.comb += [
            raises.eq(top.live & (~begun | (top.value > maximum))),
            new_maximum.eq(Mux(raises, top.value, maximum)),
            rise.eq(Mux(raises & begun, top.value - maximum, 0)),
            tiles.note.maximum.eq(new_maximum),
            tiles.note.rise.eq(Mux(rise >= _RISE_LIMIT, _RISE_LIMIT, rise)),
            rises.push.eq(tiles.closed),
            rises.entry.rise.eq(rise),
            rises.entry.skipped.eq(~top.live),
            rises.pop.eq(self.rises.valid & self.rises.ready),
            self.rises.valid.eq(rises.count != 0),
            self.rises.payload.eq(rises.head),
        ]
        m.d.sync += rises_taken.eq(rises_taken + tiles.closing - rises.pop)
        with m.If(tiles.closed):
            m.d.sync += [maximum.eq(new_maximum), begun.eq((begun | top.live) & ~row_ends)]

        stages, row = tiles.stages, tiles.beat
        result = self.probabilities.payload
        m.d.comb += [
            result.live.eq(stages.follow("live", self.elements, row.live, 3)),
            result.tile_last.eq(stages.follow("tile_last", 1, tiles.final, 3)),
            result.last.eq(stages.follow("last", 1, row.last, 3)),
        ]
        known_rise = tiles.known.rise
        beat_rise = stages.follow("rise", len(known_rise), known_rise, 3)
        terms = []
        for i in range(self.elements):
            lane = instantiate(m, f"lane_{i}", ExponentialLane)
            term = instantiate(m, f"term_{i}", ProbabilityTerm)
            m.d.comb += [
                lane.advance.eq(stages.advance),
                lane.x.eq(row.values[i]),
                lane.maximum.eq(tiles.known.maximum),
                result.values[i].eq(masked(lane.number, result.live[i])),
                term.number.eq(result.values[i]),
            ]
            terms.append(term.term)
        self._total(m, stages.valid[-1], left, beat_rise, terms)
        return m

    def _total(
        self, m: Module, valid: Signal, left: Signal, rise: Signal, terms: list[Signal]
    ) -> None:
        """L: the terms of a beat are added a cycle after it left, and shift it with the first."""
        result = self.probabilities.payload
        # From the row's last beat until L is taken.
        reserved = Signal()
        m.d.comb += [
            self.probabilities.valid.eq(valid & ~(result.last & reserved)),
            left.eq(self.probabilities.valid & self.probabilities.ready),
        ]
        tile_begins = Signal(init=1)
        row_begins = Signal(init=1)
        added = Signal()
        sum_bits = _TERM_BITS + self.elements.bit_length() - 1
        terms_sum = Signal(sum_bits, reset_less=True)
        places = Signal(len(rise), reset_less=True)
        fresh = Signal(reset_less=True)
        ends = Signal(reset_less=True)
        m.d.sync += added.eq(left)
        with m.If(left):
            m.d.sync += [
                tile_begins.eq(result.tile_last),
                row_begins.eq(result.last),
                terms_sum.eq(sum(terms)),
                places.eq(Mux(tile_begins, rise, 0)),
                fresh.eq(row_begins),
                ends.eq(result.last),
            ]
        total = Signal(TOTAL_BITS, reset_less=True)
        new_total = Signal(TOTAL_BITS)
        m.d.comb += new_total.eq((Mux(fresh, 0, total) >> places) + terms_sum)
        with m.If(added):
            m.d.sync += total.eq(new_total)
        out = Signal(TOTAL_BITS, reset_less=True)
        waits = Signal()
        m.d.comb += [self.totals.valid.eq(waits), self.totals.payload.eq(out)]
        with m.If(added & ends):
            m.d.sync += [out.eq(new_total), waits.eq(1)]
        with m.If(self.totals.ready & waits):
            m.d.sync += waits.eq(0)
        with m.If(left & result.last):
            m.d.sync += reserved.eq(1)
        with m.Elif(self.totals.ready & waits):
            m.d.sync += reserved.eq(0)
