"""Requests and moves of the units that carry small data between memory and banks.

A line is two bank words, the first one in its low half.
"""

from __future__ import annotations

import enum

from amaranth.hdl import unsigned
from amaranth.lib import data

from hw.axi.config import COUNT_BITS
from hw.chip_config import TILE_WORDS, ChipConfig
from hw.config import TILE
from hw.keys.layouts import P_FULL_BITS, line_address_bits

#: Width of the number of a row of the scratch memory.
SCRATCH_ROW_BITS = 10
#: Bits of a row of it.
SCRATCH_BITS = 32
#: Width of the counts of what is done, modulo 256.
DONE_BITS = 8


class Target(enum.IntEnum):
    """Where the lines of a request go."""

    #: Words of 32 bits.
    SCRATCH = 0
    #: Words of a row's bank.
    BANK = 1
    #: Weights of a norm, for the slices.
    WEIGHTS = 2
    #: Cosines and sines of a row's position, for its slice.
    ROPE = 3
    #: BF16 keys, for the transposer.
    KEYS = 4


class Kind(enum.IntEnum):
    """What a move does."""

    #: Heads of rows to rows of heads.
    GATHER = 0
    #: The reverse.
    SCATTER = 1
    #: A key's words to memory.
    KEYS = 2
    #: 64 values to memory, quantised.
    VALUES = 3


TARGET_BITS = max(Target).bit_length()
KIND_BITS = max(Kind).bit_length()


def row_bits(config: ChipConfig) -> int:
    """Width of the number of a row."""
    return max(1, (config.core.t_m - 1).bit_length())


def place_bits(config: ChipConfig) -> int:
    """Width of the first word of a load, in a bank or in the scratch memory."""
    return max(config.word_bits, SCRATCH_ROW_BITS)


def load_layout(config: ChipConfig) -> data.StructLayout:
    """A request: ``count`` lines, 1 or more, from ``line`` on to ``target``.

    ``row``: whose bank or slice, for BANK and ROPE; ``word``: the first word or row that is
    written, for BANK and SCRATCH.
    """
    return data.StructLayout(
        {
            "line": unsigned(line_address_bits(config)),
            "count": unsigned(COUNT_BITS),
            "target": unsigned(TARGET_BITS),
            "row": unsigned(row_bits(config)),
            "word": unsigned(place_bits(config)),
        }
    )


def move_layout(config: ChipConfig) -> data.StructLayout:
    """A move, see :class:`~hw.transfers.mover.Mover`.

    ``row``, ``word``: where it begins in the banks; ``words`` of a head or key, an even number for
    KEYS; GATHER and SCATTER: ``staged``, the first word in the rows of heads, ``positions`` and
    ``group``, heads of a position, with ``positions * group`` up to ``t_m``; KEYS and VALUES:
    ``line``, address of the key or of the tile; VALUES: ``token``, ``p_full`` and ``last`` as of
    :func:`~hw.keys.layouts.value_job_layout`.
    """
    rows = unsigned(config.core.t_m.bit_length())
    return data.StructLayout(
        {
            "kind": unsigned(KIND_BITS),
            "row": unsigned(row_bits(config)),
            "word": unsigned(config.word_bits),
            "words": unsigned((TILE_WORDS * config.head_tiles_max).bit_length()),
            "staged": unsigned(config.word_bits),
            "positions": rows,
            "group": rows,
            "line": unsigned(line_address_bits(config)),
            "token": unsigned((TILE - 1).bit_length()),
            "p_full": unsigned(P_FULL_BITS),
            "last": 1,
        }
    )
