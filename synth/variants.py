"""Choices that were measured: the component as built beside the one that was not.

    python -m synth.variants [--lib x.lib]

Each alternative is a small design of its own, synthesised by the same recipes. Alternatives do the
same work in the same cycles; what they leave out is said and is in their favour.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from rich.console import Console
from rich.table import Table

from hw.compute.accumulator import AccumulateUnit
from hw.compute.column import Column
from hw.compute.lane import BsRacLane, SignDecoder
from hw.compute.layouts import look_layout, table_layout, tables_layout
from hw.compute.lut import LutBank, LutGenerator
from hw.config import GROUPS, PRESETS, Config
from hw.emit import emit
from hw.library import Unique, instantiate
from synth import area, libraries
from synth.errors import SynthError
from synth.flow import Options
from synth.libraries import BUILD, Library


class AccumulatingLane(Unique):
    """A lane with its own sum over the planes, and the sign-plane value that truncation takes off.

    In favour of it: the tree that adds the 16 lanes of a column once a tile, and the registers
    that hold their sums meanwhile, are left out.
    """

    module_name = "bsspec_variant_accumulating_lane"
    label = "lane with an accumulator"

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "table": In(table_layout(config)),
                "look": In(look_layout(config)),
                "valid": In(1),
                "first": In(1),
                "end_truncate": In(1),
                "total": Out(signed(config.entry_bits + config.p_max + 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        lane = instantiate(m, "lane", BsRacLane, config)
        m.d.comb += [lane.table.eq(self.table), lane.look.eq(self.look)]
        total = Signal.like(self.total, reset_less=True)
        sign_value = Signal(signed(config.entry_bits + 1), reset_less=True)
        subtracted = ~sign_value & self.end_truncate.replicate(config.entry_bits + 1).as_signed()
        read = Signal(signed(config.entry_bits + 1))
        m.d.comb += [read.eq(lane.value + lane.carry), self.total.eq(total)]
        with m.If(self.valid):
            m.d.sync += total.eq(
                Mux(self.first, 0, total << 1) + read + subtracted + self.end_truncate
            )
            with m.If(self.first):
                m.d.sync += sign_value.eq(read)
        return m


class MultiplexerLane(BsRacLane):
    """A lane that selects its entry with a tree of multiplexers."""

    module_name = "bsspec_variant_multiplexer_lane"
    label = "lane with a multiplexer tree"

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = self.config.entry_bits
        level: list[object] = [entry.as_unsigned() for entry in self.table.entries]
        for step in range(self.config.mu - 1):
            level = [
                Mux(self.look.index[step], high, low)
                for low, high in zip(level[::2], level[1::2], strict=True)
            ]
        read = Signal(bits)
        m.d.comb += [
            read.eq(level[0]),
            self.value.eq((read ^ self.look.negate.replicate(bits)).as_signed()),
            self.carry.eq(self.look.negate & ~self.table.odd),
        ]
        return m


class DoubleLutBank(Unique):
    """Table registers with a shadow copy: the next tile's tables wait beside the current ones."""

    module_name = "bsspec_variant_double_lut_bank"
    label = "LUT registers, two copies"

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "aligned": In(data.ArrayLayout(signed(config.aligned_bits), config.group_k)),
                "load": In(GROUPS),
                "swap": In(1),
                "tables": Out(tables_layout(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        shadow = Signal(tables_layout(config), reset_less=True)
        tables = Signal(tables_layout(config), reset_less=True)
        m.d.comb += self.tables.eq(tables)
        with m.If(self.swap):
            m.d.sync += tables.eq(shadow)
        for i in range(config.luts_per_group):
            generator = instantiate(m, f"generator_{i}", LutGenerator, config)
            for j in range(config.mu):
                m.d.comb += generator.aligned[j].eq(self.aligned[i * config.mu + j])
            for group in range(GROUPS):
                with m.If(self.load[group]):
                    m.d.sync += shadow[group * config.luts_per_group + i].eq(generator.table)
        return m


@dataclass(frozen=True)
class Comparison:
    """One choice.

    Attributes
    ----------
    what : str
    built, other : str
        What is built and what is not.
    built_um2, other_um2 : float
        Area of both, for the same part of one MPU.
    """

    what: str
    built: str
    other: str
    built_um2: float
    other_um2: float


class Areas:
    """Areas of components in a library, each with its parts, measured when first asked for."""

    def __init__(self, config: Config, library: Library, jobs: int) -> None:
        self.config, self.library, self.jobs = config, library, jobs
        self._known: dict[str, float] = {}

    def __call__(self, component: type[Any]) -> float:
        name = component.module_name
        if name not in self._known:
            emission = emit(self.config, component(self.config))
            subject = area.Subject(name, emission.verilog, emission.top, emission.modules)
            report = area.measure(subject, self.library, Options(), self.jobs)
            self._known.update({row.module: row.each for row in report.rows})
        return self._known[name]


def compare(config: Config, areas: Areas) -> list[Comparison]:
    """All comparisons, in um2 of the library."""
    lanes, luts, columns = config.lanes * config.luts, config.luts, config.lanes
    tables = luts * areas(LutBank) / luts
    decoders = lanes * areas(SignDecoder)
    return [
        Comparison(
            "sums over the planes (a lane)",
            "one adder tree and sum a column",
            "an accumulator in every lane, without the tree behind",
            areas(Column) / luts,
            areas(AccumulatingLane),
        ),
        Comparison(
            "selection of an entry (a lane)",
            "one-hot AND-OR",
            "multiplexer tree",
            areas(BsRacLane),
            areas(MultiplexerLane),
        ),
        Comparison(
            "sign decoders (an MPU's share)",
            f"once before the broadcast, shared by {config.t_m}",
            "in every MPU",
            decoders / config.t_m,
            decoders,
        ),
        Comparison(
            "tables (an MPU)",
            "one copy, renewed group by group",
            "two copies, swapped",
            areas(LutBank),
            areas(DoubleLutBank),
        ),
        Comparison(
            "tables (an MPU)",
            "one set for all subarrays",
            "a set in each subarray, generators shared",
            tables,
            tables
            + (config.subarrays - 1) * (tables - config.luts_per_group * areas(LutGenerator)),
        ),
        Comparison(
            "accumulate units (an MPU)",
            f"{config.acc_columns} taken in turn",
            f"one for each of {columns} columns",
            config.acc_columns * areas(AccumulateUnit),
            columns * areas(AccumulateUnit),
        ),
    ]


def main() -> int:
    """The command ``make variants``."""
    parser = argparse.ArgumentParser(prog="synth.variants", description="Choices, measured.")
    parser.add_argument("--lib", help="a Liberty file (default: areas of sky130_fd_sc_hd)")
    parser.add_argument("--jobs", type=int, default=2, help="modules at a time")
    parser.add_argument("--json", type=Path, help="where the JSON goes (default: build/synth/)")
    arguments = parser.parse_args()
    config = PRESETS["paper"]
    try:
        library = libraries.find(arguments.lib)
        rows = compare(config, Areas(config, library, arguments.jobs))
    except SynthError as error:
        print(f"variants: {error}", file=sys.stderr)
        return 1
    table = Table(title=f"choices of {config.name}, um2 in {library.name}", box=None)
    for heading in ("what", "built", "um2", "not built", "um2", "ratio"):
        table.add_column(heading, justify="right" if heading in ("um2", "ratio") else "left")
    for row in rows:
        table.add_row(
            row.what,
            row.built,
            f"{row.built_um2:,.0f}",
            row.other,
            f"{row.other_um2:,.0f}",
            f"{row.other_um2 / row.built_um2:.2f}",
        )
    Console(width=150).print(table)
    path = arguments.json or BUILD / f"variants-{library.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([vars(row) for row in rows], indent=2) + "\n")
    print(f"JSON: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
