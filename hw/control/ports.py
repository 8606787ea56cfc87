"""What the control processor reaches by its ports: numbers for works, loads, moves; flags."""

from __future__ import annotations

import enum
from typing import NamedTuple

from hw.chip_config import ROWS_MAX, ChipConfig
from hw.control.instructions import WORD_BITS
from hw.control.matrix import SIDE_BITS, line_bits
from hw.issue.pieces import GATE_BITS, TILES_BITS
from hw.keys.layouts import head_tiles_bits
from hw.special.slice import OP_BITS, POSITION_BITS
from hw.transfers.layouts import KIND_BITS, SCRATCH_ROW_BITS, TARGET_BITS

assert ROWS_MAX <= WORD_BITS


class Field(NamedTuple):
    """A number that is kept until it is used.

    Attributes
    ----------
    number : of its port
    width : bits
    """

    number: int
    width: int


def fields_of(config: ChipConfig) -> dict[str, Field]:
    """Numbers by name: those of works, loads and moves, and those that hold for all of them."""
    core = config.core
    count = core.t_m.bit_length()
    p = core.p_bits
    widths = {
        # Of several kinds.
        "line": line_bits(config),
        "count": 21,
        "source": config.word_bits,
        "target": config.word_bits,
        "words": config.word_bits + 1,
        "p": p,
        "p_full": p,
        "midpoint": 1,
        "gate": GATE_BITS,
        "head_tiles": head_tiles_bits(config),
        "row": max(1, (core.t_m - 1).bit_length()),
        "group": count,
        # Of matrices.
        "k_tiles": SIDE_BITS,
        "n_tiles": SIDE_BITS,
        "tiles_per_block": TILES_BITS,
        "epilogue": 2,
        "tap": 1,
        "head": 1,
        "columns": 7,
        "mask": core.t_m,
        # Of passes.
        "values": line_bits(config),
        "value_channels": line_bits(config),
        "start": POSITION_BITS,
        "rows": count,
        "rows_first": count,
        # Of jobs.
        "op": OP_BITS,
        # Of loads and moves.
        "load_target": TARGET_BITS,
        "kind": KIND_BITS,
        "word": max(config.word_bits, SCRATCH_ROW_BITS),
        "staged": config.word_bits,
        "positions": count,
        "token": 6,
        "last": 1,
        # Of keys.
        "close": 1,
        # That hold.
        "step_rows": core.t_m,
        "model_head_tiles": 4,
        "factor": 18 + 6,
        "inverse_width": 32,
        "eps": 32,
        "gates": GATE_BITS,
        "stop": 1,
        "ready": 1,
        "logits_line": line_bits(config),
        "logits_stride": line_bits(config),
        "logits": 1,
    }
    return {name: Field(place, width) for place, (name, width) in enumerate(widths.items())}


class Push(enum.IntEnum):
    """Ports that do something with the numbers."""

    MATRIX = 128
    PASS = 129
    JOB = 130
    LOAD = 131
    MOVE = 132
    #: Keys of a block: a job of the transposer.
    KEYS = 133
    #: Where the lines of a closed block go.
    CLOSED = 134
    #: A word of a line, with all of its bytes (1) or none (0) above bit 32; then the line.
    TEXT_WORD = 135
    TEXT = 136
    FORGET = 137
    #: Counters of the hardware are 0.
    CLEAR = 138
    #: All parts but processor and window are as after a reset.
    FLUSH = 139
    #: The job has stopped, with this status.
    STOPPED = 140
    CLEARED = 141


class Flag(enum.IntEnum):
    """Ports that are read."""

    #: Bits by :class:`Idle`.
    IDLE = 0
    LOADS = 1
    MOVES = 2
    PASSES = 3
    #: Bits by :class:`Error`.
    ERRORS = 4
    #: Bits by :class:`Host`.
    HOST = 5
    SEEN = 6
    CYCLES = 8
    ARRAY_BUSY = 9
    STALL_MEMORY = 10
    STALL_SPECIAL = 11
    STALL_RESULTS = 12
    #: Winners of the rows.
    WINNERS = 64


class Idle(enum.IntEnum):
    """Bits of IDLE."""

    SETTLED = 0
    LOADER = 1
    MOVER = 2
    #: All that was written is in memory.
    WRITES = 3
    KEYS = 4
    #: Nothing is on the buses.
    MEMORY = 5


class Error(enum.IntEnum):
    """Bits of ERRORS."""

    READ = 0
    WRITE = 1
    NUMBER = 2


class Host(enum.IntEnum):
    """Bits of HOST."""

    BUSY = 0
    ABORT = 1
    CLEAR_COUNTERS = 2
