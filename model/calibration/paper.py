"""The paper's tables III to VI, from this package's copy of their numbers.

Source: BS-Spec, arXiv 2610.22877, tables III (acceptance), IV (acceptance of other drafts), V
(chosen pairs) and VI (accuracy on GSM8K).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from model.calibration.measured import (
    P_FULL,
    Acceptance,
    Measured,
    check_rate,
    load_object,
    parse_measured,
)
from model.lm.paper_models import PAPER_MODELS
from model.lm.precision import Precision

FILE = "paper_tables.json"

#: gamma of the paper's tables V and figures.
GAMMA = 7

#: B S of Table V: 2K to 1024K.
TOTALS = tuple(1 << log2 for log2 in range(11, 21))

#: Drafts of Table IV by the names of `model.decoding.methods`, and what each is here.
DRAFTS = {
    "speq": "SPEQ W4KV16",
    "quantspec-ns-w4kv8": "QuantSpec W4KV8",
    "quantspec-ns-w4kv4": "QuantSpec W4KV4",
    "quantspec-ns-w16kv4": "QuantSpec W16KV4",
}

#: Targets of Table VI by the names of measured files.
TARGETS = {
    "bf16": "BF16",
    "speq": "SPEQ",
    "quantspec": "QuantSpec INT8 KV",
    "bfp9": "BS-Spec BFP9",
}


@dataclass(frozen=True)
class PaperTables:
    """The paper's numbers; of each table all of PAPER_MODELS.

    Attributes:
        results: table III.
        table_iv, table_vi: by model, by the paper's column.
        table_v: by model, by B S.
        suspects: cells of Table III, (model, pair), that cannot have produced Table V.
    """

    results: Measured
    table_iv: dict[str, dict[str, float]]
    table_v: dict[str, dict[int, Precision]]
    table_vi: dict[str, dict[str, float]]
    suspects: tuple[tuple[str, Precision], ...]

    def acceptance(self, model: str) -> Acceptance:
        """Table III of a model; ValueError if the paper has none."""
        return self.results.of_model(model)


@cache
def paper_tables() -> PaperTables:
    """The tables; ValueError by place where the package's file is not as it should be."""
    return parse_paper(load_object(resources.files(__package__).joinpath(FILE).read_text(), FILE))


def parse_paper(found: Mapping[str, Any]) -> PaperTables:
    """Checks the content of the file.

    Raises:
        ValueError: a model, column, cell or number that is missing or no such thing, by place.
    """
    results = parse_measured({"table_III": found.get("table_III")}, FILE)
    _check_models(results.acceptance, "table_III")
    for name, acceptance in results.acceptance.items():
        sets = {tuple(row) for row in acceptance.by_pair.values()}
        if len(acceptance.by_pair) != 15 or sets != {("HumanEval", "GSM8K", "MBPP")}:
            raise ValueError(f"{FILE}: table_III.{name} must be 15 pairs of 3 data sets")
    suspects = [
        (cell["model"], Precision.parse(cell["cell"]).exact(P_FULL))
        for cell in found.get("suspect_cells", [])
    ]
    return PaperTables(
        results,
        _columns(found, "table_IV", tuple(DRAFTS.values())),
        _pairs(found, results),
        _columns(found, "table_VI", tuple(TARGETS.values())),
        tuple(suspects),
    )


def _check_models(table: object, key: str) -> None:
    given = set(table) if isinstance(table, dict) else None
    if given != set(PAPER_MODELS):
        raise ValueError(f"{FILE}: {key} must be of {', '.join(PAPER_MODELS)}, not of {given}")


def _columns(
    found: Mapping[str, Any], key: str, columns: tuple[str, ...]
) -> dict[str, dict[str, float]]:
    table = dict(found.get(key) or {})
    if tuple(table.pop("columns", ())) != columns:
        raise ValueError(f"{FILE}: {key}.columns must be {columns}")
    _check_models(table, key)
    rows: dict[str, dict[str, float]] = {}
    for name, values in table.items():
        if len(values) != len(columns):
            raise ValueError(f"{FILE}: {key}.{name} must be {len(columns)} numbers, not {values!r}")
        rows[name] = {
            column: check_rate(value, f"{FILE}: {key}.{name}.{column}")
            for column, value in zip(columns, values, strict=True)
        }
    return rows


def _pairs(found: Mapping[str, Any], results: Measured) -> dict[str, dict[int, Precision]]:
    table = found.get("table_V")
    _check_models(table, "table_V")
    assert table is not None
    rows: dict[str, dict[int, Precision]] = {}
    for name, cells in table.items():
        if tuple(cells) != tuple(map(str, TOTALS)):
            raise ValueError(f"{FILE}: table_V.{name} must be of B S {TOTALS}, not {tuple(cells)}")
        rows[name] = {int(total): Precision.parse(text) for total, text in cells.items()}
        for total, pair in rows[name].items():
            if pair not in results.acceptance[name].by_pair:
                raise ValueError(f"{FILE}: table_V.{name}.{total}: {pair} is not in table_III")
    return rows
