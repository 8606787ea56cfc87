"""What a proof knows of the memory behind a port: nothing comes that was not asked for.

AXI's rules for a memory, with whatever latency and gaps; all is counted at the bus alone.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Mux, Signal, Value

from sim.formal.bench import Bench

#: Width of a count of beats.
BEATS = 9


class ReadMemory:
    """Answers to bursts, in order, each not before the cycle after its address was taken.

    Parameters
    ----------
    b : Bench
    bus : read channels of the component
    outstanding : int
        Most bursts that the component has under way.

    Attributes
    ----------
    count : Signal
        Bursts whose address was taken and whose last beat was not.
    lengths : list of Signal
        Their beats, the oldest burst first; those beyond ``count`` have no meaning.
    sent : Signal
        Beats of the oldest one that were taken.
    """

    def __init__(self, b: Bench, bus: Any, outstanding: int) -> None:
        m = b.m
        self.count = Signal(range(outstanding + 2), name="owed")
        self.lengths = [Signal(BEATS, name=f"owed_{i}") for i in range(outstanding + 1)]
        self.sent = Signal(BEATS, name="beats_sent")
        asked, moved, ends = (Signal(name=name) for name in ("asked", "moved", "ends"))
        place = Signal.like(self.count, name="owed_place")
        m.d.comb += [
            asked.eq(bus.arvalid & bus.arready),
            moved.eq(bus.rvalid & bus.rready),
            ends.eq(moved & bus.rlast),
            place.eq(self.count - ends),
        ]
        m.d.sync += self.count.eq(self.count + asked - ends)
        with m.If(moved):
            m.d.sync += self.sent.eq(Mux(bus.rlast, 0, self.sent + 1))
        for i, length in enumerate(self.lengths):
            after = self.lengths[i + 1] if i < outstanding else Value.cast(0)
            with m.If(asked & (place == i)):
                m.d.sync += length.eq(bus.arlen + 1)
            with m.Elif(ends):
                m.d.sync += length.eq(after)
        b.assume("only_what_is_owed_comes", ~bus.rvalid | (self.count != 0))
        last = self.sent + 1 == self.lengths[0]
        b.assume("a_last_beat_is_marked", ~bus.rvalid | (bus.rlast == last))

    def beats(self) -> Value:
        """Beats that are still to come."""
        total: Value = Value.cast(0)
        for i, length in enumerate(self.lengths):
            total = total + Mux(self.count > i, length, 0)
        return total - self.sent

    def has_lengths(self, *, most: int, multiple: int) -> Value:
        """Whether all bursts have 1 to ``most`` beats, a multiple of a power of two."""
        good: Value = (self.count != 0) & (self.sent < self.lengths[0]) | (self.sent == 0)
        for i, length in enumerate(self.lengths):
            fits = (length != 0) & (length <= most)
            if multiple > 1:
                fits = fits & ~length[: multiple.bit_length() - 1].any()
            good = good & ((self.count <= i) | fits)
        return good


class WriteMemory:
    """An answer a burst, after its address and its last beat were taken.

    Parameters are those of :class:`ReadMemory`.

    Attributes
    ----------
    addressed, sent : Signal
        Bursts whose address, and whose last beat, were taken and that are not answered.
    """

    def __init__(self, b: Bench, bus: Any, outstanding: int) -> None:
        m = b.m
        self.addressed = Signal(range(outstanding + 2), name="addressed")
        self.sent = Signal(range(outstanding + 2), name="bursts_sent")
        answered = Signal(name="is_answered")
        m.d.comb += answered.eq(bus.bvalid & bus.bready)
        m.d.sync += [
            self.addressed.eq(self.addressed + (bus.awvalid & bus.awready) - answered),
            self.sent.eq(self.sent + (bus.wvalid & bus.wready & bus.wlast) - answered),
        ]
        owed = (self.addressed != 0) & (self.sent != 0)
        b.assume("only_what_is_owed_is_answered", ~bus.bvalid | owed)
