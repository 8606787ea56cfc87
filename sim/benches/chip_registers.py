"""Bench of the whole chip's registers: what it is, jobs that do nothing, jobs that stop at once."""

from __future__ import annotations

import random
from typing import Any

import cocotb

from model.formats import registers
from model.formats.commands import LINE_BYTES, Opcode, Region, Status, pack
from model.formats.registers import EVENTS, REGISTERS
from model.machine.device import Device, SimulatorDevice
from model.machine.shape import PRESETS
from model.machine.simulator import Simulator
from sim.axi_memory import SLVERR
from sim.board.board import BoardBehaviour
from sim.board.control import Wake
from sim.board.launch import chip_here
from sim.environment import Environment
from sim.harness import MismatchError
from sim.rtl_device import RtlDevice

#: Of the memory, of COMMANDS in it.
MEMORY_BYTES, COMMANDS, COMMAND_LINES = 1 << 20, 0x4_0000, 64
HALT = pack(Opcode.HALT, {})
FENCE = pack(Opcode.FENCE, {})
#: What differs by nature: cycles are counted by the RTL alone.
TIMED = {"CYCLES", *(name for name in EVENTS if name.startswith(("ARRAY", "STALL")))}
#: Cycles that no job of a few commands takes.
LIMIT = 100_000


async def start(dut: Any, env: Environment) -> tuple[RtlDevice, SimulatorDevice]:
    """The RTL and the simulator of the same chip, with an empty memory."""
    device = await RtlDevice.start(dut, chip_here(env), memory_bytes=MEMORY_BYTES, seed=env.seed)
    device.limit = LIMIT
    device.board.allow_writes((0, 0))
    simulator = SimulatorDevice(Simulator(PRESETS[env.config.name], MEMORY_BYTES))
    await simulator.write_register("IRQ_ENABLE", 1)
    return device, simulator


async def place(device: Device) -> None:
    """Says where COMMANDS is."""
    await device.write_register("BASE", COMMANDS, Region.COMMANDS)
    await device.write_register("SIZE", COMMAND_LINES, Region.COMMANDS)


async def control(device: Device, **bits: int) -> None:
    """Writes CONTROL."""
    await device.write_register("CONTROL", registers.pack("CONTROL", **bits))


async def run(device: Device, first: int, commands: list[bytes]) -> tuple[Status, int]:
    """A job; status and command index after it."""
    await device.write(COMMANDS + first * LINE_BYTES, b"".join(commands))
    await device.write_register("FIRST_COMMAND", first)
    await control(device, start=1)
    await device.wait()
    word = registers.unpack("STATUS", await device.read_register("STATUS"))
    if word["busy"] or await device.read_register("IRQ_PENDING") != 1:
        raise MismatchError("a job has stopped, but is busy or has left no interrupt")
    await device.write_register("IRQ_PENDING", 1)
    if await device.read_register("IRQ_PENDING") != 0:
        raise MismatchError("IRQ_PENDING is not cleared by a 1")
    return Status(word["status"]), await device.read_register("COMMAND_INDEX")


async def all_registers(device: Device) -> dict[str, int]:
    """Every word of the window."""
    return {
        f"{name}[{entry}]": await device.read_register(name, entry)
        for name, register in REGISTERS.items()
        if name not in TIMED
        for entry in range(register.entries)
    }


def compare(given: dict[str, int], expected: dict[str, int]) -> int:
    """Registers of RTL and simulator; how many."""
    for name, value in expected.items():
        if given[name] != value:
            raise MismatchError(f"{name} is {given[name]:#x}, not {value:#x}")
    return len(expected)


async def refused(device: Device, **bits: int) -> None:
    """CONTROL must refuse these bits."""
    try:
        await control(device, **bits)
    except ValueError:
        return
    raise MismatchError(f"CONTROL takes {bits}, which must be refused")


@cocotb.test()
async def every_register(dut: object) -> None:
    """After a reset all registers are what the simulator has; what is written is read."""
    env = Environment.get()
    device, simulator = await start(dut, env)
    count = compare(await all_registers(device), await all_registers(simulator))
    for each in (device, simulator):
        for name in ("PLT", "BASE", "SIZE", "FIRST_COMMAND"):
            register = REGISTERS[name]
            for entry in range(register.entries):
                value = (0x1234_5678_9ABC_DEF0 * (entry + 1)) & registers.writable(name)
                await each.write_register(name, value & ((1 << register.bits) - 1), entry)
    count += compare(await all_registers(device), await all_registers(simulator))
    env.report("registers", transactions=count, cycles=device.cycles, seed=env.seed)


