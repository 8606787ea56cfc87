"""Activations and shared exponents of the pieces, a tile ahead of their planes."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.chip_config import TILE_WORDS, WORD_BITS, ChipConfig
from hw.compute.layouts import activations_layout, exponents_layout, tiles_layout
from hw.config import GROUPS, RISE_BITS
from hw.issue.pieces import (
    EXPONENT_LINE,
    GATE_BITS,
    TILES_BITS,
    jobs_bits,
    piece_layout,
    position_bits,
)
from hw.library import Unique

assert TILE_WORDS == GROUPS


class TileFront(Unique):
    """Gives the array a tile's word and, in four groups, its activations and exponents.

    A group is a bank word of every row, and 16 bytes of the tile's line of exponents. The banks'
    read port is shared: this side goes first, and where another read comes while a word waits, it
    is read again. Throughput: a group a cycle. Latency: 1 from a read to the streams.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    pieces : stream of :func:`~hw.issue.pieces.piece_layout`
        Taken with its last tile's last group.
    frontier
        Position in the stream of lines up to which all have arrived.
    exponent_read, exponent_line -> exponent_data
        Port of the ring's exponents.
    bank_read, bank_word -> bank_data
        Read of one word of all banks in this cycle; its data is there in the next one, and until
        the port's next read.
    bank_other
        Someone else reads in this cycle. Only while ``bank_read`` is 0.
    written, writing, write_next
        Jobs whose words are all in the banks; the next one is being written, ascending, and up to
        which word.
    gates
        Gates that are open.
    mix, go
        The word is one of probabilities; it is there and may be read.
    rises
        Of the next tile of probabilities, looked at while ``mix`` and ``go``.
    mix_taken, mix_ends
        The last group of a tile of probabilities is taken: its words and rises are free. It was of
        the output tile's last tile.
    tiles, activations, exponents : streams of the array, valid together
        An exponent of 255 beside probabilities becomes 0, which makes its group zeros too, but is
        not refused.
    """

    module_name = "bsspec_tile_front"
    label = "issue: front"

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        core = config.core
        super().__init__(
            {
                "pieces": In(stream.Signature(piece_layout(config))),
                "frontier": In(position_bits(config)),
                "exponent_read": Out(1),
                "exponent_line": Out((config.exponent_lines - 1).bit_length()),
                "exponent_data": In(EXPONENT_LINE),
                "bank_read": Out(1),
                "bank_word": Out(config.word_bits),
                "bank_data": In(data.ArrayLayout(unsigned(WORD_BITS), core.t_m)),
                "bank_other": In(1),
                "written": In(jobs_bits(config)),
                "writing": In(1),
                "write_next": In(config.word_bits),
                "gates": In(GATE_BITS),
                "mix": Out(1),
                "go": In(1),
                "rises": In(data.ArrayLayout(unsigned(RISE_BITS), core.t_m)),
                "mix_taken": Out(1),
                "mix_ends": Out(1),
                "tiles": Out(stream.Signature(tiles_layout(core))),
                "activations": Out(stream.Signature(activations_layout(core))),
                "exponents": Out(stream.Signature(exponents_layout(core))),
            }
        )

    def _may_read(self, m: Module) -> Signal:
        """Whether the word is in the banks: its gate is open, and its jobs are that far."""
        piece = self.pieces.payload
        missing = Signal(len(self.written))
        shut = Signal(len(self.gates))
        result = Signal()
        m.d.comb += [
            missing.eq(piece.needs - self.written),
            shut.eq(piece.gate - self.gates),
            result.eq(
                (shut[-1] | (shut == 0))
                & (
                    (missing[-1] | (missing == 0))
                    | ((missing == 1) & self.writing & (self.bank_word < self.write_next))
                )
            ),
        ]
        return result

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, core = self.config, self.config.core
        piece = self.pieces.payload
        positions = position_bits(config)

        # Lines of exponents: a block has one a tile, then its planes.
        line = Signal(len(self.exponent_line))
        position = Signal(positions)
        needed = Signal(positions)
        distance = Signal(positions)
        arrived = Signal()
        tile = Signal(TILES_BITS)
        group = Signal(range(GROUPS))
        m.d.comb += [
            needed.eq(position + tile + 1),
            distance.eq(self.frontier - needed),
            arrived.eq(piece.opened | ~distance[-1]),
        ]

        # The word that is shown, and the next one to read. They differ in time by one cycle.
        shown = Signal()
        taken = Signal()
        reads = Signal()
        lost = Signal()
        last_group = Signal()
        last_tile = Signal()
        ends = Signal()
        m.d.comb += [
            last_group.eq(group == GROUPS - 1),
            last_tile.eq(tile == piece.tiles - 1),
            taken.eq(shown & self.activations.ready),
            lost.eq(shown & ~taken & self.bank_other),
        ]

        # ``group`` and ``tile`` are those of the word that is shown or, where none is, of the one
        # to be read. In the cycle in which a word is taken its successor is read.
        next_group = Signal(range(GROUPS))
        next_tile = Signal(TILES_BITS)
        ahead = Signal()  # Whether the successor belongs to the same piece.
        word_tile = Signal(TILES_BITS)
        word_group = Signal(range(GROUPS))
        next_arrived = Signal()
        next_distance = Signal(positions)
        m.d.comb += [
            next_group.eq(group + 1),
            next_tile.eq(tile + last_group),
            ahead.eq(~(last_group & last_tile)),
            next_distance.eq(self.frontier - (position + next_tile + 1)),
            next_arrived.eq(piece.opened | ~next_distance[-1]),
            word_tile.eq(Mux(shown, next_tile, tile)),
            word_group.eq(Mux(shown, next_group, group)),
            reads.eq(
                self.pieces.valid
                & self.go
                & self._may_read(m)
                & Mux(shown, taken & ahead & next_arrived, arrived)
            ),
            ends.eq(taken & ~ahead),
            self.pieces.ready.eq(ends),
            self.mix.eq(piece.mix),
            self.mix_taken.eq(taken & last_group & piece.mix),
            self.mix_ends.eq(piece.last & last_tile),
            self.bank_read.eq(reads),
            self.bank_word.eq(piece.source + (word_tile << 2) + word_group),
            self.exponent_read.eq(reads & (word_group == 0) & ~piece.opened),
            self.exponent_line.eq(line + word_tile),
        ]
        with m.If(taken | lost):
            m.d.sync += shown.eq(0)
        with m.If(taken):
            m.d.sync += [group.eq(next_group), tile.eq(next_tile)]
        with m.If(reads):
            m.d.sync += shown.eq(1)
        with m.If(ends):
            m.d.sync += tile.eq(0)
            with m.If(~piece.opened):
                m.d.sync += [
                    line.eq(line + piece.tiles),
                    position.eq(position + piece.tiles + ((piece.tiles * piece.p) << 3)),
                ]

        word = self.tiles.payload
        m.d.comb += [
            self.tiles.valid.eq(shown),
            self.activations.valid.eq(shown),
            self.exponents.valid.eq(shown),
            word.p.eq(piece.p),
            word.midpoint.eq(piece.midpoint),
            word.first.eq(piece.first & (tile == 0)),
            word.last.eq(piece.last & last_tile),
            word.context.eq(piece.context),
            word.fp32.eq(piece.fp32),
            word.scaled.eq(piece.scaled),
            word.rows.eq(piece.rows),
            word.rises.eq(Mux(piece.mix, self.rises, 0)),
            self.activations.payload.eq(self.bank_data),
        ]
        for i in range(core.group_k):
            bytes_of = [self.exponent_data[g * core.group_k + i] for g in range(GROUPS)]
            chosen: object = bytes_of[-1]
            for g in reversed(range(GROUPS - 1)):
                chosen = Mux(group == g, bytes_of[g], chosen)
            byte = Signal(8, name=f"exponent_{i}")
            m.d.comb += [
                byte.eq(chosen),
                # Beyond the last value of a cache there may be anything, beside probabilities of 0.
                self.exponents.payload[i].eq(
                    Mux(piece.opened, 1, Mux(piece.mix & byte.all(), 0, byte))
                ),
            ]
        return m
