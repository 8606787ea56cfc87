"""Bench of RoPE: real tables, corner factors, every distance of exponents, borders."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
import torch

from hw.special.rope import Rope
from model.datapath.special import rope_table, rotate
from sim.beats import bf16_numbers, codes_of
from sim.elementwise import Case, every_case, rows_in_moods, status_bits
from sim.environment import Environment
from sim.stimulus import bf16
from sim.words import Array

ONE = 1 << 14
FACTORS = [0, 1, -1, 2, 0x1FFF, -0x2D41, 0x2D41, ONE - 1, 1 - ONE, ONE, -ONE]
CHANNELS = [0, 0x8000, 1, 0x807F, 0x80, 0x8080, 0x3F80, 0xBFFF, 0x7F7F, 0xFF7F, 0x4700]
REFUSED = [0x7F80, 0xFF80, 0x7FC0, 0xFFFF]


def _case(low: Array, high: Array, cosine: Array, sine: Array) -> Case:
    # A row of two channels each: channel 0 and channel 0 + d/2.
    x = torch.stack([bf16_numbers(low), bf16_numbers(high)], -1)
    factors = (torch.from_numpy(part.astype(np.int16)).unsqueeze(-1) for part in (cosine, sine))
    y = rotate(x, *factors, form="hardware")
    bad = ((low >> 7) & 0xFF == 0xFF) | ((high >> 7) & 0xFF == 0xFF)
    operands = [
        dict(zip(("low", "high", "cosine", "sine"), map(int, values), strict=True))
        for values in zip(low, high, cosine, sine, strict=True)
    ]
    results = [{"low": int(a), "high": int(b)} for a, b in codes_of(y)]
    return Case(operands, results, bad, torch.isinf(y).any(-1).numpy())


def _random(rng: np.random.Generator, count: int) -> Case:
    position = int(rng.integers(0, 4096))
    table = rope_table(position + 1, 2 * count, 10000.0)
    cosine, sine = (
        part[position].numpy().astype(np.int64) for part in (table.cosines, table.sines)
    )
    if rng.random() < 0.3:
        cosine, sine = (rng.choice(FACTORS, count) for _ in range(2))
    low, high = [(118, 134), (1, 254), (0, 30), (250, 254)][rng.integers(0, 4)]
    channels = [bf16(rng, (count,), low, high) for _ in range(2)]
    corner = rng.random(count) < 0.1
    channels[0][corner] = rng.choice([*CHANNELS, *REFUSED[:1]], count)[corner]
    return _case(channels[0], channels[1], cosine, sine)


def _start() -> tuple[Environment, Rope]:
    env = Environment.get()
    return env, Rope(elements=env.config.special_elements)


@cocotb.test()
async def random_rows(dut: object) -> None:
    """Ragged heads in all moods, with the tables of real positions and with corner factors."""
    env, component = _start()
    await rows_in_moods(dut, env, component, _random)


@cocotb.test()
async def every_distance(dut: object) -> None:
    """Exponents 0 to 60 and more apart, either way, random factors and corner factors."""
    env, component = _start()
    rng = np.random.default_rng(env.seed)
    parts = []
    for height in (1, 30, 127, 254):
        for distance in (*range(61), 100, 200, 253):
            if distance >= height:
                continue
            count = env.scale(6, 80)
            channels = [bf16(rng, (count,), at, at) for at in (height, height - distance)]
            # Products that end in zeros meet ties.
            channels[0][::2] &= 0xFFF0
            if rng.random() < 0.5:
                channels.reverse()
            factors = [rng.integers(-ONE, ONE + 1, count) for _ in range(2)]
            corner = rng.random(count) < 0.5
            factors = [np.where(corner, rng.choice(FACTORS, count), each) for each in factors]
            parts.append([*channels, *factors])
    columns = [np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True)]
    await every_case(dut, env, component, _case(*columns), "distances")


@cocotb.test()
async def corners(dut: object) -> None:
    """Corner channels and factors, each with each (or a sample of them)."""
    env, component = _start()
    grid = np.meshgrid(CHANNELS, CHANNELS, FACTORS, FACTORS)
    columns = [each.reshape(-1) for each in grid]
    if env.quick:
        chosen = np.random.default_rng(env.seed).permutation(columns[0].size)[:2000]
        columns = [each[chosen] for each in columns]
    await every_case(dut, env, component, _case(*columns), "corners")


@cocotb.test()
async def status(dut: object) -> None:
    """Inf and NaN in either channel, an overflow of either result, each alone."""
    env, component = _start()
    cases = [(code, 0x3F80, ONE, 0) for code in REFUSED]
    cases += [(0x3F80, code, 0, ONE) for code in REFUSED]
    cases += [(0x7F7F, 0xFF7F, 0x2D41, 0x2D41), (0x7F7F, 0x7F7F, 0x2D41, 0x2D41)]
    cases += [(0x7F7F, 0x7F7F, ONE, 0)]

    def make(operands: list[Any]) -> Case:
        return _case(*np.array(operands).T)

    await status_bits(dut, env, component, make, cases)
