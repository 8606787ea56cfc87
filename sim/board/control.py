"""What Python and the memory of the board share: one description, for ctypes and for C.

A board's folder holds two files that both sides map: ``board.control``, this block, and
``board.memory``, the bytes of the memory, sparse. Python writes knobs and requests, and the memory
(``memory.cpp``) writes counters and answers; :func:`header` gives it the same block as C.
"""

from __future__ import annotations

import ctypes
from enum import IntFlag
from typing import Any

#: The environment variable that names a board's folder.
FOLDER = "BSSPEC_BOARD"
#: Ports, ranges of errors, ranges that may be written: at most.
PORTS, ERRORS, WRITES = 8, 16, 64
#: Says that Python has filled the block.
MAGIC = 0x4253_5045_4342_0001
TEXT_BYTES = 512


class Wake(IntFlag):
    """What may wake Python."""

    ACCESS = 1  #: an access of the register window is done
    INTERRUPT = 2  #: the interrupt is high
    CYCLE = 4  #: a number of cycles is reached
    TIME = 8  #: some time has passed
    RUNNING = 16  #: no reset
    FAULT = 32  #: the chip broke a rule


class ErrorRange(ctypes.Structure):
    """Addresses that answer with an error; kinds: 1 reads, 2 writes, 3 both."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("start", "end", "code", "kinds")]


class WriteRange(ctypes.Structure):
    """Addresses that may be written."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("start", "end")]


class PortCounters(ctypes.Structure):
    """What passed a port; ``most_reads`` and ``most_writes`` are bursts outstanding."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "read_bursts",
            "read_beats",
            "read_bytes",
            "most_reads",
            "write_bursts",
            "write_beats",
            "write_bytes",
            "most_writes",
        )
    ]


def _words(*names: str) -> list[tuple[str, type]]:
    return [(name, ctypes.c_uint64) for name in names]


class Control(ctypes.Structure):
    """The block.

    Chances are in 2^-32; ``stall`` is that of AR, R, AW, W and B. ``rate`` counts bytes a cycle and
    holds where ``limited`` is set. Times are in milliseconds.
    """

    _fields_ = [
        # What the board is.
        *_words("magic", "file_bytes", "memory_bytes", "ports", "port_bytes", "max_beats"),
        # Knobs.
        *_words("seed", "latency_min", "latency_max", "swap", "late_writes", "limited"),
        ("rate", ctypes.c_double),
        ("stall", ctypes.c_uint64 * 5),
        ("port_latency", ctypes.c_uint64 * PORTS),
        *_words("error_count"),
        ("errors", ErrorRange * ERRORS),
        *_words("write_count"),
        ("writes", WriteRange * WRITES),
        # Requests and answers.
        *_words("access_asked", "access_done", "access_write", "access_address", "access_data"),
        *_words("access_strobe", "access_response", "access_result", "reset_asked", "interrupt"),
        *_words("wake_mask", "wake_cycle", "wake_time", "woken"),
        # What happened.
        *_words("cycles", "milliseconds", "fault"),
        ("counters", PortCounters * PORTS),
        ("text", ctypes.c_uint8 * TEXT_BYTES),
    ]


_C_NAMES = {
    ctypes.c_uint64: "uint64_t",
    ctypes.c_uint8: "uint8_t",
    ctypes.c_double: "double",
}


def header() -> str:
    """The block and its constants as C++."""
    lines = ["// From sim/board/control.py.", "#pragma once", "#include <cstdint>"]
    lines += [f"constexpr unsigned PORTS = {PORTS};"]
    lines += [f"constexpr uint64_t CONTROL_MAGIC = {MAGIC:#x};"]
    lines += [f"constexpr uint64_t WAKE_{wake.name} = {wake.value};" for wake in Wake]
    for block in (ErrorRange, WriteRange, PortCounters, Control):
        lines.append(f"struct {block.__name__} {{")
        for name, kind, *_ in block._fields_:
            element: Any = kind
            size = ""
            if issubclass(kind, ctypes.Array):
                element, size = kind._type_, f"[{kind._length_}]"
            lines.append(f"    {_C_NAMES.get(element, element.__name__)} {name}{size};")
        lines.append("};")
        lines.append(f"static_assert(sizeof({block.__name__}) == {ctypes.sizeof(block)});")
    return "\n".join(lines) + "\n"
