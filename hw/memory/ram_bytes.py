"""A memory whose rows are written by the byte."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hw.library import Unique


class RamBytes(Unique):
    """Memory with one write port that has an enable a byte, and one synchronous read port.

    Collision rule as of :class:`~hw.memory.ram.Ram`: a row is never read and written in the same
    cycle, whichever bytes are written; the benches check it in every cycle. The read port is not
    transparent. Latency 1, one read and one write a cycle.

    Parameters
    ----------
    purpose : str
        Module name becomes ``bsspec_mem_<purpose>``.
    width, depth : int
        Bits of a row, a multiple of 8; rows.

    Members
    -------
    write_enable, write_row, write_data
        Write port; a bit of ``write_enable`` for each byte of the row.
    read_enable, read_row
        Read port; ``read_data`` holds the row from the next cycle until the next read.

    Raises
    ------
    ValueError
        If a row is no whole bytes, or there is none.
    """

    def __init__(self, *, purpose: str, width: int, depth: int) -> None:
        if width < 8 or width % 8 or depth < 1:
            raise ValueError(
                f"width must be a multiple of 8 and depth at least 1, not {width!r} and {depth!r}"
            )
        self.module_name = f"bsspec_mem_{purpose}"
        self.label = f"memory: {purpose}"
        self.width = width
        self.depth = depth
        row_bits = max(1, ceil_log2(depth))
        super().__init__(
            {
                "write_enable": In(width // 8),
                "write_row": In(row_bits),
                "write_data": In(width),
                "read_enable": In(1),
                "read_row": In(row_bits),
                "read_data": Out(width),
            }
        )

    @property
    def bits(self) -> int:
        """Storage bits of one instance."""
        return self.width * self.depth

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.rows = ram = memory.Memory(shape=self.width, depth=self.depth, init=[])
        write = ram.write_port(granularity=8)
        read = ram.read_port()
        row_bits = len(write.addr)
        m.d.comb += [
            write.en.eq(self.write_enable),
            write.addr.eq(self.write_row[:row_bits]),
            write.data.eq(self.write_data),
            read.en.eq(self.read_enable),
            read.addr.eq(self.read_row[:row_bits]),
            self.read_data.eq(read.data),
        ]
        return m
