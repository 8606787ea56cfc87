"""Requests of any length to bursts that AXI4 allows."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hw.axi.config import BURST_BITS, COUNT_BITS, PAGE_LINES, MemoryConfig
from hw.axi.layouts import burst_layout, request_layout
from hw.library import Unique


class Splitter(Unique):
    """A stream of requests to a stream of bursts, none of which crosses 4 KiB.

    Each burst is as long as ``max_beats``, the next multiple of 4 KiB and the request allow.
    Throughput: a burst a cycle, also from one request to the next. Latency 1.

    Parameters
    ----------
    config : MemoryConfig

    Members
    -------
    requests : stream of :func:`~hw.axi.layouts.request_layout`
        A request without a line has no burst.
    bursts : stream of :func:`~hw.axi.layouts.burst_layout`
        ``bursts.valid`` says that a request is being split.
    """

    module_name = "bsspec_axi_splitter"
    label = "burst splitter"

    def __init__(self, config: MemoryConfig) -> None:
        self.config = config
        super().__init__(
            {
                "requests": In(stream.Signature(request_layout(config))),
                "bursts": Out(stream.Signature(burst_layout(config))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        request, burst = self.requests.payload, self.bursts.payload
        active = Signal()
        line = Signal(self.config.line_address_bits, reset_less=True)
        left = Signal(COUNT_BITS, reset_less=True)
        tag = Signal(self.config.tag_bits, reset_less=True)
        page_left = Signal(BURST_BITS)
        allowed = Signal(BURST_BITS)
        longest = self.config.burst_lines
        m.d.comb += [
            page_left.eq(PAGE_LINES - line[: BURST_BITS - 1]),
            allowed.eq(Mux(page_left < longest, page_left, longest)),
            burst.last.eq(left <= allowed),
            burst.lines.eq(Mux(burst.last, left[:BURST_BITS], allowed)),
            burst.line.eq(line),
            burst.tag.eq(tag),
            self.bursts.valid.eq(active),
            self.requests.ready.eq(~active | (self.bursts.ready & burst.last)),
        ]
        with m.If(self.requests.valid & self.requests.ready):
            m.d.sync += [
                active.eq(request.count != 0),
                line.eq(request.line),
                left.eq(request.count),
                tag.eq(request.tag),
            ]
        with m.Elif(self.bursts.valid & self.bursts.ready):
            m.d.sync += [
                active.eq(~burst.last),
                line.eq(line + burst.lines),
                left.eq(left - burst.lines),
            ]
        return m
