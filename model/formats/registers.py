"""The chip's registers: one description for hardware, drivers and documents.

No torch here: `hw` may read this module. Offsets are bytes from the start of a window of 4 KiB that
the host reaches by single accesses of 32 bits. A register of 64 bits is two words, the lower one
first; a register of several entries is a window of them, one behind the other. What no field
covers reads as 0 and is written as 0.

    read            the host reads it
    write           the host reads and writes it; not while a job runs
    pulse           a 1 acts once and reads as 0
    clear           the host reads it, and clears the bits that it writes as 1
"""

from __future__ import annotations

from typing import NamedTuple

from model.formats.commands import Region
from model.formats.plt_layout import ENTRIES

#: Bytes of the window, of a word.
WINDOW_BYTES = 4096
WORD_BYTES = 4

#: What ID reads as: "BSPC". The version changes with commands, image and registers.
ID = 0x4253_5043
VERSION = 1

#: Sequences that the windows have room for.
SEQUENCES_MAX = 256

#: Planes that are counted apart: p_max at most.
PLANES = 16

ACCESSES = ("read", "write", "pulse", "clear")


class Bits(NamedTuple):
    """A field of a register.

    Attributes:
        low: its lowest bit.
        width: its bits.
        meaning: what it holds.
    """

    low: int
    width: int
    meaning: str


class Register(NamedTuple):
    """A register, or a window of equal ones.

    Attributes:
        offset: of its first byte.
        access: one of `ACCESSES`.
        meaning: what it holds.
        bits: 32, or 64 in two words, the lower one first.
        entries: of a window; 1 for a register.
        reset: its value after a reset; None where the configuration says it.
        fields: by name; none where the register is one number.
    """

    offset: int
    access: str
    meaning: str
    bits: int = 32
    entries: int = 1
    reset: int | None = 0
    fields: dict[str, Bits] = {}

    @property
    def stride(self) -> int:
        """Bytes from entry to entry."""
        return self.bits // 8

    @property
    def end(self) -> int:
        """Offset of the byte behind it."""
        return self.offset + self.entries * self.stride


#: 64-bit counters of bytes, by what is read or written; the order is that of their offsets.
TRAFFIC: dict[str, str] = {
    "READ_COMMANDS": "commands fetched to be run",
    "READ_EXPONENTS": "exponents of weights",
    "READ_EMBED": "rows of the embedding",
    "READ_NORM": "norm weights",
    "READ_ROPE": "cosines and sines",
    "READ_KEYS": "closed keys",
    "READ_VALUES": "values",
    "READ_OPEN_KEYS": "BF16 keys",
    "READ_TOKENS": "tokens",
    "WRITE_KEYS": "closed keys",
    "WRITE_VALUES": "values",
    "WRITE_OPEN_KEYS": "BF16 keys",
    "WRITE_TOKENS": "tokens",
    "WRITE_LOGITS": "logits",
    "WRITE_TRACE": "trace entries",
}

#: 64-bit counters of events.
EVENTS: dict[str, str] = {
    "ROUNDS": "rounds done",
    "STEPS": "passes through a list of a ROUND: drafts and verifications",
    "DRAFTED": "tokens drafted",
    "ACCEPTED": "drafted tokens accepted",
    "CYCLES": "cycles in which a job ran; 0 in the simulator",
    "ARRAY_BUSY": "cycles in which the array took a plane; 0 in the simulator",
    "STALL_MEMORY": "cycles in which a job ran and the array waited for weights or keys; 0 in the"
    " simulator",
    "STALL_SPECIAL": "cycles in which a job ran and the array waited for special functions:"
    " activations not there yet; 0 in the simulator",
    "STALL_RESULTS": "cycles in which a job ran and the array waited for room for results; 0 in"
    " the simulator",
}

_COUNTERS = 0x200
_EVENTS = _COUNTERS + 8 * len(TRAFFIC)
_PLANES = 0x300


def _counters(start: int, named: dict[str, str], prefix: str) -> dict[str, Register]:
    return {
        name: Register(start + 8 * place, "read", f"{prefix}{meaning}", bits=64)
        for place, (name, meaning) in enumerate(named.items())
    }