@cocotb.test()
async def jobs(dut: object) -> None:
    """Jobs that end or stop at once, on RTL and simulator: status, index, interrupt, counters."""
    env = Environment.get()
    device, simulator = await start(dut, env)
    unknown = bytes([0xFF]) + bytes(LINE_BYTES - 1)
    reserved = HALT[:-1] + b"\x80"
    wanted = [
        (0, [HALT], Status.OK),
        (5, [FENCE, FENCE, HALT], Status.OK),
        (9, [FENCE, unknown, HALT], Status.UNKNOWN_COMMAND),
        (0, [HALT], Status.OK),
        (COMMAND_LINES - 1, [reserved], Status.RESERVED_BITS),
        (3, [pack(Opcode.COMMIT, {}), HALT], Status.NO_MODEL),
        (COMMAND_LINES - 1, [FENCE], Status.REGION),
        (1, [HALT], Status.OK),
    ]
    count = 0
    for each in (device, simulator):
        await place(each)
    for first, commands, status in wanted:
        found = [await run(each, first, commands) for each in (device, simulator)]
        if found[0] != found[1] or found[0][0] != status:
            raise MismatchError(f"status and index {found[0]}, not {found[1]} and {status.name}")
        count += 1 + compare(await all_registers(device), await all_registers(simulator))
        if status != Status.OK:
            for each in (device, simulator):
                await refused(each, start=1)
                await control(each, clear=1)
    for each in (device, simulator):
        await control(each, clear_counters=1)
    count += compare(await all_registers(device), await all_registers(simulator))
    env.report("jobs", transactions=count, cycles=device.cycles, seed=env.seed)


@cocotb.test()
async def behaviours(dut: object) -> None:
    """Slow memory, errors, a job that hangs; then a reset, and the next job."""
    env = Environment.get()
    rng = random.Random(env.seed)
    device, _ = await start(dut, env)
    await place(device)
    count = 0
    for behaviour in (
        BoardBehaviour(latency=(50, 90)),
        BoardBehaviour(latency=(0, 30), stall=0.5, slow=0.5, swap=0.5),
        BoardBehaviour(rate=0.5),
    ):
        device.behaviour(behaviour, seed=env.seed)
        if (found := await run(device, 2, [FENCE] * 8 + [HALT])) != (Status.OK, 10):
            raise MismatchError(f"a job of fences ends with {found}")
        count += 1
    line = COMMANDS + 4 * LINE_BYTES
    device.behaviour(BoardBehaviour(read_errors={(line, line + LINE_BYTES): SLVERR}))
    if (found := await run(device, 2, [FENCE, FENCE, FENCE, HALT]))[0] != Status.READ:
        raise MismatchError(f"a job whose command cannot be read ends with {found}")
    await control(device, clear=1)
    device.behaviour(BoardBehaviour(stalls={"ar": 1.0}))
    device.limit = 2000
    try:
        await run(device, 0, [HALT])
    except TimeoutError:
        count += 1
    else:
        raise MismatchError("a job ends without its commands")
    # Addresses wait, data are outstanding: a reset at any time brings back an idle chip.
    device.limit = LIMIT
    for _ in range(env.scale(5, 50)):
        device.behaviour(BoardBehaviour(latency=(0, 40), stall=0.3))
        await device.reset()
        await place(device)
        await device.write(COMMANDS, b"".join([FENCE] * 20 + [HALT]))
        await control(device, start=1)
        await device.board.until(Wake.CYCLE, cycle=device.cycles + rng.randrange(400))
        count += 1
    await device.reset()
    device.behaviour(BoardBehaviour())
    if await device.read_register("STATUS") != 0:
        raise MismatchError("busy after a reset")
    await place(device)
    if (found := await run(device, 7, [HALT])) != (Status.OK, 7):
        raise MismatchError(f"after a reset a job ends with {found}")
    env.report("behaviours", transactions=count + 1, cycles=device.cycles, seed=env.seed)


@cocotb.test()
async def broken_rule(dut: object) -> None:
    """Commands beyond the memory: whoever waits is told."""
    env = Environment.get()
    device, _ = await start(dut, env)
    await place(device)
    await device.write_register("BASE", MEMORY_BYTES, Region.COMMANDS)
    await control(device, start=1)
    try:
        await device.wait()
    except MismatchError as error:
        if "ar from 0x100000 is outside of memory" not in str(error):
            raise
    else:
        raise MismatchError("nobody misses the memory that is not there")
    env.report("broken_rule", transactions=1, cycles=device.cycles, seed=env.seed)
