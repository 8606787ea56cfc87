"""Bench of the scalar steps of RMSNorm: ties and carries of each rounding, every index."""

from __future__ import annotations

import cocotb
import numpy as np
import torch

from hw.special.norm import InverseRoot
from hw.special.squares import square_sum_bits
from model.datapath.special.norm import inverse_root
from sim.beats import BeatBench
from sim.environment import Environment
from sim.harness import MOODS, MismatchError
from sim.norms import constants
from sim.registry import NORM_LONGEST

BITS = square_sum_bits(NORM_LONGEST)
#: Widths and eps: usual ones, a 1/d that rounds, the extremes.
SETTINGS = ((64, 1e-6), (576, 1e-5), (4095, 2.0**-126), (1, 2.0**127), (16384, 1.0), (3, 1e-12))


def _totals(rng: np.random.Generator, count: int) -> list[int]:
    result = []
    for _ in range(count):
        size = int(rng.integers(1, BITS + 1))
        value = int(rng.integers(0, 1 << 62)) >> (62 - size) | 1 << (size - 1)
        kind = rng.integers(0, 5)
        if kind == 0 and size > 26:
            # A tie of the first rounding, or its neighbours, odd and even.
            value = (value >> size - 24 << size - 24) + (1 << size - 25)
            value += int(rng.integers(-1, 2))
        elif kind == 1:
            value = (1 << size) - 1 - int(rng.integers(0, 2))
        elif kind == 2:
            value = 1 << (size - 1)
        result.append(min(value, (1 << BITS) - 1))
    return result


def _send(bench: BeatBench, totals: list[int], exponents: list[int], width: int, eps: float) -> int:
    roots = inverse_root(torch.tensor(totals), torch.tensor(exponents), width, eps)
    mantissas, powers = torch.frexp(roots)
    values = (mantissas * 2.0**17).to(torch.int64).tolist()
    bench.want(
        "scales",
        [{"value": v, "exponent": p - 17} for v, p in zip(values, powers.tolist(), strict=True)],
    )
    sums = [{"total": t, "exponent": e} for t, e in zip(totals, exponents, strict=True)]
    return bench.feed("sums", sums)


def _start(
    dut: object, mood: str = "steady", number: int = 0
) -> tuple[Environment, BeatBench, np.random.Generator]:
    env = Environment.get()
    seed = env.seed + number
    bench = BeatBench(dut, env, InverseRoot(longest=NORM_LONGEST), mood, seed)
    return env, bench, np.random.default_rng(seed)


@cocotb.test()
async def random_sums(dut: object) -> None:
    """Sums of every size at every exponent, in all moods, under several widths and eps."""
    for number, mood in enumerate(MOODS):
        env, bench, rng = _start(dut, mood, number)
        for width, eps in SETTINGS:
            bench.put(**constants(width, eps))
            await bench.reset()
            bench.clear_streams()
            count = env.scale(100, 2000)
            exponents = rng.integers(1, 255, count)
            if rng.random() < 0.5:
                exponents = rng.integers(110, 140, count)
            _send(bench, _totals(rng, count), exponents.tolist(), width, eps)
            _send(bench, [0], [0], width, eps)
            await bench.finish()
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def around_eps(dut: object) -> None:
    """Means at every distance from eps, 60 binary places above to 60 below: all alignments."""
    env, bench, rng = _start(dut)
    width, eps = 64, 1e-5
    bench.put(**constants(width, eps))
    await bench.reset()
    count = env.scale(20, 400)
    for distance in range(-60, 61):
        exponent = 142 - 8 + distance // 2
        totals = [
            int(rng.integers(1 << 23, 1 << 24)) << 6 + distance % 2 | int(rng.integers(0, 2))
            for _ in range(count)
        ]
        _send(bench, totals, [exponent] * count, width, eps)
    took = await bench.finish()
    if took != 121 * count + 6:
        raise MismatchError(f"{121 * count} sums took {took} cycles, not {121 * count + 6}")
    env.report("eps", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def deciding_ties(dut: object) -> None:
    """Sums at and beside a tie of their first rounding, where its direction decides r.

    r has fewer bits than the scalars, so one in some hundred ties does.
    """
    env, bench, rng = _start(dut)
    for width, eps in SETTINGS[:3]:
        bench.put(**constants(width, eps))
        await bench.reset()
        kept = torch.from_numpy(rng.integers(1 << 23, (1 << 24) - 1, env.scale(20000, 200000)))
        exponents = torch.full_like(kept, 140)
        below, above = (inverse_root(kept + step << 10, exponents, width, eps) for step in (0, 1))
        deciding = kept[below != above].tolist()
        totals: list[int] = []
        for each in deciding:
            totals += [(each << 10) + 512 + tail for tail in (-1, 0, 1)]
        if len(totals) < 60:
            raise MismatchError(f"only {len(totals)} sums decide")
        _send(bench, totals, [140] * len(totals), width, eps)
        await bench.finish()
    env.report("ties", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def carries(dut: object) -> None:
    """Each rounding that ends at the next power of two: of the sum, of the mean, of z."""
    env, bench, _ = _start(dut)
    # FP32(1/25) is below 1/25, so the mean of 25 2^k is rounded up to a power of two.
    cases = [(64, 1e-5, [(1 << size) - 1 for size in range(25, BITS + 1)], 142)]
    cases += [(25, 2.0**-126, [25 << place for place in range(BITS - 4)], 142)]
    # 24 ones, and an eps of half the last one.
    cases += [(1, 2.0**-20, [(1 << 24) - 1 << 1], 132)]
    for width, eps, totals, exponent in cases:
        bench.put(**constants(width, eps))
        await bench.reset()
        _send(bench, totals, [exponent] * len(totals), width, eps)
        await bench.finish()
    env.report("carries", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def every_index(dut: object) -> None:
    """All indices of the table (or a part): both parities of the exponent, all 16 bits."""
    env, bench, rng = _start(dut)
    width, eps = 64, 2.0**-126
    bench.put(**constants(width, eps))
    await bench.reset()
    fractions = np.arange(0, 1 << 16, env.scale(97, 3))
    for parity in (0, 1):
        totals = ((1 << 16 | fractions) << 7 | rng.integers(0, 128, len(fractions))) << parity
        exponents = rng.integers(130, 160, len(fractions))
        _send(bench, totals.tolist(), exponents.tolist(), width, eps)
    await bench.finish()
    env.report("indices", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)
