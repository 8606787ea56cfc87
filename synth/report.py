"""The area report: rows a module, totals, memories apart; as a table and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from synth import yosys
from synth.choose import Choice, Design
from synth.errors import SynthError
from synth.flow import Options
from synth.models import Paths

if TYPE_CHECKING:
    from synth.area import Subject


@dataclass
class Row:
    """One unique module. Areas in um2: `own` without its submodules, `each` with them."""

    module: str
    component: str
    count: int
    own: float
    each: float
    total_own: float
    share: float
    nand2: float
    flops: int
    repeaters: int
    memory_bits: int
    recipe: str
    paths: Paths | None
    cells: dict[str, int]


@dataclass
class Report:
    """All rows, children before parents, and what they add up to."""

    subject: str
    top: str
    library: str
    library_sha256: str
    yosys: str
    options: dict[str, object]
    nand2_cell: str
    nand2_area: float
    fo4_ns: float | None
    rows: list[Row]
    area: float
    nand2: float
    memory_bits: int
    longest_ns: float | None
    longest_fo4: float | None
    longest_where: str
    breakdown: dict[str, dict[str, float]] = field(default_factory=dict)


def _own_area(choice: Choice, design: Design) -> float:
    cells = design.library.cells
    return sum(cells[name].area * count for name, count in choice.cells.items())


def build(subject: Subject, design: Design, options: Options) -> Report:
    """Add up over the hierarchy."""
    library = design.library
    own = {name: _own_area(choice, design) for name, choice in design.choices.items()}
    total = sum(own[name] * module.count for name, module in design.modules.items())
    each: dict[str, float] = {}
    rows = []
    for name, module in design.modules.items():
        choice = design.choices[name]
        each[name] = own[name] + sum(each[c] * n for c, n in module.children.items())
        flops = sum(n for kind, n in choice.cells.items() if library.cells[kind].sequential)
        rows.append(
            Row(
                module=name,
                component=subject.labels.get(name, name),
                count=module.count,
                own=own[name],
                each=each[name],
                total_own=own[name] * module.count,
                share=own[name] * module.count / total if total else 0.0,
                nand2=own[name] * module.count / library.nand2_area,
                flops=flops,
                repeaters=choice.repeaters,
                memory_bits=choice.mapped.memory_bits,
                recipe=choice.mapped.recipe,
                paths=choice.paths,
                cells=choice.cells,
            )
        )
    if abs(each[subject.top] - total) > 1e-6 * max(total, 1.0):
        raise SynthError(f"the top adds up to {each[subject.top]} um2, all modules to {total}")
    longest = design.longest() if library.has_timing else None
    return Report(
        subject=subject.name,
        top=subject.top,
        library=library.origin,
        library_sha256=library.digest,
        yosys=yosys.version(),
        options=asdict(options),
        nand2_cell=library.nand2,
        nand2_area=library.nand2_area,
        fo4_ns=design.fo4 or None,
        rows=rows,
        area=total,
        nand2=total / library.nand2_area,
        memory_bits=sum(row.memory_bits * row.count for row in rows),
        longest_ns=longest,
        longest_fo4=longest / design.fo4 if longest is not None else None,
        longest_where=_where(rows),
        breakdown=_breakdown(subject, rows),
    )


def _where(rows: list[Row]) -> str:
    inner = [(r.paths.inside, r) for r in rows if r.paths and r.paths.inside is not None]
    if not inner:
        return ""
    _, row = max(inner, key=lambda pair: pair[0])
    assert row.paths is not None
    return f"{row.component} ({row.module}): {row.paths.start} -> {row.paths.end}"


def _breakdown(subject: Subject, rows: list[Row]) -> dict[str, dict[str, float]]:
    """Own areas of the named modules, in all, by part."""
    areas = {row.module: row.total_own for row in rows}
    found: dict[str, dict[str, float]] = {}
    for title, parts in subject.breakdown.items():
        for part, modules in parts.items():
            unknown = [name for name in modules if name not in areas]
            if unknown:
                raise SynthError(f"breakdown {title!r}: no module {unknown[0]!r} in the design")
            found.setdefault(title, {})[part] = sum(areas[name] for name in modules)
    return found


def write(report: Report, path: Path) -> None:
    """The report as JSON; areas in um2, times in ns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(report), indent=1) + "\n")


def _path_text(row: Row, fo4: float | None) -> tuple[str, str, str]:
    """(ns, FO4, kind) of a module's longest path."""
    if row.paths is None or not fo4:
        return "", "", ""
    kinds = {
        "reg-reg": row.paths.inside,
        "in-reg": row.paths.into,
        "reg-out": row.paths.out,
        "in-out": row.paths.through,
    }
    known = {kind: value for kind, value in kinds.items() if value}
    if not known:
        return "", "", ""
    kind = max(known, key=lambda name: known[name])
    return f"{known[kind]:.2f}", f"{known[kind] / fo4:.0f}", kind


def _main_table(report: Report) -> Table:
    table = Table(title=f"{report.subject}: areas in um2", title_justify="left")
    table.add_column("component")
    for name in ("count", "each, with parts", "own, all", "share", "NAND2-eq."):
        table.add_column(name, justify="right")
    if report.fo4_ns:
        for name in ("ns", "FO4"):
            table.add_column(name, justify="right")
        table.add_column("path")
    for row in sorted(report.rows, key=lambda row: -row.total_own):
        if row.memory_bits and not row.own:
            continue
        cells = [
            row.component,
            f"{row.count:,}",
            f"{row.each:,.1f}",
            f"{row.total_own:,.0f}",
            f"{100 * row.share:.1f} %",
            f"{row.nand2:,.0f}",
        ]
        table.add_row(*cells, *(_path_text(row, report.fo4_ns) if report.fo4_ns else ()))
    total = ["all", "", "", f"{report.area:,.0f}", "100.0 %", f"{report.nand2:,.0f}"]
    table.add_section()
    table.add_row(*total, *([""] * 3 if report.fo4_ns else []))
    return table


def _memory_table(report: Report) -> Table:
    table = Table(title="memories, not in the areas above", title_justify="left")
    table.add_column("memory")
    for name in ("count", "bits each", "bits"):
        table.add_column(name, justify="right")
    for row in report.rows:
        if row.memory_bits:
            bits = row.memory_bits
            table.add_row(row.component, f"{row.count:,}", f"{bits:,}", f"{bits * row.count:,}")
    table.add_section()
    table.add_row("all", "", "", f"{report.memory_bits:,}")
    return table


def show(report: Report) -> None:
    """Print the tables and what has to be known to read them."""
    console = Console(width=None if Console().is_terminal else 140, highlight=False)
    console.print(_main_table(report))
    if report.memory_bits:
        console.print(_memory_table(report))
    for title, parts in report.breakdown.items():
        whole = sum(parts.values()) or 1.0
        console.print(f"{title}: {whole:,.0f} um2")
        for part, area in parts.items():
            console.print(f"  {part:32s} {area:14,.0f} um2  {100 * area / whole:5.1f} %")
    if report.longest_ns is not None and report.fo4_ns is not None:
        console.print(
            f"longest path {report.longest_ns:.2f} ns = {report.longest_fo4:.1f} FO4 "
            f"(FO4 {1000 * report.fo4_ns:.1f} ps in this library), in {report.longest_where}"
        )
    console.print(
        f"library {report.library} (sha256 {report.library_sha256[:12]}), Yosys {report.yosys}; "
        f"NAND2 = {report.nand2_cell}, {report.nand2_area:g} um2"
    )
    console.print(
        "synthesised areas: no wires, no clock tree, no filler; submodules are not merged"
    )
