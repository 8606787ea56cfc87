"""What a chip takes of an FPGA, by Yosys.

    python -m synth.fpga --config tiny|small|paper [--family xilinx|ecp5] [--json out.json]

Every unique module is synthesised once, on its own, and added up over the hierarchy. Memories
become block RAMs or LUTs as Yosys sees fit; they are listed apart. `make fpga` calls this.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from synth import area, hierarchy, yosys
from synth.area import Subject
from synth.errors import SynthError
from synth.families import BLOCKS, CARRIES, FAMILIES, FLOPS, LUTS, RAM_LUTS, RESOURCES, Family
from synth.hierarchy import MEMORY_PREFIX, Module
from synth.libraries import BUILD

ROM_PREFIX = "bsspec_rom_"


@dataclass
class Row:
    """One unique module. Resources by name: `own` without its submodules, `each` with them."""

    module: str
    component: str
    count: int
    memory_bits: int
    own: dict[str, int]
    each: dict[str, int]
    cells: dict[str, int]

    @property
    def stored(self) -> bool:
        """Whether it is a memory."""
        return self.module.startswith((MEMORY_PREFIX, ROM_PREFIX))


@dataclass
class Report:
    """All rows, children before parents, and what they add up to.

    Attributes:
        memory_bits: of all memories that are written.
        total: resource -> how many.
        devices: device -> resource -> share of what it has; 1 is all of it.
    """

    subject: str
    top: str
    family: str
    yosys: str
    rows: list[Row]
    memory_bits: int
    total: dict[str, int]
    devices: dict[str, dict[str, float]]


def _say(text: str) -> None:
    print(f"[fpga] {text}", file=sys.stderr, flush=True)


def resources(module: Module, cells: dict[str, int], family: Family) -> dict[str, int]:
    """Resources that the cells of a module take, its submodules left out.

    Raises SynthError at a cell that is unknown.
    """
    own = dict.fromkeys(RESOURCES, 0)
    for kind, count in cells.items():
        if kind in module.children:
            continue
        if kind not in family.cells:
            raise SynthError(f"{module.name}: not mapped to {family.title}: {count} x {kind}")
        for resource, times in family.cells[kind].items():
            own[resource] += times * count
    return own


def _synthesise(
    module: Module, texts: dict[str, str], family: Family, build: Path
) -> tuple[int, dict[str, int]]:
    """Bits of a module's memories and its cells by kind, from Yosys or from the cache."""
    name = hierarchy.escape(module.name)
    # The rule of hw/memory: no row is read and written in one cycle, so no bypass is needed.
    rule = ["setattr -set no_rw_check 1 m:*"] if module.name.startswith(MEMORY_PREFIX) else []
    script = [
        *hierarchy.reading(module),
        # Before mapping memories are whole.
        "tee -q -o memory.stat stat -json",
        # A wire `a[0]` beside a wire `a` of many bits stops abc9 (Yosys issue 4349).
        "rename -hide w:*",
        *rule,
        family.command.format(top=name),
        "check -assert",
        "tee -q -o cells.stat stat -json",
    ]
    key = hierarchy.digest(module, texts, *script)
    folder = build / "fpga" / f"{module.name[:60]}-{key}"
    record = folder / "result.json"
    if not record.exists():
        hierarchy.write(module, texts, folder)
        yosys.run("\n".join([*script, ""]), folder, "synth")
        before, after = (
            yosys.read_json(folder / f"{stat}.stat")["modules"]["\\" + module.name]
            for stat in ("memory", "cells")
        )
        half = record.with_suffix(".unfinished")
        half.write_text(json.dumps([before["num_memory_bits"], after["num_cells_by_type"]]))
        half.replace(record)
    bits, cells = json.loads(record.read_text())
    return bits, cells


def measure(subject: Subject, family: Family, jobs: int = 2, build: Path = BUILD) -> Report:
    """Synthesise every module, add up.

    Raises SynthError where Yosys stops, a cell is unknown, or memories have other bits than the
    configuration gives.
    """
    build = build.resolve()
    _say(f"{subject.name} for {family.title}")
    modules = hierarchy.scan(subject.verilog, subject.top, build / "hierarchy" / subject.name)
    texts = {name: module.text for name, module in modules.items()}
    found: dict[str, tuple[int, dict[str, int]]] = {}
    start = time.monotonic()
    for module, result in hierarchy.each_done(
        modules, jobs, lambda m: _synthesise(m, texts, family, build)
    ):
        found[module.name] = result
        own = resources(module, result[1], family)
        said = ", ".join(f"{count} {kind}" for kind, count in own.items() if count)
        seconds = time.monotonic() - start
        count = f"{len(found)}/{len(modules)}"
        _say(f"{count} {module.name}: {said or 'wires'} ({seconds:.0f} s)")
    report = _add_up(subject, family, modules, found)
    subject.check_memories(report.memory_bits)
    return report


