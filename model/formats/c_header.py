"""The chip's numbers for drivers in C, from the descriptions that hardware and simulator read.

python -m model.formats.c_header

Prints a header of macros alone. A field is a shift and a mask in place; a field of a command also
says which of the 16 words it lies in. `BSSPEC_PUT` and `BSSPEC_GET` take a field's name without
`_SHIFT` and `_MASK`.
"""

from __future__ import annotations

from collections.abc import Iterator

from model.formats import commands, plt_layout, registers
from model.formats.commands import Epilogue, Opcode, Region, Status

_HEAD = """\
/* BS-Spec: commands, registers and status codes, for drivers.
 * Printed by: python -m model.formats.c_header. Do not edit.
 * Meanings, units and the order of things: docs/chip.md.
 */
#ifndef BSSPEC_H
#define BSSPEC_H

#include <stdint.h>

/* The bits of a value in its field's place; the value of a field in a word. */
#define BSSPEC_PUT(field, value) (((uint32_t)(value) << field##_SHIFT) & field##_MASK)
#define BSSPEC_GET(field, word) (((uint32_t)(word) & field##_MASK) >> field##_SHIFT)
"""
_TAIL = "\n#endif\n"

#: A macro without its prefix: name, number, whether it is shown in hexadecimal, comment.
Macro = tuple[str, int, bool, str]


def _field(name: str, low: int, width: int, meaning: str) -> Iterator[Macro]:
    yield f"{name}_SHIFT", low, False, meaning
    yield f"{name}_MASK", ((1 << width) - 1) << low, True, ""


def _sizes() -> Iterator[Macro]:
    yield "LINE_BYTES", commands.LINE_BYTES, False, "a line of memory, a command"
    yield "COMMAND_WORDS", commands.COMMAND_WORDS, False, "32-bit words of a command"
    yield "BANK_WORD", commands.BANK_WORD, False, "elements of a bank word"
    yield "SEGMENTS", commands.SEGMENTS, False, "segments that one ROWS names"
    yield "END_IDS", commands.END_IDS, False, "end-of-text ids of a ROUND"
    yield "OPEN_ROWS", commands.OPEN_ROWS, False, "positions of a head's open keys"
    yield "TRACE_LINES", commands.TRACE_LINES, False, "lines of a trace entry"
    yield "WINDOW_BYTES", registers.WINDOW_BYTES, False, "the register window"
    yield "ID", registers.ID, True, "what register ID reads as"
    yield "VERSION", registers.VERSION, False, "of commands, image and registers"


def _commands() -> Iterator[Macro]:
    for opcode, fields in commands.FIELDS.items():
        for field, (word, low, width, meaning) in fields.items():
            name = f"CMD_{opcode.name}_{field.upper()}"
            yield f"{name}_WORD", word, False, meaning
            yield from _field(name, low, width, "")


def _registers() -> Iterator[Macro]:
    for name, register in registers.REGISTERS.items():
        macro = f"REG_{name}"
        note = f"{register.access}{', 64 bits' * (register.bits == 64)}: {register.meaning}"
        yield macro, register.offset, True, note
        if register.entries > 1:
            yield f"{macro}_STRIDE", register.stride, False, "bytes from entry to entry"
            yield f"{macro}_ENTRIES", register.entries, False, ""
        for field, (low, width, meaning) in register.fields.items():
            yield from _field(f"{macro}_{field.upper()}", low, width, meaning)


def _precision() -> Iterator[Macro]:
    yield "PLT_FIRST_LOG2", plt_layout.FIRST_LOG2, False, "entry 0 is for lengths up to 2^this"
    for name, field in plt_layout.FIELDS.items():
        yield from _field(f"PLT_{name.upper()}", field.low, field.width, "")


def sections() -> dict[str, list[Macro]]:
    """Every macro, by what the header calls its section."""
    return {
        "Sizes": list(_sizes()),
        "Opcodes: bits 7:0 of word 0": [
            (f"OP_{code.name}", code.value, True, "") for code in Opcode
        ],
        "Fields of commands": list(_commands()),
        "Epilogues of LINEAR": [(f"EPILOGUE_{e.name}", e.value, False, "") for e in Epilogue],
        "Status codes": [(f"STATUS_{code.name}", code.value, False, "") for code in Status],
        "Regions: entries of BASE and SIZE": [
            (f"REGION_{region.name}", region.value, False, "") for region in Region
        ],
        "Registers: byte offsets in the window": list(_registers()),
        "Words of the precision lookup table": list(_precision()),
    }


def header() -> str:
    """The text of the header."""
    lines = [_HEAD]
    for title, macros in sections().items():
        lines.append(f"/* {title} */")
        for name, number, is_hex, comment in macros:
            shown = f"{number:#x}u" if is_hex else f"{number}u"
            note = f" /* {comment} */" if comment else ""
            lines.append(f"#define BSSPEC_{name} {shown}{note}")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n" + _TAIL


def main() -> int:
    """The command."""
    print(header(), end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
