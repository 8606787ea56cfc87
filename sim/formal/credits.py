"""Counters of room: whoever sends something has a place for it, and idle means silent."""

from __future__ import annotations

from amaranth.hdl import Mux, Value

from hw.axi.config import READER_ID, STREAM_ID, MemoryConfig
from hw.axi.read import ReadPort
from hw.axi.write import SENDING, LineWriter
from sim.formal.bench import Bench
from sim.formal.responder import ReadMemory, WriteMemory

#: Ports as small as they can be: what they keep to does not depend on the sizes.
PORTS = MemoryConfig(
    name="proof",
    ports=2,
    port_bits=256,
    address_bits=13,
    max_beats=4,
    outstanding=2,
    ring_lines=4,
    fifo_lines=2,
    reader_lines=2,
    writer_lines=4,
    tag_bits=1,
)


def _bursts_fit(b: Bench, valid: Value, lines: Value) -> None:
    """What the splitter gives, which is proven of it."""
    b.assume("bursts_fit", ~valid | ((lines != 0) & (lines <= PORTS.burst_lines)))


def read_port(*, reserve: bool) -> Bench:
    """The read channels of a port, with their queue, before a memory."""
    dut = ReadPort(PORTS, axi_id=READER_ID if reserve else STREAM_ID, reserve=reserve)
    b = Bench(dut)
    bus, beats = dut.axi, PORTS.line_beats
    memory = ReadMemory(b, bus, PORTS.outstanding)
    b.streams()
    _bursts_fit(b, dut.bursts.valid, dut.bursts.payload.lines)
    pending, notes = b.inside("pending"), b.inside("notes_count")

    b.check("no_more_bursts_than_allowed", memory.count + pending <= PORTS.outstanding)
    b.check("silent_when_idle", ~dut.idle | (~bus.arvalid & (memory.count == 0)))
    b.check("idle_when_all_has_come", dut.idle | pending | (memory.count != 0))
    b.check("notes_are_of_bursts", notes == memory.count + pending, helper=True)
    b.check(
        "lengths_are_whole_lines",
        memory.has_lengths(most=PORTS.max_beats, multiple=beats)
        & (b.inside("beat") == memory.sent[: (beats - 1).bit_length()]),
        helper=True,
    )
    length = bus.arlen + 1
    whole = (length != 0) & (length <= PORTS.max_beats) & (length % beats == 0)
    b.check("address_has_whole_lines", ~pending | whole, helper=True)
    if reserve:
        stored, shown = b.inside("queue.stored"), b.inside("queue.shown")
        came = stored + shown
        b.check("the_bus_never_waits", bus.rready)
        b.check("a_line_has_a_place", ~(bus.rvalid & (stored == dut.depth)))
        to_come = (memory.beats() + beats - 1) // beats + Mux(pending, length // beats, 0)
        b.check("promised_is_here_or_comes", b.inside("promised") == came + to_come, helper=True)
        b.check("promised_within_room", b.inside("promised") <= dut.depth)
    return b


def line_writer() -> Bench:
    """Requests and lines to bursts, before a memory."""
    dut = LineWriter(PORTS)
    b = Bench(dut)
    bus = dut.axi
    memory = WriteMemory(b, bus, PORTS.outstanding)
    b.streams()
    pending, answers = b.inside("pending"), b.inside("answers_count")
    sending, waiting = b.inside("sending_count"), b.inside("waiting")
    # Lines of bursts whose data are being sent.
    bursts = [b.inside(f"sending_{i}") for i in range(SENDING)]
    begun: Value = Value.cast(0)
    fit: Value = Value.cast(1)
    for i, lines in enumerate(bursts):
        begun = begun + Mux(sending > i, lines, 0)
        fit = fit & ((sending <= i) | ((lines != 0) & (lines <= PORTS.burst_lines)))
    sent = b.inside("sent")
    held = b.inside("queue.stored") + b.inside("queue.shown")

    b.check("no_more_bursts_than_allowed", answers <= PORTS.outstanding)
    b.check("silent_when_idle", ~dut.idle | (~bus.awvalid & ~bus.wvalid & (memory.addressed == 0)))
    b.check("idle_when_all_is_answered", dut.idle | pending | (memory.addressed != 0))
    b.check("no_waiting_within_a_burst", (sending == 0) | bus.wvalid)
    b.check(
        "answers_are_of_bursts",
        (answers == memory.addressed + pending) & (answers == memory.sent + sending),
        helper=True,
    )
    b.check("sending_within_room", sending <= SENDING, helper=True)
    b.check("bursts_fit", fit & Mux(sending == 0, sent == 0, sent < bursts[0]), helper=True)
    b.check("every_line_is_counted", held == waiting + begun - sent, helper=True)
    stored, shown = b.inside("queue.stored"), b.inside("queue.shown")
    b.check("queue_within_room", stored <= PORTS.writer_lines, helper=True)
    b.check("what_is_begun_is_shown", (sending == 0) | shown, helper=True)
    b.check("beats_of_a_line_that_is_sent", (b.inside("beat") == 0) | (sending != 0), helper=True)
    active, left = b.inside("splitter.active"), b.inside("splitter.left")
    b.check("no_empty_request_is_split", ~active | (left != 0), helper=True)
    return b


#: By names of components.
CREDITS = {
    "read_port_passing": lambda: read_port(reserve=False),
    "read_port_reserving": lambda: read_port(reserve=True),
    "line_writer": line_writer,
}
