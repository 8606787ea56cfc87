"""The host's registers: an AXI4-Lite slave before a memory that the processor owns."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from hw.axi.bus import OKAY, SLVERR
from hw.chip_config import ChipConfig
from hw.control.register_rows import (
    HARDWIRED,
    ROW_BITS,
    STATUS_BITS,
    WINDOW_ROWS,
    WORD_BITS,
    among,
    fixed_words,
    masks,
    row_of,
    rows_where,
    window_bus,
)
from hw.library import Unique, instantiate
from hw.memory.ram import Ram
from model.formats.commands import Status
from model.formats.registers import REGISTERS


class RegisterWindow(Unique):
    """The window of :mod:`model.formats.registers`: hardwired registers, and words of a memory.

    What a chip is, its control, status and interrupts are flip-flops here; all other registers
    are the row ``offset / 4`` of a memory that the processor reads and writes at any time. A host
    access to that memory takes a cycle in which the processor neither reads nor writes: so one
    read port and one write port do, no row is read and written in one cycle by the two of them,
    and the processor keeps to the rule of :class:`~hw.memory.ram.Ram` for itself. Where the host's
    read and its write both wait for that cycle they take turns.

    A host access is refused with SLVERR, and then changes nothing, where no register begins at its
    address; where the host writes part of a word, a register that it may only read, one other than
    IRQ_ENABLE and CONTROL.abort while a job runs, or CONTROL.start while the status is not OK. An
    abort while none runs does nothing. Bits that are no field's are written as 0.

    Latency without processor accesses: a write is answered 2 cycles after both its address and its
    data were taken, one of CONTROL.clear_counters the cycle after ``cleared``; a read 3 cycles
    after its address was taken, 2 if it is hardwired or refused. One of each is under way at once;
    a second one's address and data are taken, and wait until the first one's answer is.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    s_axi : AxiLite of 32 bits, 12 bits of address
    read, read_row
        The processor reads a row; ``read_data`` holds it from the next cycle until its next read.
    write, write_row, write_data
        The processor writes a row. Not the row that it reads in the same cycle.
    ready
        The processor has cleared the memory: until then host accesses wait.
    busy
        A job runs: from the cycle after CONTROL.start was done to that of ``stopped``.
    stopped, stopped_status
        A cycle: the job has stopped for this reason, a :class:`~model.formats.commands.Status`.
        Only while ``busy``.
    abort
        The host wants the job to stop; until it has.
    clear_counters
        The host waits for the counters to be cleared; no job runs, until ``cleared``, a cycle.
    interrupt
        An event that is enabled is pending; a level.

    Raises
    ------
    TypeError
        If the config is no ChipConfig.
    ValueError
        If a size of the chip does not fit its field.
    """

    module_name = "bsspec_register_window"
    label = "control: register window"

    def __init__(self, config: ChipConfig) -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        self.config = config
        self.fixed = fixed_words(config)
        super().__init__(
            {
                "s_axi": In(window_bus()),
                "read": In(1),
                "read_row": In(ROW_BITS),
                "read_data": Out(WORD_BITS),
                "write": In(1),
                "write_row": In(ROW_BITS),
                "write_data": In(WORD_BITS),
                "ready": In(1),
                "busy": Out(1),
                "stopped": In(1),
                "stopped_status": In(STATUS_BITS),
                "abort": Out(1),
                "clear_counters": Out(1),
                "cleared": In(1),
                "interrupt": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._memory(m)
        self._state(m)
        self._writes(m)
        self._reads(m)
        return m

    def _memory(self, m: Module) -> None:
        ram = instantiate(m, "ram", Ram, purpose="registers", width=WORD_BITS, depth=WINDOW_ROWS)
        self.ram_data = ram.read_data
        # What the host's side asks for: wants, then does where the cycle is its own.
        self.host_reads = Signal()
        self.host_writes = Signal()
        self.read_wants = Signal()
        self.write_wants = Signal()
        self.host_read_row = Signal(ROW_BITS)
        self.host_write_row = Signal(ROW_BITS)
        self.host_write_data = Signal(WORD_BITS)
        free = ~self.read & ~self.write
        reads_next = Signal()
        m.d.comb += [
            self.host_writes.eq(self.write_wants & free & ~(self.read_wants & reads_next)),
            self.host_reads.eq(self.read_wants & free & ~self.host_writes),
            ram.read_enable.eq(self.read | self.host_reads),
            ram.read_row.eq(Mux(self.read, self.read_row, self.host_read_row)),
            ram.write_enable.eq(self.write | self.host_writes),
            ram.write_row.eq(Mux(self.write, self.write_row, self.host_write_row)),
            ram.write_data.eq(Mux(self.write, self.write_data, self.host_write_data)),
        ]
        with m.If(self.host_reads):
            m.d.sync += reads_next.eq(0)
        with m.Elif(self.host_writes):
            m.d.sync += reads_next.eq(1)
        # The processor's word outlives the host's reads.
        fresh = Signal()
        kept = Signal(WORD_BITS)
        m.d.sync += fresh.eq(self.read)
        with m.If(fresh):
            m.d.sync += kept.eq(ram.read_data)
        m.d.comb += self.read_data.eq(Mux(fresh, ram.read_data, kept))

    def _state(self, m: Module) -> None:
        """Control, status and interrupts; ``does`` says what the host's write does here."""
        self.status = Signal(STATUS_BITS, init=Status.OK)
        self.enable = Signal()
        self.pending = Signal()
        self.does_start = Signal()
        self.does_abort = Signal()
        self.does_clear = Signal()
        self.does_enable = Signal()
        self.does_acknowledge = Signal()
        self.enable_value = Signal()
        m.d.comb += self.interrupt.eq(self.pending & self.enable)
        with m.If(self.does_start):
            m.d.sync += self.busy.eq(1)
        with m.If(self.does_abort):
            m.d.sync += self.abort.eq(1)
        with m.If(self.does_clear):
            m.d.sync += self.status.eq(Status.OK)
        with m.If(self.does_enable):
            m.d.sync += self.enable.eq(self.enable_value)
        with m.If(self.does_acknowledge):
            m.d.sync += self.pending.eq(0)
        # Last, so that no event is lost to an acknowledgement, nor an abort left for the next job.
        with m.If(self.stopped):
            m.d.sync += [
                self.busy.eq(0),
                self.abort.eq(0),
                self.status.eq(self.stopped_status),
                self.pending.eq(1),
            ]

    def _writes(self, m: Module) -> None:
        bus = self.s_axi
        # Address and data, each kept from when it comes until the write is done.
        addressed = Signal()
        filled = Signal()
        address = Signal.like(bus.awaddr)
        data = Signal.like(bus.wdata)
        whole = Signal()
        m.d.comb += [bus.awready.eq(~addressed), bus.wready.eq(~filled)]
        with m.If(bus.awvalid & bus.awready):
            m.d.sync += [addressed.eq(1), address.eq(bus.awaddr)]
        with m.If(bus.wvalid & bus.wready):
            m.d.sync += [filled.eq(1), data.eq(bus.wdata), whole.eq(bus.wstrb.all())]

        row = address[-ROW_BITS:]
        stored = rows_where(lambda name: REGISTERS[name].access == "write") - rows_where(
            HARDWIRED.__contains__
        )
        is_stored = Signal()
        is_control, is_enable, is_pending = (
            row == row_of(name) for name in ("CONTROL", "IRQ_ENABLE", "IRQ_PENDING")
        )
        start, abort, clear, clear_counters = (
            data[REGISTERS["CONTROL"].fields[name].low]
            for name in ("start", "abort", "clear", "clear_counters")
        )
        done = data[REGISTERS["IRQ_ENABLE"].fields["done"].low]
        known = Signal()
        allowed = Signal()
        m.d.comb += [
            is_stored.eq(among(row, stored)),
            known.eq(whole & ~address[: -len(row)].any()),
            allowed.eq(
                known
                & (
                    (is_stored & ~self.busy)
                    | (is_control & ~(self.busy & (start | clear | clear_counters))
                       & ~(start & ~clear & (self.status != Status.OK)))
                    | is_enable
                    | is_pending
                )
            ),
        ]  # fmt: skip

        # A write is done in one cycle, and looked at in no earlier one: what is refused while a
        # job runs is decided as of then.
        turn = Signal()
        fires = Signal()
        counters = Signal()
        m.d.comb += [
            turn.eq(self.ready & addressed & filled & ~bus.bvalid),
            self.write_wants.eq(turn & allowed & is_stored),
            counters.eq(turn & allowed & is_control & clear_counters),
            self.host_write_row.eq(row),
        ]
        with m.If(self.write_wants):
            m.d.comb += fires.eq(self.host_writes)
        with m.Elif(counters):
            m.d.sync += self.clear_counters.eq(1)
            m.d.comb += fires.eq(self.clear_counters & self.cleared)
        with m.Else():
            m.d.comb += fires.eq(turn)
        with m.If(self.cleared):
            m.d.sync += self.clear_counters.eq(0)
        for mask, rows in masks().items():
            with m.If(among(row, rows)):
                m.d.comb += self.host_write_data.eq(data & mask)
        does = Signal()
        m.d.comb += [
            does.eq(fires & allowed),
            self.does_start.eq(does & is_control & start),
            self.does_abort.eq(does & is_control & abort & self.busy),
            self.does_clear.eq(does & is_control & clear),
            self.does_enable.eq(does & is_enable),
            self.does_acknowledge.eq(does & is_pending & done),
            self.enable_value.eq(done),
        ]
        with m.If(bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        with m.If(fires):
            m.d.sync += [
                addressed.eq(0),
                filled.eq(0),
                bus.bvalid.eq(1),
                bus.bresp.eq(Mux(allowed, OKAY, SLVERR)),
            ]

    def _reads(self, m: Module) -> None:
        bus = self.s_axi
        addressed = Signal()
        address = Signal.like(bus.araddr)
        m.d.comb += bus.arready.eq(~addressed)
        with m.If(bus.arvalid & bus.arready):
            m.d.sync += [addressed.eq(1), address.eq(bus.araddr)]

        row = address[-ROW_BITS:]
        hardwired = rows_where(HARDWIRED.__contains__)
        stored = rows_where(lambda _: True) - hardwired
        known = Signal()
        is_stored = Signal()
        word = Signal(WORD_BITS)
        m.d.comb += [
            known.eq(among(row, stored | hardwired) & ~address[: -len(row)].any()),
            is_stored.eq(known & among(row, stored)),
        ]
        words: dict[str, Value] = {name: Const(word) for name, word in self.fixed.items()}
        status = Cat(self.busy, Const(0, REGISTERS["STATUS"].fields["status"].low - 1), self.status)
        words |= {"STATUS": status, "IRQ_ENABLE": self.enable, "IRQ_PENDING": self.pending}
        with m.If(known):
            with m.Switch(row):
                for name, value in words.items():
                    with m.Case(row_of(name)):
                        m.d.comb += word.eq(value)

        turn = Signal()
        fires = Signal()
        coming = Signal()
        m.d.comb += [
            # While a word comes no address is kept: the next one is taken no earlier than then.
            turn.eq(self.ready & addressed & ~bus.rvalid),
            self.read_wants.eq(turn & is_stored),
            self.host_read_row.eq(row),
            fires.eq(Mux(is_stored, self.host_reads, turn)),
        ]
        m.d.sync += coming.eq(fires & is_stored)
        with m.If(bus.rready):
            m.d.sync += bus.rvalid.eq(0)
        with m.If(fires):
            m.d.sync += [addressed.eq(0), bus.rresp.eq(Mux(known, OKAY, SLVERR))]
        with m.If(fires & ~is_stored):
            m.d.sync += [bus.rvalid.eq(1), bus.rdata.eq(word)]
        with m.If(coming):
            m.d.sync += [bus.rvalid.eq(1), bus.rdata.eq(self.ram_data)]
