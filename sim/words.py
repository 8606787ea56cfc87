"""Payloads of the core's streams as integers, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from amaranth.hdl import Shape
from amaranth.lib import data

from hw.compute import layouts
from hw.config import Config

Array = np.ndarray[Any, np.dtype[Any]]


def pack_known(shape: Any, value: Any) -> tuple[int, int]:
    """A value of an Amaranth shape as a word, and which of its bits the value speaks of.

    Parameters
    ----------
    shape : a layout, or anything that ``Shape.cast`` takes
    value : nested like the shape
        A mapping for a structure (fields that it does not name are 0), a sequence for an array, an
        integer for a number; an integer also for a whole structure or array that is a word
        already. ``None`` at any level: without meaning, in no bit known.

    Raises
    ------
    ValueError
        If a number does not fit, or a sequence has another length than its array.
    KeyError
        If a structure has no such field.
    """
    width = Shape.cast(shape).width
    everything = (1 << width) - 1
    if value is None:
        return 0, 0
    if isinstance(shape, data.StructLayout) and not isinstance(value, int | np.integer):
        word, known = 0, everything
        for name, part in value.items():
            field = shape[name]
            bits, bits_known = pack_known(field.shape, part)
            word |= bits << field.offset
            known ^= (bits_known ^ ((1 << field.width) - 1)) << field.offset
        return word, known
    if isinstance(shape, data.ArrayLayout) and not isinstance(value, int | np.integer):
        if len(value) != shape.length:
            raise ValueError(f"an array of {shape.length} elements, not of {len(value)}")
        step = width // shape.length
        word = known = 0
        for part in reversed(value):
            bits, bits_known = pack_known(shape.elem_shape, part)
            word, known = word << step | bits, known << step | bits_known
        return word, known
    number = int(value)
    signed = Shape.cast(shape).signed and not isinstance(shape, data.Layout)
    low, high = (-(1 << width - 1), 1 << width - 1) if signed else (0, 1 << width)
    if not low <= number < high:
        raise ValueError(f"a number of {width} bits is {low} to {high - 1}, not {number}")
    return number & everything, everything


def pack(shape: Any, value: Any) -> int:
    """A value of an Amaranth shape as a word; see :func:`pack_known`, all of it must be known."""
    word, known = pack_known(shape, value)
    if known != (1 << Shape.cast(shape).width) - 1:
        raise ValueError(f"every part must have a value: {value!r}")
    return word


def unpack(shape: Any, word: int) -> Any:
    """The value of a word: dictionaries, lists and integers, nested like the shape."""
    if isinstance(shape, data.StructLayout):
        return {
            name: unpack(field.shape, (word >> field.offset) & ((1 << field.width) - 1))
            for name, field in shape
        }
    if isinstance(shape, data.ArrayLayout):
        step = shape.size // shape.length
        return [
            unpack(shape.elem_shape, (word >> i * step) & ((1 << step) - 1))
            for i in range(shape.length)
        ]
    plain = Shape.cast(shape)
    return word - (1 << plain.width) if plain.signed and word >> plain.width - 1 else word


def difference(shape: Any, got: int, want: int, known: int) -> str:
    """Where two words first differ in a bit that is known, and both values there."""
    if isinstance(shape, data.StructLayout):
        parts = [(f".{name}", field.shape, field.offset) for name, field in shape]
    elif isinstance(shape, data.ArrayLayout):
        step = shape.size // shape.length
        parts = [(f"[{i}]", shape.elem_shape, i * step) for i in range(shape.length)]
    else:
        return f": {unpack(shape, got)}, not {unpack(shape, want)}"
    for label, part, offset in parts:
        mask = (1 << Shape.cast(part).width) - 1
        pieces = [word >> offset & mask for word in (got, want, known)]
        if (pieces[0] ^ pieces[1]) & pieces[2]:
            return label + difference(part, *pieces)
    return ""


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


def tile_word(config: Config, **fields: Any) -> int:
    """A word of the ``tiles`` stream."""
    return pack(layouts.tiles_layout(config), fields)


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
