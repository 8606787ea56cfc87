"""The unified buffer: a bank of activations a row."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.chip_config import WORD_BITS, ChipConfig
from hw.library import Unique, instantiate
from hw.memory.ram import Ram


class UnifiedBuffer(Unique):
    """A bank of ``bank_words`` words of 16 BF16 elements for each row.

    All banks are read at the same word; each has its own write port. The array's front goes first:
    another read is granted where the front asks for none. A word is never read and written in the
    same cycle; who writes and reads sees to it. Latency of a read 1; a read and a write a cycle.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    front_read, front_word
        The front's read.
    other_read, other_word, other_granted
        Another read, granted in the cycle in which it is asked for.
    data
        What was read last, a word a row.
    write_enable, write_word, write_data
        A write for each row.
    """

    module_name = "bsspec_unified_buffer"
    label = "memory: unified buffer"

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        rows = config.core.t_m
        words = data.ArrayLayout(unsigned(WORD_BITS), rows)
        super().__init__(
            {
                "front_read": In(1),
                "front_word": In(config.word_bits),
                "other_read": In(1),
                "other_word": In(config.word_bits),
                "other_granted": Out(1),
                "data": Out(words),
                "write_enable": In(rows),
                "write_word": In(data.ArrayLayout(unsigned(config.word_bits), rows)),
                "write_data": In(words),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.d.comb += self.other_granted.eq(self.other_read & ~self.front_read)
        for row in range(config.core.t_m):
            bank = instantiate(
                m, f"bank_{row}", Ram, purpose="bank", width=WORD_BITS, depth=config.bank_words
            )
            m.d.comb += [
                bank.read_enable.eq(self.front_read | self.other_read),
                bank.read_row.eq(Mux(self.front_read, self.front_word, self.other_word)),
                bank.write_enable.eq(self.write_enable[row]),
                bank.write_row.eq(self.write_word[row]),
                bank.write_data.eq(self.write_data[row]),
                self.data[row].eq(bank.read_data),
            ]
        return m
