"""Products of whole matrices: fetches of lines, pieces for the array, jobs for the results."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.chip_config import PLANE_LINES, TILE_WORDS, ChipConfig
from hw.config import TILE
from hw.issue.pieces import GATE_BITS, TILES_BITS, piece_layout
from hw.library import Unique
from hw.special.epilogue import epilogue_job_layout
from hw.special.slice import Op
from model.formats.commands import LINE_BYTES, Epilogue

_PLANE_SHIFT = (PLANE_LINES - 1).bit_length()
#: Width of a count of tiles along one side of a matrix.
SIDE_BITS = 16


def line_bits(config: ChipConfig) -> int:
    """Width of the address of a line."""
    return config.address_bits - (LINE_BYTES - 1).bit_length()


def fetch_layout(config: ChipConfig) -> data.StructLayout:
    """Lines that the stream reader is to bring, and where they go.

    ``line`` of memory, ``count``; ``exponents``: into the exponents beside the ring, else into its
    planes. Both are filled in the order of the fetches.
    """
    return data.StructLayout(
        {
            "line": unsigned(line_bits(config)),
            "count": unsigned((PLANE_LINES * config.ring_rows).bit_length()),
            "exponents": 1,
        }
    )


def matrix_layout(config: ChipConfig) -> data.StructLayout:
    """A product to do.

    ``line``: first line of the matrix; ``k_tiles``, ``n_tiles``, ``tiles_per_block``: its shape;
    ``p`` planes to load of ``p_full``, ``midpoint``; ``source``, ``target``: bank words;
    ``epilogue``: what becomes of the results (:class:`~model.formats.commands.Epilogue`);
    ``tap``: sums enter a norm's first pass too; ``head``: logits instead, of which ``columns`` are
    live in the last tile; ``rows`` that take part; ``gate`` of the inputs.
    """
    core = config.core
    return data.StructLayout(
        {
            "line": unsigned(line_bits(config)),
            "k_tiles": unsigned(SIDE_BITS),
            "n_tiles": unsigned(SIDE_BITS),
            "tiles_per_block": unsigned(TILES_BITS),
            "p": unsigned(core.p_bits),
            "p_full": unsigned(core.p_bits),
            "midpoint": 1,
            "source": unsigned(config.word_bits),
            "target": unsigned(config.word_bits),
            "epilogue": unsigned(2),
            "tap": 1,
            "head": 1,
            "columns": unsigned(TILE.bit_length()),
            "rows": unsigned(core.t_m),
            "gate": unsigned(GATE_BITS),
        }
    )


class MatrixWalker(Unique):
    """Walks through a matrix in the order of memory, a block in four cycles.

    A block is two fetches (its exponents, its first ``p`` planes, side by side in memory), then a
    piece; the last block of an output tile is followed by the tile's job. Nothing here waits for
    data: whoever takes the streams says how far the walk may run ahead.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    matrices : stream of :func:`matrix_layout`
        Taken as its last job is.
    fetches : stream of :func:`fetch_layout`
    pieces : stream of :func:`~hw.issue.pieces.piece_layout`
    jobs : stream of :func:`~hw.special.epilogue.epilogue_job_layout`
    """

    module_name = "bsspec_matrix_walker"
    label = "control: matrices"

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        super().__init__(
            {
                "matrices": In(stream.Signature(matrix_layout(config))),
                "fetches": Out(stream.Signature(fetch_layout(config))),
                "pieces": Out(stream.Signature(piece_layout(config))),
                "jobs": Out(stream.Signature(epilogue_job_layout(config))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        matrix = self.matrices.payload

        # Where the walk is: output tile, first k-tile of the block, lines behind the matrix' first.
        n = Signal(SIDE_BITS)
        k = Signal(SIDE_BITS)
        offset = Signal(line_bits(config))
        left = Signal(SIDE_BITS)
        tiles = Signal(TILES_BITS)
        planes = Signal(range(PLANE_LINES * config.ring_rows + 1))
        last_block = Signal()
        last_tile = Signal()
        m.d.comb += [
            left.eq(matrix.k_tiles - k),
            last_block.eq(left <= matrix.tiles_per_block),
            last_tile.eq(n == matrix.n_tiles - 1),
            tiles.eq(Mux(last_block, left, matrix.tiles_per_block)),
            planes.eq((tiles * matrix.p) << _PLANE_SHIFT),
        ]

        fetch, piece, job = self.fetches.payload, self.pieces.payload, self.jobs.payload
        first = Signal(line_bits(config))
        m.d.comb += first.eq(matrix.line + offset)
        advance = Signal()
        with m.FSM():
            with m.State("EXPONENTS"):
                m.d.comb += [
                    self.fetches.valid.eq(self.matrices.valid),
                    fetch.line.eq(first),
                    fetch.count.eq(tiles),
                    fetch.exponents.eq(1),
                ]
                with m.If(self.fetches.valid & self.fetches.ready):
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
                    m.d.comb += advance.eq(1)
                    m.next = "EXPONENTS"
                    with m.If(last_block):
                        m.d.comb += advance.eq(0)
                        m.next = "JOB"
            with m.State("JOB"):
                m.d.comb += self.jobs.valid.eq(1)
                with m.If(self.jobs.ready):
                    m.d.comb += [advance.eq(1), self.matrices.ready.eq(last_tile)]
                    m.next = "EXPONENTS"
        with m.If(advance):
            m.d.sync += [
                offset.eq(offset + tiles + ((tiles * matrix.p_full) << _PLANE_SHIFT)),
                k.eq(k + tiles),
            ]
            with m.If(last_block):
                m.d.sync += [k.eq(0), n.eq(n + 1)]
                with m.If(last_tile):
                    m.d.sync += [n.eq(0), offset.eq(0)]

        m.d.comb += [
            piece.tiles.eq(tiles),
            piece.p.eq(matrix.p),
            piece.midpoint.eq(matrix.midpoint),
            piece.first.eq(k == 0),
            piece.last.eq(last_block),
            piece.fp32.eq(matrix.head),
            piece.source.eq(matrix.source + (k << (TILE_WORDS - 1).bit_length())),
            piece.rows.eq(matrix.rows),
            piece.gate.eq(matrix.gate),
        ]

        # Gates and ups alternate: two output tiles become one.
        silu = Signal()
        shown = Signal(SIDE_BITS)
        target = Signal(config.word_bits)
        residual = matrix.epilogue == Epilogue.RESIDUAL
        m.d.comb += [
            silu.eq(matrix.epilogue == Epilogue.SILU_UP),
            shown.eq(Mux(silu, n >> 1, n)),
            target.eq(matrix.target + (shown << (TILE_WORDS - 1).bit_length())),
            job.words.eq(TILE_WORDS),
            job.source.eq(target),
            job.target.eq(target),
            job.tap.eq(residual & matrix.tap & ~matrix.head),
            job.ends.eq(last_tile),
            job.columns.eq(Mux(last_tile, matrix.columns, TILE)),
            # The first job of a residual sum reads what may just be on its way to the banks.
            job.barrier.eq(residual & (n == 0) & ~matrix.head),
        ]
        with m.If(matrix.head):
            m.d.comb += job.op.eq(Op.LOGITS)
        with m.Elif(residual):
            m.d.comb += job.op.eq(Op.RESIDUAL)
        with m.Elif(silu):
            m.d.comb += job.op.eq(Mux(n[0], Op.UP, Op.GATE))
        with m.Else():
            m.d.comb += job.op.eq(Op.PASS)
        return m
