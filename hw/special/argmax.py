"""Argmax of a row of logits (contract section 11; ``model/datapath/special/argmax.py``)."""

from __future__ import annotations

from typing import Any, NamedTuple

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.library import Unique
from hw.special.flow import sticky
from hw.special.layouts import FP32, STATUS, beat_layout, check_elements


class _Candidate(NamedTuple):
    """A logit that may win: whether it is one, its rank, its place in the beat (lowest first)."""

    live: Value
    rank: Value
    place: Value


class Argmax(Unique):
    """Index of the largest live logit of a row, the lowest one on a tie; -0 ties with +0.

    Padded columns are not live. A NaN is refused and takes no part; Inf is a number here.
    Throughput: a beat a cycle. Latency: the index is valid 2 cycles after the row's last beat was
    taken.

    Parameters
    ----------
    elements : int
        Elements of a beat: 1, 2, 4 or 8.
    index_bits : int
        Width of an index: rows have at most ``2**index_bits`` columns, dead ones included.

    Members
    -------
    logits : stream of beats of FP32
        ``last`` ends a row.
    winners : stream of ``index`` and ``none``
        One a row; ``none`` where it has no live logit, then the index is 0.
    status, clear
        ``refused``; ``overflow`` is never raised.

    Raises
    ------
    ValueError
        If ``index_bits`` is not 3 to 32.
    """

    module_name = "bsspec_argmax"
    label = "argmax"

    def __init__(self, *, elements: int, index_bits: int = 20) -> None:
        self.elements = check_elements(elements)
        if not isinstance(index_bits, int) or not 3 <= index_bits <= 32:
            raise ValueError(f"index_bits must be 3 to 32, not {index_bits!r}")
        self.index_bits = index_bits
        winner = data.StructLayout({"index": unsigned(index_bits), "none": 1})
        super().__init__(
            {
                "logits": In(stream.Signature(beat_layout(FP32, elements, "last"))),
                "winners": Out(stream.Signature(winner)),
                "status": Out(STATUS),
                "clear": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat = self.logits.payload
        taken = Signal()
        refused = Signal(self.elements)
        best = self._best(m, refused)

        # Stage 1 holds the best of a beat. It waits where it is the row's last and the index of the
        # row before has not left.
        s1_taken = Signal()
        s1_live = Signal(reset_less=True)
        s1_last = Signal(reset_less=True)
        s1_rank = Signal(32, reset_less=True)
        s1_place = Signal(max(1, (self.elements - 1).bit_length()), reset_less=True)
        waits = Signal()
        free = Signal()
        advance = Signal()
        m.d.comb += [
            free.eq(~waits | self.winners.ready),
            advance.eq(~(s1_taken & s1_last) | free),
            self.logits.ready.eq(advance),
            taken.eq(self.logits.valid & advance),
        ]
        with m.If(advance):
            m.d.sync += [
                s1_taken.eq(self.logits.valid),
                s1_live.eq(best.live),
                s1_last.eq(beat.last),
                s1_rank.eq(best.rank),
                s1_place.eq(best.place),
            ]

        # Stage 2: the best so far. A later one must be larger to win.
        beat_bits = self.index_bits - (self.elements - 1).bit_length()
        beats = Signal(beat_bits)
        begun = Signal()
        rank = Signal(32, reset_less=True)
        index = Signal(self.index_bits, reset_less=True)
        wins = Signal()
        new_index = Signal(self.index_bits)
        here = Cat(s1_place[: (self.elements - 1).bit_length()], beats)
        m.d.comb += [
            wins.eq(s1_live & (~begun | (s1_rank > rank))),
            new_index.eq(Mux(wins, here, Mux(begun, index, 0))),
        ]
        moves = Signal()
        m.d.comb += moves.eq(s1_taken & advance)
        with m.If(moves):
            m.d.sync += [
                beats.eq(Mux(s1_last, 0, beats + 1)),
                begun.eq((begun | s1_live) & ~s1_last),
                index.eq(new_index),
            ]
            with m.If(wins):
                m.d.sync += rank.eq(s1_rank)

        winner = Signal(self.winners.payload.shape(), reset_less=True)
        m.d.comb += [self.winners.valid.eq(waits), self.winners.payload.eq(winner)]
        with m.If(moves & s1_last):
            m.d.sync += [
                waits.eq(1),
                winner.index.eq(new_index),
                winner.none.eq(~(begun | s1_live)),
            ]
        with m.Elif(self.winners.ready):
            m.d.sync += waits.eq(0)
        sticky(m, self.status, self.clear, refused=taken & (refused & beat.live).any())
        return m

    def _best(self, m: Module, refused: Signal) -> _Candidate:
        """The best candidate of the beat at the input."""
        beat = self.logits.payload
        candidates: list[Any] = []
        for i in range(self.elements):
            logit = beat.values[i]
            bits = Cat(logit.mantissa, logit.exponent)
            rank = Signal(32, name=f"rank_{i}")
            m.d.comb += [
                refused[i].eq(logit.exponent.all() & logit.mantissa.any()),
                # Ranks are ordered as logits are: negative ones below, the larger the lower.
                rank.eq(
                    Mux(logit.sign & bits.any(), Cat(~bits, 0), Cat(bits, 1)),
                ),
            ]
            candidates.append(_Candidate(beat.live[i] & ~refused[i], rank, Cat()))
        level = 0
        while len(candidates) > 1:
            winners = []
            for i in range(0, len(candidates), 2):
                low, high = candidates[i : i + 2]
                later = Signal(name=f"later_{level}_{i}")
                rank = Signal(32, name=f"best_{level}_{i}")
                place = Signal(level + 1, name=f"place_{level}_{i}")
                m.d.comb += [
                    later.eq(high.live & (~low.live | (high.rank > low.rank))),
                    rank.eq(Mux(later, high.rank, low.rank)),
                    place.eq(Cat(Mux(later, high.place, low.place), later) if level else later),
                ]
                winners.append(_Candidate(low.live | high.live, rank, place))
            candidates = winners
            level += 1
        return candidates[0]
