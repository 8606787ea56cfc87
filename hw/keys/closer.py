"""A closed block's lines, from its exponents and planes."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.axi.layouts import write_line_layout
from hw.chip_config import LINE_BITS, PLANE_LINES, ChipConfig
from hw.keys.layouts import TILE_LINES, keys_job_layout
from hw.keys.planes import planes_row_bits
from hw.keys.rows import LINE_EXPONENTS
from hw.library import Unique


class KeyCloser(Unique):
    """Exponents of every tile, then the planes of every tile, as lines in the order of memory.

    Throughput: a line a cycle, from the exponents to the planes too. Latency: 1 cycle from
    ``start`` to the first line.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    start : the planes of the job are complete after this cycle
    job : :func:`~hw.keys.layouts.keys_job_layout`, held
    channels : exponents, as in :class:`~hw.keys.rows.KeyRows`
    channels_free : they are needed no longer
    read, row, line_number, line : of :class:`~hw.keys.planes.KeyPlanes`
    lines : stream of :func:`~hw.axi.layouts.write_line_layout`
    busy, done : between start and the last line; the last line is taken
    """

    module_name = "bsspec_key_closer"
    label = "keys: closed blocks"

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        self.row_lines = TILE_LINES * config.head_tiles_max
        super().__init__(
            {
                "start": In(1),
                "job": In(keys_job_layout(config)),
                "channels": In(data.ArrayLayout(LINE_EXPONENTS, self.row_lines)),
                "channels_free": Out(1),
                "read": Out(1),
                "row": Out(planes_row_bits(config)),
                "line_number": Out((PLANE_LINES - 1).bit_length()),
                "line": In(LINE_BITS),
                "lines": Out(stream.Signature(write_line_layout())),
                "busy": Out(1),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        job, out = self.job, self.lines
        busy = Signal()
        in_planes = Signal()
        # Of the exponents the tile, of the planes the row that is read next.
        row = Signal(range(1 << (planes_row_bits(self.config))))
        rows_left = Signal(planes_row_bits(self.config) + 1)
        number = Signal(range(PLANE_LINES))
        taken = Signal()
        last = Signal()
        m.d.comb += [
            self.busy.eq(busy),
            out.valid.eq(busy),
            out.payload.strobe.eq(~0),
            taken.eq(busy & out.ready),
            last.eq(taken & Mux(in_planes, number == PLANE_LINES - 1, row == job.head_tiles - 1)),
            self.line_number.eq(number),
            self.channels_free.eq(last & ~in_planes),
            self.read.eq(last & (rows_left != 0)),
            self.row.eq(Mux(in_planes, row, 0)),
            self.done.eq(last & (rows_left == 0)),
        ]
        tiles = [
            Cat(self.channels[TILE_LINES * i + j] for j in range(TILE_LINES))
            for i in range(self.config.head_tiles_max)
        ]
        exponents = Array(tiles)[row] if len(tiles) > 1 else tiles[0]
        m.d.comb += out.payload.data.eq(Mux(in_planes, self.line, exponents))
        with m.If(taken):
            with m.If(in_planes):
                m.d.sync += number.eq(number + 1)
            with m.Else():
                m.d.sync += row.eq(row + 1)
            with m.If(last):
                m.d.sync += [
                    in_planes.eq(1),
                    row.eq(self.row + 1),
                    rows_left.eq(rows_left - 1),
                ]
        with m.If(self.start):
            m.d.sync += [
                busy.eq(1),
                in_planes.eq(0),
                row.eq(0),
                number.eq(0),
                rows_left.eq(job.p_full * job.head_tiles),
            ]
        with m.Elif(self.done):
            m.d.sync += busy.eq(0)
        return m
