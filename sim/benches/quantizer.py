"""Bench of the quantizers: groups of every spread, zeros, subnormals, extremes, ragged groups."""

from __future__ import annotations

import cocotb
import numpy as np

from hw.special.quantizer import Quantizer
from model.formats.bfp import quantize
from sim.beats import BeatBench, beats, bf16_numbers, zeros_for_dead
from sim.environment import Environment
from sim.harness import MOODS, MismatchError
from sim.registry import OPEN_KEYS, VALUES
from sim.stimulus import bf16
from sim.words import Array

CORNERS = [0, 0x8000, 1, 0x8001, 0x7F, 0x807F, 0x80, 0x8080, 0x7F7F, 0xFF7F]
REFUSED = [0x7F80, 0xFF80, 0x7FC0, 0xFFFF]


def _numbers(rng: np.random.Generator, count: int) -> Array:
    low, high = [(120, 130), (1, 254), (0, 3), (100, 140), (246, 254)][rng.integers(0, 5)]
    codes = bf16(rng, (count,), low, high)
    if rng.random() < 0.1:
        codes[:] = rng.choice([0, 0x8000])
    corner = rng.random(count) < rng.choice([0.0, 0.2])
    codes[corner] = rng.choice([*CORNERS, REFUSED[0]], count)[corner]
    return codes.astype(np.int64)


def _send(bench: BeatBench, component: Quantizer, codes: Array, live: Array) -> bool:
    """One group; whether a live number of it is refused."""
    bad = (codes >> 7) & 0xFF == 0xFF
    numbers = bf16_numbers(np.where(live, codes, 0))
    made = quantize(numbers, group=len(codes), p_full=component.p_full)
    members = [
        {"sign": sign, "magnitude": magnitude}
        for sign, magnitude in zip(made.signs.tolist(), made.magnitudes.tolist(), strict=True)
    ]
    bench.feed("numbers", beats(codes.tolist(), component.elements, live=live.tolist()))
    bench.want("exponents", made.exponents.tolist())
    bench.want("members", zeros_for_dead(beats(members, component.elements, live=live.tolist())))
    return bool((bad & live).any())


def _start(
    dut: object, mood: str = "steady", number: int = 0
) -> tuple[Environment, BeatBench, Quantizer, np.random.Generator]:
    env = Environment.get()
    kind = VALUES if str(dut._name).endswith("_9") else OPEN_KEYS  # type: ignore[attr-defined]
    component = Quantizer(elements=env.config.special_elements, **kind)
    seed = env.seed + number
    return env, BeatBench(dut, env, component, mood, seed), component, np.random.default_rng(seed)


@cocotb.test()
async def random_groups(dut: object) -> None:
    """Groups in all moods, ragged and with dead elements; a reset on the way, then more."""
    for number, mood in enumerate(MOODS):
        env, bench, component, rng = _start(dut, mood, number)
        await bench.reset()
        for after_reset in (False, True):
            refused = False
            for _ in range(env.scale(12, 80)):
                count = component.longest
                if rng.random() < 0.4:
                    count = int(rng.integers(1, component.longest + 1))
                live = rng.random(count) < rng.choice([1.0, 0.7])
                refused |= _send(bench, component, _numbers(rng, count), live)
            if not after_reset:
                for _ in range(int(rng.integers(20, 100))):
                    await bench.cycle()
                await bench.reset()
                bench.clear_streams()
            else:
                await bench.finish()
                await bench.expect_status(refused=refused)
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def every_distance(dut: object) -> None:
    """A number of every exponent beside every distance below it: all shifts, both signs."""
    env, bench, component, rng = _start(dut)
    await bench.reset()
    for exponent in range(0, 255, env.scale(23, 3)):
        distances = np.arange(component.longest) % 41
        codes = bf16(rng, distances.shape, 0, 0).astype(np.int64)
        codes |= np.maximum(exponent - distances, 0) << 7
        _send(bench, component, rng.permutation(codes), np.ones(codes.shape, bool))
    await bench.finish()
    await bench.expect_status()
    env.report("distances", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def no_gap(dut: object) -> None:
    """Whole groups, all streams willing: from the first members on, a beat a cycle."""
    env, bench, component, rng = _start(dut)
    await bench.reset()
    cycles: list[int] = []
    groups = env.scale(4, 20)
    for _ in range(groups):
        codes = bf16(rng, (component.longest,), 100, 140).astype(np.int64)
        _send(bench, component, codes, np.ones(codes.shape, bool))
    bench.out["members"].observers.append(lambda _: cycles.append(bench.cycle_count))
    await bench.finish()
    rows = component.longest // component.elements
    # Two cycles of reset; the last beat is taken in cycle rows - 1.
    first = 2 + rows - 1 + 4
    if cycles != list(range(first, first + groups * rows)):
        raise MismatchError(f"members left in cycles {cycles[0]} to {cycles[-1]}")
    env.report("gaps", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def status(dut: object) -> None:
    """Inf and NaN, each alone, count as zeros; dead, they raise nothing."""
    env, bench, component, _ = _start(dut, "both")
    await bench.reset()
    for code in (*REFUSED, 0x7F7F):
        for live in (True, False):
            raised = _send(bench, component, np.array([0x3F80, code]), np.array([True, live]))
            await bench.finish(patient=True)
            await bench.expect_status(refused=raised)
    env.report("status", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def exponents_stall(dut: object) -> None:
    """Exponents are not taken for long: no member is lost or mixed up."""
    env, bench, component, rng = _start(dut)
    await bench.reset()
    for _ in range(10):
        codes = _numbers(rng, int(rng.integers(1, component.longest + 1)))
        _send(bench, component, codes, np.ones(codes.shape, bool))
    bench.out["exponents"].blocked = True
    for _ in range(8 * component.longest // component.elements):
        await bench.cycle()
    bench.out["exponents"].blocked = False
    await bench.finish()
    env.report("stall", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)
