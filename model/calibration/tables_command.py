"""Recomputes the paper's tables and curves, and puts measurements beside them.

    bsspec tables [--what all|V|scalars|6|7|gamma|IV|VI|midpoint] [--measured FILE ...]
                  [--dataset NAME] [--out FOLDER]

V, 6, 7, gamma and scalars come from the paper's Table III and the cost model alone (modelled). IV,
VI and midpoint show what the files of --measured hold (`model.calibration.measured`). With --out it
writes each table as JSON and CSV, unrounded, and the figures as PNG and SVG.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from model.calibration.measured import MEAN, Measured, load_measured, merged
from model.calibration.paper import PaperTables, paper_tables
from model.calibration.peers import midpoint_section, table_iv_section, table_vi_section
from model.calibration.report import Section, console
from model.calibration.sections import (
    fig_6_section,
    fig_7_section,
    gamma_section,
    scalars_section,
    table_v_section,
)

#: What --what takes.
WHAT = ("all", "V", "scalars", "6", "7", "gamma", "IV", "VI", "midpoint")


def sections(
    what: str, paper: PaperTables, measured: Measured, dataset: str | None
) -> list[Section]:
    """The sections of one of WHAT, in its order.

    Raises:
        ValueError: midpoint alone, and nothing measured; no such data set.
    """
    made = {
        "V": lambda: [table_v_section(paper)],
        "scalars": lambda: [scalars_section(paper)],
        "6": lambda: [fig_6_section()],
        "7": lambda: [fig_7_section(paper)],
        "gamma": lambda: [gamma_section(paper)],
        "IV": lambda: [table_iv_section(paper, measured)],
        "VI": lambda: [table_vi_section(paper, measured)],
        "midpoint": lambda: [midpoint_section(measured, m, dataset) for m in measured.acceptance],
    }
    if what == "midpoint" and not measured.acceptance:
        raise ValueError("--what midpoint needs --measured FILE with a table_III")
    chosen = list(made) if what == "all" else [what]
    return [section for name in chosen for section in made[name]()]


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="bsspec tables",
        description="The paper's tables and curves, recomputed from its acceptance rates.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--what", choices=WHAT, default="all", help="default: all")
    add("--measured", type=Path, nargs="+", metavar="FILE", default=[], help="measured tables")
    add(
        "--dataset",
        help=f"of midpoint: a data set or {MEAN} (default: GSM8K, or the mean where it is missing)",
    )
    add("--out", type=Path, metavar="FOLDER", help="write JSON, CSV, PNG and SVG there")
    arguments = parser.parse_args(argv)
    paper = paper_tables()
    measured = merged(load_measured(path) for path in arguments.measured)
    out = console()
    found = sections(arguments.what, paper, measured, arguments.dataset)
    for section in found:
        section.show(out)
    if arguments.what == "all" and not measured.acceptance:
        out.print("Midpoint beside truncate: not measured; give --measured FILE with a table_III.")
    if arguments.out is not None:
        # Here, because matplotlib takes a second to import.
        from model.calibration.figures import FIGURES, write_figure

        for section in found:
            paths = section.write(arguments.out)
            if section.name in FIGURES:
                paths += write_figure(arguments.out, section.name, paper)
            for path in paths:
                out.print(f"wrote {path}", soft_wrap=True)
    return 0
