"""Jobs with wrong bits, for benches and tests."""

from __future__ import annotations

import numpy as np

from model.formats.commands import FIELDS, Opcode, pack
from model.formats.plt_layout import pack as pack_word
from model.lm.precision import Precision
from model.machine.encode import Segment, model_command, step_lines
from model.machine.jobs import Live, rows_commands
from model.machine.layout import Manifest

#: Of a command.
BITS = 512


def every_command(manifest: Manifest, rows: tuple[int, int] = (1, 1)) -> list[bytes]:
    """A job that uses every command, for two sequences with some tokens each.

    Parameters
    ----------
    manifest : Manifest
    rows : tuple of int
        Rows of the two segments of its ROWS.
    """
    word = pack_word(
        {"p_w": 6, "p_kv": 7, "gamma": 2, "midpoint_w": 1, "midpoint_kv": 0, "valid": 1}
    )
    whole = step_lines(manifest).whole
    head = whole[1] - 1
    rounds = {"trace": 1, "count": whole[1], "precision": word, "rounds": 2, "end_ids": 1}
    starts = (5, 2) if rows == (1, 1) else (18, 62)
    lengths = [start + count for start, count in zip(starts, rows, strict=True)]
    lives = (Live(0, lengths[0], lengths[0] + 19), Live(1, lengths[1], lengths[1] + 4))
    segments = [
        Segment(i, start, count) for i, (start, count) in enumerate(zip(starts, rows, strict=True))
    ]
    return [
        model_command(manifest),
        *rows_commands(segments, Precision.parse("W7KV6")),
        pack(Opcode.CALL, {"list": 0, "count": head}),
        pack(Opcode.CALL, {"list": head + 3, "count": 1}),
        pack(Opcode.COMMIT, {"append": 1}),
        pack(Opcode.FENCE, {}),
        *(pack(Opcode.SEQUENCE, {"live": 1, **live._asdict()}) for live in lives),
        pack(Opcode.ROUND, {**rounds, "gamma_limit": 3}),
        pack(Opcode.HALT, {}),
    ]


def field_bits(code: int, *, anywhere: bool) -> list[int]:
    """Bits that fields of a command cover, or all."""
    if anywhere or code not in Opcode.__members__.values():
        return list(range(BITS))
    fields = FIELDS[Opcode(code)].values()
    found = [32 * word + low + i for word, low, width, _ in fields for i in range(width)]
    return found or list(range(BITS))


def flipped(commands: list[bytes], generator: np.random.Generator, most: int) -> list[bytes]:
    """The commands, one of them with 1 to 3 flipped bits; none if ``most`` is 0."""
    place = int(generator.integers(len(commands)))
    command = bytearray(commands[place])
    for _ in range(int(generator.integers(1, 4)) if most else 0):
        bit = int(generator.choice(field_bits(command[0], anywhere=generator.random() < 0.1)))
        command[bit // 8] ^= 1 << bit % 8
    return [*commands[:place], bytes(command), *commands[place + 1 :]]
