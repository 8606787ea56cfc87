"""Several units that write lines, on one writer."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Module, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.axi.config import COUNT_BITS
from hw.axi.layouts import request_layout, write_line_layout
from hw.chip_config import ChipConfig
from hw.keys.layouts import line_request_layout
from hw.library import Unique
from hw.special.flow import Queue

#: Requests whose lines have not all passed.
REQUESTS = 4


class WriteArbiter(Unique):
    """Requests of several sources, and the lines of each request together.

    Whoever comes after the source of the last request goes first. A request that was shown stays
    until it is taken. Lines follow in the order of the requests.

    Throughput: a request and a line a cycle. Latency: none, in both directions; a line passes from
    the cycle after that of its request on.

    Parameters
    ----------
    config : ChipConfig
    sources : int

    Members
    -------
    requests_0, requests_1, ... : streams of :func:`~hw.keys.layouts.line_request_layout`
    lines_0, lines_1, ... : streams of :func:`~hw.axi.layouts.write_line_layout`
        Those of the source's requests, one after the other. They wait for their request.
    requests : stream of :func:`~hw.axi.layouts.request_layout`
        ``tag`` is the number of the source.
    lines : stream of :func:`~hw.axi.layouts.write_line_layout`
    idle : no line of a request that was taken is outstanding

    Raises
    ------
    TypeError
        If a parameter has the wrong kind.
    ValueError
        If the number of a source does not fit into a tag.
    """

    module_name = "bsspec_write_arbiter"
    label = "write arbiter"

    def __init__(self, config: ChipConfig, *, sources: int) -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        if not isinstance(sources, int) or isinstance(sources, bool):
            raise TypeError(f"sources must be an integer, not {sources!r}")
        most = 1 << config.memory.tag_bits
        if not 1 <= sources <= most:
            raise ValueError(f"sources must be 1 to {most}, not {sources}")
        self.config = config
        self.sources = sources
        members: dict[str, Any] = {
            "requests": Out(stream.Signature(request_layout(config.memory))),
            "lines": Out(stream.Signature(write_line_layout())),
            "idle": Out(1),
        }
        for i in range(sources):
            members[f"requests_{i}"] = In(stream.Signature(line_request_layout(config)))
            members[f"lines_{i}"] = In(stream.Signature(write_line_layout()))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = self.sources
        requests = [getattr(self, f"requests_{i}") for i in range(count)]
        lines = [getattr(self, f"lines_{i}") for i in range(count)]
        number = unsigned(max(1, (count - 1).bit_length()))

        # Who asks.
        last = Signal(number, init=count - 1)
        held = Signal()
        chosen = Signal(number)
        with m.Switch(last):
            for i in range(count):
                with m.Case(i):
                    m.d.comb += chosen.eq(i)
                    # The first one behind it overrides those further on.
                    for distance in range(count - 1, 0, -1):
                        other = (i + distance) % count
                        with m.If(~held & requests[other].valid):
                            m.d.comb += chosen.eq(other)
        work = Queue(
            m, "work", data.StructLayout({"source": number, "count": COUNT_BITS}), REQUESTS
        )
        room = Signal()
        request = self.requests
        m.d.comb += [
            room.eq(work.count != REQUESTS),
            request.valid.eq(Array(each.valid for each in requests)[chosen] & room),
            request.payload.tag.eq(chosen),
            work.push.eq(request.valid & request.ready),
            work.entry.source.eq(chosen),
            work.entry.count.eq(request.payload.count),
            self.idle.eq(work.count == 0),
        ]
        with m.Switch(chosen):
            for i, each in enumerate(requests):
                with m.Case(i):
                    m.d.comb += [
                        request.payload.line.eq(each.payload.line),
                        request.payload.count.eq(each.payload.count),
                        each.ready.eq(request.ready & room),
                    ]
        with m.If(request.valid):
            m.d.sync += [last.eq(chosen), held.eq(~request.ready)]

        # Whose lines pass.
        passed = Signal(COUNT_BITS)
        moves = Signal()
        ends = Signal()
        with m.If(work.count != 0), m.Switch(work.head.source):
            for i, each in enumerate(lines):
                with m.Case(i):
                    m.d.comb += [
                        self.lines.valid.eq(each.valid),
                        each.ready.eq(self.lines.ready),
                    ]
        with m.Switch(work.head.source):
            for i, each in enumerate(lines):
                with m.Case(i):
                    m.d.comb += self.lines.payload.eq(each.payload)
        m.d.comb += [
            moves.eq(self.lines.valid & self.lines.ready),
            ends.eq(passed == work.head.count - 1),
            work.pop.eq(moves & ends),
        ]
        with m.If(moves):
            m.d.sync += passed.eq(passed + 1)
            with m.If(ends):
                m.d.sync += passed.eq(0)
        return m
