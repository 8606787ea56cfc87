"""Bench of the aligner: every significand at every distance, every class of activation."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
import torch

from hw.compute.aligner import Aligner
from hw.config import Config
from model.datapath.primitives import (
    activation_terms,
    align_,
    fold_exponents,
    fold_values,
    group_terms,
)
from model.formats.bf16 import from_codes
from sim.environment import Environment
from sim.harness import Bench
from sim.words import Array

#: Least and largest exponent of a live folded activation: 1 + 1 and 254 + 254.
LEAST, MOST = 2, 508


async def _fold(bench: Bench, codes: Array, exponents: Array, enables: Array) -> None:
    """Folds activations and compares with the model: value, exponent, refusal."""
    terms = activation_terms(from_codes(torch.from_numpy(codes.astype(np.int64))))
    refused = terms.refused
    terms = terms.where(torch.from_numpy(enables.astype(bool)))
    groups = group_terms(torch.from_numpy(exponents.astype(np.int64)))
    eps = fold_exponents(terms.exponents, groups.exponents).clamp_min(0).numpy()
    values = fold_values(terms.values, groups.values).numpy()
    significands = np.abs(values * 2.0 ** -eps.astype(np.float64)).astype(np.int64)
    bench.put(kept=None, tile_exponent=None)
    for i in range(len(codes)):
        bench.put(
            activation=int(codes[i]), shared_exponent=int(exponents[i]), enable=int(enables[i])
        )
        await bench.settle()
        live = significands[i] != 0
        bench.expect(
            folded={
                "eps": eps[i],
                "significand": significands[i],
                "sign": int(values[i] < 0) if live else None,
            },
            refused=int(refused[i]),
        )


async def _align(bench: Bench, config: Config, kept: Array, exponents: Array) -> None:
    """Aligns folded activations, (n, 3) of sign, significand, eps, and compares."""
    sign, significand, eps = kept.T
    values = np.where(sign, -1.0, 1.0) * significand * 2.0 ** eps.astype(np.float64)
    folded = torch.from_numpy(values).unsqueeze(1)
    aligned = align_(folded, torch.from_numpy(exponents), config.align_guard_bits).numpy()[:, 0]
    bench.put(activation=None, shared_exponent=None, enable=None)
    for i in range(len(kept)):
        bench.put(
            kept={"sign": sign[i], "significand": significand[i], "eps": eps[i]},
            tile_exponent=exponents[i],
        )
        await bench.settle()
        bench.expect(aligned=aligned[i])


def _start(dut: object) -> tuple[Environment, Bench, np.random.Generator]:
    env = Environment.get()
    bench = Bench(dut, env.seed, Aligner(env.config))
    return env, bench, np.random.default_rng(env.seed)


def _report(env: Environment, bench: Bench, part: str) -> None:
    env.report(part, transactions=bench.cycle_count, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def every_activation(dut: object) -> None:
    """All BF16 codes (or all exponents with the corner mantissas) at random shared exponents."""
    env, bench, rng = _start(dut)
    codes = np.arange(1 << 16)
    if env.quick:
        codes = codes[np.isin(codes & 0x7F, (0, 1, 0x40, 0x7F))]
    exponents = rng.integers(0, 255, codes.shape)
    exponents[rng.random(codes.shape) < 0.1] = 0
    enables = (rng.random(codes.shape) < 0.9).astype(np.int64)
    await _fold(bench, codes, exponents, enables)
    _report(env, bench, "activations")


@cocotb.test()
async def every_shared_exponent(dut: object) -> None:
    """All shared exponents against subnormals, the smallest, the largest, zeros and refused."""
    env, bench, _ = _start(dut)
    corners = [0, 0x8000, 1, 0x807F, 0x80, 0x80FF, 0x3F80, 0xBFFF, 0x7F00, 0xFF7F, 0x7F80, 0xFFC1]
    exponents, codes = (grid.reshape(-1) for grid in np.meshgrid(np.arange(255), corners))
    for enable in (1, 0) if not env.quick else (1,):
        await _fold(bench, codes, exponents, np.full(codes.shape, enable))
    _report(env, bench, "shared exponents")


@cocotb.test()
async def every_distance(dut: object) -> None:
    """All 256 significands, both signs, at distances 0 to 40 and at longer ones up to the last."""
    env, bench, rng = _start(dut)
    longer = [63, 64, 65, 127, 128, 129, 192, 255, 256, 257, 320, 384, 448, 496, MOST - LEAST]
    distances = np.array([*range(41), *longer])
    significands = np.arange(256)
    if env.quick:
        distances = np.array([*range(8 + env.config.align_guard_bits + 2), 32, 64, 128, 256, 506])
        significands = np.unique([0, 1, 2, 0x55, 0x7F, 0x80, 0x81, 0xAA, 0xFE, 0xFF])
    made: dict[str, Any] = {}
    for name, axis in (("distance", distances), ("significand", significands), ("sign", [0, 1])):
        made[name] = np.asarray(axis)
    distance, significand, sign = (
        grid.reshape(-1) for grid in np.meshgrid(*made.values(), indexing="ij")
    )
    eps = LEAST + (rng.random(distance.shape) * (MOST - LEAST + 1 - distance)).astype(np.int64)
    await _align(bench, env.config, np.stack([sign, significand, eps], 1), eps + distance)
    _report(env, bench, "distances")


@cocotb.test()
async def dead_activations(dut: object) -> None:
    """A dead activation is 0 under any tile exponent, of either sign."""
    env, bench, _ = _start(dut)
    exponents = np.arange(MOST + 1)[:: env.scale(7, 1)]
    for sign in (0, 1):
        kept = np.zeros((len(exponents), 3), np.int64)
        kept[:, 0] = sign
        await _align(bench, env.config, kept, exponents)
    _report(env, bench, "dead")
