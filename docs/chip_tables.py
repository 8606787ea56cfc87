"""The tables of docs/chip.md: commands, statuses, registers and traces, from their descriptions.

python -m docs.chip_tables
"""

from __future__ import annotations

from model.formats.commands import FIELDS, SEGMENTS, Opcode, Status
from model.formats.registers import table as registers_table
from model.machine.trace import WORDS


def _place(word: int, low: int, width: int) -> str:
    if width == 32:
        return f"{word}"
    return f"{word}, bit {low}" if width == 1 else f"{word}, bits {low + width - 1}:{low}"


def commands_table() -> str:
    """Every field of every command: the word and bits it lies in, and what it holds."""
    lines = ["| command | field | word | holds |", "|---|---|---|---|"]
    for opcode in Opcode:
        name = f"`{opcode.name}` {opcode.value:#04x}"
        fields = FIELDS[opcode]
        if not fields:
            lines.append(f"| {name} | | | |")
        for field, (word, low, width, meaning) in fields.items():
            stem, _, number = field.rpartition("_")
            if opcode == Opcode.ROWS and number.isdigit():
                if number != "0":
                    continue
                field = f"{stem}_i, i = 0..{SEGMENTS - 1}"
                where = _place(word, low, width).replace(f"{word}", f"{word} + 2 i", 1)
            else:
                where = _place(word, low, width)
            lines.append(f"| {name} | {field} | {where} | {meaning} |")
            name = ""
    return "\n".join(lines) + "\n"


def statuses() -> list[str]:
    """Names of the statuses with their numbers, as the page's table begins its lines."""
    return [f"| {status.value} `{status.name}` |" for status in Status]


def trace_table() -> str:
    """The words of a trace entry's header."""
    lines = ["| word | name | holds |", "|---|---|---|"]
    lines += [f"| {i} | {name} | {what} |" for i, (name, what) in enumerate(WORDS.items())]
    return "\n".join(lines) + "\n"


def main() -> int:
    """The command."""
    print(commands_table(), registers_table(), trace_table(), sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
