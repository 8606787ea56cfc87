"""A chip and its functional simulator side by side, as one device: whatever differs is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from hw.chip_config import ChipConfig
from model.formats.commands import Region
from model.formats.registers import EVENTS, REGISTERS
from model.machine.device import SimulatorDevice
from model.machine.image import Image
from model.machine.layout import STATIC, Manifest
from model.machine.runtime import Host
from model.machine.shape import MachineShape
from model.machine.simulator import Simulator
from model.machine.trace import ENTRY_BYTES, TIMED_WORDS, WORDS
from sim.harness import MismatchError
from sim.rtl_device import RtlDevice

#: Registers that count time: the simulator has none.
TIMED = {"CYCLES", *(name for name in EVENTS if name.startswith(("ARRAY", "STALL")))}
#: All others that a job may change.
COMPARED = tuple(
    (name, entry)
    for name, register in REGISTERS.items()
    if name not in TIMED
    for entry in range(register.entries)
)
#: Bytes that are compared at a time.
_CHUNK = 1 << 24


#: Makes a simulator a device.
AsDevice = Callable[[Simulator], SimulatorDevice]


def shape_of(chip: ChipConfig) -> MachineShape:
    """The shape of a chip, as its software sees it."""
    return MachineShape(
        name=chip.name,
        t_m=chip.core.t_m,
        bank_words=chip.bank_words,
        sequences=chip.sequences,
        p_max=chip.core.p_max,
        head_tiles_max=chip.head_tiles_max,
        max_k=chip.core.max_k,
        tiles_per_block=chip.block_tiles,
    )


class Pair:
    """Both do what the host asks for; after every job registers and memory must be equal.

    Parameters
    ----------
    rtl : RtlDevice
    simulator : Simulator
        With as many bytes of memory.
    manifest : Manifest
        Of the image in both.
    as_device : callable
        Makes the simulator a device.

    Attributes
    ----------
    jobs, registers, bytes : int
        Jobs that were compared, and in them registers and bytes of memory.
    """

    def __init__(
        self,
        rtl: RtlDevice,
        simulator: Simulator,
        manifest: Manifest,
        as_device: AsDevice = SimulatorDevice,
    ) -> None:
        self.rtl, self.simulator, self.manifest = rtl, simulator, manifest
        self.device = as_device(simulator)
        self.jobs = self.registers = self.bytes = 0

    @classmethod
    async def start(
        cls,
        dut: Any,
        chip: ChipConfig,
        image: Image,
        *,
        seed: int,
        as_device: AsDevice = SimulatorDevice,
    ) -> Pair:
        """Both, with an image in memory and noise in all that a job may write.

        Nothing outside of the regions that a job writes may be written.

        Parameters
        ----------
        dut : cocotb handle
        chip : ChipConfig
        image : Image
        seed : int
            Of the memory and of the noise.
        as_device : callable
            As of the class.
        """
        manifest = image.manifest
        size = manifest.base + manifest.size
        rtl = await RtlDevice.start(dut, chip, memory_bytes=size, seed=seed)
        pair = cls(rtl, Simulator(manifest.shape, size), manifest, as_device)
        noise = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
        # An Inf or NaN of either sign in every other number of 16 bits.
        noise[1::4] |= 0x7F
        noise[0::4] |= 0x80
        await pair.write(0, noise.tobytes())
        await pair.device.write_register("IRQ_ENABLE", 1)
        await Host(pair, manifest).load(image)
        rtl.board.allow_writes(
            *(
                (extent.base, extent.base + extent.lines * 64)
                for region, extent in manifest.regions.items()
                if region not in STATIC and region != Region.COMMANDS
            )
        )
        return pair

    @property
    def memory(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
        """Bytes of the RTL's memory, and of the simulator's."""
        return (
            np.frombuffer(self.rtl.board.memory, np.uint8),
            self.simulator.machine.memory.data,
        )

    # Device -----------------------------------------------------------------------------------

    async def write(self, address: int, data: bytes) -> None:
        """Writes both memories."""
        await self.rtl.write(address, data)
        await self.device.write(address, data)

    async def read(self, address: int, count: int) -> bytes:
        """Reads the RTL's memory."""
        return await self.rtl.read(address, count)

    async def write_register(self, name: str, value: int, entry: int = 0) -> None:
        """Writes a register of both; both must refuse it, or none."""
        refused = []
        for each in (self.rtl, self.device):
            try:
                await each.write_register(name, value, entry)
            except ValueError as error:
                refused.append(error)
        if len(refused) == 1:
            raise MismatchError(f"one of both refuses {name}[{entry}] = {value:#x}: {refused[0]}")
        if refused:
            raise refused[0]

    async def read_register(self, name: str, entry: int = 0) -> int:
        """Reads a register of the RTL, which must be the simulator's unless it counts time."""
        value = await self.rtl.read_register(name, entry)
        if name not in TIMED:
            expected = await self.device.read_register(name, entry)
            if value != expected:
                raise MismatchError(f"{name}[{entry}] is {value:#x}, not {expected:#x}")
        return value

    async def wait(self) -> None:
        """Waits for both, and compares them."""
        await self.device.wait()
        await self.rtl.wait()
        await self.compare()

    async def compare(self) -> None:
        """Registers and memory of both.

        Raises
        ------
        MismatchError
            The first difference.
        """
        for name, entry in COMPARED:
            await self.read_register(name, entry)
        self.registers += len(COMPARED)
        self._hide_times()
        found, expected = self.memory
        for start in range(0, len(found), _CHUNK):
            part = slice(start, start + _CHUNK)
            if not np.array_equal(found[part], expected[part]):
                place = start + int(np.flatnonzero(found[part] != expected[part])[0])
                count = int((found[part] != expected[part]).sum())
                raise MismatchError(
                    f"memory at {place:#x} ({self._region(place)}) is {found[place]:#x}, not"
                    f" {expected[place]:#x}; {count} bytes differ; {self.simulator.why or 'job OK'}"
                )
        self.bytes += len(found)
        self.jobs += 1

    def _hide_times(self) -> None:
        """What the RTL has written of time into the trace goes into the simulator's too."""
        found, expected = self.memory
        extent = self.manifest.regions[Region.TRACE]
        part = slice(extent.base, extent.base + extent.lines * 64)
        places = [4 * list(WORDS).index(name) for name in TIMED_WORDS]
        entries = [each[part].reshape(-1, ENTRY_BYTES) for each in (found, expected)]
        # Where the simulator has written an entry its times are 0.
        for place in places:
            written = (entries[1][:, place : place + 4] == 0).all(1)
            entries[1][written, place : place + 4] = entries[0][written, place : place + 4]

    def _region(self, address: int) -> str:
        for region, extent in self.manifest.regions.items():
            if extent.base <= address < extent.base + extent.lines * 64:
                return f"{region.name}, line {(address - extent.base) // 64}"
        return "between the regions"
