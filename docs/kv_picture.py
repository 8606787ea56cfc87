"""What lies in the KV cache around the end of a key block, while a round speculates over it.

    python -m docs.kv_picture [--committed 60] [--gamma 7] [--accepted 2] [--svg FILE]

Drives one round of a small model on the exact path and notes every write of the cache: which
positions a pass writes, and when it closes the block. Then it prints a line a step:

    K  committed            d  written by the draft      v  written by verification
    x  dead: rejected       .  never written

and how a query at each step would see the keys of the block: open (each token in its open form,
token-wise BFP16) or closed (channel-wise BFP9, read at p_kv by a draft).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model.decoding.drafts.bs_spec import BsSpec
from model.formats.bfp import Bfp
from model.formats.checks import check_int
from model.lm.cache import BLOCK
from model.lm.precision import Precision
from model.lm.random_model import TINY, random_checkpoint
from model.lm.rows import Rows
from model.lm.stored import store

COLOURS = {"K": "#8fb8de", "d": "#f3d27a", "v": "#a8d5a2", "x": "#dddddd"}
NAMES = {
    "K": "committed",
    "d": "written by the draft",
    "v": "written by verification",
    "x": "dead",
}


@dataclass
class Step:
    """A line of the picture.

    Attributes:
        name: what happens.
        cells: state of every position, as letters of `NAMES`, or "." for never written.
        block: state of the block's closed form.
        fed: positions that this step writes.
    """

    name: str
    cells: str
    block: str
    fed: tuple[int, ...] = ()


class Recorder:
    """Notes the writes of a cache's first layer."""

    def __init__(self, end: int) -> None:
        self.cells = ["."] * end
        self.letter, self.fed, self.closed = "K", [0], False

    def rows_written(self, layer: int, rows: Rows, keys: Bfp, values: Bfp) -> None:
        """Marks the positions."""
        if layer == 0:
            self.fed = rows.position.tolist()
            for position in self.fed:
                self.cells[position] = self.letter

    def block_closed(self, layer: int, sequence: int, block: int) -> None:
        """Notes that the block was closed."""
        if layer == 0 and block == 0:
            self.closed = True


def record(committed: int, gamma: int, accepted: int) -> list[Step]:
    """One round over the end of block 0.

    Args:
        committed: tokens before the round, 1..63; the round must reach position 63.
        gamma: drafted tokens.
        accepted: how many of them are committed.

    Raises:
        ValueError: an argument out of range.
    """
    check_int("committed", committed, 1, BLOCK - 1)
    check_int("gamma", gamma, BLOCK - committed, 256)
    check_int("accepted", accepted, 0, gamma)
    end = committed + gamma + 1
    draft = BsSpec(store(random_checkpoint(TINY, 0)), Precision.of(6, 7), exact=True)
    draft.start(1, end)
    recorder = Recorder(end)
    draft.cache.attach(recorder)
    draft.verify([[1] * committed])
    draft.commit([[1] * committed])
    steps = [Step("before", "".join(recorder.cells), "open")]
    recorder.letter = "d"
    for k in range(1, gamma + 1):
        draft.draft([[2]])
        state = "closed from the draft's keys" if recorder.closed else "open"
        steps.append(Step(f"draft d{k}", "".join(recorder.cells), state, tuple(recorder.fed)))
    recorder.letter, recorder.closed = "v", False
    draft.verify([[2] * (gamma + 1)])
    state = "closed again, from the target's keys" if recorder.closed else "stale"
    steps.append(Step("verify", "".join(recorder.cells), state, tuple(recorder.fed)))
    draft.commit([[2] * (accepted + 1)])
    (length,) = draft.lengths
    cells = "K" * length + "x" * (end - length)
    final = "final" if draft.cache.final_blocks(0) else "open; what was closed is dead"
    steps.append(Step(f"commit {accepted} of {gamma}", cells, final))
    return steps


def text(steps: Sequence[Step], first: int) -> str:
    """The picture as lines, from position `first` on."""
    end = len(steps[0].cells)
    numbers = "".join(f" {position:>2}" for position in range(first, end))
    lines = [f"{'position':<14}{numbers}   block 0, closed form"]
    for step in steps:
        cells = "".join(
            f" {'|' if position == BLOCK else ' '}{step.cells[position]}"
            for position in range(first, end)
        )
        lines.append(f"{step.name:<14}{cells}   {step.block}".rstrip())
    return "\n".join(lines)


def svg(steps: Sequence[Step], first: int) -> str:
    """The same as a picture."""
    end, left, size, height = len(steps[0].cells), 96, 30, 26
    right = left + size * (end - first)
    width, total = right + 250, height * (len(steps) + 2) + 22
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total}" width="{width}"'
        f' height="{total}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{total}" fill="white"/>',
        f'<text x="{right + 12}" y="18" fill="#555">closed form of block 0</text>',
    ]
    for position in range(first, end):
        x = left + size * (position - first) + size / 2
        out.append(f'<text x="{x}" y="18" text-anchor="middle" fill="#555">{position}</text>')
    for number, step in enumerate(steps, 1):
        y = height * number + 2
        out.append(f'<text x="6" y="{y + 15}">{step.name}</text>')
        out.append(f'<text x="{right + 12}" y="{y + 15}">{step.block}</text>')
        for position in range(first, end):
            letter = step.cells[position]
            if letter != ".":
                x = left + size * (position - first) + 2
                edge = ' stroke="black"' if position in step.fed else ""
                out.append(
                    f'<rect x="{x}" y="{y}" width="{size - 4}" height="{height - 5}" rx="3"'
                    f' fill="{COLOURS[letter]}"{edge}/>'
                )
    x = left + size * (BLOCK - first)
    low = height * (len(steps) + 1)
    out.append(f'<line x1="{x}" y1="6" x2="{x}" y2="{low}" stroke="#b00" stroke-dasharray="4 3"/>')
    x = left
    for letter, name in NAMES.items():
        out.append(
            f'<rect x="{x}" y="{low + 10}" width="18" height="14" rx="3" fill="{COLOURS[letter]}"/>'
            f'<text x="{x + 24}" y="{low + 22}">{name}</text>'
        )
        x += 40 + 7 * len(name)
    out.append(f'<text x="{x}" y="{low + 22}">framed: written in this step</text>')
    return "\n".join([*out, "</svg>", ""])


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m docs.kv_picture", description=__doc__)
    parser.add_argument("--committed", type=int, default=60, help="tokens before the round")
    parser.add_argument("--gamma", type=int, default=7)
    parser.add_argument("--accepted", type=int, default=2)
    parser.add_argument("--svg", type=Path, help="also draw it")
    arguments = parser.parse_args(argv)
    try:
        steps = record(arguments.committed, arguments.gamma, arguments.accepted)
    except ValueError as error:
        print(f"docs.kv_picture: {error}", file=sys.stderr)
        return 2
    first = max(0, arguments.committed - 4)
    print(text(steps, first))
    if arguments.svg:
        arguments.svg.write_text(svg(steps, first))
    return 0


if __name__ == "__main__":
    sys.exit(main())
