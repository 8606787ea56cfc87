"""Bits of the precision lookup table: 16 words of 32 bits, shared by software and hardware.

No torch here: `hw` may read this module. A word is little-endian in an image of 64 bytes:

    bits    field         holds
    4:0     p_w           bits of a weight that a draft loads, 5..16
    12:8    p_kv          bits of a cached key or value, 5..16
    23:16   gamma         drafted tokens a round, 1..255
    24      midpoint_w    1: weights are read as midpoints, 0: truncated
    25      midpoint_kv   the same of keys and values
    31      valid         1: the entry may be used; 0: the whole word is 0

All other bits are 0. Each number starts a byte of its own, so that an image can be read by eye.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

#: Words of a table, bytes of a word, bytes of an image.
ENTRIES = 16
WORD_BYTES = 4
IMAGE_BYTES = ENTRIES * WORD_BYTES

#: Entry 0 serves total lengths up to 2^11 (the 2K of the paper's Table V).
FIRST_LOG2 = 11


class Field(NamedTuple):
    """Where a field lies in a word.

    Attributes:
        low: its lowest bit.
        width: its bits.
    """

    low: int
    width: int

    @property
    def mask(self) -> int:
        """Its bits of a word."""
        return ((1 << self.width) - 1) << self.low


FIELDS: dict[str, Field] = {
    "p_w": Field(0, 5),
    "p_kv": Field(8, 5),
    "gamma": Field(16, 8),
    "midpoint_w": Field(24, 1),
    "midpoint_kv": Field(25, 1),
    "valid": Field(31, 1),
}

#: Bits of a word that are always 0.
RESERVED = 0xFFFF_FFFF & ~sum(field.mask for field in FIELDS.values())

GAMMA_MAX = (1 << FIELDS["gamma"].width) - 1


def pack(values: Mapping[str, int]) -> int:
    """The word of fields that are each in their range."""
    return sum(values[name] << field.low for name, field in FIELDS.items())


def unpack(word: int) -> dict[str, int]:
    """The fields of a word."""
    return {name: (word & field.mask) >> field.low for name, field in FIELDS.items()}


def index(total_length: int) -> int:
    """The entry of a total length (1 or more): clamp(ceil(log2(total_length)) - 11, 0, 15)."""
    return min(max((total_length - 1).bit_length() - FIRST_LOG2, 0), ENTRIES - 1)


def longest(entry: int) -> int:
    """The total length at the upper end of an entry: the one it is calibrated at."""
    return 1 << (FIRST_LOG2 + entry)
