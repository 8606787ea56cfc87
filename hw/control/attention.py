"""Attention, a pass at a time: fetches of keys and values, pieces for the array, jobs."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.chip_config import PLANE_LINES, STAGED_TILES, TILE_WORDS, ChipConfig
from hw.control.matrix import fetch_layout, line_bits
from hw.issue.pieces import GATE_BITS, piece_layout
from hw.keys.layouts import OPEN_PLANES, head_tiles_bits
from hw.library import Unique
from hw.special.epilogue import BLOCK_BITS, epilogue_job_layout, pass_rows_layout
from hw.special.slice import POSITION_BITS, Op

_PLANE_SHIFT = (PLANE_LINES - 1).bit_length()
_WORD_SHIFT = (TILE_WORDS - 1).bit_length()


def pass_layout(config: ChipConfig) -> data.StructLayout:
    """A pass of attention: one sequence, one KV head, neighbouring positions.

    ``keys``, ``values``: first line of the head's closed blocks and of its first n-tile;
    ``value_channels``: lines from n-tile to n-tile; ``head_tiles``; ``p`` planes to load of
    ``p_full``, ``midpoint``; ``source``: bank word of the staged queries, ``target``: of the staged
    results; ``start``: the first position; ``group``: rows a position; ``rows``, of which
    ``rows_first`` are in the first one's block; ``gate`` of the queries.
    """
    core = config.core
    count = core.t_m.bit_length()
    return data.StructLayout(
        {
            "keys": unsigned(line_bits(config)),
            "values": unsigned(line_bits(config)),
            "value_channels": unsigned(line_bits(config)),
            "head_tiles": unsigned(head_tiles_bits(config)),
            "p": unsigned(core.p_bits),
            "p_full": unsigned(core.p_bits),
            "midpoint": 1,
            "source": unsigned(config.word_bits),
            "target": unsigned(config.word_bits),
            "start": unsigned(POSITION_BITS),
            "group": unsigned(count),
            "rows": unsigned(count),
            "rows_first": unsigned(count),
            "gate": unsigned(GATE_BITS),
        }
    )


class AttentionWalker(Unique):
    """Walks through the key tiles of a pass, and the value tiles a few behind them.

    Key tiles ascend. A block is read closed by rows whose own block lies behind it, opened by those
    whose own it is: at most two blocks are somebody's own. Each form is a piece and a job of
    scores; then value tiles, a piece for each n-tile in a context of its own. Keys go ahead by as
    many tiles as there is room for their probabilities. Throughput: a step a cycle, 4 a piece.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    passes : stream of :func:`pass_layout`
        Taken as its last job is.
    rows : stream of :func:`~hw.special.epilogue.pass_rows_layout`
    fetches : stream of :func:`~hw.control.matrix.fetch_layout`
    pieces : stream of :func:`~hw.issue.pieces.piece_layout`
    jobs : stream of :func:`~hw.special.epilogue.epilogue_job_layout`
    """

    module_name = "bsspec_attention_walker"
    label = "control: attention"

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        super().__init__(
            {
                "passes": In(stream.Signature(pass_layout(config))),
                "rows": Out(stream.Signature(pass_rows_layout(config))),
                "fetches": Out(stream.Signature(fetch_layout(config))),
                "pieces": Out(stream.Signature(piece_layout(config))),
                "jobs": Out(stream.Signature(epilogue_job_layout(config))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        each = self.passes.payload
        lines = line_bits(config)

        first_block = Signal(BLOCK_BITS)
        last_block = Signal(BLOCK_BITS)
        m.d.comb += [
            first_block.eq(each.start >> 6),
            last_block.eq(first_block + (each.rows != each.rows_first)),
        ]
        # The key block that is next, in which form; the value tile that is next, its n-tile.
        key = Signal(BLOCK_BITS + 1)
        value = Signal(BLOCK_BITS + 1)
        opened = Signal()
        channels = Signal(head_tiles_bits(config))
        key_offset = Signal(lines)
        value_offset = Signal(lines)
        channel_offset = Signal(lines)

        closed_needed = Signal()
        is_own = Signal()
        last_channels = Signal()
        last_value = Signal()
        m.d.comb += [
            closed_needed.eq(key < last_block),
            is_own.eq(key >= first_block),
            last_channels.eq(channels == each.head_tiles - 1),
            last_value.eq(value == last_block),
        ]

        # What is fetched: a closed block of keys, or a tile of values.
        in_values = Signal()
        tiles = Signal(head_tiles_bits(config))
        first = Signal(lines)
        planes = Signal(range(PLANE_LINES * config.ring_rows + 1))
        m.d.comb += [
            tiles.eq(Mux(in_values, 1, each.head_tiles)),
            planes.eq((tiles * each.p) << _PLANE_SHIFT),
            first.eq(
                Mux(
                    in_values,
                    each.values + value_offset + channel_offset,
                    each.keys + key_offset,
                )
            ),
        ]
        tile_lines = Signal(range(1 + (PLANE_LINES << (config.core.p_bits)) + 1))
        block_lines = Signal(lines)
        m.d.comb += [
            tile_lines.eq(1 + (each.p_full << _PLANE_SHIFT)),
            block_lines.eq(each.head_tiles * tile_lines),
        ]

        fetch, piece, job = self.fetches.payload, self.pieces.payload, self.jobs.payload
        key_done = Signal()
        value_done = Signal()
        pass_done = Signal()
        m.d.comb += job.words.eq(TILE_WORDS)
        with m.FSM():
            with m.State("ROWS"):
                m.d.comb += self.rows.valid.eq(self.passes.valid)
                with m.If(self.passes.valid & self.rows.ready):
                    m.next = "SETUP"
            with m.State("SETUP"):
                m.d.comb += [
                    self.jobs.valid.eq(1),
                    job.op.eq(Op.SETUP),
                    job.barrier.eq(1),
                    job.words.eq(1),
                ]
                with m.If(self.jobs.ready):
                    m.next = "CHOOSE"
            with m.State("CHOOSE"):
                m.d.sync += opened.eq(0)
                with m.If((key <= last_block) & (key < value + STAGED_TILES)):
                    m.d.sync += in_values.eq(0)
                    with m.If(closed_needed):
                        m.next = "EXPONENTS"
                    with m.Else():
                        m.d.sync += opened.eq(1)
                        m.next = "PIECE"
                with m.Else():
                    m.d.sync += in_values.eq(1)
                    m.next = "EXPONENTS"
            with m.State("EXPONENTS"):
                m.d.comb += [
                    self.fetches.valid.eq(1),
                    fetch.line.eq(first),
                    fetch.count.eq(tiles),
                    fetch.exponents.eq(1),
                ]
                with m.If(self.fetches.ready):
                    m.next = "PLANES"
            with m.State("PLANES"):
                m.d.comb += [
                    self.fetches.valid.eq(1),
                    fetch.line.eq(first + tiles),
                    fetch.count.eq(planes),
                ]
                with m.If(self.fetches.ready):
                    m.next = "PIECE"
            with m.State("PIECE"):
                m.d.comb += self.pieces.valid.eq(1)
                with m.If(self.pieces.ready):
                    m.next = "JOB"
                    with m.If(in_values & ~last_value):
                        m.d.comb += value_done.eq(1)
                        m.next = "EXPONENTS"
                        with m.If(last_channels):
                            m.next = "CHOOSE"
            with m.State("JOB"):
                m.d.comb += self.jobs.valid.eq(1)
                with m.If(in_values):
                    m.d.comb += [
                        job.op.eq(Op.SUMS),
                        job.target.eq(each.target + (channels << _WORD_SHIFT)),
                        job.ends.eq(last_channels),
                    ]
                with m.Else():
                    m.d.comb += [job.op.eq(Op.SCORES), job.block.eq(key)]
                with m.If(self.jobs.ready):
                    with m.If(in_values):
                        m.d.comb += value_done.eq(1)
                        m.next = "EXPONENTS"
                        with m.If(last_channels):
                            m.d.comb += pass_done.eq(1)
                            m.next = "ROWS"
                    with m.Elif(~opened & is_own):
                        m.d.sync += opened.eq(1)
                        m.next = "PIECE"
                    with m.Else():
                        m.d.comb += key_done.eq(1)
                        m.next = "CHOOSE"
        m.d.comb += self.passes.ready.eq(pass_done)
        with m.If(key_done):
            m.d.sync += [key.eq(key + 1), key_offset.eq(key_offset + block_lines)]
        with m.If(value_done):
            m.d.sync += [
                channels.eq(Mux(last_channels, 0, channels + 1)),
                channel_offset.eq(Mux(last_channels, 0, channel_offset + each.value_channels)),
            ]
            with m.If(last_channels):
                m.d.sync += [value.eq(value + 1), value_offset.eq(value_offset + tile_lines)]
        with m.If(pass_done):
            m.d.sync += [key.eq(0), value.eq(0), key_offset.eq(0), value_offset.eq(0)]

        rows = self._rows(m, each, Mux(in_values, value, key), first_block, opened)
        m.d.comb += [
            self.rows.payload.start.eq(each.start),
            self.rows.payload.group.eq(each.group),
            self.rows.payload.rows.eq(each.rows),
            piece.tiles.eq(tiles),
            piece.p.eq(Mux(opened, OPEN_PLANES, each.p)),
            piece.opened.eq(opened),
            piece.midpoint.eq(each.midpoint & ~opened),
            piece.first.eq(~in_values | (value == 0)),
            piece.last.eq(~in_values | last_value),
            piece.context.eq(Mux(in_values, channels + 1, 0)),
            piece.fp32.eq(1),
            piece.scaled.eq(opened),
            piece.mix.eq(in_values),
            piece.source.eq(
                Mux(
                    in_values,
                    config.staging + (value[: (STAGED_TILES - 1).bit_length()] << _WORD_SHIFT),
                    each.source,
                )
            ),
            piece.rows.eq(rows),
            piece.gate.eq(each.gate),
        ]
        return m

    def _rows(
        self, m: Module, each: Any, block: Value, first_block: Signal, opened: Signal
    ) -> Signal:
        """Rows that take part: a key tile's closed form is seen by rows whose own block lies behind
        it, its open form by its own rows, a value tile by both."""
        count = self.config.core.t_m
        all_rows = Signal(count)
        early = Signal(count)
        result = Signal(count)
        sees = Mux(self.pieces.payload.mix, block > first_block, block >= first_block)
        m.d.comb += [
            all_rows.eq(Cat(each.rows > i for i in range(count))),
            early.eq(Cat(each.rows_first > i for i in range(count))),
        ]
        with m.If(opened):
            m.d.comb += result.eq(Mux(block == first_block, early, all_rows & ~early))
        with m.Else():
            m.d.comb += result.eq(Mux(sees, all_rows & ~early, all_rows))
        return result
