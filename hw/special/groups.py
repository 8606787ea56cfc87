"""Groups of beats that wait until something is known of the whole group."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data

from hw.library import instantiate
from hw.memory.ram import Ram
from hw.special.flow import Queue, Stages

#: Groups that are complete and on their way. Four let groups of four beats pass without a gap.
GROUPS_WAITING = 4
#: Beats that come while what is known of a group is on its way.
_SLACK = 4


class Groups:
    """A memory for beats between a stream in and stages behind it.

    A beat is written as it is taken. One cycle later (``seen``) whoever uses this has looked at it,
    and where it is the last one of its group (``closed``) gives the group's ``note``. Then the
    group's beats are read, one a cycle, with their note. A group's first beat is in stage 1 three
    cycles after its last one was taken; meanwhile the next group comes in.

    Parameters
    ----------
    m : Module
    purpose : str
        Name of the memory.
    source : the stream in
    closes : one bit
        Whether the beat at the input is the last of its group. A group of ``rows`` beats ends by
        itself.
    rows : int
        Beats of the longest group.
    note : shape of what is known of a group
    left : one bit
        Whether what is in the last stage is taken.
    stages : int
        Register stages from the read of a beat to the stream out; the memory's is the first.
    room : one bit
        Whether a beat may be taken for all that the user knows.

    Attributes
    ----------
    taken, closing : a beat is taken, and is the last one of its group
    seen, closed : the same one cycle later
    note : driven by the user in the cycle of ``closed``
    stages : Stages
    beat, known : the beat in stage 1 and the note of its group; ``final`` is its last beat
    """

    def __init__(
        self,
        m: Module,
        *,
        purpose: str,
        source: Any,
        closes: Value,
        rows: int,
        note: Any,
        left: Value,
        stages: int,
        room: Value | int = 1,
    ) -> None:
        depth = rows + _SLACK
        layout = data.StructLayout({"beat": source.payload.shape(), "final": 1})
        ram = instantiate(m, "ram", Ram, purpose=purpose, width=layout.size, depth=depth)

        self.taken = Signal(name="taken")
        self.closing = Signal(name="closing")
        occupied = Signal(range(depth + 1), name="occupied")
        open_rows = Signal(range(rows + 1), name="open_rows")
        groups_taken = Signal(range(GROUPS_WAITING + 1), name="groups_taken")
        write_row = Signal(len(ram.write_row), name="next_write_row")
        stored = Signal(layout, name="stored")
        last_row = Signal(name="last_row")
        m.d.comb += [
            source.ready.eq((occupied != depth) & (groups_taken != GROUPS_WAITING) & room),
            self.taken.eq(source.valid & source.ready),
            last_row.eq(closes | (open_rows == rows - 1)),
            self.closing.eq(self.taken & last_row),
            stored.beat.eq(source.payload),
            stored.final.eq(last_row),
            ram.write_enable.eq(self.taken),
            ram.write_row.eq(write_row),
            ram.write_data.eq(stored),
        ]
        with m.If(self.taken):
            m.d.sync += [
                write_row.eq(Mux(write_row == depth - 1, 0, write_row + 1)),
                open_rows.eq(Mux(last_row, 0, open_rows + 1)),
            ]

        self.seen = Signal(name="seen")
        self.closed = Signal(name="closed")
        complete = Signal(range(rows + 1), name="complete", reset_less=True)
        m.d.sync += [
            self.seen.eq(self.taken),
            self.closed.eq(self.closing),
            complete.eq(open_rows + 1),
        ]
        notes = Queue(m, "notes", note, GROUPS_WAITING)
        self.note, self.known = notes.entry, notes.head

        readable = Signal(range(depth + 1), name="readable")
        read = Signal(name="read")
        read_row = Signal(len(ram.read_row), name="next_read_row")
        self.stages = Stages(m, entering=readable != 0, ready=left, count=stages)
        row = data.View(layout, ram.read_data)
        self.beat, self.final = row.beat, row.final
        m.d.comb += [
            notes.push.eq(self.closed),
            notes.pop.eq(self.stages.advance & self.stages.valid[0] & self.final),
            read.eq(self.stages.advance & (readable != 0)),
            ram.read_enable.eq(read),
            ram.read_row.eq(read_row),
        ]
        with m.If(read):
            m.d.sync += read_row.eq(Mux(read_row == depth - 1, 0, read_row + 1))
        m.d.sync += [
            occupied.eq(occupied + self.taken - read),
            readable.eq(readable + Mux(self.closed, complete, 0) - read),
            groups_taken.eq(groups_taken + self.closing - notes.pop),
        ]


def largest(
    m: Module, name: str, candidates: list[tuple[Value, Value]], shape: Any
) -> tuple[Value, Value]:
    """Whether one of ``candidates`` (live, value) is live, and the largest value of those."""
    level = 0
    while len(candidates) > 1:
        winners: list[tuple[Value, Value]] = []
        for i in range(0, len(candidates), 2):
            (a_live, a), (b_live, b) = candidates[i : i + 2]
            winner = Signal(shape, name=f"{name}_{level}_{i}")
            m.d.comb += winner.eq(Mux(b_live & (~a_live | (b > a)), b, a))
            winners.append((a_live | b_live, winner))
        candidates = winners
        level += 1
    return candidates[0]


class GroupLargest:
    """The largest live value of a group of beats, from the beats as they are taken.

    ``live`` and ``value`` are those of the group so far, in the cycle in which a beat is ``seen``;
    ``value`` has no meaning where ``live`` is 0.
    """

    def __init__(
        self, m: Module, groups: Groups, candidates: list[tuple[Value, Value]], shape: Any
    ) -> None:
        any_live, beat_largest = largest(m, "larger", candidates, shape)
        s1_live = Signal(name="s1_live", reset_less=True)
        s1_value = Signal(shape, name="s1_largest", reset_less=True)
        group_live = Signal(name="group_live")
        group_value = Signal(shape, name="group_largest", reset_less=True)
        self.live = Signal(name="live_so_far")
        self.value = Signal(shape, name="largest_so_far")
        m.d.sync += [s1_live.eq(any_live), s1_value.eq(beat_largest)]
        m.d.comb += [
            self.live.eq(group_live | s1_live),
            self.value.eq(
                Mux(s1_live & (~group_live | (s1_value > group_value)), s1_value, group_value)
            ),
        ]
        with m.If(groups.seen):
            m.d.sync += [
                group_live.eq(self.live & ~groups.closed),
                group_value.eq(self.value),
            ]
