"""Jobs and sizes of the units that bring keys and values into the forms of memory and array."""

from __future__ import annotations

from amaranth.hdl import Shape, unsigned
from amaranth.lib import data

from hw.axi.config import COUNT_BITS, OFFSET_BITS
from hw.chip_config import LINE_BITS, WORD_BITS, ChipConfig
from hw.config import TILE
from model.formats.constants import P_FULL_MAX

#: Channels of a line of BF16 keys.
LINE_CHANNELS = LINE_BITS // 16
#: Lines of a tile's channels of a token.
TILE_LINES = TILE // LINE_CHANNELS
#: Tokens whose bits make a byte of a plane.
BYTE_TOKENS = 8
#: Planes of an open key, the sign plane included; a closed one has the first p_full of them.
OPEN_PLANES = P_FULL_MAX
#: Bank words of a line.
LINE_WORDS = LINE_BITS // WORD_BITS
#: Width of p_full.
P_FULL_BITS = P_FULL_MAX.bit_length()


def head_tiles_bits(config: ChipConfig) -> int:
    """Width of a number of tiles of a head."""
    return config.head_tiles_max.bit_length()


def line_address_bits(config: ChipConfig) -> int:
    """Width of the address of a line."""
    return config.address_bits - OFFSET_BITS


def keys_job_layout(config: ChipConfig) -> data.StructLayout:
    """Keys of one head and block: ``tokens`` (1 to 64) of them, of ``head_tiles`` tiles.

    ``close``: to a closed block of ``p_full`` planes, for memory; otherwise to an open one, for
    the array, and ``p_full`` is not read.
    """
    return data.StructLayout(
        {
            "close": 1,
            "head_tiles": unsigned(head_tiles_bits(config)),
            "tokens": unsigned(TILE.bit_length()),
            "p_full": unsigned(P_FULL_BITS),
        }
    )


#: A BF16 key's line: ``[channel]``.
KEY_LINE = data.ArrayLayout(unsigned(16), LINE_CHANNELS)
#: Two planes' bits of a line's channels for one token: ``[channel]``, the first plane's lowest.
PAIR = data.ArrayLayout(unsigned(2), LINE_CHANNELS)
#: Pairs of planes.
PAIRS = OPEN_PLANES // 2
#: One plane's bits of a line's channels, for eight tokens: ``[channel]``, a byte each.
BYTES = data.ArrayLayout(unsigned(BYTE_TOKENS), LINE_CHANNELS)


def line_request_layout(config: ChipConfig) -> data.StructLayout:
    """``count`` lines from ``line`` on: :func:`~hw.axi.layouts.request_layout` without its tag."""
    return data.StructLayout(
        {"line": unsigned(line_address_bits(config)), "count": unsigned(COUNT_BITS)}
    )


def width(shape: object) -> int:
    """Bits of a shape."""
    return Shape.cast(shape).width  # type: ignore[arg-type]


def value_job_layout(config: ChipConfig) -> data.StructLayout:
    """A row of values: where its tile is, and which row of it.

    ``line``: address of the tile; ``token``: position modulo 64; ``last``: it is written without
    waiting for rows that could be merged with it.
    """
    return data.StructLayout(
        {
            "line": unsigned(line_address_bits(config)),
            "token": unsigned((TILE - 1).bit_length()),
            "p_full": unsigned(P_FULL_BITS),
            "last": 1,
        }
    )
