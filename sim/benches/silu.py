"""Bench of SiLU times up: every gate, extremes, flush border, refused and overflowing operands."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
import torch

from hw.special.silu import Silu
from model.datapath.special import silu_times_up
from sim.beats import bf16_numbers, codes_of
from sim.elementwise import Case, every_case, rows_in_moods, status_bits
from sim.environment import Environment
from sim.stimulus import bf16
from sim.words import Array

#: Zeros, subnormals, the least normal, one, the gates around the flush border, the largest.
CORNERS = [0, 0x8000, 1, 0x8001, 0x7F, 0x807F, 0x80, 0x8080, 0x3F80, 0xBF80]
CORNERS += [0x42AE, 0xC2AE, 0xC2AF, 0xC2B0, 0x4130, 0x4131, 0x7F7F, 0xFF7F]
REFUSED = [0x7F80, 0xFF80, 0x7FC0, 0xFFFF]


def _case(gate: Array, up: Array) -> Case:
    y = silu_times_up(bf16_numbers(gate), bf16_numbers(up), form="hardware")
    bad = ((gate >> 7) & 0xFF == 0xFF) | ((up >> 7) & 0xFF == 0xFF)
    operands = [{"gate": int(g), "up": int(u)} for g, u in zip(gate, up, strict=True)]
    return Case(operands, codes_of(y).tolist(), bad, torch.isinf(y).numpy())


def _random(rng: np.random.Generator, count: int) -> Case:
    codes = []
    for _ in range(2):
        low, high = [(118, 134), (1, 254), (0, 2), (240, 254)][
            rng.choice(4, p=[0.6, 0.2, 0.1, 0.1])
        ]
        chosen = bf16(rng, (count,), low, high)
        corner = rng.random(count) < 0.2
        chosen[corner] = rng.choice([*CORNERS, *REFUSED[:1]], count)[corner]
        codes.append(chosen)
    return _case(*codes)


def _start() -> tuple[Environment, Silu]:
    env = Environment.get()
    return env, Silu(elements=env.config.special_elements)


@cocotb.test()
async def random_rows(dut: object) -> None:
    """Ragged rows in all moods."""
    env, component = _start()
    await rows_in_moods(dut, env, component, _random)


@cocotb.test()
async def every_gate(dut: object) -> None:
    """All gates (or all exponents with a few mantissas) with random ups."""
    env, component = _start()
    rng = np.random.default_rng(env.seed)
    gate = np.arange(1 << 16)
    if env.quick:
        gate = gate[np.isin(gate & 0x7F, (0, 0x2F, 0x7F))]
    up = bf16(rng, gate.shape, 100, 150).astype(np.int64)
    wide = rng.random(gate.shape) < 0.2
    up[wide] = bf16(rng, gate.shape, 0, 254)[wide]
    await every_case(dut, env, component, _case(gate, up), "gates")


@cocotb.test()
async def corners(dut: object) -> None:
    """Corner operands, each with each."""
    env, component = _start()
    gate, up = (grid.reshape(-1) for grid in np.meshgrid(CORNERS, CORNERS))
    await every_case(dut, env, component, _case(gate, up), "corners")


@cocotb.test()
async def status(dut: object) -> None:
    """Inf and NaN in either operand, an overflow, each alone."""
    env, component = _start()
    pairs = [(code, 0x3F80) for code in REFUSED] + [(0x3F80, code) for code in REFUSED]
    pairs += [(0x7F7F, 0x7F7F), (0x3F80, 0x3F80)]

    def make(operands: list[Any]) -> Case:
        gate, up = np.array(operands).T
        return _case(gate, up)

    await status_bits(dut, env, component, make, pairs)
