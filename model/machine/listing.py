"""Command lists as a table to read."""

from __future__ import annotations

import struct
from typing import NamedTuple

from model.formats.commands import COMMAND_BYTES, Epilogue, Opcode, unpack
from model.formats.plt_layout import unpack as unpack_word


class Listed(NamedTuple):
    """A command in words.

    Attributes:
        line: where it lies in COMMANDS.
        name: its opcode.
        fields: those that are not 0, as text.
    """

    line: int
    name: str
    fields: str


def listed(commands: bytes, first: int = 0) -> list[Listed]:
    """Commands in words.

    Args:
        commands: 64 bytes each.
        first: line of the first one.

    Raises:
        ValueError: no whole number of commands, or one that is none, by its line.
    """
    if len(commands) % COMMAND_BYTES:
        raise ValueError(
            f"commands must have a multiple of {COMMAND_BYTES} bytes, not {len(commands)}"
        )
    rows = []
    for start in range(0, len(commands), COMMAND_BYTES):
        line = first + start // COMMAND_BYTES
        try:
            opcode, fields = unpack(commands[start : start + COMMAND_BYTES])
        except ValueError as error:
            raise ValueError(f"line {line}: {error}") from None
        shown = [f"{name} {_shown(opcode, name, fields)}" for name, v in fields.items() if v]
        rows.append(Listed(line, opcode.name, ", ".join(shown)))
    return rows


def _shown(opcode: Opcode, name: str, fields: dict[str, int]) -> str:
    value = fields[name]
    if name in ("eps", "inverse_width"):
        return f"{struct.unpack('<f', struct.pack('<I', value))[0]:.9g}"
    if name == "precision":
        word = unpack_word(value)
        w, kv = ("m" if word[f"midpoint_{kind}"] else "" for kind in ("w", "kv"))
        return f"W{word['p_w']}{w}KV{word['p_kv']}{kv} gamma {word['gamma']}"
    if name == "epilogue" and value in Epilogue.__members__.values():
        return Epilogue(value).name
    if name == "factor_exponent":
        return str(value - 64 if value >= 32 else value)
    return str(value)


def text(rows: list[Listed]) -> str:
    """The table as text, a command a line."""
    return "".join(f"{row.line:>6}  {row.name:<8}  {row.fields}".rstrip() + "\n" for row in rows)
