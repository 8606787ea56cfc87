"""Bench of RMSNorm: whole rows in two passes, heads and long rows, several eps, status."""

from __future__ import annotations

import cocotb
import numpy as np
import torch

from hw.special.norm import RmsNorm
from model.datapath.special import rms_norm
from sim.beats import BeatBench, beats, bf16_numbers, codes_of, zeros_for_dead
from sim.environment import Environment
from sim.harness import MOODS, MismatchError
from sim.norms import REFUSED, constants, row
from sim.registry import NORM_LONGEST
from sim.stimulus import bf16
from sim.words import Array


def _weights(rng: np.random.Generator, count: int) -> Array:
    low, high = [(124, 129), (1, 254), (0, 3)][rng.choice(3, p=[0.6, 0.3, 0.1])]
    return bf16(rng, (count,), low, high).astype(np.int64)


def _send(
    bench: BeatBench, elements: int, codes: Array, weights: Array, eps: float
) -> dict[str, bool]:
    """One row, both passes, and the status bits that it raises."""
    y = rms_norm(bf16_numbers(codes), bf16_numbers(weights), eps, form="hardware")
    operands = [
        {"x": x, "weight": w} for x, w in zip(codes.tolist(), weights.tolist(), strict=True)
    ]
    bench.feed("numbers", beats(codes.tolist(), elements))
    bench.feed("operands", beats(operands, elements))
    bench.want("results", zeros_for_dead(beats(codes_of(y).tolist(), elements)))
    refused = (((codes >> 7) & 0xFF == 0xFF) | ((weights >> 7) & 0xFF == 0xFF)).any()
    return {"refused": bool(refused), "overflow": bool(torch.isinf(y).any())}


def _start(
    dut: object, mood: str = "steady", number: int = 0
) -> tuple[Environment, BeatBench, int, np.random.Generator]:
    env = Environment.get()
    elements = env.config.special_elements
    seed = env.seed + number
    component = RmsNorm(elements=elements, longest=NORM_LONGEST)
    return env, BeatBench(dut, env, component, mood, seed), elements, np.random.default_rng(seed)


@cocotb.test()
async def random_rows(dut: object) -> None:
    """Rows of one width after another in all moods, several widths and eps; resets on the way."""
    for number, mood in enumerate(MOODS):
        env, bench, elements, rng = _start(dut, mood, number)
        for width, eps in ((64, 1e-6), (1, 1.0), (130, 1e-5), (128, 2.0**-126), (576, 1e-5)):
            bench.put(**constants(width, eps))
            await bench.reset()
            bench.clear_streams()
            raised = {"refused": False, "overflow": False}
            for _ in range(env.scale(3, 25)):
                seen = _send(bench, elements, row(rng, width), _weights(rng, width), eps)
                raised = {name: raised[name] or seen[name] for name in raised}
            await bench.finish()
            await bench.expect_status(**raised)
            # A row on its way when the reset comes.
            _send(bench, elements, row(rng, width), _weights(rng, width), eps)
            for _ in range(int(rng.integers(5, 60))):
                await bench.cycle()
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def passes_overlap(dut: object) -> None:
    """The first pass of a row goes beside the second of the row before: rows take a pass each."""
    env, bench, elements, rng = _start(dut)
    width, eps = 576, 1e-5
    bench.put(**constants(width, eps))
    await bench.reset()
    rows = env.scale(5, 20)
    for _ in range(rows):
        codes = bf16(rng, (width,), 120, 130).astype(np.int64)
        _send(bench, elements, codes, _weights(rng, width), eps)
    took = await bench.finish()
    # The first pass, its sum (6 and the beats of 64), 7 to the operands, the second pass, 3.
    limit = (rows + 1) * (width // elements) + 6 + 64 // elements + 7 + 3
    if took > limit:
        raise MismatchError(f"{rows} rows took {took} cycles, not {limit} or fewer")
    env.report("overlap", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def status(dut: object) -> None:
    """Inf and NaN in x or in the weight, an overflow, each alone."""
    env, bench, elements, _ = _start(dut, "both")
    bench.put(**constants(2, 1e-6))
    await bench.reset()
    # What the first pass alone refuses.
    bench.feed("numbers", beats([REFUSED[0], 0x3F80], elements))
    ones = {"x": 0x3F80, "weight": 0x3F80}
    bench.feed("operands", beats([{**ones, "x": 0}, ones], elements))
    y = rms_norm(
        bf16_numbers(np.array([0, 0x3F80])), torch.ones(2).bfloat16(), 1e-6, form="hardware"
    )
    bench.want("results", zeros_for_dead(beats(codes_of(y).tolist(), elements)))
    await bench.finish(patient=True)
    await bench.expect_status(refused=True)
    cases = [([code, 0x3F80], [0x3F80, 0x3F80]) for code in REFUSED]
    cases += [([0x3F80, 0x3F80], [0x3F80, code]) for code in REFUSED]
    cases += [([0x3F80, 0], [0x3F80, 0x7F7F]), ([0x7F7F, 0], [0x7F7F, 0x3F80])]
    for x, weights in cases:
        raised = _send(bench, elements, np.array(x), np.array(weights), 1e-6)
        await bench.finish(patient=True)
        await bench.expect_status(**raised)
    env.report("status", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)
