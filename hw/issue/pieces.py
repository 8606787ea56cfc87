"""Pieces: what is asked of the array, a block of k-tiles at a time."""

from __future__ import annotations

from amaranth.hdl import unsigned
from amaranth.lib import data

from hw.chip_config import BLOCK_TILES_MAX, LINE_BITS, ChipConfig
from hw.config import P_MIN

#: Width of a number of k-tiles.
TILES_BITS = BLOCK_TILES_MAX.bit_length()
#: Width of the number of a gate, modulo its range.
GATE_BITS = 4


def pieces_waiting(config: ChipConfig) -> int:
    """Pieces that may lie in the ring: a tile has five planes or more."""
    return config.ring_rows // P_MIN + 2


def jobs_bits(config: ChipConfig) -> int:
    """Width of the number of a job that writes bank words, modulo its range.

    Numbers are compared by their difference: those of a piece and of the last job that was written
    differ by less than twice the jobs that may wait.
    """
    return (2 * pieces_waiting(config)).bit_length() + 1


def piece_layout(config: ChipConfig) -> data.StructLayout:
    """A block of neighbouring k-tiles of one output tile.

    ``tiles`` of them, ``p`` planes each; ``opened``: from the open keys on the chip, not from the
    ring; ``first`` and ``last`` block of the output tile; ``mix``: the activations are
    probabilities, and the tile takes rises; ``source``: bank word of the first activations;
    ``rows`` that take part; ``needs``: jobs that must have been written before its activations are
    read, ``gate``: that must be open; the rest as in :func:`~hw.compute.layouts.tile_layout`.
    """
    core = config.core
    return data.StructLayout(
        {
            "tiles": unsigned(TILES_BITS),
            "p": unsigned(core.p_bits),
            "opened": 1,
            "midpoint": 1,
            "first": 1,
            "last": 1,
            "context": unsigned(core.context_bits),
            "fp32": 1,
            "scaled": 1,
            "mix": 1,
            "source": unsigned(config.word_bits),
            "rows": unsigned(core.t_m),
            "needs": unsigned(jobs_bits(config)),
            "gate": unsigned(GATE_BITS),
        }
    )


def position_bits(config: ChipConfig) -> int:
    """Width of a position in the stream of lines, that of the stream reader's.

    Positions are compared by their difference. The oldest line in use and the newest one asked for
    are at most a ring apart, and a block is at most half a ring.
    """
    return config.memory.index_bits


#: A line of exponents: one k-tile.
EXPONENT_LINE = data.ArrayLayout(unsigned(8), LINE_BITS // 8)
