"""Weights of the image, decoded once and kept."""

from __future__ import annotations

from collections.abc import Mapping

from model.formats.bfp import Bfp
from model.formats.commands import LINE_BYTES, Region
from model.formats.constants import PLANE_BYTES, TILE_EXPONENT_BYTES, TILE_K, TILE_N
from model.formats.planes import from_image
from model.machine.memory import Memory


class Weights:
    """Decoded matrices of a memory.

    Args:
        memory: to read.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._kept: dict[tuple[int, ...], Bfp] = {}

    def forget(self) -> None:
        """After the host has written."""
        self._kept.clear()

    def matrix(self, fields: Mapping[str, int], p_full: int) -> Bfp:
        """The whole matrix that a command names, padding included; not counted.

        Raises:
            ValueError: a shared exponent of 255.
        """
        k_tiles, n_tiles = fields["k_tiles"], fields["n_tiles"]
        base = self.memory.base[Region.WEIGHTS]
        key = (base, fields["weights"], k_tiles, n_tiles, fields["tiles_per_block"], p_full)
        if key not in self._kept:
            lines = k_tiles * n_tiles * (1 + 8 * p_full)
            start = fields["weights"] * LINE_BYTES
            self._kept[key] = from_image(
                self.memory.at(Region.WEIGHTS, start, lines * LINE_BYTES),
                k=k_tiles * TILE_K,
                n=n_tiles * TILE_N,
                p_full=p_full,
                tiles_per_block=fields["tiles_per_block"],
                strict=False,
            )
        return self._kept[key]

    def count(self, fields: Mapping[str, int], p: int) -> None:
        """Counts a p-bit load of the whole matrix."""
        tiles = fields["k_tiles"] * fields["n_tiles"]
        self.memory.count("READ_EXPONENTS", tiles * TILE_EXPONENT_BYTES)
        for plane in range(p):
            self.memory.planes[plane] += tiles * PLANE_BYTES
