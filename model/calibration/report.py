"""Tables as a terminal shows them and as JSON and CSV hold them."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from model.calibration.files import json_text, write_whole

#: Characters of a line.
WIDTH = 100

_KIB = 1 << 10


@dataclass(frozen=True)
class Section:
    """A table with its notes, in two forms.

    Attributes:
        name: stem of its files.
        title: of the printed table.
        columns, rows: what is printed.
        records: the same and more, unrounded: JSON objects, all with the same keys.
        notes: lines below the table.
        facts: JSON beside the records.
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    records: Sequence[Mapping[str, Any]]
    notes: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def show(self, console: Console) -> None:
        """Prints the table and its notes."""
        console.print(_filled(self.title), style="bold")
        table = Table(box=None, pad_edge=False)
        for place, column in enumerate(self.columns):
            table.add_column(column, justify="left" if place == 0 else "right", no_wrap=True)
        for row in self.rows:
            table.add_row(*row)
        console.print(table)
        for note in self.notes:
            console.print(_filled(note))
        console.print()

    def write(self, folder: Path) -> list[Path]:
        """Writes NAME.json and NAME.csv; returns their paths."""
        content = {
            "title": self.title,
            "notes": list(self.notes),
            **self.facts,
            "rows": [dict(record) for record in self.records],
        }
        return [
            write_whole(folder / f"{self.name}.json", json_text(content)),
            write_whole(folder / f"{self.name}.csv", csv_text(self.records)),
        ]


def _filled(text: str) -> str:
    """Text in lines, those after the first indented."""
    return textwrap.fill(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def csv_text(records: Sequence[Mapping[str, Any]]) -> str:
    """Records as CSV: a header of their keys, numbers unrounded, nothing for None."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def console() -> Console:
    """The console of these commands: lines as wide as their tables are, whatever the terminal."""
    return Console(width=WIDTH, highlight=False, markup=False, emoji=False)


def short(total: int) -> str:
    """A number of tokens as the paper writes it: 2K, 1024K; in full where it is no multiple."""
    return f"{total // _KIB}K" if total % _KIB == 0 else str(total)


def percent(share: float, digits: int = 3) -> str:
    """A share in percent."""
    return f"{100 * share:.{digits}f} %"
