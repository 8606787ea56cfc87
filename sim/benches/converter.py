"""Bench of the converter: every exponent band of both formats, ties, borders, signed zeros."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import cocotb
import numpy as np
import torch

from hw.compute.converter import Converter
from hw.config import Config
from model.datapath.primitives import round_result
from model.formats.constants import RESULT_OFFSET
from model.formats.floats import BF16, FP32, FloatFormat
from sim.environment import Environment
from sim.harness import MOODS, Bench

#: ``R - p + r_n`` at least (after rises) and at most.
LEAST, MOST = -127 - 16, 508 - 5 + 253


@dataclass
class _Number:
    """A number on its way: accumulator, exponent, format, and what it becomes."""

    acc: int
    exponent: int
    fp32: int
    code: int = 0
    overflow: int = 0


class _ConverterBench(Bench):
    """Numbers through the three stages; the result holds until the next advance."""

    def __init__(self, dut: object, env: Environment, stall: float) -> None:
        super().__init__(dut, env.seed, Converter(env.config))
        self.stall = stall
        self.stages: list[_Number | None] = [None, None, None]
        self.compared = 0

    async def step(self, number: _Number | None, *, advance: bool) -> None:
        """A cycle."""
        last = self.stages[1] if advance else None
        self.put(
            advance=int(advance),
            acc=number.acc if advance and number else None,
            exponent=number.exponent if advance and number else None,
            fp32=last.fp32 if last else None,
        )
        await self.settle()
        shown = self.stages[2]
        if shown is not None:
            self.expect(code=shown.code, overflow=shown.overflow)
        await self.clock()
        if advance:
            self.stages = [number, *self.stages[:2]]
            self.compared += shown is not None

    async def convert(self, config: Config, numbers: list[_Number]) -> None:
        """All numbers, with stalls and empty places, and what is left in the stages."""
        _golden(config, numbers)
        waiting: Iterator[_Number | None] = iter([*numbers, None, None, None, None])
        for number in waiting:
            while self.rng.random() < self.stall:
                await self.step(None, advance=self.rng.random() < 0.2)
            await self.step(number, advance=True)


def _golden(config: Config, numbers: list[_Number]) -> None:
    for fmt in (BF16, FP32):
        chosen = [number for number in numbers if number.fp32 == int(fmt is FP32)]
        codes, overflow = round_result(
            torch.tensor([number.acc for number in chosen], dtype=torch.int64).unsqueeze(1),
            torch.tensor([number.exponent for number in chosen], dtype=torch.int64),
            p=0,
            g=config.align_guard_bits,
            f=config.acc_guard_bits,
            fmt=fmt,
        )
        for number, code, inf in zip(chosen, codes[:, 0], overflow[:, 0], strict=True):
            number.code, number.overflow = int(code), int(inf)


def _offset(config: Config) -> int:
    return RESULT_OFFSET + config.align_guard_bits + config.acc_guard_bits


def _around(
    config: Config, rng: np.random.Generator, fmt: FloatFormat, unit: int
) -> _Number | None:
    """A number whose last kept bit is ``2**unit``: exact, or below, at or above a tie."""
    bits = fmt.significand_bits
    subnormal = unit == 1 - fmt.offset
    top = (1 << bits) - 1
    low = 0 if subnormal else 1 << (bits - 1)
    kept = int(rng.choice([low, low + 1, top - 1, top, int(rng.integers(low, top + 1))]))
    if subnormal and rng.random() < 0.5:
        kept = int(rng.integers(0, 2 << rng.integers(0, bits)))
    room = config.acc_width - 1 - kept.bit_length()
    # Bits below the last kept one, as many as exponent and accumulator allow.
    least = max(0, unit + _offset(config) - MOST)
    most = min(room, unit + _offset(config) - LEAST)
    if least > most:
        return None
    tail_bits = int(rng.integers(least, most + 1))
    half = (1 << tail_bits) >> 1
    tails = [0, 1, half - 1, half, half, half + 1, (1 << tail_bits) - 1]
    tail = tails[rng.integers(0, len(tails))] if tail_bits else 0
    acc = kept << tail_bits | min(max(tail, 0), (1 << tail_bits) - 1)
    return _Number(
        acc if rng.random() < 0.5 else -acc,
        unit - tail_bits + _offset(config),
        int(fmt is FP32),
    )


@cocotb.test()
async def every_band(dut: object) -> None:
    """Every position of the last kept bit, from the subnormals to beyond the overflow border."""
    env = Environment.get()
    rng = np.random.default_rng(env.seed)
    numbers = []
    for fmt in (BF16, FP32):
        border = 254 - fmt.offset
        special = [1 - fmt.offset] * 30 + [border] * 10
        units = [*range(1 - fmt.offset, border + 4), *special]
        for unit in np.repeat(units, env.scale(4, 60)):
            made = _around(env.config, rng, fmt, int(unit))
            if made is not None:
                numbers.append(made)
    rng.shuffle(numbers)
    bench = _ConverterBench(dut, env, 0.0)
    await bench.reset()
    await bench.convert(env.config, numbers)
    env.report("bands", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def random_numbers(dut: object) -> None:
    """Accumulators of every length at any exponent, zeros and extremes, under stalls, a reset."""
    env = Environment.get()
    config = env.config
    rng = np.random.default_rng(env.seed)
    bound = (1 << (config.acc_width - 1)) - 1
    bench = _ConverterBench(dut, env, MOODS["both"][1])
    await bench.reset()
    for _ in range(2):
        numbers = []
        for _ in range(env.scale(800, 8000)):
            length = int(rng.integers(0, config.acc_width))
            acc = int(rng.integers(0, 1 << 62)) >> (62 - length)
            if rng.random() < 0.05:
                acc = bound >> int(rng.integers(0, 2))
            # Every accumulator is 0 where R is 0.
            least = -16 if acc == 0 else LEAST
            exponent = int(rng.integers(least, MOST + 1))
            if rng.random() < 0.5:
                # Where results are finite and not 0.
                exponent = min(max(exponent % 280 + _offset(config) - 150 - length, least), MOST)
            numbers.append(
                _Number(acc * int(rng.choice([-1, 1])), exponent, int(rng.random() < 0.5))
            )
        await bench.convert(config, numbers)
        bench.stages = [None, None, None]
        await bench.reset()
    env.report("random", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)