#: All registers, by ascending offset.
REGISTERS: dict[str, Register] = {
    "ID": Register(0x000, "read", 'the letters "BSPC"', reset=ID),
    "VERSION": Register(0x004, "read", "of commands, image and registers", reset=VERSION),
    "CONFIG": Register(
        0x008,
        "read",
        "the core",
        reset=None,
        fields={
            "t_m": Bits(0, 8, "rows of a step"),
            "p_max": Bits(8, 5, "most planes of a number"),
            "head_tiles_max": Bits(16, 4, "tiles of the widest head"),
            "tiles_per_block": Bits(24, 8, "most k-tiles of a block of the image"),
        },
    ),
    "SIZES": Register(
        0x00C,
        "read",
        "its memories",
        reset=None,
        fields={
            "bank_words": Bits(0, 16, "words of a bank, attention's own included"),
            "sequences": Bits(16, 16, "sequences"),
        },
    ),
    "MAX_K": Register(0x010, "read", "longest reduction, elements", reset=None),
    "CONTROL": Register(
        0x020,
        "pulse",
        "what to do",
        fields={
            "start": Bits(0, 1, "run the job at FIRST_COMMAND; only while idle and status OK"),
            "abort": Bits(1, 1, "stop before the next command; only while busy"),
            "clear": Bits(2, 1, "status OK again; only while idle"),
            "clear_counters": Bits(3, 1, "all counters 0; only while idle"),
        },
    ),
    "STATUS": Register(
        0x024,
        "read",
        "how the job stands",
        fields={
            "busy": Bits(0, 1, "a job runs"),
            "status": Bits(8, 8, "why it stopped: `Status` of the commands"),
        },
    ),
    "COMMAND_INDEX": Register(
        0x028, "read", "line of the command in work, or of the one that stopped the job"
    ),
    "FIRST_COMMAND": Register(0x02C, "write", "line of a job's first command in COMMANDS"),
    "IRQ_ENABLE": Register(
        0x030, "write", "which events interrupt", fields={"done": Bits(0, 1, "a job stopped")}
    ),
    "IRQ_PENDING": Register(
        0x034, "clear", "which events were", fields={"done": Bits(0, 1, "a job stopped")}
    ),
    "TRACE_NEXT": Register(0x038, "read", "trace entry behind the last one that was written"),
    "PLT": Register(0x040, "write", "words of the precision lookup table", entries=ENTRIES),
    "BASE": Register(
        0x080,
        "write",
        "byte address of each region, by `Region`; a multiple of 4096",
        bits=64,
        entries=len(Region),
    ),
    "SIZE": Register(0x100, "write", "lines of each region, by `Region`", entries=len(Region)),
    **_counters(_COUNTERS, TRAFFIC, "bytes: "),
    **_counters(_EVENTS, EVENTS, ""),
    "READ_PLANES": Register(
        _PLANES, "read", "bytes: each plane of weights, signs first", bits=64, entries=PLANES
    ),
    "LENGTH": Register(0x400, "read", "committed tokens of each sequence", entries=SEQUENCES_MAX),
    "COUNT": Register(
        0x800,
        "read",
        "tokens of each sequence, the pending one included, cut at its end",
        entries=SEQUENCES_MAX,
    ),
    "STATE": Register(
        0xC00,
        "read",
        "how each sequence stands",
        entries=SEQUENCES_MAX,
        fields={
            "live": Bits(0, 1, "it takes part in rounds"),
            "end": Bits(1, 1, "it ended with an end-of-text id"),
            "limit": Bits(2, 1, "it ended at its limit"),
        },
    ),
}


def pack(name: str, **values: int) -> int:
    """The word of a register's fields; those that are not given are 0.

    Raises:
        ValueError: no such field, or a value that does not fit, by name.
    """
    word = 0
    fields = REGISTERS[name].fields
    for field, value in values.items():
        if field not in fields:
            raise ValueError(f"{name} has fields {', '.join(fields) or 'none'}, not {field}")
        low, width, _ = fields[field]
        if not 0 <= value < 1 << width:
            raise ValueError(f"{name} {field} must be 0..{(1 << width) - 1}, not {value}")
        word |= value << low
    return word


def unpack(name: str, word: int) -> dict[str, int]:
    """The fields of a register's word."""
    return {
        field: word >> low & ((1 << width) - 1)
        for field, (low, width, _) in REGISTERS[name].fields.items()
    }


def writable(name: str) -> int:
    """Bits of a register that the host may set."""
    register = REGISTERS[name]
    if register.access == "read":
        return 0
    if register.fields:
        return pack(name, **{f: (1 << bits.width) - 1 for f, bits in register.fields.items()})
    if name == "BASE":
        return (1 << 64) - 4096
    return (1 << register.bits) - 1


def table() -> str:
    """The registers as the page of the chip prints them."""
    lines = ["| offset | register | access | holds |", "|---|---|---|---|"]
    for name, register in REGISTERS.items():
        shown = name if register.entries == 1 else f"{name}[{register.entries}]"
        if register.bits == 64:
            shown += ", 64 bits"
        lines.append(
            f"| {register.offset:#05x} | {shown} | {register.access} | {register.meaning} |"
        )
        for field, (low, width, meaning) in register.fields.items():
            where = f"{low}" if width == 1 else f"{low + width - 1}:{low}"
            lines.append(f"| | . {field} [{where}] | | {meaning} |")
    return "\n".join(lines) + "\n"
