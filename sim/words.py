"""Payloads of the core's streams as integers, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from amaranth.lib import data

from hw.compute import layouts
from hw.config import Config

Array = np.ndarray[Any, np.dtype[Any]]


def pack(layout: data.StructLayout, values: Mapping[str, int]) -> int:
    """A word with the named fields; the others are 0."""
    word = 0
    for name, value in values.items():
        field = layout[name]
        if not 0 <= int(value) < 1 << field.width:
            raise ValueError(f"{name} must be below 2^{field.width}, not {value!r}")
        word |= int(value) << field.offset
    return word


def unpack(layout: data.StructLayout, word: int) -> dict[str, int]:
    """All fields of a word, as unsigned integers."""
    return {name: (word >> field.offset) & ((1 << field.width) - 1) for name, field in layout}


def from_array(values: Array) -> int:
    """An array of fixed-width unsigned integers as one word, first element lowest."""
    return int.from_bytes(
        np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<")).tobytes(), "little"
    )


def to_array(word: int, dtype: str, shape: tuple[int, ...]) -> Array:
    """The inverse of :func:`from_array`."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(
        word.to_bytes(size, "little"), dtype=np.dtype(dtype).newbyteorder("<")
    ).reshape(shape)


def tile_word(config: Config, **fields: int) -> int:
    """A word of the ``tiles`` stream."""
    return pack(layouts.tile_layout(config), fields)


def plane_words(config: Config, signs: Array, magnitudes: Array, p: int) -> list[int]:
    """All words of a tile's planes, in the order in which the core takes them.

    Parameters
    ----------
    signs, magnitudes : (64, 64) integers ``[k, n]``
        ``magnitudes`` below ``2**(p - 1)``.
    """
    words = []
    for group in range(config.fold):
        columns = slice(group * config.lanes, (group + 1) * config.lanes)
        planes = [signs[:, columns]]
        planes += [(magnitudes[:, columns] >> bit) & 1 for bit in reversed(range(p - 1))]
        for plane in planes:
            bits = np.packbits(plane.astype(np.uint8).reshape(-1), bitorder="little")
            words.append(int.from_bytes(bits.tobytes(), "little"))
    return words


def planes_from_words(config: Config, words: list[int], p: int) -> tuple[Array, Array]:
    """Signs and magnitudes, (64, 64) each, from the words of a whole tile."""
    signs = np.zeros((64, 64), np.int64)
    magnitudes = np.zeros((64, 64), np.int64)
    for index, word in enumerate(words):
        group, plane = divmod(index, p)
        columns = slice(group * config.lanes, (group + 1) * config.lanes)
        packed = np.frombuffer(word.to_bytes(8 * config.lanes, "little"), np.uint8)
        bits = np.unpackbits(packed, bitorder="little").reshape(64, config.lanes)
        if plane == 0:
            signs[:, columns] = bits
        else:
            magnitudes[:, columns] = magnitudes[:, columns] * 2 + bits
    return signs, magnitudes
