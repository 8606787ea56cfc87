"""Keys of a head and block, from BF16 rows to the planes of an open or a closed block."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hw.axi.layouts import write_line_layout
from hw.chip_config import LINE_BITS, PLANE_LINES, ChipConfig
from hw.compute.layouts import scales_layout
from hw.keys.closer import KeyCloser
from hw.keys.layouts import OPEN_PLANES, keys_job_layout
from hw.keys.maker import KeyMaker
from hw.keys.planes import KeyPlanes
from hw.keys.rows import KeyRows
from hw.keys.scales import KeyScales
from hw.library import Unique, instantiate
from hw.special.flow import Queue
from hw.special.layouts import STATUS

#: Jobs that were taken: one whose planes are made or read, one whose lines come.
JOBS = 2


class KeyTransposer(Unique):
    """BF16 keys of a head and block, tokens ascending, to planes: for the array or for memory.

    Both forms take the same way: lines wait in a ring until their exponents are known (of tokens,
    or of channels), 32 lanes quantise a line a cycle to 16 bits, a corner turner makes bytes of
    eight tokens' bits, and these go into the plane memory. A closed block of fewer planes is the
    first ones of 16, since truncation of a truncated number is truncation.

    An open block is complete until each plane was read ``fold`` times, a use of the array; its
    exponents are given out once, behind it. Then the planes of the next job may be made, whose
    lines have been taken meanwhile.

    Throughput: a line in a cycle, and a line out a cycle. If nothing waits, an open block is
    complete ``16 head_tiles + 13`` cycles after its last line was taken. The first line of a closed
    one comes ``16 head_tiles ceil(tokens / 8) + 13`` cycles after its last row, and it has
    ``head_tiles (1 + 8 p_full)`` lines.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    jobs : stream of :func:`~hw.keys.layouts.keys_job_layout`
    rows : stream of 512 bits
        BF16 keys: ``2 head_tiles`` lines a token, all tokens of a job.
    open_read, open_row -> open_plane
        A plane of the open block: row ``plane * head_tiles + tile``; latency 1, held.
    open_ready
        An open block is complete and not yet used.
    scales : stream of :func:`~hw.compute.layouts.scales_layout`
        Result exponents of an open block.
    closed : stream of :func:`~hw.axi.layouts.write_line_layout`
        The lines of a closed block, in the order of memory.
    idle
        No job is here, all exponents and lines have been taken.
    status, clear
        ``refused``: an Inf or NaN, which counts as zero.

    Raises
    ------
    ValueError
        If the core has fewer planes than an open key.
    """

    module_name = "bsspec_key_transposer"
    label = "keys: transposer"

    def __init__(self, config: ChipConfig) -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        if config.core.p_max != OPEN_PLANES:
            raise ValueError(f"p_max must be {OPEN_PLANES} for open keys, not {config.core.p_max}")
        self.config = config
        super().__init__(
            {
                "jobs": In(stream.Signature(keys_job_layout(config))),
                "rows": In(stream.Signature(unsigned(LINE_BITS))),
                "open_read": In(1),
                "open_row": In((config.ring_rows - 1).bit_length()),
                "open_plane": Out(PLANE_LINES * LINE_BITS),
                "open_ready": Out(1),
                "scales": Out(stream.Signature(scales_layout(config.core))),
                "closed": Out(stream.Signature(write_line_layout())),
                "idle": Out(1),
                "status": Out(STATUS),
                "clear": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        rows = instantiate(m, "rows", KeyRows, config)
        maker = instantiate(m, "maker", KeyMaker, config)
        planes = instantiate(m, "planes", KeyPlanes, config)
        scales = instantiate(m, "scales", KeyScales, config)
        closer = instantiate(m, "closer", KeyCloser, config)
        work = Queue(m, "work", keys_job_layout(config), JOBS)
        job = work.head
        room = Signal()
        m.d.comb += [
            room.eq(work.count != JOBS),
            rows.jobs.valid.eq(self.jobs.valid & room),
            rows.jobs.payload.eq(self.jobs.payload),
            self.jobs.ready.eq(rows.jobs.ready & room),
            work.push.eq(self.jobs.valid & self.jobs.ready),
            work.entry.eq(self.jobs.payload),
            rows.lines.valid.eq(self.rows.valid),
            rows.lines.payload.eq(self.rows.payload),
            self.rows.ready.eq(rows.lines.ready),
            self.status.eq(rows.status),
            rows.clear.eq(self.clear),
        ]

        # An open block is there until it was used, a closed one until it was written out.
        shown = Signal()
        uses = Signal(range(OPEN_PLANES * config.head_tiles_max * config.core.fold + 1))
        used = Signal()
        opened = Signal()
        m.d.comb += [
            opened.eq(maker.made & ~job.close),
            used.eq(shown & self.open_read & (uses == 1)),
            work.pop.eq(used | closer.done),
            self.open_ready.eq(shown),
            self.idle.eq((work.count == 0) & scales.idle),
        ]
        with m.If(opened):
            reads = job.head_tiles * (OPEN_PLANES * config.core.fold)
            m.d.sync += [shown.eq(1), uses.eq(reads)]
        with m.Elif(shown & self.open_read):
            m.d.sync += [shown.eq(~used), uses.eq(uses - 1)]

        m.d.comb += [
            maker.job.eq(job),
            maker.makes.eq((work.count != 0) & ~shown & ~closer.busy & (job.close | scales.room)),
            maker.arrived.eq(rows.arrived),
            rows.freed.eq(maker.freed),
            rows.read.eq(maker.read),
            rows.read_line.eq(maker.read_line),
            rows.read_token.eq(maker.read_token),
            maker.numbers.eq(rows.numbers),
            maker.exponent.eq(rows.exponent),
            maker.channels.eq(rows.channels),
            rows.channels_free.eq(closer.channels_free),
            planes.head_tiles.eq(job.head_tiles),
            *(
                getattr(planes, name).eq(getattr(maker, name))
                for name in ("write", "row", "upper", "place", "ends", "even", "odd")
            ),
            scales.write.eq(maker.scale),
            scales.token.eq(maker.scale_token),
            scales.exponent.eq(maker.scale_exponent),
            scales.complete.eq(opened),
            scales.tokens.eq(job.tokens),
            self.scales.valid.eq(scales.scales.valid),
            self.scales.payload.eq(scales.scales.payload),
            scales.scales.ready.eq(self.scales.ready),
            closer.start.eq(maker.made & job.close),
            closer.job.eq(job),
            closer.channels.eq(rows.channels),
            closer.line.eq(planes.line),
            planes.line_number.eq(closer.line_number),
            planes.read.eq(Mux(shown, self.open_read, closer.read)),
            planes.read_row.eq(Mux(shown, self.open_row[: len(planes.read_row)], closer.row)),
            self.open_plane.eq(planes.plane),
            self.closed.valid.eq(closer.lines.valid),
            self.closed.payload.eq(closer.lines.payload),
            closer.lines.ready.eq(self.closed.ready),
        ]
        return m
