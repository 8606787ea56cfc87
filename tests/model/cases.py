"""Operands that are hard on the data path, made from a seed and a mood.

A mood says what the numbers are like; the seed does the rest, so that a failing case is replayed
from its two values. `BSSPEC_SEED` (a number) moves every seeded test to other numbers.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model.formats.bf16 import from_codes
from model.formats.bfp import Bfp, quantize

BASE_SEED = int(os.environ.get("BSSPEC_SEED", "0"))

MOODS = (
    "normal",  # what a language model has
    "any_code",  # uniform over all finite codes: shifts up to hundreds of places
    "subnormal",  # both sides at the bottom of their range
    "sparse",  # zeros of both signs, whole rows and groups of them
    "outlier",  # one activation far above the others
    "rising",  # every tile above all tiles before it: R moves each time
    "falling",  # every tile below the ones before it: sums are shifted out
    "cancelling",  # pairs that add up to nothing
    "extreme",  # only the largest, the least and the signs of them
)


@dataclass(frozen=True, eq=False)
class Case:
    """A product.

    Attributes:
        activations: bfloat16 (M, K).
        weights: bfloat16 (K, N).
        bfp: the quantised weights.
    """

    activations: Tensor
    weights: Tensor
    bfp: Bfp


def _codes(rng: np.random.Generator, shape: tuple[int, int], low: int, high: int) -> np.ndarray:
    """Codes with exponents in low..high and random signs and fractions."""
    exponents = rng.integers(low, high + 1, shape)
    return (rng.integers(0, 2, shape) << 15) | (exponents << 7) | rng.integers(0, 128, shape)


def _normal(rng: np.random.Generator, shape: tuple[int, int], scale: float) -> np.ndarray:
    values = torch.from_numpy(rng.standard_normal(shape) * scale).bfloat16()
    return values.view(torch.int16).to(torch.int64).numpy() & 0xFFFF


def _by_tile(
    rng: np.random.Generator, shape: tuple[int, int], axis: int, step: int, spread: int
) -> np.ndarray:
    """Exponents that move by `step` from one tile to the next along `axis`."""
    tile = np.arange(shape[axis]) // 64
    middle = 127 + step * tile - step * (tile.max() // 2)
    middle = middle if axis == 1 else middle[:, None]
    exponents = np.clip(middle + rng.integers(-spread, spread + 1, shape), 0, 254)
    return (rng.integers(0, 2, shape) << 15) | (exponents << 7) | rng.integers(0, 128, shape)


def make(
    seed: int,
    mood: str,
    m: int,
    k: int,
    n: int,
    *,
    p_full: int = 9,
    rounding: str = "truncate",
) -> Case:
    """The case of a seed and a mood."""
    rng = np.random.default_rng([BASE_SEED, seed, MOODS.index(mood)])
    a, w = _normal(rng, (m, k), 1.0), _normal(rng, (k, n), 0.05)
    if mood == "any_code":
        a, w = _codes(rng, (m, k), 0, 254), _codes(rng, (k, n), 0, 254)
    elif mood == "subnormal":
        a, w = _codes(rng, (m, k), 0, 2), _codes(rng, (k, n), 126, 131)
        a[0] = _codes(rng, (1, k), 0, 0)  # a row that has nothing else
        if seed % 2:
            a, w = _codes(rng, (m, k), 125, 131), _codes(rng, (k, n), 0, 1)
            w[:, : n // 2] &= 0x807F
    elif mood == "sparse":
        a[rng.random((m, k)) < 0.7] &= 0x8000
        w[rng.random((k, n)) < 0.5] &= 0x8000
        w[rng.random(k) < 0.5] &= 0x8000
        a[rng.random(m) < 0.3] &= 0x8000
        if k > 64:
            a[:, :64] &= 0x8000
    elif mood == "outlier":
        a[np.arange(m), rng.integers(0, k, m)] = _codes(rng, (1, m), 130, 190)[0]
        w[rng.integers(0, k), rng.integers(0, n)] = 0x7F00
    elif mood in ("rising", "falling"):
        step = int(rng.integers(1, 30)) * (1 if mood == "rising" else -1)
        spread = int(rng.integers(0, 4))
        a = _by_tile(rng, (m, k), 1, step, spread)
        w = _by_tile(rng, (k, n), 0, step if seed % 2 else 0, spread)
    elif mood == "cancelling":
        a[:, 1::2] = a[:, 0 : k - k % 2 : 2] ^ 0x8000
        w[1::2] = w[0 : k - k % 2 : 2]
    elif mood == "extreme":
        extremes = np.array([0x7F7F, 0xFF7F, 0x0001, 0x8001, 0x0000, 0x8000, 0x3F80, 0x7F7F])
        a, w = rng.choice(extremes, (m, k)), rng.choice(extremes, (k, n))
        if seed % 2:
            a, w = rng.choice(extremes[:2], (m, k)), rng.choice(extremes[:2], (k, n))
    weights = from_codes(torch.from_numpy(w))
    return Case(
        activations=from_codes(torch.from_numpy(a)),
        weights=weights,
        bfp=quantize(weights, p_full=p_full, rounding=rounding),
    )
