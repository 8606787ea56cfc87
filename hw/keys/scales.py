"""Result exponents of open keys, kept until the array asks for them."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hw.chip_config import ChipConfig
from hw.compute.layouts import scales_layout
from hw.config import TILE
from hw.library import Unique, instantiate
from hw.memory.ram_bytes import RamBytes

#: Blocks whose exponents are kept: that of the results which leave, and the next one.
BLOCKS = 2


class KeyScales(Unique):
    """``E - 1`` of each token of a block (0 for a token of zeros), given out as ``scales``.

    Results of a block leave while the next one is written, so there are two places. Every block
    is given once, in the order in which they became complete; tokens that are not there get 0.
    Throughput: a beat a cycle. Latency: 2 cycles from ``complete`` to the first beat.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    write, token, exponent
        ``E`` of a token of the block that is being written.
    complete, tokens
        The block is complete, and has so many tokens.
    room : another block may be written
    idle : nothing is kept
    scales : stream of :func:`~hw.compute.layouts.scales_layout`
    """

    module_name = "bsspec_key_scales"
    label = "keys: scales"

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        super().__init__(
            {
                "write": In(1),
                "token": In(range(TILE)),
                "exponent": In(8),
                "complete": In(1),
                "tokens": In(TILE.bit_length()),
                "room": Out(1),
                "idle": Out(1),
                "scales": Out(stream.Signature(scales_layout(config.core))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        drain = self.config.core.drain
        beats = TILE // drain
        column_bits = (drain - 1).bit_length()
        ram = instantiate(
            m, "ram", RamBytes, purpose="key_scales", width=8 * drain, depth=BLOCKS * beats
        )
        written = Signal()
        given = Signal()
        counts = [Signal(TILE.bit_length(), name=f"tokens_{i}", reset_less=True) for i in range(2)]
        waiting = Signal(range(BLOCKS + 1))
        beat = Signal(range(beats))
        shown = Signal()
        alive = Signal(drain, reset_less=True)
        reads = Signal()
        ends = Signal()
        scale = Signal(8)
        m.d.comb += [
            scale.eq(Mux(self.exponent.any(), self.exponent - 1, 0)),
            ram.write_enable.eq(self.write << (self.token[:column_bits] if column_bits else 0)),
            ram.write_row.eq(Cat(self.token[column_bits:], written)),
            ram.write_data.eq(scale.replicate(drain)),
            reads.eq((waiting != 0) & (~shown | self.scales.ready)),
            ends.eq(reads & (beat == beats - 1)),
            ram.read_enable.eq(reads),
            ram.read_row.eq(Cat(beat, given)),
            # The place of the last beat is free once that is read.
            self.room.eq(waiting != BLOCKS),
            self.idle.eq((waiting == 0) & ~shown),
            self.scales.valid.eq(shown),
            self.scales.payload.as_value().eq(
                Cat(ram.read_data[8 * i : 8 * i + 8] & alive[i].replicate(8) for i in range(drain))
            ),
        ]
        m.d.sync += waiting.eq(waiting + self.complete - ends)
        with m.If(self.complete):
            m.d.sync += written.eq(~written)
            for i, count in enumerate(counts):
                with m.If(written == i):
                    m.d.sync += count.eq(self.tokens)
        with m.If(reads):
            tokens = Mux(given, counts[1], counts[0])
            m.d.sync += [
                shown.eq(1),
                beat.eq(beat + 1),
                given.eq(given ^ ends),
                *(alive[i].eq(beat * drain + i < tokens) for i in range(drain)),
            ]
        with m.Elif(self.scales.ready):
            m.d.sync += shown.eq(0)
        return m
