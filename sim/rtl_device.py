"""The chip's RTL as a device, so that the host of the functional simulator drives it too."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hw.chip_config import ChipConfig
from model.formats import registers
from model.formats.commands import Status
from model.formats.registers import REGISTERS, WORD_BYTES, Register
from sim.axi_memory import OKAY
from sim.board.board import Board, BoardBehaviour
from sim.board.control import FOLDER, Wake

#: Told of a job that runs: cycles since it was waited for, and the line of its command.
Progress = Callable[[int, int], None]


class RtlDevice:
    """A chip on a board, as a ``Device`` of :mod:`model.machine.device`; see :meth:`start`.

    Parameters
    ----------
    board : Board
        Out of reset.

    Attributes
    ----------
    board : Board
    limit : int
        Most cycles that a job may take, for :meth:`wait`.
    progress : callable or None
        Called with the cycles of :meth:`wait` and the line of the command in work, every
        ``seconds`` of it.
    seconds : float
    """

    def __init__(self, board: Board) -> None:
        self.board = board
        self.limit = 1 << 40
        self.progress: Progress | None = None
        self.seconds = 10.0

    @classmethod
    async def start(cls, dut: Any, chip: ChipConfig, *, memory_bytes: int, seed: int) -> RtlDevice:
        """A board with its memory all zeros, after a first reset; interrupts are enabled.

        Parameters
        ----------
        dut : cocotb handle
            The board's top.
        chip : ChipConfig
            What it was built from.
        memory_bytes : int
            Bytes of memory from address 0 on.
        seed : int
            Of the memory's choices.
        """
        board = Board(
            Path(os.environ[FOLDER]),
            memory_bytes=memory_bytes,
            ports=chip.ports,
            port_bits=chip.port_bits,
            max_beats=chip.memory.max_beats,
            seed=seed,
            dut=dut,
        )
        device = cls(board)
        await device.reset()
        return device

    async def reset(self, cycles: int = 2) -> None:
        """Resets chip and bus, at any time; memory stays, registers are as after power-up.

        Interrupts are enabled again.
        """
        await self.board.reset(cycles)
        await self.write_register("IRQ_ENABLE", 1)

    @property
    def cycles(self) -> int:
        """Rising edges of the clock since the start."""
        return int(self.board.control.cycles)

    @property
    def counters(self) -> list[dict[str, int]]:
        """What passed each port, as the memory saw it."""
        return self.board.counters

    def behaviour(self, behaviour: BoardBehaviour, *, seed: int | None = None) -> None:
        """Sets how the memory behaves from the next cycle on."""
        self.board.behave(behaviour, seed=seed)

    # Device -----------------------------------------------------------------------------------

    async def write(self, address: int, data: bytes) -> None:
        """Writes memory, in no time; ValueError outside it."""
        self._check_address(address, len(data))
        self.board.memory[address : address + len(data)] = bytes(data)

    async def read(self, address: int, count: int) -> bytes:
        """Reads memory, in no time; ValueError outside it."""
        self._check_address(address, count)
        return self.board.memory[address : address + count]

    def _check_address(self, address: int, count: int) -> None:
        size = len(self.board.memory)
        if not 0 <= address <= address + count <= size:
            raise ValueError(f"address must be in a memory of {size} bytes, not {address}+{count}")

    async def write_register(self, name: str, value: int, entry: int = 0) -> None:
        """Writes a register, or an entry of a window; both words of one of 64 bits.

        Raises
        ------
        ValueError
            If there is no such register or entry, or if the chip refuses the write.
        """
        register = _register(name, entry)
        if not 0 <= value < 1 << register.bits:
            raise ValueError(f"{name} must be written within {register.bits} bits, not {value:#x}")
        for address, shift in _words(register, entry):
            response, _ = await self.board.access(address, value >> shift & 0xFFFF_FFFF)
            if response != OKAY:
                raise ValueError(f"{name} must not be written as {value:#x} now: the chip refuses")

    async def read_register(self, name: str, entry: int = 0) -> int:
        """Reads a register, or an entry of a window; both words of one of 64 bits.

        Raises
        ------
        ValueError
            If there is no such register or entry, or if the chip refuses the read.
        """
        value = 0
        for address, shift in _words(_register(name, entry), entry):
            response, word = await self.board.access(address)
            if response != OKAY:
                raise ValueError(f"{name}[{entry}] must not be read: the chip refuses")
            value |= word << shift
        return value

    async def wait(self) -> None:
        """Waits for the interrupt, until no job runs.

        Raises
        ------
        TimeoutError
            After ``limit`` cycles, with status and the line of the command.
        MismatchError
            If the chip breaks a rule of its ports.
        """
        first = self.cycles
        end = first + self.limit
        seconds = self.seconds if self.progress else None
        while await self._busy():
            woken = await self.board.until(Wake.INTERRUPT, cycle=end, seconds=seconds)
            if Wake.INTERRUPT in woken:
                if await self._busy():
                    # Of a job before, that nobody cleared.
                    await self.write_register("IRQ_PENDING", 1)
            elif self.cycles >= end:
                word = registers.unpack("STATUS", await self.read_register("STATUS"))
                line = await self.read_register("COMMAND_INDEX")
                raise TimeoutError(
                    f"the job runs after {self.limit} cycles: command {line}, busy"
                    f" {word['busy']}, status {Status(word['status']).name}"
                )
            elif self.progress:
                line = await self.read_register("COMMAND_INDEX")
                self.progress(self.cycles - first, line)

    async def _busy(self) -> bool:
        word = await self.read_register("STATUS")
        return bool(registers.unpack("STATUS", word)["busy"])


def _register(name: str, entry: int) -> Register:
    register = REGISTERS.get(name)
    if register is None or not 0 <= entry < register.entries:
        raise ValueError(f"there is no register {name}[{entry}]")
    return register


def _words(register: Register, entry: int) -> list[tuple[int, int]]:
    """Address and shift of each word."""
    first = register.offset + entry * register.stride
    return [(first + shift // 8, shift) for shift in range(0, register.bits, 8 * WORD_BYTES)]
