"""The chip's commands: 64 bytes each, one description for software and hardware.

No torch here: `hw` may read this module. A command is 16 words of 32 bits, little-endian; all bits
that no field covers are 0. Word 0 holds the opcode in its lowest byte.

Addresses are counted in **lines** of 64 bytes from the base of a region of the memory image, places
in the unified buffer in **bank words** of 16 elements (32 bytes), shapes in tiles of 64.

A **job** is a list of commands from a first one to HALT. A **step** is one pass of rows through the
model: a list of EMBED, NORM, LINEAR, STORE, ATTEND and HEAD that CALL or ROUND runs on the rows and
at the precision that ROWS or the round has set.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

#: Bytes of a line of memory, of a command; words of a command.
LINE_BYTES = 64
COMMAND_BYTES = LINE_BYTES
COMMAND_WORDS = COMMAND_BYTES // 4
#: Elements of a bank word.
BANK_WORD = 16
#: Segments of rows that one ROWS command names.
SEGMENTS = 6
#: End-of-text ids of a ROUND.
END_IDS = 4
#: Positions of the open keys of a head that memory keeps: a ring.
OPEN_ROWS = 128
#: Most tokens of a vocabulary.
VOCABULARY_MAX = 1 << 18
#: Lines of a trace entry: a header of 16 words, then the drafted tokens.
TRACE_LINES = 4


class Opcode(enum.IntEnum):
    """What a command does."""

    HALT = 0x00
    MODEL = 0x01
    SEQUENCE = 0x02
    ROWS = 0x03
    CALL = 0x04
    COMMIT = 0x05
    ROUND = 0x06
    FENCE = 0x07
    EMBED = 0x10
    NORM = 0x11
    LINEAR = 0x12
    STORE = 0x13
    ATTEND = 0x14
    HEAD = 0x15


#: Commands that may stand in the list of a CALL or ROUND: a step.
STEP_OPCODES = frozenset(code for code in Opcode if code >= Opcode.EMBED) | {Opcode.FENCE}


class Region(enum.IntEnum):
    """Regions of the memory image. Each starts at a multiple of 4 KiB."""

    COMMANDS = 0
    WEIGHTS = 1
    EMBED = 2
    NORM = 3
    ROPE = 4
    KEYS = 5
    VALUES = 6
    OPEN_KEYS = 7
    TOKENS = 8
    LOGITS = 9
    TRACE = 10


class Epilogue(enum.IntEnum):
    """What a LINEAR does with its results before they enter the unified buffer."""

    NONE = 0
    RESIDUAL = 1
    SILU_UP = 2


class Status(enum.IntEnum):
    """Why a job stopped."""

    OK = 0
    UNKNOWN_COMMAND = 1
    RESERVED_BITS = 2
    NESTED_LIST = 3
    NO_MODEL = 4
    REGION = 5
    BANK = 6
    SHAPE = 7
    PRECISION = 8
    SEQUENCE = 9
    ROWS = 10
    CAPACITY = 11
    TOKEN = 12
    NUMBER = 13
    READ = 14
    WRITE = 15
    ABORTED = 16


class Field(NamedTuple):
    """Where a field lies in a command.

    Attributes:
        word: 0..15.
        low: its lowest bit.
        width: its bits.
        meaning: what it holds, with its unit.
    """

    word: int
    low: int
    width: int
    meaning: str

    @property
    def top(self) -> int:
        """Largest value."""
        return (1 << self.width) - 1


def _line(word: int, what: str) -> Field:
    return Field(word, 0, 32, f"{what}, lines from the base of its region")


def _bank(word: int, low: int, what: str) -> Field:
    return Field(word, low, 16, f"{what}, bank words")


_KV = {
    "keys": _line(1, "closed keys of the layer"),
    "values": _line(2, "values of the layer"),
    "open_keys": _line(3, "open keys of the layer"),
}

_MATRIX = {
    "weights": _line(1, "the matrix"),
    "k_tiles": Field(2, 0, 16, "inputs, tiles"),
    "n_tiles": Field(2, 16, 16, "outputs, tiles"),
    "source": _bank(3, 0, "inputs"),
    "tiles_per_block": Field(4, 0, 8, "k-tiles of a block of the image"),
}

#: Fields of every command beside its opcode.
FIELDS: dict[Opcode, dict[str, Field]] = {
    Opcode.HALT: {},
    Opcode.MODEL: {
        "qk_norm": Field(0, 8, 1, "RMSNorm of query and key heads before RoPE"),
        "p_full": Field(0, 16, 5, "bits of a stored number, 9..16"),
        "width_tiles": Field(1, 0, 16, "d, tiles"),
        "kv_heads": Field(1, 16, 8, "key and value heads"),
        "group": Field(1, 24, 8, "query heads of a key head"),
        "head_tiles": Field(2, 0, 4, "d_h, tiles"),
        "capacity": Field(3, 0, 32, "positions of a sequence, a multiple of 64"),
        "factor": Field(4, 0, 18, "integer of C = log2(e) / sqrt(d_h)"),
        "factor_exponent": Field(4, 24, 6, "its exponent, two's complement"),
        "key_head": Field(5, 0, 32, "closed keys: lines from head to head"),
        "key_sequence": Field(6, 0, 32, "closed keys: lines from sequence to sequence"),
        "value_channels": Field(7, 0, 32, "values: lines from n-tile to n-tile"),
        "value_head": Field(8, 0, 32, "values: lines from head to head"),
        "value_sequence": Field(9, 0, 32, "values: lines from sequence to sequence"),
        "open_sequence": Field(10, 0, 32, "open keys: lines from sequence to sequence"),
        "vocabulary": Field(11, 0, 32, "tokens; a larger one is refused"),
    },
    Opcode.SEQUENCE: {
        "live": Field(0, 8, 1, "the sequence takes part in rounds"),
        "sequence": Field(1, 0, 16, "which one"),
        "length": Field(2, 0, 32, "committed tokens"),
        "limit": Field(3, 0, 32, "tokens, the pending one included, at which it ends"),
    },
    Opcode.ROWS: {
        "append": Field(0, 8, 1, "the segments follow those of the last ROWS"),
        "segments": Field(0, 16, 4, "segments named here"),
        "precision": Field(1, 0, 32, "a word of the lookup table; all planes where not valid"),
        **{
            name: field
            for i in range(SEGMENTS)
            for name, field in (
                (f"sequence_{i}", Field(4 + 2 * i, 0, 16, "sequence of a segment")),
                (f"count_{i}", Field(4 + 2 * i, 16, 16, "its rows")),
                (f"start_{i}", Field(5 + 2 * i, 0, 32, "position of its first row")),
            )
        },
    },
    Opcode.CALL: {
        "list": _line(1, "first command of the step"),
        "count": Field(2, 0, 32, "commands of the step"),
    },
    Opcode.COMMIT: {
        "append": Field(0, 8, 1, "the argmax of a segment's last row becomes its next token"),
    },
    Opcode.ROUND: {
        "trace": Field(0, 8, 1, "write a trace entry a sequence and round"),
        "list": _line(1, "first command of the step"),
        "count": Field(2, 0, 32, "commands of the step"),
        "precision": Field(3, 0, 32, "a word of the lookup table to use instead of it, if valid"),
        "gamma_limit": Field(4, 0, 8, "most drafted tokens a round; 0: what the table says"),
        "rounds": Field(5, 0, 32, "most rounds; 0: until every live sequence has ended"),
        "end_ids": Field(0, 16, 3, "end-of-text ids given"),
        **{f"end_id_{i}": Field(6 + i, 0, 32, "an end-of-text id") for i in range(END_IDS)},
        "trace_entry": Field(10, 0, 32, "trace entry of the first round"),
    },
    Opcode.FENCE: {},
    Opcode.EMBED: {"target": _bank(3, 16, "rows of the embedding")},
    Opcode.NORM: {
        "weights": _line(1, "norm weights"),
        "source": _bank(3, 0, "inputs"),
        "target": _bank(3, 16, "results"),
        "eps": Field(5, 0, 32, "FP32"),
        "inverse_width": Field(6, 0, 32, "FP32 of 1 / d"),
    },
    Opcode.LINEAR: {
        "epilogue": Field(0, 8, 2, "none, residual sum into the target, SiLU times up"),
        **_MATRIX,
        "target": _bank(3, 16, "results"),
    },
    Opcode.STORE: {
        **_KV,
        "source": _bank(4, 0, "queries, keys, values of a row; queries change in place"),
        "q_norm": _line(5, "norm weights of queries"),
        "k_norm": _line(6, "norm weights of keys"),
        "eps": Field(7, 0, 32, "FP32, of both"),
        "inverse_width": Field(8, 0, 32, "FP32 of 1 / d_h"),
    },
    Opcode.ATTEND: {
        **_KV,
        "source": _bank(4, 0, "queries"),
        "target": _bank(4, 16, "results"),
    },
    Opcode.HEAD: {
        "logits": Field(0, 8, 1, "write the logits of the rows, FP32"),
        "last_only": Field(0, 9, 1, "the last row of each segment only"),
        **_MATRIX,
    },
}


def pack(opcode: Opcode, values: Mapping[str, int]) -> bytes:
    """The 64 bytes of a command; fields that are not given are 0.

    Raises:
        ValueError: an unknown field, or a value that does not fit, by name.
    """
    fields = FIELDS[opcode]
    unknown = sorted(set(values) - set(fields))
    if unknown:
        raise ValueError(
            f"{opcode.name} has fields {', '.join(fields) or 'none'}, not {', '.join(unknown)}"
        )
    words = [0] * COMMAND_WORDS
    words[0] = int(opcode)
    for name, value in values.items():
        field = fields[name]
        if not 0 <= value <= field.top:
            raise ValueError(f"{opcode.name} {name} must be 0..{field.top}, not {value}")
        words[field.word] |= int(value) << field.low
    return b"".join(word.to_bytes(4, "little") for word in words)


def unpack(command: bytes) -> tuple[Opcode, dict[str, int]]:
    """Opcode and fields of a command.

    Raises:
        ValueError: not 64 bytes, an unknown opcode, or bits set that no field covers.
    """
    if len(command) != COMMAND_BYTES:
        raise ValueError(f"a command must have {COMMAND_BYTES} bytes, not {len(command)}")
    words = [int.from_bytes(command[4 * i : 4 * i + 4], "little") for i in range(COMMAND_WORDS)]
    code = words[0] & 0xFF
    if code not in Opcode.__members__.values():
        raise ValueError(f"opcode must be one of {', '.join(Opcode.__members__)}, not {code:#04x}")
    opcode = Opcode(code)
    reserved = reserved_bits(opcode)
    for i, word in enumerate(words):
        if word & reserved[i]:
            raise ValueError(
                f"{opcode.name} must have 0 in reserved bits, not {word & reserved[i]:#x}"
                f" in word {i}"
            )
    values = {
        name: words[field.word] >> field.low & field.top for name, field in FIELDS[opcode].items()
    }
    return opcode, values


def reserved_bits(opcode: Opcode) -> list[int]:
    """Bits of each word that must be 0."""
    free = [0xFFFF_FFFF] * COMMAND_WORDS
    free[0] &= ~0xFF
    for field in FIELDS[opcode].values():
        free[field.word] &= ~(field.top << field.low)
    return free
