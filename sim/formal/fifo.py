"""The queue in a memory: what goes in comes out, in order, and nothing else."""

from __future__ import annotations

from amaranth.hdl import Mux, Signal

from hw.memory.fifo import Fifo
from sim.formal.bench import Bench

#: Bits of a word; words are never looked into, so few do.
WIDTH = 4


def fifo(depth: int) -> Bench:
    """A queue of ``depth`` words, which are numbered as they come.

    One word, of any number and value, is followed from its way in to its way out.
    """
    dut = Fifo(purpose="proof", shape=WIDTH, depth=depth)
    b = Bench(dut)
    m = b.m
    stored, shown = b.inside("stored"), b.inside("shown")
    write_row, read_row = b.inside("ram.write_row"), b.inside("ram.read_row")
    rows = b.memory("ram", depth, WIDTH)
    taken, given = Signal(), Signal()
    m.d.comb += [taken.eq(dut.i.valid & dut.i.ready), given.eq(dut.o.valid & dut.o.ready)]

    # Words inside, counted at the ports alone.
    inside = Signal(range(depth + 3))
    m.d.sync += inside.eq(inside + taken - given)
    b.check("count_within_depth_and_one", inside <= depth + 1)
    b.check("count_of_registers", inside == stored + shown, helper=True)
    b.check("nothing_out_of_nothing", ~dut.o.valid | (inside != 0))
    b.check("empty_means_empty", dut.empty == (inside == 0))
    room = b.past(dut.i.ready & ~dut.i.valid, "had_room")
    b.check("room_stays_until_a_word_comes", ~room | dut.i.ready)
    b.check("room_is_offered", dut.i.ready | (inside >= depth))
    b.check("what_waits_is_shown", b.past(stored != 0, "was_stored") <= dut.o.valid)

    # The followed word: before it came `ahead` words of those inside; 0 means it is the next.
    mark = b.free("mark", 1)
    word = Signal(WIDTH)
    followed = Signal()
    ahead = Signal(range(depth + 2))
    marked = Signal()
    m.d.comb += marked.eq(mark & taken & ~followed)
    with m.If(marked):
        m.d.sync += [followed.eq(1), word.eq(dut.i.payload), ahead.eq(inside - given)]
    with m.Elif(followed & given):
        m.d.sync += [ahead.eq(ahead - 1), followed.eq(ahead != 0)]
    b.check(
        "order_and_contents", ~(followed & dut.o.valid & (ahead == 0)) | (dut.o.payload == word)
    )
    b.check("nothing_lost", ~followed | (ahead < inside))
    b.streams()

    # What makes it inductive: where the rows stand, and where the followed word lies.
    back = Signal(range(2 * depth))
    m.d.comb += back.eq(read_row + stored)
    b.check(
        "rows_agree",
        write_row == Mux(back >= depth, back - depth, back)[: len(write_row)],
        helper=True,
    )
    b.check(
        "rows_within", (write_row < depth) & (read_row < depth) & (stored <= depth), helper=True
    )
    place = Signal(range(2 * depth + 2))
    m.d.comb += place.eq(read_row + ahead - shown)
    at = Signal(WIDTH)
    with m.Switch(Mux(place >= depth, place - depth, place)):
        for i, row in enumerate(rows):
            with m.Case(i):
                m.d.comb += at.eq(row)
    b.check("word_in_its_row", ~(followed & (ahead >= shown)) | (at == word), helper=True)
    return b
