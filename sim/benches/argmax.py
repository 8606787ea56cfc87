"""Bench of argmax: ties, signed zeros, padded columns, Inf, NaN, ragged rows."""

from __future__ import annotations

import cocotb
import numpy as np
import torch

from hw.special.argmax import Argmax
from model.datapath.special import argmax
from model.formats.floats import from_codes
from sim.beats import BeatBench, beats
from sim.environment import Environment
from sim.harness import MOODS, MismatchError
from sim.words import Array

SPECIAL = [0, 1 << 31, 1, 0x80000001, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000]
NAN = [0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF]


def _logits(rng: np.random.Generator, count: int) -> Array:
    kind = rng.integers(0, 5)
    codes = rng.integers(0, 2, count) << 31 | rng.integers(0, 255, count) << 23
    codes |= rng.integers(0, 1 << 23, count)
    if kind == 0:
        # Few different ones: ties everywhere.
        codes = rng.choice(codes[: max(1, count // 8)], count)
    elif kind == 1:
        codes = rng.choice(SPECIAL, count)
    elif kind == 2:
        # All negative; padded columns, which are zeros, must not win.
        codes |= 1 << 31
    elif kind == 3:
        codes = rng.choice([0, 1 << 31], count)
    elif rng.random() < 0.3:
        codes[rng.integers(0, count)] = rng.choice(NAN)
    return codes


def _send(bench: BeatBench, elements: int, codes: Array, live: Array) -> bool:
    """One row; whether it has a live NaN."""
    nan = ((codes >> 23) & 0xFF == 0xFF) & (codes & 0x7FFFFF != 0)
    # The model has neither dead columns nor NaN: it is given what is left, in the same order.
    places = np.flatnonzero(live & ~nan)
    index = 0
    if len(places):
        index = int(places[int(argmax(from_codes(torch.from_numpy(codes[places]), "fp32")))])
    bench.feed("logits", beats(codes.tolist(), elements, live=live.tolist()))
    bench.want("winners", [{"index": index, "none": int(not len(places))}])
    return bool((nan & live).any())


def _start(
    dut: object, mood: str = "steady", number: int = 0
) -> tuple[Environment, BeatBench, int, np.random.Generator]:
    env = Environment.get()
    elements = env.config.special_elements
    seed = env.seed + number
    bench = BeatBench(dut, env, Argmax(elements=elements), mood, seed)
    return env, bench, elements, np.random.default_rng(seed)


@cocotb.test()
async def random_rows(dut: object) -> None:
    """Rows in all moods, padded at the end or dead anywhere; a reset on the way, then more."""
    for number, mood in enumerate(MOODS):
        env, bench, elements, rng = _start(dut, mood, number)
        await bench.reset()
        for after_reset in (False, True):
            refused = False
            for _ in range(env.scale(30, 200)):
                count = int(rng.choice([1, 2, 7, 8, 9, 64, int(rng.integers(1, 200))]))
                live = rng.random(count) < rng.choice([1.0, 0.7, 0.05])
                if rng.random() < 0.3:
                    live = np.arange(count) < rng.integers(0, count + 1)
                refused |= _send(bench, elements, _logits(rng, count), live)
            if not after_reset:
                for _ in range(30):
                    await bench.cycle()
                await bench.reset()
                bench.clear_streams()
            else:
                await bench.finish()
                await bench.expect_status(refused=refused)
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def long_rows(dut: object) -> None:
    """Rows as long as a vocabulary (or a part), the largest anywhere; two cycles after the last."""
    env, bench, elements, rng = _start(dut)
    await bench.reset()
    for _ in range(env.scale(2, 4)):
        count = env.scale(3000, 50000)
        codes = rng.integers(0, 1 << 30, count)
        codes[rng.integers(0, count, 3)] = 1 << 30
        _send(bench, elements, codes, np.ones(count, bool))
        taken = -(-count // elements)
        took = await bench.finish()
        if took != taken + 2:
            raise MismatchError(f"{taken} beats took {took} cycles, not {taken + 2}")
    env.report("long", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def every_pair(dut: object) -> None:
    """Two logits, each with each of the special ones, at neighbouring and at distant places."""
    env, bench, elements, _ = _start(dut, "both")
    await bench.reset()
    codes = [*SPECIAL, 0x3F800000, 0xBF800000, 0x3F800001, 0xBF800001, NAN[0]]
    refused = False
    for first in codes:
        for second in codes:
            for distance in (1, 3, 9):
                row = np.zeros(distance + 1, np.int64)
                row[[0, -1]] = first, second
                live = np.ones(row.shape, bool)
                live[1:-1] = False
                refused |= _send(bench, elements, row, live)
    await bench.finish()
    await bench.expect_status(refused=refused)
    for code in NAN:
        for counted in (True, False):
            raised = _send(bench, elements, np.array([code]), np.array([counted]))
            await bench.finish(patient=True)
            await bench.expect_status(refused=raised)
    env.report("pairs", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)
