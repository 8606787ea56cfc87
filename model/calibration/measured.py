"""Measured tables from a file: acceptance rates, and where they were taken accuracies.

The file is JSON, of the form of the paper's own tables (`model/calibration/paper_tables.json`):

    {"table_III": {MODEL: {"W6KV7": {"GSM8K": 0.97, ..}, "W6mKV7m": {..}, ..}, ..},
     "table_IV": {MODEL: {"speq": 0.87, "quantspec-ns-w4kv8": .., ..}, ..},
     "table_VI": {MODEL: {"bf16": 0.51, ..}, ..}}

Each table may be missing or empty; other keys are not read. null stands for a rate of which nothing
was measured. A number of table_IV and table_VI may also be an object of numbers by data set, of
which the mean is taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model.calibration.cost import check_number, mean
from model.calibration.models import SMOLLM2, SMOLLM2_NAMES
from model.lm.precision import Precision

#: The data set of the paper's Table V.
GSM8K = "GSM8K"

#: What `Acceptance.of_set` takes for the mean of all data sets.
MEAN = "mean"

#: Bits of the target of Table III.
P_FULL = 9


@dataclass(frozen=True)
class Acceptance:
    """Acceptance rates of one model.

    Attributes:
        name: the model's.
        source: where they are from, for messages and titles.
        by_pair: for each draft, in the order of the file, the rate by data set. There are no
            midpoints at p = 9, and W9KV9 may be missing.
    """

    name: str
    source: str
    by_pair: dict[Precision, dict[str, float]]

    def sets(self) -> list[str]:
        """Data sets that every pair has, in the order of the file."""
        rows = list(self.by_pair.values())
        return [name for name in rows[0] if all(name in row for row in rows)]

    def usual(self) -> str:
        """The data set that is taken where none is named: GSM8K, or else the mean."""
        return GSM8K if GSM8K in self.sets() else MEAN

    def of_set(self, name: str) -> dict[Precision, float]:
        """Rates of one data set, or the mean over all that every pair has.

        Raises:
            ValueError: no such data set for every pair; those that there are.
        """
        sets = self.sets()
        if name == MEAN and sets:
            return {pair: mean(row[s] for s in sets) for pair, row in self.by_pair.items()}
        if name not in sets:
            allowed = ", ".join([*sets, MEAN]) if sets else "none covers every pair"
            raise ValueError(
                f"dataset must be one of {self.source} for {self.name} ({allowed}), not {name!r}"
            )
        return {pair: row[name] for pair, row in self.by_pair.items()}


@dataclass(frozen=True)
class Measured:
    """What a file holds.

    Attributes:
        source: its name, for messages and titles.
        acceptance: table_III by model.
        drafts: table_IV: by model, by draft.
        accuracy: table_VI: by model, by method.
    """

    source: str
    acceptance: dict[str, Acceptance] = field(default_factory=dict)
    drafts: dict[str, dict[str, float]] = field(default_factory=dict)
    accuracy: dict[str, dict[str, float]] = field(default_factory=dict)

    def of_model(self, name: str) -> Acceptance:
        """The acceptance rates of a model, SmolLM2's by any of its names.

        Raises:
            ValueError: the file has none of it; those that it has.
        """
        title = canonical(name)
        if title not in self.acceptance:
            known = ", ".join(self.acceptance) or "none"
            raise ValueError(f"{self.source} has no table_III of {name!r}; it has {known}")
        return self.acceptance[title]


def load_measured(path: Path) -> Measured:
    """Reads and checks a file of the form above.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not of this form, or a rate that is none; by place.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    return parse_measured(load_object(path.read_bytes(), str(path)), str(path))


def load_object(text: str | bytes, source: str) -> dict[str, Any]:
    """The object in a JSON text; ValueError by source where it is none."""
    try:
        found = json.loads(text)
    except ValueError as error:  # of the text's encoding or of JSON
        raise ValueError(f"{source} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{source} must hold a JSON object, not {type(found).__name__}")
    return found


def parse_measured(found: Mapping[str, Any], source: str) -> Measured:
    """Checks what a file holds; raises as `load_measured`."""
    measured = Measured(source)
    for name, pairs in _models(found, "table_III", source):
        where = f"{source}: table_III.{name}"
        by_pair = _pairs(pairs, where)
        if by_pair:  # a run over other drafts alone has no pairs
            measured.acceptance[name] = Acceptance(name, source, by_pair)
    for key, table in (("table_IV", measured.drafts), ("table_VI", measured.accuracy)):
        for name, row in _models(found, key, source):
            where = f"{source}: {key}.{name}"
            table[name] = {
                each: _mean_of(value, f"{where}.{each}")
                for each, value in row.items()
                if value is not None
            }
    return measured


def merged(files: Iterable[Measured]) -> Measured:
    """What several files hold; ValueError where two have the same table of the same model."""
    given = list(files)
    whole = Measured(", ".join(each.source for each in given))
    for each in given:
        _merge("table_III", whole.acceptance, each.acceptance, whole.source)
        _merge("table_IV", whole.drafts, each.drafts, whole.source)
        _merge("table_VI", whole.accuracy, each.accuracy, whole.source)
    return whole


def _merge(key: str, mine: dict[str, Any], theirs: dict[str, Any], source: str) -> None:
    for name, rows in theirs.items():
        if mine.get(name):
            raise ValueError(f"{key} of {name} is in more than one file: {source}")
        mine[name] = rows


def canonical(name: str) -> str:
    """A model's name as tables write it."""
    return SMOLLM2 if name.lower() in {each.lower() for each in SMOLLM2_NAMES} else name


def check_rate(value: object, where: str) -> float:
    """Returns a share in 0..1; ValueError by place otherwise."""
    try:
        return float(check_number(where, value, 0, 1))
    except TypeError as error:  # of a file's content: a wrong value, not a wrong call
        raise ValueError(str(error)) from None


def _object(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be a JSON object, not {value!r}")
    return value


def _models(
    found: Mapping[str, Any], key: str, source: str
) -> Iterable[tuple[str, Mapping[str, Any]]]:
    seen: dict[str, str] = {}
    for name, rows in _object(found.get(key, {}), f"{source}: {key}").items():
        title = canonical(name)
        if title in seen:
            raise ValueError(f"{source}: {key} has {title} twice, as {seen[title]} and as {name}")
        seen[title] = name
        yield title, _object(rows, f"{source}: {key}.{name}")


def _mean_of(value: object, where: str) -> float:
    if isinstance(value, dict) and value:
        return mean(check_rate(each, f"{where}.{name}") for name, each in value.items())
    return check_rate(value, where)


def _pairs(pairs: Mapping[str, Any], where: str) -> dict[Precision, dict[str, float]]:
    by_pair: dict[Precision, dict[str, float]] = {}
    for text, row in pairs.items():
        place = f"{where}.{text}"
        try:
            pair = Precision.parse(text).exact(P_FULL)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
        given = {s: v for s, v in _object(row, place).items() if v is not None}
        if not given:
            continue
        rates = {s: check_rate(v, f"{place}.{s}") for s, v in given.items()}
        # W8mKV9m and W8mKV9 are one draft: nothing is cut off at 9 bits.
        if by_pair.setdefault(pair, rates) != rates:
            raise ValueError(f"{place}: {pair} is there twice, with other rates")
    return by_pair
