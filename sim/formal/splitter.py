"""The splitter: bursts that AXI4 allows, which are the lines of a request, each once."""

from __future__ import annotations

from amaranth.hdl import Signal

from hw.axi.config import BURST_BITS, COUNT_BITS, PAGE_LINES, MemoryConfig
from hw.axi.splitter import Splitter
from sim.formal.bench import Bench


def splitter(config: MemoryConfig) -> Bench:
    """Requests of any address and length, also those without a line."""
    dut = Splitter(config)
    b = Bench(dut)
    m = b.m
    request, burst = dut.requests.payload, dut.bursts.payload
    taken, given = Signal(), Signal()
    m.d.comb += [
        taken.eq(dut.requests.valid & dut.requests.ready),
        given.eq(dut.bursts.valid & dut.bursts.ready),
    ]

    # What is left of the request, kept as the request said it.
    open_ = Signal()
    line, tag = Signal.like(request.line), Signal.like(request.tag)
    left = Signal(COUNT_BITS)
    with m.If(given):
        m.d.sync += [line.eq(line + burst.lines), left.eq(left - burst.lines)]
        m.d.sync += open_.eq(left != burst.lines)
    with m.If(taken):
        m.d.sync += [line.eq(request.line), left.eq(request.count), tag.eq(request.tag)]
        m.d.sync += open_.eq(request.count != 0)

    offset = Signal(BURST_BITS + 1)
    m.d.comb += offset.eq(burst.line[: BURST_BITS - 1] + burst.lines)
    shown = dut.bursts.valid
    b.check("bursts_while_a_request_is_open", shown == open_)
    b.check("no_burst_crosses_4_KiB", ~shown | (offset <= PAGE_LINES))
    b.check("no_burst_is_too_long", ~shown | (burst.lines <= config.burst_lines))
    b.check("every_burst_has_a_line", ~shown | (burst.lines != 0))
    b.check("beats_fit_into_arlen", ~shown | (burst.lines * config.line_beats <= 256))
    b.check("bursts_follow_each_other", ~shown | (burst.line == line))
    b.check("never_more_than_asked", ~shown | (burst.lines <= left))
    b.check("last_with_the_last_line_only", ~shown | (burst.last == (burst.lines == left)))
    b.check("tag_of_the_request", ~shown | (burst.tag == tag))
    b.check("one_request_at_a_time", ~taken | ~open_ | (given & burst.last))
    b.check("as_long_as_allowed", ~shown | _longest(config, burst, left, offset))
    b.streams()
    b.check("same_left", ~shown | (b.inside("left") == left), helper=True)
    return b


def _longest(config: MemoryConfig, burst: Signal, left: Signal, offset: Signal) -> Signal:
    """A burst ends for one of the three reasons."""
    return (burst.lines == left) | (burst.lines == config.burst_lines) | (offset == PAGE_LINES)
