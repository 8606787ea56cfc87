"""The wide stream: requests to lines of known positions, from all ports at once."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hw.axi.bus import pass_on
from hw.axi.config import BURST_BITS, STREAM_ID, MemoryConfig
from hw.axi.layouts import request_layout, stream_line_layout
from hw.axi.read import ReadPort, read_signature
from hw.axi.splitter import Splitter
from hw.library import Unique, instantiate
from hw.memory.fifo import Fifo


def order_depth(config: MemoryConfig) -> int:
    """Bursts whose lengths are remembered: what all ports have on the bus, and a few more."""
    return 1 << (config.ports * (config.outstanding + 1) - 1).bit_length()


class ReadDma(Unique):
    """The stream reader: all lines of all requests, in one sequence, over all ports.

    Requests are split into bursts, and the bursts are dealt to the ports in turn, in the order of
    the stream. A line comes with its **position**: how many lines of the stream are before it,
    modulo ``2**index_bits``. So a ring of ``ring_lines`` rows can place the lines of all ports at
    once, each in the row that the low bits of its position name.

    ``frontier`` counts the lines that have been taken without a gap. In the oldest burst it moves
    line by line; the lines of later bursts, which other ports may have delivered already, follow a
    burst a cycle. It never runs ahead. A burst is issued only when the ring, of which the first
    ``released`` lines of the stream are free again, has room for all of it. Therefore the ring can
    always take lines, and a port needs no queue as long as the latency of memory, only one that
    evens out collisions in the ring.

    Throughput: a line a cycle on each port of 512 bits, if bursts are not shorter than there are
    ports, and the latency is below ``outstanding`` bursts and the time that the ring lasts.
    Latency: ``arvalid`` 2 cycles after the request, a line 2 cycles after its last beat, the
    frontier 2 more.

    Parameters
    ----------
    config : MemoryConfig

    Members
    -------
    requests : stream of :func:`~hw.axi.layouts.request_layout`
    lines_0, lines_1, ... : streams of :func:`~hw.axi.layouts.stream_line_layout`, one a port
        In order of the positions within a port. Lines with an error response are delivered too.
    released
        How many lines of the stream are used up, modulo ``2**index_bits``; at most ``frontier``.
    frontier
        How many lines of the stream have been taken without a gap, modulo ``2**index_bits``.
    m0_axi, m1_axi, ... : read channels of the ports, ID 0
    stop
        Nothing new is issued; a request that was begun goes on when it falls.
    idle
        Nothing is on the bus, and the frontier has reached the last line that was asked for.
    error, error_tag, clear
        Sticky: a response was an error; the tag of the request of the first one.
    """

    module_name = "bsspec_read_dma"
    label = "stream reader"

    def __init__(self, config: MemoryConfig) -> None:
        self.config = config
        members: dict[str, Any] = {
            "requests": In(stream.Signature(request_layout(config))),
            "released": In(config.index_bits),
            "frontier": Out(config.index_bits),
            "stop": In(1),
            "idle": Out(1),
            "error": Out(1),
            "error_tag": Out(config.tag_bits),
            "clear": In(1),
        }
        for i in range(config.ports):
            members[f"lines_{i}"] = Out(stream.Signature(stream_line_layout(config)))
            members[f"m{i}_axi"] = Out(read_signature(config))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        order = instantiate(
            m, "order", Fifo, purpose="axi_order", shape=BURST_BITS, depth=order_depth(self.config)
        )
        issued = Signal(self.config.index_bits)
        ports = self._deal(m, order, issued)
        fresh = self._deliver(m, ports, order, issued)
        self._errors(m, ports, fresh)
        return m

    def _deal(self, m: Module, order: Any, issued: Signal) -> list[Any]:
        """Bursts to the ports in turn; their lengths into ``order``."""
        config = self.config
        splitter = instantiate(m, "splitter", Splitter, config)
        burst = splitter.bursts.payload
        turn = Signal(range(max(2, config.ports)))
        used = Signal(config.index_bits)
        fits = Signal()
        dealt = Signal()
        m.d.comb += [
            splitter.requests.valid.eq(self.requests.valid & ~self.stop),
            splitter.requests.payload.eq(self.requests.payload),
            self.requests.ready.eq(splitter.requests.ready & ~self.stop),
            used.eq(issued - self.released),
            fits.eq((used + burst.lines <= config.ring_lines) & order.i.ready),
            order.i.valid.eq(dealt),
            order.i.payload.eq(burst.lines),
        ]
        ports = []
        ready = []
        for i in range(config.ports):
            port = instantiate(m, f"port_{i}", ReadPort, config, axi_id=STREAM_ID, reserve=False)
            pass_on(m, read_signature(config), getattr(self, f"m{i}_axi"), port.axi)
            m.d.comb += [
                port.stop.eq(self.stop),
                port.bursts.valid.eq(splitter.bursts.valid & fits & (turn == i)),
                port.bursts.payload.index.eq(issued),
            ]
            for name in ("line", "lines", "tag"):
                m.d.comb += port.bursts.payload[name].eq(burst[name])
            ready.append(port.bursts.ready & (turn == i))
            ports.append(port)
        m.d.comb += [
            splitter.bursts.ready.eq(fits & _any(ready)),
            dealt.eq(splitter.bursts.valid & splitter.bursts.ready),
        ]
        with m.If(dealt):
            m.d.sync += issued.eq(issued + burst.lines)
            if config.ports > 1:
                m.d.sync += turn.eq(turn + 1)
        return ports

    def _deliver(self, m: Module, ports: list[Any], order: Any, issued: Signal) -> list[Signal]:
        """Lines to the ring, and how far they have come without a gap."""
        config = self.config
        # The oldest burst that is not complete is at the port whose turn it is, since they were
        # dealt in turn. A port's bursts beyond it are counted in ``whole``.
        turn = Signal(range(max(2, config.ports)))
        passed = Signal()
        base = Signal(config.index_bits)
        fresh, whole, progress = [], [], []
        for i, port in enumerate(ports):
            lines = getattr(self, f"lines_{i}")
            taken = Signal(name=f"taken_{i}")
            ended = Signal(name=f"ended_{i}")
            ended_count = Signal(range(order_depth(config) + 1), name=f"whole_{i}")
            line_count = Signal(range(max(2, config.burst_lines)), name=f"progress_{i}")
            m.d.comb += [
                lines.valid.eq(port.lines.valid),
                lines.payload.data.eq(port.lines.payload.data),
                lines.payload.index.eq(port.lines.payload.index),
                lines.payload.tag.eq(port.lines.payload.tag),
                port.lines.ready.eq(lines.ready),
                taken.eq(lines.valid & lines.ready),
                ended.eq(taken & port.lines.payload.ends),
            ]
            m.d.sync += ended_count.eq(ended_count + ended - (passed & (turn == i)))
            with m.If(taken):
                m.d.sync += line_count.eq(Mux(ended, 0, line_count + 1))
            fresh.append(taken)
            whole.append(ended_count != 0)
            progress.append(line_count)
        known = order.o.valid
        end = base + order.o.payload
        frontier = Signal(config.index_bits)
        m.d.comb += [
            passed.eq(_pick(whole, turn) & known),
            order.o.ready.eq(passed),
            self.frontier.eq(frontier),
            self.idle.eq(_all([port.idle for port in ports]) & (frontier == issued)),
        ]
        with m.If(passed):
            m.d.sync += [base.eq(end), frontier.eq(end)]
            if config.ports > 1:
                m.d.sync += turn.eq(turn + 1)
        with m.Elif(~_pick(whole, turn)):
            m.d.sync += frontier.eq(base + _pick(progress, turn))
        return fresh

    def _errors(self, m: Module, ports: list[Any], fresh: list[Signal]) -> None:
        """The first error response, that of the lowest port if there are several."""
        bad = [taken & port.lines.payload.error for taken, port in zip(fresh, ports, strict=True)]
        error = Signal()
        tag = Signal(self.config.tag_bits, reset_less=True)
        m.d.comb += [self.error.eq(error), self.error_tag.eq(tag)]
        m.d.sync += error.eq((error & ~self.clear) | _any(bad))
        with m.If(~error | self.clear):
            for i in reversed(range(len(ports))):
                with m.If(bad[i]):
                    m.d.sync += tag.eq(ports[i].lines.payload.tag)


def _any(bits: list[Any]) -> Value:
    result = Value.cast(bits[0])
    for bit in bits[1:]:
        result = result | bit
    return result


def _all(bits: list[Any]) -> Value:
    result = Value.cast(bits[0])
    for bit in bits[1:]:
        result = result & bit
    return result


def _pick(values: list[Any], turn: Signal) -> Value:
    """``values[turn]``, by AND and OR."""
    if len(values) == 1:
        return Value.cast(values[0])
    return _any([Mux(turn == i, value, 0) for i, value in enumerate(values)])
