"""Bench of the sum of squares: rows of all lengths and levels, rises and falls of the exponent."""

from __future__ import annotations

import cocotb
import numpy as np

from hw.config import TILE
from hw.special.squares import SquareSum
from sim.beats import BeatBench, beats
from sim.environment import Environment
from sim.harness import MOODS, MismatchError
from sim.norms import REFUSED, row, square_sum
from sim.registry import NORM_LONGEST
from sim.words import Array


def _send(bench: BeatBench, elements: int, codes: Array, live: Array) -> bool:
    """One row; whether a live number of it is refused."""
    bench.feed("numbers", beats(codes.tolist(), elements, live=live.tolist()))
    bench.want("sums", [square_sum(np.where(live, codes, 0))])
    return bool((((codes >> 7) & 0xFF == 0xFF) & live).any())


def _start(
    dut: object, mood: str = "steady", number: int = 0
) -> tuple[Environment, BeatBench, int, np.random.Generator]:
    env = Environment.get()
    elements = env.config.special_elements
    seed = env.seed + number
    component = SquareSum(elements=elements, longest=NORM_LONGEST)
    return env, BeatBench(dut, env, component, mood, seed), elements, np.random.default_rng(seed)


@cocotb.test()
async def random_rows(dut: object) -> None:
    """Ragged rows with dead elements in all moods; a reset on the way, then more."""
    for number, mood in enumerate(MOODS):
        env, bench, elements, rng = _start(dut, mood, number)
        await bench.reset()
        for after_reset in (False, True):
            refused = False
            for _ in range(env.scale(12, 80)):
                count = int(rng.choice([1, 2, 63, 64, 65, 128, 200, int(rng.integers(1, 300))]))
                live = rng.random(count) < rng.choice([1.0, 1.0, 0.7])
                refused |= _send(bench, elements, row(rng, count), live)
            if not after_reset:
                for _ in range(int(rng.integers(20, 200))):
                    await bench.cycle()
                await bench.reset()
                bench.clear_streams()
            else:
                await bench.finish()
                await bench.expect_status(refused=refused)
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def every_step(dut: object) -> None:
    """The exponent rises or falls from one 64 to the next by every distance up to 40, and more."""
    env, bench, elements, rng = _start(dut)
    await bench.reset()
    for distance in (*range(0, 41, env.scale(3, 1)), 64, 128, 253):
        for first, second in ((1, 1 + distance), (254, 254 - distance)):
            codes = rng.integers(0, 128, 2 * TILE) | rng.integers(0, 2, 2 * TILE) << 15
            codes |= np.repeat([first, second], TILE) << 7
            _send(bench, elements, codes, np.ones(codes.shape, bool))
    await bench.finish()
    await bench.expect_status()
    env.report("steps", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def longest_row(dut: object) -> None:
    """The largest significand everywhere, over the longest row (or a part of it)."""
    env, bench, elements, _ = _start(dut)
    await bench.reset()
    count = env.scale(2048, NORM_LONGEST)
    _send(bench, elements, np.full(count, 0x7F7F), np.ones(count, bool))
    taken, rows = count // elements, TILE // elements
    took = await bench.finish()
    if took != taken + 6 + rows:
        raise MismatchError(f"{taken} beats took {took} cycles, not {taken + 6 + rows}")
    env.report("longest", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def status(dut: object) -> None:
    """Inf and NaN, each alone, count as zeros; dead, they raise nothing."""
    env, bench, elements, _ = _start(dut, "both")
    await bench.reset()
    for code in (*REFUSED, 0x7F7F):
        for live in (True, False):
            raised = _send(bench, elements, np.array([0x3F80, code]), np.array([True, live]))
            await bench.finish(patient=True)
            await bench.expect_status(refused=raised)
    env.report("status", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)
