"""The register window beside the functional simulator, cycle by cycle.

The simulator says what an access does and whether it is refused; a job of it here is one that the
bench ends. `Processor` stands for the control processor, `Checker` looks on: it knows from the
cycle in which an answer appears when the access was done, and so what it must have seen.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from model.formats import registers
from model.formats.commands import Status
from model.formats.registers import EVENTS, REGISTERS, TRAFFIC, WINDOW_BYTES
from model.machine.shape import MachineShape
from model.machine.simulator import Simulator
from model.machine.state import Fault
from sim.axi_memory import OKAY, SLVERR
from sim.harness import Bench, MismatchError

ROWS = WINDOW_BYTES // 4
WORD = 0xFFFF_FFFF


class Place(NamedTuple):
    """A word of a register: its name, which entry, and which of the entry's words."""

    name: str
    entry: int
    word: int


#: What lies at an offset; nothing where no register is.
PLACES = {
    register.offset + register.stride * entry + 4 * word: Place(name, entry, word)
    for name, register in REGISTERS.items()
    for entry in range(register.entries)
    for word in range(register.bits // 32)
}
COUNTERS = (*TRAFFIC, *EVENTS, "READ_PLANES")
#: Registers that are no words of the memory, whatever the processor writes to their rows.
APART = (
    *("ID", "VERSION", "CONFIG", "SIZES", "MAX_K"),
    *("CONTROL", "STATUS", "IRQ_ENABLE", "IRQ_PENDING"),
)


class Golden:
    """What the host sees, by the simulator, and the memory's words, by what was written."""

    def __init__(self, shape: MachineShape) -> None:
        self.shape = shape
        #: How often writes were refused, by why; and how many were not.
        self.refused: dict[str, int] = {}
        self.done = 0
        self.reset()

    def reset(self) -> None:
        """As after a reset."""
        self.simulator = Simulator(self.shape, 4096)
        self.simulator.machine.job = self._job  # type: ignore[method-assign]
        self.rows = [0] * ROWS
        self._end: Status | None = None

    def _job(self, line: int) -> Iterator[None]:
        while self._end is None:
            yield
        if self._end != Status.OK:
            raise Fault(self._end, "as the bench wants it")

    def stop(self, status: int) -> None:
        """The job ends with a status: the processor's word, whatever the host had asked for."""
        self._end = Status(status)
        self.simulator._abort = False
        while self.simulator.advance():
            pass
        self._end = None

    def _refuse(self, why: str) -> int:
        self.refused[why] = self.refused.get(why, 0) + 1
        return SLVERR

    def read(self, address: int) -> tuple[int, int]:
        """Word and response of a host's read."""
        place = PLACES.get(address)
        if place is None:
            return 0, SLVERR
        value = self.simulator.read_register(place.name, place.entry)
        return value >> 32 * place.word & WORD, OKAY

    def write(self, address: int, data: int, strobe: int) -> int:
        """Response of a host's write, which is then done."""
        place = PLACES.get(address)
        if strobe != 0xF:
            return self._refuse("strobe")
        if place is None:
            return self._refuse("address")
        name, entry, word = place
        # The window drops the bits that are no field's; the simulator makes sure of its users.
        data &= registers.writable(name) >> 32 * word
        old = 0 if REGISTERS[name].access == "pulse" else self._whole(place)
        value = old & ~(WORD << 32 * word) | data << 32 * word
        if REGISTERS[name].access == "clear":
            value = data
        busy = self.simulator.busy
        counters = {}
        if name == "CONTROL":
            counters = {at: self._whole(at) for at in PLACES.values() if at.name in COUNTERS}
        try:
            self.simulator.write_register(name, value, entry)
        except ValueError:
            # Nothing changes, not even counters.
            for each, count in counters.items():
                self._put(each, count)
            return self._refuse(f"{name if name == 'CONTROL' else REGISTERS[name].access} {busy}")
        self.done += 1
        if name not in APART:
            self.rows[address // 4] = data
        return OKAY

    def _whole(self, place: Place) -> int:
        return self.simulator.read_register(place.name, place.entry)

    def put(self, row: int, data: int) -> None:
        """The processor writes a row."""
        self.rows[row] = data
        place = PLACES.get(4 * row)
        if place is not None and place.name not in APART:
            old = self._whole(place) & ~(WORD << 32 * place.word)
            self._put(place, old | data << 32 * place.word)

    def _put(self, place: Place, value: int) -> None:
        name, entry, _ = place
        simulator, machine = self.simulator, self.simulator.machine
        if REGISTERS[name].access == "write":
            simulator._values[name][entry] = value
        elif name in TRAFFIC:
            machine.memory.traffic[name] = value
        elif name in EVENTS:
            machine.events[name] = value
        elif name == "READ_PLANES":
            machine.memory.planes[entry] = value
        elif name == "COMMAND_INDEX":
            machine.line = value
        elif name == "TRACE_NEXT":
            machine.trace_next = value
        elif entry < simulator.shape.sequences:
            sequence = machine.state.sequences[entry]
            if name == "STATE":
                bits = registers.unpack(name, value)
                sequence.live, sequence.end, sequence.limited = map(bool, bits.values())
            else:
                setattr(sequence, name.lower(), value)


class Act(NamedTuple):
    """What the processor does in a cycle."""

    read: int | None = None
    write: tuple[int, int] | None = None
    stop: int | None = None
    cleared: bool = False


class Processor:
    """The processor's side: clears the memory, then reads and writes rows; counters when asked.

    Parameters
    ----------
    bench : Bench
    golden : Golden
    seed : int
    often : float
        Chance of a read, and of a write, in a cycle.
    stops : float
        Chance that a job ends in a cycle.
    """

    #: Rows that the processor writes: what the host only reads, and what no register is.
    SCRATCH = [4 * row not in PLACES or PLACES[4 * row].name in APART for row in range(ROWS)]

    def __init__(
        self, bench: Bench, golden: Golden, seed: int, *, often: float, stops: float
    ) -> None:
        self.bench, self.golden, self.often, self.stops = bench, golden, often, stops
        self.rng = random.Random(seed)
        sequences = golden.simulator.shape.sequences
        self.rows = [row for row in range(ROWS) if self.SCRATCH[row]]
        self.rows += [
            offset // 4
            for offset, (name, entry, _) in PLACES.items()
            if REGISTERS[name].access == "read"
            and name not in APART
            and (name not in ("LENGTH", "COUNT", "STATE") or entry < sequences)
        ]
        self.counters = [offset // 4 for offset, place in PLACES.items() if place.name in COUNTERS]
        self.acts: deque[Act] = deque()
        self.ready = False
        self.quiet()

    def quiet(self) -> None:
        """A reset: the memory has to be cleared."""
        self.to_clear = list(range(ROWS))
        self.ready = False
        self.act = Act()
        self.acts.clear()
        self._apply()

    def _apply(self) -> None:
        act = self.act
        row, data = act.write or (None, None)
        self.bench.put(
            ready=int(self.ready),
            read=int(act.read is not None),
            read_row=act.read,
            write=int(row is not None),
            write_row=row,
            write_data=data,
            stopped=int(act.stop is not None),
            stopped_status=act.stop,
            cleared=int(act.cleared),
        )

    def drive(self) -> None:
        """Chooses what the next rising edge sees."""
        self.act = self._next()
        self._apply()

    def _next(self) -> Act:
        rng = self.rng
        if self.acts:
            return self.acts.popleft()
        if self.to_clear:
            return Act(write=(self.to_clear.pop(), 0))
        if not self.ready:
            self.ready = True
            return Act()
        if self.bench.bit(self.bench.port("clear_counters")):
            rows = rng.sample(self.counters, len(self.counters))
            self.acts += [Act(write=(row, 0)) for row in rows]
            # A cycle for the write, so that the level is seen to last.
            self.acts += [Act(), Act(cleared=True), Act()]
            return Act()
        write = None
        if rng.random() < self.often:
            row = rng.choice(self.rows)
            place = PLACES.get(4 * row)
            narrow = place is not None and place.name == "STATE"
            write = (row, rng.getrandbits(3 if narrow else 32))
        read = rng.randrange(ROWS) if rng.random() < self.often else None
        if read is not None and write is not None and rng.random() < 0.5:
            read = rng.choice(self.rows)
        if write is not None and read == write[0]:
            read = None
        stop = None
        if self.bench.bit(self.bench.port("busy")) and rng.random() < self.stops:
            stop = rng.choice((0, rng.choice(list(Status))))
        return Act(read, write, stop)

    def sample(self) -> None:
        """Looks just before the rising edge."""

    def settle(self) -> None:
        """After the edge."""


class Checker:
    """Looks at all ports before every rising edge; add it behind the processor."""

    def __init__(self, bench: Bench, golden: Golden, processor: Processor) -> None:
        self.bench, self.golden, self.processor = bench, golden, processor
        #: Answers compared, processor's reads compared.
        self.answers = self.reads = 0
        self.quiet()

    def quiet(self) -> None:
        """A reset: no access is on its way."""
        self.golden.reset()
        self.writes: dict[str, deque[tuple[int, ...]]] = {"aw": deque(), "w": deque()}
        self.addresses: deque[int] = deque()
        self.seen: list[tuple[int, int] | None] = [None, None]
        self.before = Act()
        self.was_ready = False
        self.open = {"b": False, "r": False}
        self.read_data: int | None = None
        self.clearing = False

    def drive(self) -> None:
        """Looks only."""

    def settle(self) -> None:
        """Looks only."""

    def _bit(self, name: str) -> int:
        return self.bench.bit(self.bench.port(name))

    def _bus(self, name: str) -> int:
        return self.bench.word(self.bench.port(f"s_axi_{name}"))

    def _differs(self, what: str, got: Any, wanted: Any) -> None:
        if got != wanted:
            raise MismatchError(f"{what} is {got}, not {wanted}, in cycle {self.bench.cycle_count}")

    def sample(self) -> None:
        """What this cycle shows was done in the last one: the host's access, then the chip's."""
        golden, act = self.golden, self.before
        # A read sees what was there before the edge that ended its cycle; a word of the memory
        # takes a cycle more to appear.
        now = golden.read(self.addresses[0]) if self.addresses else None
        if self._bus("rvalid") and not self.open["r"]:
            self._answer("read", self.addresses)
            address = self.addresses.popleft()
            place = PLACES.get(address)
            wanted = now if place is None or place.name in APART else self.seen[-1]
            got = (self._bus("rdata"), self._bus("rresp"))
            self._differs(f"read of {address:#05x}", got, wanted)
            now = None
        self.seen = [self.seen[-1], now]
        fires = self._bus("bvalid") and not self.open["b"]
        if act.read is not None:
            self.read_data = golden.rows[act.read]
        if fires:
            self._answer("write", self.writes["aw"] and self.writes["w"])
            (address,), (data, strobe) = (each.popleft() for each in self.writes.values())
            response = golden.write(address, data, strobe)
            self._differs(f"write of {address:#05x}", self._bus("bresp"), response)
            counted = PLACES.get(address, Place("", 0, 0)).name == "CONTROL" and data & 8
            if counted and response == OKAY and not act.cleared:
                raise MismatchError("CONTROL.clear_counters is answered before it is done")
            self.clearing = False
        elif act.cleared:
            raise MismatchError("CONTROL.clear_counters is done and not answered")
        if act.write is not None:
            golden.put(*act.write)
        if act.stop is not None:
            golden.stop(act.stop)
        self._outputs()
        # What this cycle does.
        for name, fields in (("aw", ("addr",)), ("w", ("data", "strb"))):
            if self._bus(f"{name}valid") and self._bus(f"{name}ready"):
                self.writes[name].append(tuple(self._bus(name + each) for each in fields))
        if self._bus("arvalid") and self._bus("arready"):
            self.addresses.append(self._bus("araddr"))
        for name in self.open:
            self.open[name] = bool(self._bus(f"{name}valid") and not self._bus(f"{name}ready"))
        self.was_ready = self.processor.ready
        self.before = self.processor.act

    def _answer(self, kind: str, asked: Any) -> None:
        self.answers += 1
        if not asked:
            raise MismatchError(f"an answer to no {kind} in cycle {self.bench.cycle_count}")
        if not self.was_ready:
            raise MismatchError(f"a {kind} was done before the memory was cleared")

    def _outputs(self) -> None:
        simulator = self.golden.simulator
        values = {
            "busy": simulator.busy,
            "abort": simulator.busy and simulator._abort,
            "interrupt": simulator.read_register("IRQ_ENABLE")
            & simulator.read_register("IRQ_PENDING"),
        }
        for name, wanted in values.items():
            self._differs(name, self._bit(name), int(wanted))
        if self.read_data is not None:
            self.reads += 1
            self._differs("read_data", self._bit("read_data"), self.read_data)
        clears = self._bit("clear_counters")
        if self.clearing and not clears:
            raise MismatchError("clear_counters fell before the counters were cleared")
        if clears:
            asked = self.writes["aw"] and self.writes["w"]
            waits = asked and PLACES[self.writes["aw"][0][0]].name == "CONTROL"
            if not waits or not self.writes["w"][0][0] & 8 or simulator.busy:
                raise MismatchError("clear_counters without a write of it")
        self.clearing = bool(clears)
