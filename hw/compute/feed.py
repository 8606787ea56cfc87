"""Front control: activations into the aligners, aligned groups into the tables."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import In, Out

from hw.config import GROUPS
from hw.library import Unique


class Feed(Unique):
    """Paces the aligner banks: fill, align, load, in lockstep for all MPUs.

    Four slots of one group each lie between filling and aligning. A slot can be filled in the
    cycle in which it is emptied, so that at p = 5 and fold 1 a tile's last group enters in the
    cycle in which its predecessor's tables of group 2 are loaded, and the maximum is known just
    as the aligner becomes free.

    Members
    -------
    offered, fill : a group is there; it is taken in this cycle
    fill_group, fill_last : its number
    hold : the last group of a tile may not be taken yet
    ready : tables of group 0 of the next tile are one ``start`` away
    start : first plane of that tile; loads group 0 now and the others in the next three cycles
    align, align_group, load : to the aligner banks and table banks
    """

    module_name = "bsspec_feed"
    label = "control: feed"

    def __init__(self) -> None:
        super().__init__(
            {
                "offered": In(1),
                "hold": In(1),
                "fill": Out(1),
                "fill_group": Out(2),
                "fill_last": Out(1),
                "ready": Out(1),
                "start": In(1),
                "align": Out(1),
                "align_group": Out(2),
                "load": Out(GROUPS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        last = GROUPS - 1
        group = Signal(2)
        occupied = Signal(range(GROUPS + 1))
        m.d.comb += [
            self.fill_group.eq(group),
            self.fill_last.eq(group == last),
            self.fill.eq(
                self.offered & ((occupied != GROUPS) | self.align) & ~(self.fill_last & self.hold)
            ),
        ]
        m.d.sync += occupied.eq(occupied + self.fill - self.align)
        with m.If(self.fill):
            m.d.sync += group.eq(group + 1)

        # The maximum includes the last group one cycle after it was filled.
        complete = Signal()
        known = Signal()
        m.d.sync += complete.eq(self.fill & self.fill_last)
        with m.If(complete):
            m.d.sync += known.eq(1)

        armed = Signal()
        loading = Signal(2)  # Group whose tables are loaded in this cycle; 0: none.
        m.d.comb += self.ready.eq(armed)
        with m.If(self.start):
            m.d.comb += [self.align.eq(1), self.align_group.eq(1), self.load[0].eq(1)]
            m.d.sync += [armed.eq(0), loading.eq(1)]
        with m.Elif((loading != 0) & (loading != last)):
            m.d.comb += [self.align.eq(1), self.align_group.eq(loading + 1)]
            m.d.sync += loading.eq(loading + 1)
        with m.Else():
            m.d.sync += loading.eq(0)
            with m.If(known & ~armed):
                m.d.comb += self.align.eq(1)
                m.d.sync += [armed.eq(1), known.eq(0)]
        for g in range(1, GROUPS):
            m.d.comb += self.load[g].eq(loading == g)
        return m
