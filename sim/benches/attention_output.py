"""Bench of the attention output: every index of the reciprocal, sizes of L and of sums, rows."""

from __future__ import annotations

import cocotb
import numpy as np
import torch

from hw.special.output import AttentionOutput
from model.datapath.special import attention_output
from sim.beats import BeatBench, beats, codes_of, fp32_numbers, zeros_for_dead
from sim.environment import Environment
from sim.harness import MOODS, MismatchError
from sim.words import Array

LARGEST = (1 << 53) - 1
CORNERS = [0, 1 << 31, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF7FFFFF, 0x7F7FFFFF]
REFUSED = [0x7F800000, 0xFF800000, 0x7FC00000, 0xFFFFFFFF]


def _sums(rng: np.random.Generator, count: int) -> Array:
    low, high = [(110, 140), (0, 254), (0, 20), (235, 254)][rng.integers(0, 4)]
    exponent = rng.integers(low, high + 1, count)
    mantissa = rng.integers(0, 1 << 23, count) & ~((1 << int(rng.integers(0, 24))) - 1)
    codes = rng.integers(0, 2, count) << 31 | exponent << 23 | mantissa
    corner = rng.random(count) < 0.1
    codes[corner] = rng.choice([*CORNERS, REFUSED[0]], count)[corner]
    return codes


def _total(rng: np.random.Generator) -> int:
    size = int(rng.integers(0, 54))
    value = int(rng.integers(0, 1 << 53)) >> (53 - size)
    return int(rng.choice([0, 1, LARGEST, 1 << 32])) if rng.random() < 0.2 else value


def _send(
    bench: BeatBench, elements: int, codes: Array, total: int, live: Array
) -> dict[str, bool]:
    """One row, and the status bits that it raises."""
    o = attention_output(fp32_numbers(codes), torch.tensor(total))
    bench.feed("totals", [total])
    bench.feed("sums", beats(codes.tolist(), elements, live=live.tolist()))
    bench.want("outputs", zeros_for_dead(beats(codes_of(o).tolist(), elements, live=live.tolist())))
    return {
        "refused": bool((((codes >> 23) & 0xFF == 0xFF) & live).any()),
        "overflow": bool((torch.isinf(o).numpy() & live).any()),
    }


def _start(
    dut: object, mood: str = "steady", number: int = 0
) -> tuple[Environment, BeatBench, int, np.random.Generator]:
    env = Environment.get()
    elements = env.config.special_elements
    seed = env.seed + number
    bench = BeatBench(dut, env, AttentionOutput(elements=elements), mood, seed)
    return env, bench, elements, np.random.default_rng(seed)


@cocotb.test()
async def random_rows(dut: object) -> None:
    """Ragged rows in all moods, each with its own L; a reset on the way, then more."""
    for number, mood in enumerate(MOODS):
        env, bench, elements, rng = _start(dut, mood, number)
        await bench.reset()
        for after_reset in (False, True):
            raised = {"refused": False, "overflow": False}
            for _ in range(env.scale(12, 60)):
                count = int(rng.choice([1, 2, 7, 8, 9, 64, int(rng.integers(1, 130))]))
                live = rng.random(count) < rng.choice([1.0, 0.7])
                row = _send(bench, elements, _sums(rng, count), _total(rng), live)
                raised = {name: raised[name] or row[name] for name in raised}
            if not after_reset:
                for _ in range(30):
                    await bench.cycle()
                await bench.reset()
                bench.clear_streams()
            else:
                await bench.finish()
                await bench.expect_status(**raised)
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def every_index(dut: object) -> None:
    """All indices of the reciprocal (or a part) at different sizes of L, a short row each."""
    env, bench, elements, rng = _start(dut)
    await bench.reset()
    step = env.scale(61, 5)
    for index in range(int(rng.integers(0, step)), 1 << 16, step):
        size = int(rng.integers(0, 37))
        below = int(rng.integers(0, 1 << size))
        total = (
            ((1 << 16 | index) << size | below)
            if index % 3
            else (1 << 16 | index) >> 16 - size % 17
        )
        codes = _sums(rng, elements)
        _send(bench, elements, codes, total, np.ones(elements, bool))
    await bench.finish()
    env.report("indices", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def no_gap(dut: object) -> None:
    """Rows of two beats and more follow each other without a gap."""
    env, bench, elements, rng = _start(dut)
    await bench.reset()
    count = 0
    for _ in range(env.scale(20, 200)):
        length = elements * int(rng.integers(2, 9))
        _send(bench, elements, _sums(rng, length), _total(rng), np.ones(length, bool))
        count += length // elements
    took = await bench.finish()
    # Two cycles from L to the first sums, two more to their outputs.
    if took != count + 4:
        raise MismatchError(f"{count} beats took {took} cycles, not {count + 4}")
    env.report("gaps", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def status(dut: object) -> None:
    """Inf and NaN, an overflow, each alone; dead, they raise nothing. L = 0 gives +0."""
    env, bench, elements, _ = _start(dut, "both")
    await bench.reset()
    for code in (*REFUSED, 0x7F7FFFFF, 0xFF7FFFFF):
        for total in (0, 1, 1 << 32, LARGEST):
            for live in (True, False):
                raised = _send(bench, elements, np.array([code]), total, np.array([live]))
                await bench.finish(patient=True)
                await bench.expect_status(**raised)
    env.report("status", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)
