"""Planes of the pieces, from the ring or the open keys to the array's broadcast."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.chip_config import LINE_BITS, PLANE_LINES, ChipConfig
from hw.compute.layouts import plane_layout, row_bits
from hw.config import TILE
from hw.issue.pieces import TILES_BITS, piece_layout, position_bits
from hw.library import Unique

_PLANE_BITS = PLANE_LINES * LINE_BITS


class PlaneReader(Unique):
    """Reads planes tile by tile, column group by column group, and gives their rows back.

    In memory a block is plane-major: plane ``b`` of tile ``j`` is row ``b * tiles + j`` of the
    block. A tile is read ``fold`` times, every time all its planes for ``lanes`` columns.
    Throughput: a plane a cycle, from piece to piece too; latency 1 from a read to the stream.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    pieces : stream of :func:`~hw.issue.pieces.piece_layout`
        Taken as its last plane is read.
    frontier
        Position in the stream of lines up to which all have arrived.
    read, opened, row
        A row of the ring, or of the open keys, is read in this cycle.
    plane, open_plane
        What was read last, held.
    planes : stream of :func:`~hw.compute.layouts.plane_layout`
    freed, released
        Row of the ring, modulo twice its rows, and position in the stream of lines, up to which all
        may be written again.
    open_ready
        The open keys of the next piece that is ``opened`` are complete.
    waits
        A plane is due, and not there.
    """

    module_name = "bsspec_plane_reader"
    label = "issue: planes"

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        self.row_bits = (config.ring_rows - 1).bit_length()
        super().__init__(
            {
                "pieces": In(stream.Signature(piece_layout(config))),
                "frontier": In(position_bits(config)),
                "read": Out(1),
                "opened": Out(1),
                "row": Out(self.row_bits),
                "plane": In(_PLANE_BITS),
                "open_plane": In(_PLANE_BITS),
                "open_ready": In(1),
                "waits": Out(1),
                "planes": Out(stream.Signature(plane_layout(config.core))),
                "freed": Out(self.row_bits + 1),
                "released": Out(position_bits(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, core = self.config, self.config.core
        piece = self.pieces.payload
        positions = position_bits(config)

        # Where the block begins: in the ring, and in the stream of lines.
        base = Signal(self.row_bits + 1)
        position = Signal(positions)
        # Where in the block: tile, column group, plane; row = plane * tiles + tile.
        tile = Signal(TILES_BITS)
        group = Signal(row_bits(core.fold))
        plane = Signal(core.p_bits)
        row = Signal(self.row_bits + 1)

        needed = Signal(positions)
        distance = Signal(positions)
        arrived = Signal()
        m.d.comb += [
            needed.eq(position + piece.tiles + ((row + 1) << (PLANE_LINES - 1).bit_length())),
            distance.eq(self.frontier - needed),
            arrived.eq(Mux(piece.opened, self.open_ready, ~distance[-1])),
        ]

        valid = Signal()
        moves = Signal()
        last_plane = Signal()
        last_group = Signal()
        last_tile = Signal()
        m.d.comb += [
            moves.eq(self.pieces.valid & arrived & (~valid | self.planes.ready)),
            self.read.eq(moves),
            self.waits.eq(self.pieces.valid & ~arrived & (~valid | self.planes.ready)),
            self.opened.eq(piece.opened),
            self.row.eq(Mux(piece.opened, 0, base) + row),
            last_plane.eq(plane == piece.p - 1),
            last_group.eq(group == core.fold - 1),
            last_tile.eq(tile == piece.tiles - 1),
            self.pieces.ready.eq(moves & last_plane & last_group & last_tile),
            self.planes.valid.eq(valid),
            self.freed.eq(base),
            self.released.eq(position),
        ]
        with m.If(self.planes.ready):
            m.d.sync += valid.eq(0)
        with m.If(moves):
            m.d.sync += [valid.eq(1), plane.eq(plane + 1), row.eq(row + piece.tiles)]
            with m.If(last_plane):
                m.d.sync += [plane.eq(0), row.eq(tile), group.eq(group + 1)]
                with m.If(last_group):
                    m.d.sync += [group.eq(0), tile.eq(tile + 1), row.eq(tile + 1)]
                    with m.If(last_tile):
                        m.d.sync += [tile.eq(0), row.eq(0)]
                        with m.If(~piece.opened):
                            # ``row`` is that of the block's last plane.
                            m.d.sync += [base.eq(base + row + 1), position.eq(needed)]

        # One column group of what was read.
        shown_opened = Signal(reset_less=True)
        shown_group = Signal.like(group, reset_less=True)
        with m.If(moves):
            m.d.sync += [shown_opened.eq(piece.opened), shown_group.eq(group)]
        read = Signal(data.ArrayLayout(unsigned(TILE), TILE))
        m.d.comb += read.eq(Mux(shown_opened, self.open_plane, self.plane))
        for k in range(TILE):
            groups = [read[k][g * core.lanes : (g + 1) * core.lanes] for g in range(core.fold)]
            m.d.comb += self.planes.payload[k].eq(
                Array(groups)[shown_group] if core.fold > 1 else groups[0]
            )
        return m
