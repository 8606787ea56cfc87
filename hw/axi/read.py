"""Reading: one port's read channels, and the in-order reader of small things."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.axi.bus import ERROR_BIT, AxiRead, drive_constants, pass_on
from hw.axi.config import (
    LINE_BITS,
    OFFSET_BITS,
    PAGE_LINES,
    READER_ID,
    MemoryConfig,
)
from hw.axi.layouts import (
    burst_layout,
    placed_burst_layout,
    placed_line_layout,
    read_line_layout,
    request_layout,
)
from hw.axi.splitter import Splitter
from hw.library import Unique, instantiate
from hw.memory.fifo import Fifo
from hw.special.flow import Queue


def read_signature(config: MemoryConfig) -> AxiRead:
    """The read channels of a port."""
    return AxiRead(port_bits=config.port_bits, address_bits=config.address_bits)


class ReadPort(Unique):
    """The read channels of a port for one client: bursts in, lines out in order.

    A client is the wide stream or the line reader, and ``reserve`` says which. It decides what
    happens when the client takes no lines. With it, a burst is issued
    only when the queue has room for all of it, so ``rready`` is always 1 and a client that waits
    for something else cannot hold up another one on the same bus. That costs a queue as long as
    the latency to hide. Without it, the client has reserved room before it sent the burst, the
    queue only smooths the way there, and ``rready`` falls while it is full.

    Throughput: a beat a cycle, a burst a cycle. Latency: ``arvalid`` 1 cycle after the burst was
    taken, a line 2 cycles after its last beat.

    Parameters
    ----------
    config : MemoryConfig
    axi_id : int
        ID of all bursts.
    reserve : bool
        Whether room is reserved here: for the line reader. Lines of the wide stream, whose room
        is reserved in the ring, carry their positions.

    Members
    -------
    bursts : stream of :func:`~hw.axi.layouts.burst_layout` or ``placed_burst_layout``
    lines : stream of :func:`~hw.axi.layouts.read_line_layout` or ``placed_line_layout``
        Lines with an error response are delivered like others.
    axi : read channels
    stop
        No burst is taken. What was taken ends, so an ``arvalid`` never falls.
    idle
        All bursts that were taken have been answered.
    """

    def __init__(self, config: MemoryConfig, *, axi_id: int, reserve: bool) -> None:
        self.config = config
        self.axi_id = axi_id
        self.reserve = reserve
        self.depth = config.reader_lines if reserve else config.fifo_lines
        self.purpose = "axi_reserved" if reserve else "axi_passing"
        self.module_name = f"bsspec_read_port_{self.purpose.removeprefix('axi_')}"
        self.label = "read port, reserving" if reserve else "read port, passing"
        self.burst_layout = (burst_layout if reserve else placed_burst_layout)(config)
        self.line_layout = (read_line_layout if reserve else placed_line_layout)(config)
        super().__init__(
            {
                "bursts": In(stream.Signature(self.burst_layout)),
                "lines": Out(stream.Signature(self.line_layout)),
                "axi": Out(read_signature(config)),
                "stop": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, bus, burst = self.config, self.axi, self.bursts.payload
        kept = ("tag", "last") if self.reserve else ("tag", "index")
        note = data.StructLayout({name: self.burst_layout[name].shape for name in kept})
        notes = Queue(m, "notes", note, config.outstanding)

        # Addresses.
        pending = Signal()
        line = Signal(config.line_address_bits, reset_less=True)
        length = Signal(8, reset_less=True)
        taken = Signal()
        room = Signal()
        m.d.comb += [
            self.bursts.ready.eq(room & ~self.stop & (~pending | bus.arready)),
            taken.eq(self.bursts.valid & self.bursts.ready),
            notes.push.eq(taken),
            *(notes.entry[name].eq(burst[name]) for name in kept),
            bus.arvalid.eq(pending),
            bus.araddr.eq(Cat(Const(0, OFFSET_BITS), line)),
            bus.arlen.eq(length),
            self.idle.eq(notes.count == 0),
        ]
        drive_constants(m, bus, channel="ar", axi_id=self.axi_id, size=bus.signature.size)
        with m.If(taken):
            m.d.sync += [
                pending.eq(1),
                line.eq(burst.line),
                length.eq(burst.lines * config.line_beats - 1),
            ]
        with m.Elif(bus.arready):
            m.d.sync += pending.eq(0)

        # Data.
        beat = Signal(range(max(2, config.line_beats)))
        arrives = Signal()
        complete = Signal()
        failed = Signal()
        error = Signal()
        parts = Signal(max(1, LINE_BITS - config.port_bits), reset_less=True)
        whole = Cat(parts, bus.rdata) if config.line_beats > 1 else bus.rdata
        queue = instantiate(
            m,
            "queue",
            Fifo,
            purpose=self.purpose,
            shape=self.lines.payload.shape().size,
            depth=self.depth,
        )
        row = data.View(self.line_layout, Signal(self.line_layout.size, name="row"))
        m.d.comb += [
            arrives.eq(bus.rvalid & bus.rready),
            complete.eq(arrives & (beat == config.line_beats - 1)),
            error.eq(failed | bus.rresp[ERROR_BIT]),
            notes.pop.eq(arrives & bus.rlast),
            row.data.eq(whole),
            row.error.eq(error),
            row.tag.eq(notes.head.tag),
            queue.i.valid.eq(complete),
            queue.i.payload.eq(row),
            self.lines.valid.eq(queue.o.valid),
            self.lines.payload.eq(queue.o.payload),
            queue.o.ready.eq(self.lines.ready),
        ]
        with m.If(arrives):
            m.d.sync += failed.eq(error & ~complete)
            if config.line_beats > 1:
                m.d.sync += [
                    beat.eq(beat + 1),
                    parts.eq(whole[config.port_bits :]),
                ]
        if self.reserve:
            m.d.comb += row.last.eq(bus.rlast & notes.head.last)
        else:
            offset = Signal(range(PAGE_LINES))
            m.d.comb += [row.ends.eq(bus.rlast), row.index.eq(notes.head.index + offset)]
            with m.If(complete):
                m.d.sync += offset.eq(Mux(bus.rlast, 0, offset + 1))

        # Room.
        if self.reserve:
            promised = Signal(range(self.depth + 1))
            left = Signal()
            m.d.comb += [
                left.eq(self.lines.valid & self.lines.ready),
                room.eq(
                    (notes.count != config.outstanding) & (promised + burst.lines <= self.depth)
                ),
                bus.rready.eq(1),
            ]
            m.d.sync += promised.eq(promised + Mux(taken, burst.lines, 0) - left)
        else:
            m.d.comb += [
                room.eq(notes.count != config.outstanding),
                bus.rready.eq(queue.i.ready),
            ]
        return m


class LineReader(Unique):
    """In-order reader of small things: requests in, their lines out.

    Room is reserved before a burst is issued (see :class:`ReadPort`), so its user may take lines
    when it likes. Throughput: a beat a cycle while latency times rate fits into ``reader_lines``.
    Latency: ``arvalid`` 2 cycles after the request, a line 2 cycles after its last beat.

    Parameters
    ----------
    config : MemoryConfig

    Members
    -------
    requests : stream of :func:`~hw.axi.layouts.request_layout`
    lines : stream of :func:`~hw.axi.layouts.read_line_layout`
    axi : read channels, ID 1
    stop
        Nothing new is issued; a request that was begun goes on when it falls.
    idle
        Nothing is on the bus. Lines may wait to be taken.
    """

    module_name = "bsspec_line_reader"
    label = "line reader"

    def __init__(self, config: MemoryConfig) -> None:
        self.config = config
        super().__init__(
            {
                "requests": In(stream.Signature(request_layout(config))),
                "lines": Out(stream.Signature(read_line_layout(config))),
                "axi": Out(read_signature(config)),
                "stop": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        splitter = instantiate(m, "splitter", Splitter, self.config)
        port = instantiate(m, "port", ReadPort, self.config, axi_id=READER_ID, reserve=True)
        pass_on(m, read_signature(self.config), self.axi, port.axi)
        m.d.comb += [
            splitter.requests.valid.eq(self.requests.valid & ~self.stop),
            splitter.requests.payload.eq(self.requests.payload),
            self.requests.ready.eq(splitter.requests.ready & ~self.stop),
            port.bursts.valid.eq(splitter.bursts.valid),
            splitter.bursts.ready.eq(port.bursts.ready),
            port.bursts.payload.eq(splitter.bursts.payload),
            port.stop.eq(self.stop),
            self.idle.eq(port.idle),
            self.lines.valid.eq(port.lines.valid),
            port.lines.ready.eq(self.lines.ready),
        ]
        m.d.comb += self.lines.payload.eq(port.lines.payload)
        return m
