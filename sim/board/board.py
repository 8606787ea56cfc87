"""The host's side of a board: files, knobs, accesses, and when to wake."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cocotb.triggers import ValueChange

from sim.axi_memory import Behaviour
from sim.board.control import ERRORS, MAGIC, PORTS, WRITES, Control, Wake
from sim.harness import MismatchError

CHANNELS = ("ar", "r", "aw", "w", "b")
_READS, _WRITES = 1, 2
_FOREVER = (1 << 64) - 1


@dataclass(kw_only=True)
class BoardBehaviour(Behaviour):
    """How the board's memory behaves: :class:`~sim.axi_memory.Behaviour`, and more.

    Attributes
    ----------
    stalls : mapping
        More chances that a channel (``ar``, ``r``, ``aw``, ``w``, ``b``) stands still in a cycle.
    read_errors, write_errors : mapping
        Response code of address ranges, ends excluded, of one kind of access; ``errors`` has those
        of both.
    port_latency : sequence of int
        More cycles until a port answers.
    late_writes : bool
        Whether memory changes only when a write is answered: what reads before, reads the old.
    """

    latency: tuple[int, int] = (0, 0)
    stalls: Mapping[str, float] = field(default_factory=dict)
    read_errors: Mapping[tuple[int, int], int] = field(default_factory=dict)
    write_errors: Mapping[tuple[int, int], int] = field(default_factory=dict)
    port_latency: Sequence[int] = ()
    late_writes: bool = False


def _chance(name: str, value: float) -> int:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be 0 to 1, not {value!r}")
    return round(value * (1 << 32))


class Board:
    """A board's files, made anew, and what is in them.

    Parameters
    ----------
    folder : Path
        Where ``board.control`` and ``board.memory`` are written.
    memory_bytes : int
        Size of the memory, from address 0 on; an access beyond is a mismatch.
    ports, port_bits, max_beats : int
        Of the chip.
    seed : int
        Of the memory's choices.
    dut : cocotb handle or None
        The wrapper, to wait for; none where no simulation runs.

    Attributes
    ----------
    memory : mmap
        The bytes, there for the host without a cycle.
    control : Control

    Raises
    ------
    ValueError
        If a size is out of range.
    """

    def __init__(
        self,
        folder: Path,
        *,
        memory_bytes: int,
        ports: int,
        port_bits: int,
        max_beats: int,
        seed: int,
        dut: Any = None,
    ) -> None:
        if not 0 < memory_bytes <= 1 << 40:
            raise ValueError(f"memory_bytes must be 1 to 2**40, not {memory_bytes!r}")
        if not 0 < ports <= PORTS:
            raise ValueError(f"ports must be 1 to {PORTS}, not {ports!r}")
        self.dut = dut
        _forget(folder / "board.control")
        self.memory = _mapped(folder / "board.memory", memory_bytes)
        self._mapped = _mapped(folder / "board.control", ctypes.sizeof(Control))
        self.control = Control.from_buffer(self._mapped)
        block = self.control
        block.file_bytes = block.memory_bytes = memory_bytes
        block.ports, block.port_bytes, block.max_beats = ports, port_bits // 8, max_beats
        self.behave(BoardBehaviour(), seed=seed)
        # The last word: from now on the memory works.
        block.magic = MAGIC

    def behave(self, behaviour: BoardBehaviour, *, seed: int | None = None) -> None:
        """Sets all knobs, from the next cycle on.

        Parameters
        ----------
        behaviour : BoardBehaviour
        seed : int or None
            Also begins the memory's choices anew.

        Raises
        ------
        ValueError
            If a knob is out of range.
        """
        block = self.control
        few, most = behaviour.latency
        if not 0 <= few <= most < 1 << 31:
            raise ValueError(f"latency must be fewest and most cycles, not {behaviour.latency!r}")
        if behaviour.rate is not None and not behaviour.rate > 0:
            raise ValueError(f"rate must be more than 0, not {behaviour.rate!r}")
        if unknown := set(behaviour.stalls) - set(CHANNELS):
            raise ValueError(f"stalls must name {', '.join(CHANNELS)}, not {unknown}")
        if len(behaviour.port_latency) > PORTS:
            raise ValueError(f"port_latency must name {PORTS} ports at most")
        errors = [
            (start, end, code, kinds)
            for ranges, kinds in (
                (behaviour.read_errors, _READS),
                (behaviour.write_errors, _WRITES),
                (behaviour.errors, _READS | _WRITES),
            )
            for (start, end), code in ranges.items()
        ]
        if len(errors) > ERRORS:
            raise ValueError(f"errors must be {ERRORS} ranges at most, not {len(errors)}")
        stall = []
        for channel in CHANNELS:
            moves = 1 - behaviour.stall
            moves *= 1 - behaviour.stalls.get(channel, 0.0)
            moves *= 1 - behaviour.slow if channel in ("ar", "aw") else 1
            stall.append(_chance(f"stall of {channel}", 1 - moves))
        swap = _chance("swap", behaviour.swap)
        block.latency_min, block.latency_max = few, most
        block.stall[:] = stall
        block.swap = swap
        block.limited, block.rate = behaviour.rate is not None, behaviour.rate or 0.0
        block.port_latency[:] = [*behaviour.port_latency, *[0] * PORTS][:PORTS]
        block.late_writes = behaviour.late_writes
        for place, values in enumerate(errors):
            block.errors[place] = values
        block.error_count = len(errors)
        if seed is not None:
            block.seed = seed % (1 << 63)

    def allow_writes(self, *ranges: tuple[int, int]) -> None:
        """From now on a strobe outside these address ranges, ends excluded, is a mismatch.

        Without a range everything may be written.

        Raises
        ------
        ValueError
            If there are too many.
        """
        if len(ranges) > WRITES:
            raise ValueError(f"there must be {WRITES} ranges at most, not {len(ranges)}")
        for place, each in enumerate(ranges):
            self.control.writes[place] = each
        self.control.write_count = len(ranges)

    def check(self) -> None:
        """Raises MismatchError if the chip has broken a rule."""
        if self.control.fault:
            raise MismatchError(bytes(self.control.text).split(b"\0", 1)[0].decode())

    @property
    def counters(self) -> list[dict[str, int]]:
        """What passed each port since the start, by the names of ``PortCounters``."""
        return [
            {name: getattr(each, name) for name, _ in each._fields_}
            for each in self.control.counters[: self.control.ports]
        ]

    async def until(
        self, wake: Wake, *, cycle: int | None = None, seconds: float | None = None
    ) -> Wake:
        """Sleeps until one of these things happens; returns which.

        Parameters
        ----------
        wake : Wake
            What wakes, beside a broken rule.
        cycle : int or None
            Also this cycle of the board.
        seconds : float or None
            Also so much time from now.

        Raises
        ------
        MismatchError
            If the chip has broken a rule.
        """
        block = self.control
        block.wake_cycle = _FOREVER if cycle is None else cycle
        if seconds is not None:
            block.wake_time = block.milliseconds + round(seconds * 1000)
            wake |= Wake.TIME
        if cycle is not None:
            wake |= Wake.CYCLE
        block.wake_mask = wake | Wake.FAULT
        await ValueChange(self.dut.wake)
        self.check()
        return Wake(block.woken)

    async def reset(self, cycles: int = 2) -> None:
        """Resets chip and bus, at any time; bursts that are outstanding are forgotten."""
        self.control.reset_asked = cycles
        await self.until(Wake.CYCLE, cycle=self.control.cycles + 1)
        await self.until(Wake.RUNNING)

    async def access(
        self, address: int, data: int | None = None, *, strobe: int = 0xF, limit: int = 100_000
    ) -> tuple[int, int]:
        """One access of the register window: a write if there is a datum, else a read.

        Returns
        -------
        response, data : int

        Raises
        ------
        MismatchError
            If there is no answer within ``limit`` cycles.
        """
        block = self.control
        block.access_write = data is not None
        block.access_address, block.access_data = address, data or 0
        block.access_strobe = strobe
        block.access_asked += 1
        woken = await self.until(Wake.ACCESS, cycle=block.cycles + limit)
        if Wake.ACCESS not in woken:
            raise MismatchError(f"no answer to an access of {address:#x} in {limit} cycles")
        return int(block.access_response), int(block.access_result)


def _forget(path: Path) -> None:
    """Tells the memory of a board before that its files are gone."""
    if path.exists():
        with path.open("r+b") as handle:
            handle.write(bytes(ctypes.sizeof(ctypes.c_uint64)))


def _mapped(path: Path, size: int) -> mmap.mmap:
    # A new file: a memory that still maps the old one keeps it.
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.ftruncate(handle, size)
        return mmap.mmap(handle, size)
    finally:
        os.close(handle)
