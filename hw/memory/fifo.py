"""A queue between two streams, kept in a memory."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Shape, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.library import Unique, instantiate
from hw.memory.ram import Ram


class Fifo(Unique):
    """Keeps up to ``depth`` words of a stream, and one more at its end.

    Throughput: a word a cycle. Latency: 2. ``valid`` and ``ready`` come from registers, so nothing
    passes from one side to the other in the same cycle.

    Parameters
    ----------
    purpose : str
        Names the module and its memory.
    shape : of a word
    depth : int
        2 or more.

    Members
    -------
    i, o : the streams
    empty : no word is inside

    Raises
    ------
    ValueError
        If depth is below 2.
    """

    def __init__(self, *, purpose: str, shape: Any, depth: int) -> None:
        if not isinstance(depth, int) or depth < 2:
            raise ValueError(f"depth must be an integer of 2 or more, not {depth!r}")
        self.purpose, self.shape, self.depth = purpose, shape, depth
        self.module_name = f"bsspec_fifo_{purpose}"
        self.label = f"queue: {purpose}"
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "empty": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = self.depth
        width = Shape.cast(self.shape).width
        ram = instantiate(m, "ram", Ram, purpose=self.purpose, width=width, depth=depth)
        stored = Signal(range(depth + 1))
        write_row = Signal(range(depth))
        read_row = Signal(range(depth))
        write = Signal()
        read = Signal()
        shown = Signal()
        payload = self.o.payload
        m.d.comb += [
            self.i.ready.eq(stored != depth),
            write.eq(self.i.valid & self.i.ready),
            read.eq((stored != 0) & (~shown | self.o.ready)),
            self.o.valid.eq(shown),
            self.empty.eq((stored == 0) & ~shown),
            ram.write_enable.eq(write),
            ram.write_row.eq(write_row),
            ram.write_data.eq(self.i.payload),
            ram.read_enable.eq(read),
            ram.read_row.eq(read_row),
        ]
        if isinstance(payload, data.View):
            m.d.comb += payload.as_value().eq(ram.read_data)
        else:
            m.d.comb += payload.eq(ram.read_data)
        m.d.sync += stored.eq(stored + write - read)
        for enable, row in ((write, write_row), (read, read_row)):
            with m.If(enable):
                m.d.sync += row.eq(Mux(row == depth - 1, 0, row + 1))
        with m.If(read):
            m.d.sync += shown.eq(1)
        with m.Elif(self.o.ready):
            m.d.sync += shown.eq(0)
        return m
