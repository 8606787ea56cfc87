"""Bench of the scores: every exponent, clamps, floors of negative scores, widths of heads."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np

from hw.special.scores import Scores
from model.datapath.special import fixed_scores
from model.formats.special_tables import score_factor
from sim.beats import fp32_numbers
from sim.elementwise import Case, every_case, rows_in_moods, status_bits
from sim.environment import Environment
from sim.words import Array

REFUSED = [0x7F800000, 0xFF800000, 0x7FC00000, 0xFFFFFFFF]
#: Widths of heads: the least, usual ones, one that is no power of two, the largest.
WIDTHS = (1, 64, 80, 128, 65536)


def _codes(rng: np.random.Generator, exponents: Array) -> Array:
    """FP32 codes of these exponents: random mantissas, with many ends of zeros and ones."""
    mantissa = rng.integers(0, 1 << 23, len(exponents))
    keep = rng.integers(0, 24, len(exponents))
    ends = rng.integers(0, 2, len(exponents))
    low = np.left_shift(1, keep) - 1
    mantissa = np.where(ends, mantissa | low, mantissa & ~low)
    sign = rng.integers(0, 2, len(exponents))
    return sign << 31 | exponents.astype(np.int64) << 23 | mantissa


def _case(codes: Array, width: int) -> Case:
    x = fixed_scores(fp32_numbers(codes), width)
    bad = (codes >> 23) & 0xFF == 0xFF
    return Case(codes.tolist(), x.tolist(), bad, np.zeros(codes.shape, bool))


def _start() -> tuple[Environment, Scores]:
    env = Environment.get()
    return env, Scores(elements=env.config.special_elements)


def _factor(width: int) -> dict[str, Any]:
    factor = score_factor(width)
    return {"factor": {"integer": factor.integer, "exponent": factor.exponent}}


@cocotb.test()
async def random_rows(dut: object) -> None:
    """Ragged rows in all moods."""
    env, component = _start()

    def make(rng: np.random.Generator, count: int) -> Case:
        low, high = [(110, 140), (0, 255)][rng.integers(0, 2)]
        return _case(_codes(rng, rng.integers(low, high + 1, count)), 128)

    await rows_in_moods(dut, env, component, make, ports=_factor(128))


@cocotb.test()
async def every_exponent(dut: object) -> None:
    """All exponents of both signs under each width of a head, zeros and the extremes among them."""
    env, component = _start()
    rng = np.random.default_rng(env.seed)
    for width in WIDTHS[1::2] if env.quick else WIDTHS:
        exponents = np.repeat(np.arange(255), env.scale(3, 40))
        exponents = np.concatenate([exponents, np.repeat(np.arange(108, 146), env.scale(8, 80))])
        codes = _codes(rng, exponents)
        extremes = [0, 1 << 31, 1, 0x80000001, 0x7F7FFFFF, 0xFF7FFFFF, 0x807FFFFF, 0x80800000]
        case = _case(np.concatenate([codes, np.array(extremes)]), width)
        await every_case(dut, env, component, case, f"width {width}", ports=_factor(width))


@cocotb.test()
async def status(dut: object) -> None:
    """Inf and NaN, each alone; a clamp raises nothing."""
    env, component = _start()
    await status_bits(
        dut,
        env,
        component,
        lambda operands: _case(np.array(operands), 64),
        [*REFUSED, 0x7F7FFFFF, 0xFF7FFFFF, 0x3F800000],
        ports=_factor(64),
    )
