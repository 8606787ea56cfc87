"""A chip in the host's address space, as a device of the runtime."""

from __future__ import annotations

import os
import time
from typing import Protocol

from model.formats import registers
from model.formats.registers import REGISTERS, WORD_BYTES


class Window(Protocol):
    """The register window: words of 32 bits by byte offset."""

    def read(self, offset: int) -> int:
        """Reads a word, in one access."""

    def write(self, offset: int, value: int) -> None:
        """Writes a word, in one access."""


class MappedWindow:
    """A window in a buffer, as `mmap` of `/dev/uio0` or a PCIe BAR gives it.

    Args:
        buffer: 4 KiB, writable.
    """

    def __init__(self, buffer: memoryview) -> None:
        self._words = buffer.cast("B").cast("I")

    def read(self, offset: int) -> int:
        """Reads a word, in one access."""
        return self._words[offset // WORD_BYTES]

    def write(self, offset: int, value: int) -> None:
        """Writes a word, in one access."""
        self._words[offset // WORD_BYTES] = value


class MappedDevice:
    """A chip whose registers and memory are mapped; see `model.machine.device.Device`.

    Args:
        window: its registers.
        memory: its memory, writable.
        base: address of the memory's first byte, as the chip sees it.
        interrupt: a file whose read ends with an interrupt, as `/dev/uio0`; None to ask STATUS.
        pause: seconds between two questions.
    """

    def __init__(
        self,
        window: Window,
        memory: memoryview,
        *,
        base: int = 0,
        interrupt: int | None = None,
        pause: float = 1e-4,
    ) -> None:
        self.window, self.base = window, base
        self.memory = memory.cast("B")
        self._interrupt, self._pause = interrupt, pause
        if interrupt is not None:
            window.write(REGISTERS["IRQ_ENABLE"].offset, 1)

    def _place(self, address: int, count: int) -> slice:
        first = address - self.base
        if not 0 <= first <= first + count <= len(self.memory):
            raise ValueError(
                f"address must be in {self.base:#x}..{self.base + len(self.memory):#x}, not"
                f" {address:#x}+{count}"
            )
        return slice(first, first + count)

    async def write(self, address: int, data: bytes) -> None:
        """Writes memory; ValueError outside it."""
        self.memory[self._place(address, len(data))] = data

    async def read(self, address: int, count: int) -> bytes:
        """Reads memory; ValueError outside it."""
        return bytes(self.memory[self._place(address, count)])

    def _offsets(self, name: str, entry: int) -> range:
        register = REGISTERS.get(name)
        if register is None or not 0 <= entry < register.entries:
            raise ValueError(f"there is no register {name}[{entry}]")
        first = register.offset + entry * register.stride
        return range(first, first + register.bits // 8, WORD_BYTES)

    async def write_register(self, name: str, value: int, entry: int = 0) -> None:
        """Writes a register, or an entry of a window; ValueError where there is none."""
        for i, offset in enumerate(self._offsets(name, entry)):
            self.window.write(offset, value >> 32 * i & 0xFFFF_FFFF)

    async def read_register(self, name: str, entry: int = 0) -> int:
        """Reads a register, or an entry of a window; ValueError where there is none."""
        words = [self.window.read(offset) for offset in self._offsets(name, entry)]
        return sum(word << 32 * i for i, word in enumerate(words))

    async def wait(self) -> None:
        """Waits until no job runs."""
        while registers.unpack("STATUS", await self.read_register("STATUS"))["busy"]:
            if self._interrupt is None:
                time.sleep(self._pause)
            else:
                os.read(self._interrupt, 4)
