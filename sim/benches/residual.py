"""Bench of the residual sum: every distance of exponents, ties, cancellation, borders."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
import torch

from hw.special.residual import Residual
from model.datapath.special import residual_add
from sim.beats import bf16_numbers, codes_of
from sim.elementwise import Case, every_case, rows_in_moods, status_bits
from sim.environment import Environment
from sim.stimulus import bf16
from sim.words import Array

CORNERS = [0, 0x8000, 1, 0x8001, 0x7F, 0x807F, 0x80, 0x8080, 0x81, 0x3F80, 0xBF80, 0x3F81]
CORNERS += [0x7F7F, 0xFF7F, 0x7F00, 0x7E80, 0x7B80]
REFUSED = [0x7F80, 0xFF80, 0x7FC0, 0xFFFF]


def _case(x: Array, y: Array) -> Case:
    total = residual_add(bf16_numbers(x), bf16_numbers(y), form="hardware")
    bad = ((x >> 7) & 0xFF == 0xFF) | ((y >> 7) & 0xFF == 0xFF)
    operands = [{"x": int(a), "y": int(b)} for a, b in zip(x, y, strict=True)]
    return Case(operands, codes_of(total).tolist(), bad, torch.isinf(total).numpy())


def _random(rng: np.random.Generator, count: int) -> Case:
    low, high = [(118, 134), (1, 254), (0, 12), (250, 254)][rng.integers(0, 4)]
    x, y = (bf16(rng, (count,), low, high) for _ in range(2))
    near = rng.random(count) < 0.2
    # The same number of the other sign, but for its last bits: the sum cancels.
    y[near] = (x ^ 0x8000 ^ rng.integers(0, 3, count).astype(np.uint16))[near]
    corner = rng.random(count) < 0.1
    x[corner] = rng.choice([*CORNERS, *REFUSED[:1]], count)[corner]
    return _case(x, y)


def _start() -> tuple[Environment, Residual]:
    env = Environment.get()
    return env, Residual(elements=env.config.special_elements)


@cocotb.test()
async def random_rows(dut: object) -> None:
    """Ragged rows in all moods."""
    env, component = _start()
    await rows_in_moods(dut, env, component, _random)


@cocotb.test()
async def every_distance(dut: object) -> None:
    """Exponents 0 to 40 and more apart, at several heights, all corner mantissas and signs."""
    env, component = _start()
    mantissas = [0, 1, 0x3F, 0x40, 0x7E, 0x7F] if env.quick else range(0, 128, 3)
    x, y = [], []
    for height in (0, 1, 2, 60, 127, 240, 254):
        for distance in (*range(14), 17, 32, 64, 128, 253):
            if distance > height:
                continue
            grid = np.meshgrid(mantissas, mantissas if env.quick else [0, 1, 0x40, 0x7F], [0, 1])
            first, second, sign = (each.reshape(-1) for each in grid)
            x.append(height << 7 | first | sign << 15)
            y.append((height - distance) << 7 | second)
    x_codes, y_codes = np.concatenate(x), np.concatenate(y)
    swapped = np.arange(len(x_codes)) % 2 == 1
    case = _case(np.where(swapped, y_codes, x_codes), np.where(swapped, x_codes, y_codes))
    await every_case(dut, env, component, case, "distances")


@cocotb.test()
async def corners(dut: object) -> None:
    """Corner operands, each with each."""
    env, component = _start()
    x, y = (grid.reshape(-1) for grid in np.meshgrid(CORNERS, CORNERS))
    await every_case(dut, env, component, _case(x, y), "corners")


@cocotb.test()
async def status(dut: object) -> None:
    """Inf and NaN in either operand, an overflow, each alone."""
    env, component = _start()
    pairs = [(code, 0x3F80) for code in REFUSED] + [(0x3F80, code) for code in REFUSED]
    # Overflow before rounding, only by it, and none.
    pairs += [(0x7F7F, 0x7B80), (0x7F7F, 0x7B00), (0x7F7F, 0x7A80), (0x3F80, 0xBF80)]

    def make(operands: list[Any]) -> Case:
        x, y = np.array(operands).T
        return _case(x, y)

    await status_bits(dut, env, component, make, pairs)
