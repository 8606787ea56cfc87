"""A queue of lines in a memory."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hw.library import Unique, instantiate
from hw.memory.ram import Ram


class Fifo(Unique):
    """A queue of ``depth`` rows in a memory, and one more in the memory's output.

    Throughput: a row a cycle, in and out. Latency 2. ``i.ready`` depends on registers alone.

    Parameters
    ----------
    purpose : str
        Module name becomes ``bsspec_fifo_<purpose>``; the memory has the same purpose.
    shape : int
        Bits of a row.
    depth : int
        Rows, a power of two, at least 2.

    Members
    -------
    i, o : streams of rows

    Raises
    ------
    ValueError
        If the depth is not a power of two, or below 2.
    """

    def __init__(self, *, purpose: str, shape: int, depth: int) -> None:
        if not isinstance(depth, int) or depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two and at least 2, not {depth!r}")
        self.purpose = purpose
        self.width = shape
        self.depth = depth
        self.module_name = f"bsspec_fifo_{purpose}"
        self.label = f"queue: {purpose}"
        super().__init__(
            {"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))},
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rows = instantiate(m, "rows", Ram, purpose=self.purpose, width=self.width, depth=self.depth)
        stored = Signal(range(self.depth + 1))
        write_row = Signal(range(self.depth))
        read_row = Signal(range(self.depth))
        pushed = Signal()
        fetched = Signal()
        shown = Signal()
        m.d.comb += [
            self.i.ready.eq(stored != self.depth),
            pushed.eq(self.i.valid & self.i.ready),
            # A row that is written now counts as stored from the next cycle on, so it is never
            # read while it is written.
            fetched.eq((stored != 0) & (~shown | self.o.ready)),
            rows.write_enable.eq(pushed),
            rows.write_row.eq(write_row),
            rows.write_data.eq(self.i.payload),
            rows.read_enable.eq(fetched),
            rows.read_row.eq(read_row),
            self.o.payload.eq(rows.read_data),
            self.o.valid.eq(shown),
        ]
        m.d.sync += [
            stored.eq(stored + pushed - fetched),
            write_row.eq(write_row + pushed),
            read_row.eq(read_row + fetched),
            shown.eq(fetched | (shown & ~self.o.ready)),
        ]
        return m