def _add_up(
    subject: Subject,
    family: Family,
    modules: dict[str, Module],
    found: dict[str, tuple[int, dict[str, int]]],
) -> Report:
    rows: dict[str, Row] = {}
    for name, module in modules.items():
        bits, cells = found[name]
        own = resources(module, cells, family)
        each = Counter(own)
        for child, times in module.children.items():
            each.update({kind: times * count for kind, count in rows[child].each.items()})
        label = subject.labels.get(name, name)
        rows[name] = Row(name, label, module.count, bits, own, dict(each), cells)
    total = {kind: sum(row.count * row.own[kind] for row in rows.values()) for kind in RESOURCES}
    if total != rows[subject.top].each:
        raise SynthError(f"the top adds up to {rows[subject.top].each}, all modules to {total}")
    used = {**total, LUTS: total[LUTS] + total[RAM_LUTS]}
    return Report(
        subject=subject.name,
        top=subject.top,
        family=family.title,
        yosys=yosys.version(),
        rows=list(rows.values()),
        memory_bits=sum(
            row.count * row.memory_bits
            for row in rows.values()
            if row.module.startswith(MEMORY_PREFIX)
        ),
        total=total,
        devices={
            device: {kind: used[kind] / has for kind, has in limits.items()}
            for device, limits in family.devices.items()
        },
    )


def _table(title: str, first: str, rest: list[str]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    for name in rest:
        table.add_column(name, justify="right")
    return table


def _logic_table(report: Report, family: Family) -> Table:
    kinds = [kind for kind in RESOURCES if kind != BLOCKS]
    names = [family.names.get(kind, kind) for kind in kinds]
    heads = ["count", f"{names[0]} each, with parts", *names]
    table = _table(f"{report.subject} in {report.family}: logic, own, all", "component", heads)
    rows = [row for row in report.rows if not row.stored]
    for row in sorted(rows, key=lambda row: -row.count * row.own[LUTS]):
        own = [f"{row.count * row.own[kind]:,}" for kind in kinds]
        table.add_row(row.component, f"{row.count:,}", f"{row.each[LUTS]:,}", *own)
    table.add_section()
    sums = [sum(row.count * row.own[kind] for row in rows) for kind in kinds]
    table.add_row("all", "", "", *(f"{each:,}" for each in sums))
    return table


def _memory_table(report: Report, family: Family) -> Table:
    kinds = [BLOCKS, RAM_LUTS, LUTS, FLOPS, CARRIES]
    kinds = [k for k in kinds if any(row.stored and row.own[k] for row in report.rows)]
    heads = ["count", "bits each", "bits", *(family.names.get(kind, kind) for kind in kinds)]
    table = _table("memories, all instances", "memory", heads)
    rows = [row for row in report.rows if row.stored]
    for row in rows:
        bits = [f"{row.count:,}", f"{row.memory_bits:,}", f"{row.count * row.memory_bits:,}"]
        table.add_row(row.component, *bits, *(f"{row.count * row.own[k]:,}" for k in kinds))
    table.add_section()
    sums = [f"{sum(row.count * row.own[kind] for row in rows):,}" for kind in kinds]
    table.add_row("all; bits of those written", "", "", f"{report.memory_bits:,}", *sums)
    return table


def show(report: Report, family: Family) -> None:
    """Print the tables and what has to be known to read them."""
    console = Console(width=None if Console().is_terminal else 140, highlight=False)
    console.print(_logic_table(report, family))
    console.print(_memory_table(report, family))
    for device, shares in report.devices.items():
        said = ", ".join(
            f"{family.names.get(kind, kind)} {share:.1%}" for kind, share in shares.items()
        )
        console.print(f"of {device}: {said} (LUTs with those as memory)")
    console.print(
        f"Yosys {report.yosys}, {family.command.format(top='MODULE')}; not placed, not routed; "
        "submodules are not merged"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="synth.fpga", description=__doc__.split("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--config", help="the chip of tiny, small or paper")
    what.add_argument("--verilog", type=Path, help="a Verilog file instead of a configuration")
    parser.add_argument("--top", help="the top module of --verilog (default: its last)")
    parser.add_argument("--family", choices=FAMILIES, default="xilinx", help="default xilinx")
    parser.add_argument("--json", type=Path, help="where the JSON goes (default: build/synth/)")
    parser.add_argument("--jobs", type=int, default=2, help="modules at a time (default 2)")
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    family = FAMILIES[arguments.family]
    try:
        if arguments.jobs < 1:
            raise SynthError(f"--jobs must be at least 1, not {arguments.jobs}")
        if arguments.config:
            _say(f"emitting the chip of {arguments.config}")
            subject = area.from_config(arguments.config, chip=True)
        else:
            subject = area.from_verilog(arguments.verilog, arguments.top)
        report = measure(subject, family, arguments.jobs)
        path = arguments.json or BUILD / f"fpga-{subject.name}-{arguments.family}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(report), indent=1) + "\n")
    except SynthError as error:
        print(f"fpga: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fpga: interrupted; what is done is kept", file=sys.stderr)
        return 130
    show(report, family)
    print(f"JSON: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
