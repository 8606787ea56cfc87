"""Bench of the whole chip in trouble: errors, aborts, resets, commands with wrong bits."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections import Counter

import cocotb
import numpy as np

from model.formats import registers
from model.formats.commands import LINE_BYTES, Region, Status
from model.machine.encode import step_list
from model.machine.jobs import autoregressive_word, precision_word, prefill_jobs
from model.machine.runtime import Host
from sim.axi_memory import DECERR, SLVERR
from sim.benches.chip import LEAST, MEMORIES, begin, precision_of, prompts_of, report
from sim.board.control import Wake
from sim.environment import Environment
from sim.flips import every_command, flipped
from sim.harness import MismatchError
from sim.pair import Pair

#: Regions that a step reads, and those that it writes.
_READ = (
    *(Region.COMMANDS, Region.WEIGHTS, Region.EMBED, Region.NORM, Region.ROPE),
    *(Region.VALUES, Region.OPEN_KEYS, Region.TOKENS),
)
_WRITTEN = (Region.VALUES, Region.OPEN_KEYS, Region.TOKENS)
#: Commands of the simulator, and cycles of the chip, after which a job is stopped.
_STEPS, _CYCLES = 400, 400_000


async def start_job(pair: Pair, job: list[bytes]) -> None:
    """A job on the RTL alone."""
    device, manifest = pair.rtl, pair.manifest
    place = manifest.regions[Region.COMMANDS].base + manifest.jobs * LINE_BYTES
    await device.write(place, b"".join(job))
    await device.write_register("FIRST_COMMAND", manifest.jobs)
    await device.write_register("CONTROL", registers.pack("CONTROL", start=1))


async def end_job(pair: Pair) -> Status:
    """Waits for it, and clears its status."""
    device = pair.rtl
    await device.wait()
    await device.write_register("IRQ_PENDING", 1)
    word = registers.unpack("STATUS", await device.read_register("STATUS"))
    await device.write_register("CONTROL", registers.pack("CONTROL", clear=1))
    return Status(word["status"])


@cocotb.test()
async def trouble(dut: object) -> None:
    """Errors of the memory, aborts and resets at any time: a status, and the next job is right."""
    env = Environment.get()
    rng = random.Random(env.seed)
    pair, host = await begin(dut, env, LEAST, seed=env.seed, sequences=1)
    manifest, device = pair.manifest, pair.rtl
    (prompt,) = prompts_of(rng, LEAST.vocabulary, [5])
    word = precision_word(precision_of(rng), 3)
    (expected,) = (await host.generate([prompt], max_new=3, word=word)).sequences
    alone = Host(device, manifest)
    image = bytes(device.board.memory)
    (job,) = prefill_jobs(manifest, {0: (0, len(prompt))})
    before = device.cycles
    await start_job(pair, job)
    if (status := await end_job(pair)) != Status.OK:
        raise MismatchError(f"a job without trouble ends with {status.name}")
    length = device.cycles - before
    seen: Counter[str] = Counter()
    for number in range(env.scale(9, 60)):
        kind = ("read", "write", "abort", "reset")[number % 4]
        at = device.cycles + rng.randrange(1, length)
        behaviour = rng.choice(MEMORIES[:3])
        if kind in ("read", "write"):
            region = manifest.regions[rng.choice(_READ if kind == "read" else _WRITTEN)]
            first = region.base + rng.randrange(region.lines) * LINE_BYTES
            last = region.base + region.lines * LINE_BYTES
            code = rng.choice((SLVERR, DECERR))
            errors = {(first, last): code}
            behaviour = dataclasses.replace(
                behaviour,
                read_errors=errors if kind == "read" else {},
                write_errors=errors if kind == "write" else {},
            )
        device.behaviour(behaviour, seed=env.seed + number)
        await start_job(pair, job)
        if kind in ("abort", "reset"):
            await device.board.until(Wake.CYCLE, cycle=at)
        if kind == "reset":
            await device.reset(rng.randint(1, 3))
            status = Status.OK
            for region_, extent in manifest.regions.items():
                await device.write_register("BASE", extent.base, region_)
                await device.write_register("SIZE", extent.lines, region_)
        else:
            with contextlib.suppress(ValueError):
                if kind == "abort":
                    await device.write_register("CONTROL", registers.pack("CONTROL", abort=1))
            status = await end_job(pair)
        allowed = {"read": Status.READ, "write": Status.WRITE, "abort": Status.ABORTED}
        if status not in (Status.OK, allowed.get(kind)):
            raise MismatchError(f"trouble {number}, {kind}: status {status.name}")
        seen[f"{kind} {status.name}"] += 1
        device.behaviour(rng.choice(MEMORIES[:3]), seed=env.seed + number)
        device.board.memory[: len(image)] = image
        (found,) = (await alone.generate([prompt], max_new=3, word=word)).sequences
        if found.tokens != expected.tokens:
            raise MismatchError(f"after trouble {number}, {kind}: tokens {found.tokens}")
    report(env, "trouble", pair, env.seed, ", ".join(f"{k}: {n}" for k, n in sorted(seen.items())))


async def same_end(pair: Pair, line: int) -> str:
    """Runs a job on both, which must end alike.

    Returns the name of its status; nothing if it was stopped because it takes long.
    """
    device, simulator = pair.rtl, pair.simulator
    for each in (device, pair.device):
        await each.write_register("CONTROL", registers.pack("CONTROL", clear_counters=1))
        await each.write_register("FIRST_COMMAND", line)
        await each.write_register("CONTROL", registers.pack("CONTROL", start=1))
    for _ in range(_STEPS):
        if not simulator.advance():
            break
    long = simulator.busy
    last = device.cycles + (_CYCLES // 100 if long else _CYCLES)
    while (busy := await status_of(pair, "busy")) and device.cycles < last:
        await device.board.until(Wake.CYCLE, cycle=min(last, device.cycles + 2000))
    if busy and not long:
        raise MismatchError(f"a job does not end in {_CYCLES} cycles: {simulator.why or 'OK'}")
    abort = registers.pack("CONTROL", abort=1)
    if busy:
        await device.write_register("CONTROL", abort)
        await device.wait()
    if long:
        simulator.write_register("CONTROL", abort)
        simulator.wait()
    found = Status(await status_of(pair, "status"))
    expected = Status(registers.unpack("STATUS", simulator.read_register("STATUS"))["status"])
    if not long:
        places = [await each.read_register("COMMAND_INDEX") for each in (device, pair.device)]
        # A number that is refused is seen when it comes.
        exact = expected != Status.NUMBER
        if found != expected or (exact and places[0] != places[1]):
            raise MismatchError(
                f"{found.name} at line {places[0]}, not {expected.name} at {places[1]}:"
                f" {simulator.why}"
            )
        if found == Status.OK:
            await pair.compare()
    for each in (device, pair.device):
        await each.write_register("IRQ_PENDING", 1)
        await each.write_register("CONTROL", registers.pack("CONTROL", clear=1))
    return "" if long else found.name


async def status_of(pair: Pair, field: str) -> int:
    """A field of the chip's STATUS."""
    return registers.unpack("STATUS", await pair.rtl.read_register("STATUS"))[field]


