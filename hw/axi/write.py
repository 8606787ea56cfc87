"""Writing: lines with byte strobes to one port."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.axi.bus import ERROR_BIT, AxiWrite, drive_constants
from hw.axi.config import BURST_BITS, OFFSET_BITS, STREAM_ID, MemoryConfig
from hw.axi.layouts import request_layout, write_line_layout
from hw.axi.splitter import Splitter
from hw.library import Unique, instantiate
from hw.memory.fifo import Fifo
from hw.special.flow import Queue

#: Bursts whose data are being sent, or come next.
SENDING = 2


def write_signature(config: MemoryConfig) -> AxiWrite:
    """The write channels of a port."""
    return AxiWrite(port_bits=config.port_bits, address_bits=config.address_bits)


class LineWriter(Unique):
    """Requests and a stream of lines to bursts on a port.

    A burst is issued when all of its lines are here. So the bus never waits for us in the middle
    of one, and what was issued ends whatever becomes of the user. Lines are sent as several beats
    where the port is narrower. All strobes are allowed, none set included.

    Throughput: a beat a cycle, if ``writer_lines`` is twice a burst. Latency: ``awvalid`` 2 cycles
    after a burst's last line and 2 after its request, ``wvalid`` with it or a cycle later.

    Parameters
    ----------
    config : MemoryConfig

    Members
    -------
    requests : stream of :func:`~hw.axi.layouts.request_layout`
    lines : stream of :func:`~hw.axi.layouts.write_line_layout`
        Those of the requests, one after the other; they may come before their request.
    axi : write channels, ID 0
    busy
        A request that was taken is not yet answered, for fences.
    stop
        Nothing new is issued; a request that was begun goes on when it falls.
    idle
        Nothing is on the bus.
    error, error_tag, clear
        Sticky: a response was an error; the tag of the request of the first one.
    """

    module_name = "bsspec_line_writer"
    label = "line writer"

    def __init__(self, config: MemoryConfig) -> None:
        self.config = config
        super().__init__(
            {
                "requests": In(stream.Signature(request_layout(config))),
                "lines": In(stream.Signature(write_line_layout())),
                "axi": Out(write_signature(config)),
                "busy": Out(1),
                "stop": In(1),
                "idle": Out(1),
                "error": Out(1),
                "error_tag": Out(config.tag_bits),
                "clear": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, bus = self.config, self.axi
        splitter = instantiate(m, "splitter", Splitter, config)
        burst = splitter.bursts.payload
        queue = instantiate(
            m,
            "queue",
            Fifo,
            purpose="axi_written",
            shape=write_line_layout().size,
            depth=config.writer_lines,
        )
        answers = Queue(m, "answers", unsigned(config.tag_bits), config.outstanding)
        sending = Queue(m, "sending", unsigned(BURST_BITS), SENDING)

        # Addresses: lines that are here and belong to no burst yet.
        waiting = Signal(range(config.writer_lines + 2))
        came = Signal()
        pending = Signal()
        issued = Signal()
        line = Signal(config.line_address_bits, reset_less=True)
        length = Signal(8, reset_less=True)
        room = Signal()
        m.d.comb += [
            splitter.requests.valid.eq(self.requests.valid & ~self.stop),
            splitter.requests.payload.eq(self.requests.payload),
            self.requests.ready.eq(splitter.requests.ready & ~self.stop),
            queue.i.valid.eq(self.lines.valid),
            queue.i.payload.eq(self.lines.payload),
            self.lines.ready.eq(queue.i.ready),
            came.eq(self.lines.valid & self.lines.ready),
            room.eq((answers.count != config.outstanding) & (sending.count != SENDING)),
            splitter.bursts.ready.eq(
                (burst.lines <= waiting) & room & ~self.stop & (~pending | bus.awready)
            ),
            issued.eq(splitter.bursts.valid & splitter.bursts.ready),
            answers.push.eq(issued),
            answers.entry.eq(burst.tag),
            sending.push.eq(issued),
            sending.entry.eq(burst.lines),
            bus.awvalid.eq(pending),
            bus.awaddr.eq(Cat(Const(0, OFFSET_BITS), line)),
            bus.awlen.eq(length),
        ]
        drive_constants(m, bus, channel="aw", axi_id=STREAM_ID, size=bus.signature.size)
        m.d.sync += waiting.eq(waiting + came - Mux(issued, burst.lines, 0))
        with m.If(issued):
            m.d.sync += [
                pending.eq(1),
                line.eq(burst.line),
                length.eq(burst.lines * config.line_beats - 1),
            ]
        with m.Elif(bus.awready):
            m.d.sync += pending.eq(0)

        # Data.
        beat = Signal(range(max(2, config.line_beats)))
        sent = Signal(BURST_BITS)
        row = data.View(write_line_layout(), queue.o.payload)
        moved = Signal()
        ends = Signal()
        complete = Signal()
        # The beats of a line, and their strobes.
        pieces = [
            Cat(
                row.data[i * config.port_bits : (i + 1) * config.port_bits],
                row.strobe[i * config.port_bits // 8 : (i + 1) * config.port_bits // 8],
            )
            for i in range(config.line_beats)
        ]
        m.d.comb += [
            bus.wvalid.eq((sending.count != 0) & queue.o.valid),
            Cat(bus.wdata, bus.wstrb).eq(
                Array(pieces)[beat] if config.line_beats > 1 else pieces[0]
            ),
            ends.eq(beat == config.line_beats - 1),
            bus.wlast.eq(ends & (sent + 1 == sending.head)),
            moved.eq(bus.wvalid & bus.wready),
            complete.eq(moved & bus.wlast),
            queue.o.ready.eq(moved & ends),
            sending.pop.eq(complete),
        ]
        if config.line_beats > 1:
            m.d.sync += beat.eq(beat + moved)
        with m.If(moved & ends):
            m.d.sync += sent.eq(Mux(complete, 0, sent + 1))

        # Responses.
        answered = Signal()
        error = Signal()
        tag = Signal(config.tag_bits, reset_less=True)
        m.d.comb += [
            bus.bready.eq(1),
            answered.eq(bus.bvalid & bus.bready),
            answers.pop.eq(answered),
            self.busy.eq(splitter.bursts.valid | (answers.count != 0)),
            self.idle.eq(answers.count == 0),
            self.error.eq(error),
            self.error_tag.eq(tag),
        ]
        m.d.sync += error.eq((error & ~self.clear) | (answered & bus.bresp[ERROR_BIT]))
        with m.If((~error | self.clear) & answered & bus.bresp[ERROR_BIT]):
            m.d.sync += tag.eq(answers.head)
        return m
