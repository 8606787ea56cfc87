"""Bench of the burst splitter: every start in a page, lengths around it, the longest request."""

from __future__ import annotations

import cocotb

from hw.axi.config import PAGE_LINES
from hw.axi.splitter import Splitter
from sim.axi import BASE_LINE, COUNTS, STARTS, bursts_of, memory_of
from sim.beats import BeatBench
from sim.environment import Environment
from sim.harness import MOODS, MismatchError


def _start(dut: object, mood: str = "steady", number: int = 0) -> tuple[Environment, BeatBench]:
    env = Environment.get()
    return env, BeatBench(dut, env, Splitter(memory_of(env.config)), mood, env.seed + number)


def _send(bench: BeatBench, env: Environment, line: int, count: int) -> int:
    config = memory_of(env.config)
    request = {"line": line, "count": count, "tag": bench.rng.getrandbits(config.tag_bits)}
    bench.feed("requests", [request])
    return bench.want("bursts", bursts_of(config, request))


@cocotb.test()
async def moods(dut: object) -> None:
    """Random requests in all moods, some without a line; a reset on the way, then more."""
    for number, mood in enumerate(MOODS):
        env, bench = _start(dut, mood, number)
        lines = 1 << memory_of(env.config).line_address_bits
        await bench.reset()
        for after_reset in (False, True):
            for _ in range(env.scale(20, 200)):
                count = bench.rng.choice((0, 1, *COUNTS, bench.rng.randint(1, 300)))
                _send(bench, env, bench.rng.randrange(lines - count), count)
            if not after_reset:
                for _ in range(bench.rng.randint(20, 60)):
                    await bench.cycle()
                await bench.reset()
                bench.clear_streams()
        await bench.finish(patient=mood == "stalls")
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def pages(dut: object) -> None:
    """Starts and lengths around the end of a page, back to back: a burst a cycle."""
    env, bench = _start(dut)
    await bench.reset()
    bursts = 0
    for start in env.scale(1, 0) * STARTS or range(PAGE_LINES):
        for count in COUNTS:
            bursts += _send(bench, env, BASE_LINE + start, count)
    # One cycle for the first request to come in; the last 12 see that no more come.
    took = await bench.finish()
    if took != bursts + 1:
        raise MismatchError(f"{bursts} bursts took {took} cycles")
    env.report("pages", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def longest(dut: object) -> None:
    """2**20 lines; in the short form all bits of the count are used, and a reset ends it."""
    env, bench = _start(dut)
    await bench.reset()
    if env.quick:
        config = memory_of(env.config)
        request = {"line": BASE_LINE, "count": 1 << 20, "tag": 1}
        bench.feed("requests", [request])
        bursts = bursts_of(config, {**request, "count": 4096})
        bursts[-1]["last"] = 0
        bench.want("bursts", bursts)
        await bench.run(lambda: not bench.expected["bursts"], limit=9000)
        await bench.reset()
    else:
        _send(bench, env, BASE_LINE + 5, 1 << 20)
        await bench.finish()
    env.report("longest", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)
