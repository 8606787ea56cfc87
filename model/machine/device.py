"""What a host can do to a chip, and the simulator as one.

Methods are coroutines, so that one host drives the functional simulator, a simulation of the RTL
(where an access takes cycles), and a board. Nothing of the simulator waits: `finish` runs a
coroutine to its end without an event loop.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from model.machine.simulator import Simulator

T = TypeVar("T")


class Device(Protocol):
    """A chip and its memory. Registers go by the names of `model.formats.registers`."""

    async def write(self, address: int, data: bytes) -> None:
        """Writes memory."""

    async def read(self, address: int, count: int) -> bytes:
        """Reads memory."""

    async def write_register(self, name: str, value: int, entry: int = 0) -> None:
        """Writes a register, or an entry of a window; both words of one of 64 bits."""

    async def read_register(self, name: str, entry: int = 0) -> int:
        """Reads a register, or an entry of a window; both words of one of 64 bits."""

    async def wait(self) -> None:
        """Waits until no job runs, by interrupt or by asking."""


class SimulatorDevice:
    """The functional simulator as a device.

    Args:
        simulator: the chip.
    """

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator

    async def write(self, address: int, data: bytes) -> None:
        """Writes memory."""
        self.simulator.write(address, data)

    async def read(self, address: int, count: int) -> bytes:
        """Reads memory."""
        return self.simulator.read(address, count)

    async def write_register(self, name: str, value: int, entry: int = 0) -> None:
        """Writes a register."""
        self.simulator.write_register(name, value, entry)

    async def read_register(self, name: str, entry: int = 0) -> int:
        """Reads a register."""
        return self.simulator.read_register(name, entry)

    async def wait(self) -> None:
        """Runs the job to its end."""
        self.simulator.wait()


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that waits for nothing, and returns what it returns."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise RuntimeError("a coroutine of the simulator must not wait for anything else")
