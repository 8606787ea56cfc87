"""A memory that is only read."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hw.library import Unique


class Rom(Unique):
    """Fixed words with one synchronous read port, latency 1.

    In Verilog the words are initial values of a memory that nothing writes: synthesis makes logic
    of them, or a macro takes the module's place.

    Parameters
    ----------
    purpose : str
        Module name becomes ``bsspec_rom_<purpose>``.
    width : int
        Bits of a word.
    content : tuple of int

    Members
    -------
    read_enable, read_row
        Read port; ``read_data`` holds the word from the next cycle until the next read.

    Raises
    ------
    ValueError
        If there are no words, or one does not fit.
    """

    def __init__(self, *, purpose: str, width: int, content: tuple[int, ...]) -> None:
        if not content or any(not 0 <= word < 1 << width for word in content):
            raise ValueError(f"content must be words of {width} bits")
        self.module_name = f"bsspec_rom_{purpose}"
        self.label = f"read-only memory: {purpose}"
        self.width, self.content = width, content
        super().__init__(
            {
                "read_enable": In(1),
                "read_row": In(max(1, ceil_log2(len(content)))),
                "read_data": Out(width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.words = words = memory.Memory(
            shape=self.width, depth=len(self.content), init=self.content
        )
        read = words.read_port()
        m.d.comb += [
            read.en.eq(self.read_enable),
            read.addr.eq(self.read_row[: len(read.addr)]),
            self.read_data.eq(read.data),
        ]
        return m
