"""Rows of values into their tiles: a byte of exponent, eight bytes a plane."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hw.axi.layouts import write_line_layout
from hw.chip_config import LINE_BITS, PLANE_LINES, WORD_BITS, ChipConfig
from hw.config import TILE
from hw.keys.layouts import OPEN_PLANES, line_request_layout, value_job_layout
from hw.library import Unique, instantiate
from hw.memory.ram_bytes import RamBytes
from hw.special.layouts import beat_layout
from hw.special.quantizer import member_layout

#: Rows of a tile that share a line of a plane.
LINE_ROWS = LINE_BITS // TILE
#: Bytes of a row of a plane.
ROW_BYTES = TILE // 8


class ValueWriter(Unique):
    """A quantised row of 64 channels to single lines with byte strobes, of which it is a part.

    A row has a byte in the first line of its tile and eight in a line of each plane. Eight
    neighbouring rows share these lines: rows that follow each other and fall into the same ones
    are kept and written together, until one falls elsewhere or is ``last``. So ``n`` rows of a
    sequence that a step verifies cost ``1 + p_full`` writes instead of ``n (1 + p_full)``.

    A row is turned into planes one plane a cycle. Throughput: ``64 / elements + p_full`` cycles a
    row; the lines leave a cycle each, while the next row comes. Latency: the first line
    ``p_full + 2`` cycles after the last members of a row that is ``last``.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    jobs : stream of :func:`~hw.keys.layouts.value_job_layout`
        One a row. Rows that are merged have one p_full.
    exponents : stream of E, one a row
    members : stream of beats of :func:`~hw.special.quantizer.member_layout`, 64 live ones a row
        Of 16 bits: the planes of a narrower number are the first ones of these.
    requests : stream of :func:`~hw.keys.layouts.line_request_layout`, a line each
    lines : stream of :func:`~hw.axi.layouts.write_line_layout`
    idle : no row is kept, all lines have been taken
    """

    module_name = "bsspec_value_writer"
    label = "values: writer"

    def __init__(self, config: ChipConfig) -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        self.config = config
        self.elements = config.core.special_elements
        members = beat_layout(member_layout(OPEN_PLANES), self.elements, "last")
        super().__init__(
            {
                "jobs": In(stream.Signature(value_job_layout(config))),
                "exponents": In(stream.Signature(unsigned(8))),
                "members": In(stream.Signature(members)),
                "requests": Out(stream.Signature(line_request_layout(config))),
                "lines": Out(stream.Signature(write_line_layout())),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        job = self.jobs.payload

        # A row comes, and leaves plane by plane: its numbers move up a bit a cycle.
        full = Signal()
        turns = Signal()
        turned = Signal()
        taken = Signal()
        row = [Signal(OPEN_PLANES, name=f"channel_{i}", reset_less=True) for i in range(TILE)]
        beat = [
            Cat(member.magnitude, member.sign)
            for member in (self.members.payload.values[i] for i in range(self.elements))
        ]
        m.d.comb += [self.members.ready.eq(~full), taken.eq(self.members.valid & ~full)]
        with m.If(taken):
            for channel, following in zip(row, [*row[self.elements :], *beat], strict=True):
                m.d.sync += channel.eq(following)
            m.d.sync += full.eq(self.members.payload.last)
        with m.Elif(turns):
            m.d.sync += [channel.eq(channel << 1) for channel in row]
            m.d.sync += full.eq(~turned)

        # What is kept: rows of one line, and which ones.
        kept = Signal(LINE_ROWS)
        tile = Signal(job.line.shape(), reset_less=True)
        eighth = Signal(range(TILE // LINE_ROWS), reset_less=True)
        planes = Signal(job.p_full.shape(), reset_less=True)
        exponents = [Signal(8, name=f"exponent_{i}", reset_less=True) for i in range(LINE_ROWS)]
        place = job.token[: (LINE_ROWS - 1).bit_length()]
        plane = Signal(range(OPEN_PLANES))
        writing = Signal()
        elsewhere = Signal()
        m.d.comb += [
            elsewhere.eq(kept.any() & ((job.line != tile) | (job.token[len(place) :] != eighth))),
            turns.eq(full & self.jobs.valid & self.exponents.valid & ~writing & ~elsewhere),
            turned.eq(turns & (plane == job.p_full - 1)),
            self.jobs.ready.eq(turned),
            self.exponents.ready.eq(turned),
        ]
        ram = instantiate(m, "ram", RamBytes, purpose="value_rows", width=LINE_BITS, depth=16)
        bits = Cat(channel[-1] for channel in row)
        m.d.comb += [
            ram.write_enable.eq(
                Cat((turns & (place == i)).replicate(ROW_BYTES) for i in range(LINE_ROWS))
            ),
            ram.write_row.eq(plane),
            ram.write_data.eq(bits.replicate(LINE_ROWS)),
        ]
        with m.If(turns):
            m.d.sync += plane.eq(Mux(turned, 0, plane + 1))
        with m.If(turned):
            m.d.sync += [
                tile.eq(job.line),
                eighth.eq(job.token[len(place) :]),
                planes.eq(job.p_full),
            ]
            for i, exponent in enumerate(exponents):
                with m.If(place == i):
                    m.d.sync += [exponent.eq(self.exponents.payload), kept[i].eq(1)]
        ends = self._write(m, ram, writing, kept, tile, eighth, planes, exponents)
        with m.If((turned & job.last) | (self.jobs.valid & elsewhere & ~writing)):
            m.d.sync += writing.eq(1)
        with m.Elif(ends):
            m.d.sync += [writing.eq(0), kept.eq(0)]
        m.d.comb += self.idle.eq(~full & ~kept.any())
        return m

    def _write(
        self,
        m: Module,
        ram: RamBytes,
        writing: Signal,
        kept: Signal,
        tile: Signal,
        eighth: Signal,
        planes: Signal,
        exponents: list[Signal],
    ) -> Signal:
        """The lines of what is kept, the exponents first; gives whether the last one leaves."""
        # Which line is shown: 0 the exponents, then the planes.
        number = Signal(range(OPEN_PLANES + 1))
        line = Signal(tile.shape(), reset_less=True)
        shown = Signal()
        asked = Signal()
        given = Signal()
        moves = Signal()
        ends = Signal()
        m.d.comb += [
            self.requests.valid.eq(shown & ~asked),
            self.requests.payload.line.eq(line),
            self.requests.payload.count.eq(1),
            self.lines.valid.eq(shown & ~given),
            moves.eq(shown & (asked | self.requests.ready) & (given | self.lines.ready)),
            ends.eq(moves & (number == planes)),
            # The row of the line that follows.
            ram.read_enable.eq(moves & ~ends),
            ram.read_row.eq(number),
        ]
        with m.If(shown):
            m.d.sync += [
                asked.eq((asked | self.requests.ready) & ~moves),
                given.eq((given | self.lines.ready) & ~moves),
            ]
        with m.If(moves):
            m.d.sync += [
                number.eq(Mux(ends, 0, number + 1)),
                line.eq(Mux(number == 0, tile + 1 + eighth, line + PLANE_LINES)),
                shown.eq(~ends),
            ]
        with m.Elif(writing & ~shown):
            m.d.sync += [shown.eq(1), line.eq(tile)]

        # Bytes that are not written are zeros, not what was there before.
        rows = Cat(kept[i].replicate(ROW_BYTES) for i in range(LINE_ROWS))
        eighths = TILE // LINE_ROWS
        here = Cat((eighth == i).replicate(LINE_ROWS) for i in range(eighths))
        first = number == 0
        strobe = Signal(LINE_BITS // 8)
        content = Signal(LINE_BITS)
        m.d.comb += [
            strobe.eq(Mux(first, kept.replicate(eighths) & here, rows)),
            content.eq(Mux(first, Cat(exponents).replicate(eighths), ram.read_data)),
            self.lines.payload.strobe.eq(strobe),
            self.lines.payload.data.eq(
                Cat(
                    content[8 * i : 8 * i + 8] & strobe[i].replicate(8)
                    for i in range(LINE_BITS // 8)
                )
            ),
        ]
        return ends


class RowWriter(Unique):
    """BF16 rows from bank words to whole lines: open keys.

    Throughput: a word a cycle, half a line. Latency: a line leaves with its last word, a request
    comes a cycle after its job.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    jobs : stream of :func:`~hw.keys.layouts.line_request_layout`
        Address of a row and its lines, ``2 head_tiles`` for a key.
    words : stream of 256 bits, two a line, the lower one first
    requests : stream of :func:`~hw.keys.layouts.line_request_layout`
    lines : stream of :func:`~hw.axi.layouts.write_line_layout`
    idle : all lines have been taken
    """

    module_name = "bsspec_row_writer"
    label = "keys: row writer"

    def __init__(self, config: ChipConfig) -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        self.config = config
        super().__init__(
            {
                "jobs": In(stream.Signature(line_request_layout(config))),
                "words": In(stream.Signature(unsigned(WORD_BITS))),
                "requests": Out(stream.Signature(line_request_layout(config))),
                "lines": Out(stream.Signature(write_line_layout())),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pending = Signal()
        request = Signal(line_request_layout(self.config), reset_less=True)
        left = Signal(request.count.shape())
        lower = Signal(WORD_BITS, reset_less=True)
        half = Signal()
        taken = Signal()
        m.d.comb += [
            self.jobs.ready.eq(~pending & (left == 0)),
            self.requests.valid.eq(pending),
            self.requests.payload.eq(request),
            self.idle.eq(~pending & (left == 0)),
            self.lines.valid.eq(half & self.words.valid),
            self.lines.payload.data.eq(Cat(lower, self.words.payload)),
            self.lines.payload.strobe.eq(~0),
            self.words.ready.eq((left != 0) & (~half | self.lines.ready)),
            taken.eq(self.words.valid & self.words.ready),
        ]
        with m.If(taken):
            m.d.sync += half.eq(~half)
            with m.If(half):
                m.d.sync += left.eq(left - 1)
            with m.Else():
                m.d.sync += lower.eq(self.words.payload)
        with m.If(self.requests.ready):
            m.d.sync += pending.eq(0)
        with m.If(self.jobs.valid & self.jobs.ready):
            m.d.sync += [
                pending.eq(1),
                request.eq(self.jobs.payload),
                left.eq(self.jobs.payload.count),
            ]
        return m