@cocotb.test()
async def wrong_bits(dut: object) -> None:
    """Jobs with flipped bits: the simulator's status and place, nothing written elsewhere, and the
    next job is right."""
    env = Environment.get()
    seed = env.seed
    generator = np.random.default_rng(seed)
    pair, host = await begin(dut, env, LEAST, seed=seed, sequences=2)
    manifest, device, simulator = pair.manifest, pair.rtl, pair.simulator
    rng = random.Random(seed)
    await host.prefill(prompts_of(rng, LEAST.vocabulary, [5, 2]))
    start = manifest.regions[Region.COMMANDS].base
    job, step = every_command(manifest), step_list(manifest)
    kept = bytes(device.board.memory)
    seen: Counter[str] = Counter()
    for number in range(env.scale(16, 120)):
        # The first one is as it should be; behind one that is not, the next one is.
        in_job = number % 2 == 0
        changed = flipped(job if in_job else step, generator, int(number > 0))
        device.behaviour(rng.choice(MEMORIES[:3]), seed=seed + number)
        for commands, lines in ((changed if in_job else job, changed), (job, step)):
            device.board.memory[:] = kept
            simulator.machine.memory.data[:] = np.frombuffer(kept, np.uint8)
            await pair.write(start + manifest.jobs * LINE_BYTES, b"".join(commands))
            if not in_job:
                await pair.write(start, b"".join(lines))
            status = await same_end(pair, manifest.jobs)
            seen[status or "stopped by the host"] += 1
            if status == Status.OK.name:
                break
        else:
            raise MismatchError(f"behind job {number} a right one ends with {status}")
    await pair.write(0, kept)
    await host.generate(
        prompts_of(rng, LEAST.vocabulary, [4, 3]), max_new=4, word=autoregressive_word(9)
    )
    if len(seen) < env.scale(3, 5):
        raise MismatchError(f"all jobs end alike: {dict(seen)}")
    report(env, "wrong bits", pair, seed, ", ".join(f"{k}: {n}" for k, n in seen.most_common()))
