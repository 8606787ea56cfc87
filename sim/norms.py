"""Rows for the norms, and what the model makes of their sums of squares."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from hw.config import TILE
from model.datapath.primitives import activation_terms, align_, tile_exponents
from model.datapath.special.norm import accumulate_squares
from model.formats.floats import FP32, to_codes
from model.formats.special_tables import NORM_GUARD_BITS
from sim.beats import bf16_numbers
from sim.stimulus import bf16
from sim.words import Array

REFUSED = [0x7F80, 0xFF80, 0x7FC0, 0xFFFF]
_CORNERS = [0, 0x8000, 1, 0x807F, 0x80, 0x7F7F, 0xFF7F]


def row(rng: np.random.Generator, count: int) -> Array:
    """BF16 codes: usual numbers, whole range, subnormals, levels that change every 64, zeros."""
    kind = rng.integers(0, 6)
    low, high = [(120, 130), (1, 254), (0, 3), (110, 135), (240, 254), (126, 127)][kind]
    codes = bf16(rng, (count,), low, high).astype(np.int64)
    if kind == 3:
        for first in range(0, count, TILE):
            level = int(rng.choice([0, -1, 1, -5, 5, -18, 18, -19, 19, -40, 90]))
            part = codes[first : first + TILE]
            exponent = np.clip(((part >> 7) & 0xFF) + level, 1, 254)
            codes[first : first + TILE] = part & 0x807F | exponent << 7
    if rng.random() < 0.2:
        for first in range(0, count, TILE):
            if rng.random() < 0.5:
                codes[first : first + TILE] = rng.choice([0, 0x8000])
    corner = rng.random(count) < rng.choice([0.0, 0.05])
    codes[corner] = rng.choice([*_CORNERS, REFUSED[0]], count)[corner]
    return codes


def square_sum(codes: Array) -> dict[str, int]:
    """The sum of squares of a row and its exponent, by the steps of the model's `rms_norm`."""
    chunks = -(-len(codes) // TILE)
    padded = np.concatenate([codes, np.zeros(chunks * TILE - len(codes), np.int64)])
    terms = activation_terms(bf16_numbers(padded).unflatten(-1, (chunks, TILE)))
    exponents = tile_exponents(terms.exponents)
    aligned = align_(terms.values, exponents, NORM_GUARD_BITS)
    sums = aligned.square().sum(-1).to(torch.int64)
    total, running = accumulate_squares(sums, exponents)
    return {"total": int(total), "exponent": int(running)}


def constants(width: int, eps: float) -> dict[str, Any]:
    """The ports that hold 1/d and eps."""
    values = to_codes(torch.tensor([1 / width, eps], dtype=FP32.dtype)).tolist()
    return dict(zip(("inverse_width", "eps"), values, strict=True))
