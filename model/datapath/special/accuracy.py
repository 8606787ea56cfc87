"""Accuracy of the special functions: `hardware` beside `reference`.

    python -m model.datapath.special.accuracy [--json FILE]

Prints, for each function and set of inputs, the share of equal results, the share within 1 BF16
ulp, and the largest distance. Exits with 1 where a limit of the contract is not met: 99.9 % within
1 ulp, none more than 2 ulps off, outside the flush range.

Rows with a star are for information: P / L, the share of one token, has two roundings to BF16, and
the machine never makes it.

Contract: section 11.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from model.datapath.special.sweeps import WITHIN_ONE_MIN, WORST_MAX, Sweep, sweeps

#: Columns of the printed table.
PAGE_WIDTH = 118


def table(results: Sequence[Sweep]) -> Table:
    """The sweeps as a table."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    shown.add_column("function")
    shown.add_column("inputs")
    for name in ("results", "equal", "within 1 ulp", "worst"):
        shown.add_column(name, justify="right")
    shown.add_column("flushed to +0")
    for each in results:
        shown.add_row(
            each.function,
            each.inputs,
            f"{each.count:,}",
            # Rounded down: 100 % means all.
            _percent(each.equal),
            _percent(each.within),
            f"{each.worst:.2f}".rstrip("0").rstrip("."),
            each.flush,
        )
    return shown


def _percent(share: float) -> str:
    return f"{int(share * 1e5) / 1e3:.2f} %"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m model.datapath.special.accuracy",
        description="Compares the two forms of the special functions.",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args(arguments)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        results = list(sweeps())
    finally:
        torch.set_num_threads(threads)
    Console(width=PAGE_WIDTH).print(table(results))
    if options.json is not None:
        rows = [{**asdict(each), "met": each.met} for each in results]
        text = json.dumps({"torch": torch.__version__, "sweeps": rows}, indent=2)
        options.json.write_text(text + "\n")
    failed = [f"{each.function}, {each.inputs}" for each in results if not each.met]
    print("* not a number of the machine: P and P / L are rounded to BF16 one after the other")
    limits = f"{WITHIN_ONE_MIN:.1%} within 1 ulp, none beyond {WORST_MAX:g}"
    print(f"limits ({limits}): " + (f"not met by {'; '.join(failed)}" if failed else "met"))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
