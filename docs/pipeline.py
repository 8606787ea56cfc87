"""The pipeline of the core, cycle by cycle, as text and as a picture; both from a simulation.

    python -m docs.pipeline [--config paper] [--p 5] [--tiles 2] [--svg docs/pipeline.svg]

Simulates the control of an array (Feed, Sequencer, ResultControl, wired as in `hw.compute.array`)
with every stream always willing, and notes what moves in each cycle. The data path has no say in
when something happens, so MPUs and plane decoder are left out: that makes it a matter of a second.
Cycle 0 is the one in which the first plane of tile A is accepted, with the pipeline full; B, C and
so on follow it, and "-" is any tile before it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from amaranth.hdl import Module
from amaranth.sim import Simulator

from hw.compute import array
from hw.compute.feed import Feed
from hw.compute.lane import PlaneDecoder
from hw.compute.mpu import Mpu
from hw.compute.results import ResultControl
from hw.compute.sequencer import Sequencer
from hw.config import GROUPS, TILE, Config, ConfigError, load
from hw.library import Unique, instantiate, packed

#: Tiles that pass before the noted ones, so that the pipeline is full.
WARM = 6
#: Cycles shown before and after the first plane of the noted tile.
BEFORE, AFTER = 6, 26
#: A colour for each tile, in turn, and one for all before A; dark text is readable on each.
COLOURS = ("#9ecae1", "#fdae6b", "#a1d99b", "#c9b8e8", "#fde08a")
EARLIER = "#e4e4e4"


@dataclass
class Row:
    """One line of the picture.

    Attributes
    ----------
    name : str
    marks : dict
        By cycle: which tile, and what of it.
    """

    name: str
    marks: dict[int, tuple[int, str]] = field(default_factory=dict)


class _Counter:
    """Counts events of a kind: ``per`` of them make a tile."""

    def __init__(self, row: Row, per: int) -> None:
        self.row, self.per, self.count = row, per, 0

    def __call__(self, cycle: int, what: str = "", *, tiles: int = 1) -> None:
        number = self.count // self.per * tiles
        self.row.marks[cycle] = (number, what or str(self.count % self.per))
        self.count += 1


def simulate(config: Config, p: int, k_tiles: int) -> list[Row]:
    """What moves in each cycle, with cycles and tiles counted from the noted one."""
    parts: dict[type[Unique], Any] = {}

    def control_only(m: Module, name: str, kind: type[Unique], *args: Any, **kwargs: Any) -> Any:
        if kind not in (Mpu, PlaneDecoder):
            parts[kind] = instantiate(m, name, kind, *args, **kwargs)
            return parts[kind]
        left_out = kind(*args, **kwargs)
        left_out._MustUse__silence = True
        members = left_out.signature.members.items()
        return SimpleNamespace(
            **{n: packed(port.shape, name=f"{name}__{n}") for n, port in members}
        )

    top = array.Array(config)
    beats, drained = p * config.fold, TILE // config.drain
    rows: list[Row] = []

    def row(name: str, per: int) -> _Counter:
        rows.append(Row(name))
        return _Counter(rows[-1], per)

    fill = row("activations, exponents", GROUPS)
    tile = row("tile word", 1)
    maximum = row("tile maximum", GROUPS)
    align = row("align", GROUPS)
    tables = row("tables written", GROUPS)
    planes = row("plane accepted", beats)
    reduction = [row(f"look-up, reduction {stage}", beats) for stage in range(GROUPS)]
    horner = row("Horner's sum", beats)
    read = row("accumulators read", config.tile_rows)
    write = row("accumulators written", config.tile_rows)
    buffered = row("result buffer written", config.tile_rows)
    leaves = row("result buffer read", config.tile_rows)
    results = row("results", drained)
    first_planes: list[int] = []

    def plane_name(number: int) -> str:
        return "s" if number % p == 0 else str(p - 1 - number % p)

    async def bench(ctx: Any) -> None:
        feed, sequencer, control = parts[Feed], parts[Sequencer], parts[ResultControl]
        for name in ("tiles", "activations", "exponents", "planes"):
            ctx.set(getattr(top, name).valid, 1)
        ctx.set(top.results.ready, 1)
        ctx.set(top.tiles.payload.p, p)
        ctx.set(top.tiles.payload.rows, 1)
        accepted: list[int] = []
        filled: list[int] = []
        for cycle in range(beats * (WARM + 2 * k_tiles) + AFTER + 40):
            ctx.set(top.tiles.payload.last, tile.count % k_tiles == k_tiles - 1)
            if ctx.get(feed.fill):
                filled.append(cycle)
                fill(cycle)
            if ctx.get(top.tiles.ready):
                tile(cycle, "w")
            if cycle - 1 in filled:
                maximum(cycle)
            if ctx.get(feed.align):
                align(cycle, str(ctx.get(feed.align_group)))
            for group in range(GROUPS):
                if ctx.get(feed.load) >> group & 1:
                    tables(cycle, str(group))
            if ctx.get(top.planes.ready):
                if planes.count % beats == 0:
                    first_planes.append(cycle)
                accepted.append(cycle)
                planes(cycle, plane_name(planes.count))
            for stage, each in enumerate(reduction):
                if cycle - 1 - stage in accepted:
                    each(cycle, plane_name(each.count))
            if ctx.get(sequencer.reduce.sum_valid):
                horner(cycle, plane_name(horner.count))
            if ctx.get(sequencer.acc_read):
                read(cycle)
            if ctx.get(sequencer.acc_write):
                write(cycle)
            for counter, signal in ((buffered, control.write), (leaves, control.read)):
                if ctx.get(signal):
                    counter(cycle, tiles=k_tiles)
            if ctx.get(top.results.valid):
                results(cycle, tiles=k_tiles)
            await ctx.tick()

    with mock.patch.object(array, "instantiate", control_only):
        simulator = Simulator(top)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    noted = WARM - WARM % k_tiles
    start = first_planes[noted]
    for each in rows:
        # An output tile goes by the name of its last tile.
        shift = k_tiles - 1 if each in (buffered.row, leaves.row, results.row) else 0
        each.marks = {c - start: (n + shift - noted, what) for c, (n, what) in each.marks.items()}
    return rows


def _letter(tile: int) -> str:
    """A for tile 0 and so on, "-" for the tiles before."""
    return chr(ord("A") + tile) if tile >= 0 else "-"


def text(rows: list[Row]) -> str:
    """One line a row, one column a cycle: tile by letter, part by number."""
    cycles = range(-BEFORE, AFTER)
    lines = [f"{'cycle':<23}" + "".join(f"{c:>3}" for c in cycles)]
    for row in rows:
        marks = [row.marks.get(c) for c in cycles]
        cells = "".join(f" {_letter(mark[0])}{mark[1]}" if mark else "  ." for mark in marks)
        lines.append(f"{row.name:<23}{cells}")
    return "\n".join(lines)


def svg(rows: list[Row]) -> str:
    """The same as a picture."""
    cycles = range(-BEFORE, AFTER)
    left, width, height = 176, 25, 22
    total_width, total_height = left + width * len(cycles) + 8, height * (len(rows) + 1) + 12
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total_width} {total_height}"'
        f' width="{total_width}" height="{total_height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{total_width}" height="{total_height}" fill="white"/>',
        '<text x="6" y="16" fill="#555">cycle</text>',
    ]
    for i, c in enumerate(cycles):
        x = left + width * i
        shade = "#eee" if c else "#888"
        out.append(
            f'<line x1="{x}" y1="4" x2="{x}" y2="{total_height - 6}" stroke="{shade}"/>'
            f'<text x="{x + width / 2}" y="16" text-anchor="middle" fill="#555">{c}</text>'
        )
    for number, row in enumerate(rows, 1):
        y = height * number + 2
        out.append(f'<text x="6" y="{y + 14}" fill="black">{row.name}</text>')
        for i, c in enumerate(cycles):
            if c in row.marks:
                tile, what = row.marks[c]
                x = left + width * i + 1
                colour = COLOURS[tile % len(COLOURS)] if tile >= 0 else EARLIER
                label = _letter(tile) + what if tile >= 0 else what
                out.append(
                    f'<rect x="{x}" y="{y}" width="{width - 2}" height="{height - 3}" rx="3"'
                    f' fill="{colour}"/><text x="{x + width / 2 - 1}" y="{y + 14}"'
                    f' text-anchor="middle" fill="black">{label}</text>'
                )
    return "\n".join([*out, "</svg>", ""])


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m docs.pipeline", description=__doc__)
    parser.add_argument("--config", default="paper", help="tiny, small, paper or a .toml")
    parser.add_argument("--p", type=int, default=5, help="planes of every tile (default 5)")
    parser.add_argument("--tiles", type=int, default=2, help="tiles of an output tile (default 2)")
    parser.add_argument("--svg", type=Path, help="also draw it")
    arguments = parser.parse_args(argv)
    try:
        rows = simulate(load(arguments.config), arguments.p, arguments.tiles)
    except ConfigError as error:
        print(f"docs.pipeline: {error}", file=sys.stderr)
        return 2
    print(text(rows))
    if arguments.svg:
        arguments.svg.write_text(svg(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
