"""The functional simulator: jobs on the bytes of a memory, and the registers around them.

It runs one command after another with the golden model's arithmetic, and leaves in memory what
the hardware leaves there, byte for byte: no cycle, no buffer, no bus. `advance` goes to the next
command, so that a host can abort in between; `wait` goes to the end.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping

from model.formats import registers
from model.formats.commands import LINE_BYTES, Region, Status
from model.formats.registers import EVENTS, REGISTERS, TRAFFIC
from model.machine.execute import Machine
from model.machine.rounds import state_word
from model.machine.shape import MachineShape
from model.machine.state import Fault


class Simulator:
    """The chip as the host sees it: memory, registers, and a job that goes on step by step.

    Args:
        shape: its sizes.
        size: bytes of memory, from address 0 on.

    Attributes:
        machine: what runs the commands.
        why: what was wrong with the command that stopped the last job; empty if none did.
    """

    def __init__(self, shape: MachineShape, size: int) -> None:
        self.shape, self.machine, self.why = shape, Machine(shape, size), ""
        self._values = {
            name: [register.reset or 0] * register.entries for name, register in REGISTERS.items()
        }
        self._values |= {name: [value] for name, value in shape.registers().items()}
        self._status = Status.OK
        self._job: Iterator[None] | None = None
        self._abort = False

    @property
    def busy(self) -> bool:
        """A job runs."""
        return self._job is not None

    def write(self, address: int, data: bytes) -> None:
        """The host writes memory; ValueError outside it."""
        memory = self.machine.memory
        self._check_address(address, len(data))
        memory.data[address : address + len(data)] = bytearray(data)
        base = memory.base[Region.WEIGHTS]
        if address < base + memory.lines[Region.WEIGHTS] * LINE_BYTES and (
            address + len(data) > base
        ):
            self.machine.weights.forget()

    def read(self, address: int, count: int) -> bytes:
        """The host reads memory; ValueError outside it."""
        self._check_address(address, count)
        return self.machine.memory.data[address : address + count].tobytes()

    def _check_address(self, address: int, count: int) -> None:
        size = len(self.machine.memory.data)
        if not 0 <= address <= address + count <= size:
            raise ValueError(f"address must be in a memory of {size} bytes, not {address}+{count}")

    def write_register(self, name: str, value: int, entry: int = 0) -> None:
        """The host writes a register.

        Raises:
            ValueError: no such register or entry; one that can't be written, or not while busy; a
                bit that no field covers.
        """
        register = REGISTERS.get(name)
        if register is None or not 0 <= entry < register.entries:
            raise ValueError(f"there is no register {name}[{entry}]")
        allowed = registers.writable(name)
        if register.access == "read" or value & ~allowed:
            raise ValueError(f"{name} must be written within {allowed:#x}, not as {value:#x}")
        if register.access == "write" and self.busy and name != "IRQ_ENABLE":
            raise ValueError(f"{name} must not be written while a job runs")
        if register.access == "pulse":
            self._control(registers.unpack(name, value))
        elif register.access == "clear":
            self._values[name][entry] &= ~value
        else:
            self._values[name][entry] = value
            self._take(name, entry, value)

    def _take(self, name: str, entry: int, value: int) -> None:
        memory = self.machine.memory
        if name == "BASE":
            memory.base[entry] = value
            self.machine.weights.forget()
        elif name == "SIZE":
            memory.lines[entry] = value
        elif name == "PLT":
            self.machine.plt[entry] = value

    def _control(self, bits: Mapping[str, int]) -> None:
        if self.busy:
            if bits["start"] or bits["clear"] or bits["clear_counters"]:
                raise ValueError("CONTROL must be nothing but abort while a job runs")
            self._abort = self._abort or bool(bits["abort"])
            return
        if bits["clear"]:
            self._status, self.why = Status.OK, ""
        if bits["clear_counters"]:
            self.machine.memory.clear_counters()
            self.machine.events.clear()
        if bits["start"]:
            if self._status != Status.OK:
                raise ValueError(f"CONTROL start needs status OK, not {self._status.name}: clear")
            self._abort = False
            self._job = self.machine.job(self._values["FIRST_COMMAND"][0])

    def read_register(self, name: str, entry: int = 0) -> int:
        """The host reads a register; ValueError where there is none."""
        register = REGISTERS.get(name)
        if register is None or not 0 <= entry < register.entries:
            raise ValueError(f"there is no register {name}[{entry}]")
        machine = self.machine
        if name == "STATUS":
            return registers.pack(name, busy=self.busy, status=int(self._status))
        if name == "COMMAND_INDEX":
            return machine.line
        if name == "TRACE_NEXT":
            return machine.trace_next
        if name in TRAFFIC:
            return machine.memory.traffic[name]
        if name in EVENTS:
            return machine.events[name]
        if name == "READ_PLANES":
            return machine.memory.planes[entry]
        if name in ("LENGTH", "COUNT", "STATE"):
            if entry >= self.shape.sequences:
                return 0
            sequence = machine.state.sequences[entry]
            found = {"LENGTH": sequence.length, "COUNT": sequence.count}
            return found.get(name, state_word(sequence))
        return self._values[name][entry]

    def advance(self) -> bool:
        """Goes to the next command; whether the job goes on."""
        if self._job is None:
            return False
        try:
            if self._abort:
                raise Fault(Status.ABORTED, "the host has stopped the job")
            next(self._job)
        except StopIteration:
            self._stop()
        except Fault as fault:
            self._status, self.why = fault.status, str(fault)
            self._stop()
        return self.busy

    def _stop(self) -> None:
        if isinstance(self._job, Generator):
            self._job.close()
        self._job = None
        self._values["IRQ_PENDING"][0] |= 1

    def wait(self) -> None:
        """Goes to the end of the job."""
        while self.advance():
            pass
