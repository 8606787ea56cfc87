"""Logits on their way to memory, beside the argmax."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hw.axi.layouts import write_line_layout
from hw.chip_config import LINE_BITS, ChipConfig
from hw.compute.layouts import results_layout
from hw.keys.layouts import line_address_bits, line_request_layout
from hw.library import Unique
from hw.special.layouts import FP32
from model.formats.commands import LINE_BYTES

#: Logits of a line.
LINE_LOGITS = LINE_BITS // FP32.size


class LogitsWriter(Unique):
    """Collects a line of logits for every row, then writes the lines of those that have a part.

    Row r's logits begin at ``line + r * stride``, column after column. While lines are written no
    results are taken: a write port is the narrowest place anyway.

    Throughput: ``16 / drain`` cycles to collect 16 columns, then a cycle a row.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    results : stream of :func:`~hw.compute.layouts.results_layout`, FP32
    line, stride : held from the first result to the last line
    restart : the next result is of column 0
    requests : stream of :func:`~hw.keys.layouts.line_request_layout`, a line each
    lines : stream of :func:`~hw.axi.layouts.write_line_layout`
    idle : nothing is kept

    Raises
    ------
    TypeError
        If config is no ChipConfig.
    """

    module_name = "bsspec_logits_writer"
    label = "logits writer"

    def __init__(self, config: ChipConfig) -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        self.config = config
        super().__init__(
            {
                "results": In(stream.Signature(results_layout(config.core))),
                "line": In(line_address_bits(config)),
                "stride": In(line_address_bits(config)),
                "restart": In(1),
                "requests": Out(stream.Signature(line_request_layout(config))),
                "lines": Out(stream.Signature(write_line_layout())),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        core = self.config.core
        beats = LINE_LOGITS // core.drain
        kept = [Signal(LINE_BITS, name=f"row_{i}", reset_less=True) for i in range(core.t_m)]
        rows = Signal(core.t_m, reset_less=True)
        beat = Signal(range(max(2, beats)))
        # Lines of every row before this one; address of it in the row in work.
        place = Signal(line_address_bits(self.config))
        address = Signal(line_address_bits(self.config))
        row = Signal(range(core.t_m))
        sends = Signal()
        takes = Signal()
        full = Signal()
        m.d.comb += [
            self.results.ready.eq(~sends),
            takes.eq(self.results.valid & ~sends),
            full.eq(beat == beats - 1),
            self.idle.eq(~sends & (beat == 0)),
        ]
        with m.If(takes):
            m.d.sync += [
                beat.eq(beat + 1),
                rows.eq(self.results.payload.rows),
                *(
                    each.eq(Cat(each, self.results.payload.codes[i])[-LINE_BITS:])
                    for i, each in enumerate(kept)
                ),
            ]
            with m.If(full):
                m.d.sync += [
                    beat.eq(0),
                    sends.eq(1),
                    row.eq(0),
                    address.eq(self.line + place),
                    place.eq(place + 1),
                ]
        with m.If(self.restart):
            m.d.sync += place.eq(0)

        # A row a cycle: its request and its line, each of which may be taken first.
        mine = Array(rows)[row]
        asked = Signal()
        given = Signal()
        asks = Signal()
        gives = Signal()
        over = Signal()
        m.d.comb += [
            self.requests.valid.eq(sends & mine & ~asked),
            self.requests.payload.line.eq(address),
            self.requests.payload.count.eq(1),
            self.lines.valid.eq(sends & mine & ~given),
            self.lines.payload.data.eq(Array(kept)[row]),
            self.lines.payload.strobe.eq(Const(-1, LINE_BYTES)),
            asks.eq(asked | self.requests.ready),
            gives.eq(given | self.lines.ready),
            over.eq(sends & (~mine | (asks & gives))),
        ]
        with m.If(sends & mine):
            m.d.sync += [asked.eq(asks & ~gives), given.eq(gives & ~asks)]
        with m.If(over):
            m.d.sync += [row.eq(row + 1), address.eq(address + self.stride)]
            with m.If(row == core.t_m - 1):
                m.d.sync += sends.eq(0)
        return m
