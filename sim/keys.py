"""Keys and values of the benches: corners, and what the golden model makes of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from model.formats.bfp import Bfp, quantize
from model.formats.planes import to_image
from sim.beats import bf16_numbers
from sim.stimulus import bf16
from sim.words import Array

TILE = 64
CORNERS = [0, 0x8000, 1, 0x8001, 0x7F, 0x807F, 0x80, 0x8080, 0x7F7F, 0xFF7F]
REFUSED = [0x7F80, 0xFF80, 0x7FC0, 0xFFFF]
LINE_BYTES = 64


@dataclass
class Block:
    """Keys of a head and block.

    Attributes
    ----------
    codes : (tokens, d_h) BF16 codes
    close : whether to a closed block, of ``p_full`` planes
    """

    codes: Array
    close: bool
    p_full: int

    @property
    def head_tiles(self) -> int:
        """Tiles of the head."""
        return self.codes.shape[1] // TILE

    @property
    def refused(self) -> bool:
        """Whether it has an Inf or NaN."""
        return bool(((self.codes >> 7) & 0xFF == 0xFF).any())

    @property
    def job(self) -> dict[str, int]:
        """Its job."""
        tokens = len(self.codes)
        tiles, p_full = self.head_tiles, self.p_full
        return {"close": self.close, "head_tiles": tiles, "tokens": tokens, "p_full": p_full}

    def rows(self) -> list[int]:
        """Its BF16 rows as lines."""
        data = self.codes.astype("<u2").tobytes()
        return [int.from_bytes(part, "little") for part in _lines(data)]

    def closed(self) -> list[int]:
        """The lines of the closed block; tokens that are not there are zeros."""
        keys = np.zeros((TILE, self.codes.shape[1]), np.int64)
        keys[: len(self.codes)] = self.codes
        made = quantize(bf16_numbers(keys.T), group=TILE, p_full=self.p_full)
        image = to_image(made, tiles_per_block=self.head_tiles).tobytes()
        return [int.from_bytes(part, "little") for part in _lines(image)]

    def opened(self) -> tuple[list[int], list[int]]:
        """Rows of the open block's planes, and its 64 result exponents."""
        tokens, channels = self.codes.shape
        made = quantize(bf16_numbers(self.codes), group=channels, p_full=16)
        signs = torch.zeros((channels, TILE), dtype=torch.uint8)
        magnitudes = torch.zeros((channels, TILE), dtype=torch.int16)
        signs[:, :tokens], magnitudes[:, :tokens] = made.signs.T, made.magnitudes.T
        ones = torch.ones((channels, 1), dtype=torch.uint8)
        block = Bfp.from_parts(ones, signs, magnitudes, p_full=16)
        image = to_image(block, tiles_per_block=self.head_tiles).tobytes()
        planes = image[LINE_BYTES * self.head_tiles :]
        rows = [planes[i : i + 512] for i in range(0, len(planes), 512)]
        scales = [max(exponent - 1, 0) for exponent in made.exponents[:, 0].tolist()]
        scales += [0] * (TILE - tokens)
        return [int.from_bytes(row, "little") for row in rows], scales


def _lines(data: bytes) -> list[bytes]:
    return [data[i : i + LINE_BYTES] for i in range(0, len(data), LINE_BYTES)]


def numbers(rng: np.random.Generator, shape: tuple[int, ...], *, refused: bool) -> Array:
    """BF16 codes with corners; tokens and channels that are zeros."""
    low, high = [(120, 130), (1, 254), (0, 3), (100, 140), (246, 254)][rng.integers(0, 5)]
    codes = bf16(rng, shape, low, high).astype(np.int64)
    corner = rng.random(shape) < rng.choice([0.0, 0.1])
    codes[corner] = rng.choice(CORNERS, shape)[corner]
    if rng.random() < 0.5:
        codes[rng.random(shape[0]) < 0.2] = rng.choice([0, 0x8000])
        codes[:, rng.random(shape[1]) < 0.2] = 0
    if refused:
        codes[tuple(rng.integers(0, size) for size in shape)] = rng.choice(REFUSED)
    return codes


def distances(rng: np.random.Generator, shape: tuple[int, int], exponent: int) -> Array:
    """Every distance below an exponent, in tokens and in channels, both signs."""
    tokens, channels = shape
    distance = (np.arange(tokens)[:, None] + np.arange(channels)[None, :]) % 41
    codes = bf16(rng, shape, 0, 0).astype(np.int64)
    codes |= np.maximum(exponent - distance, 0) << 7
    return codes
