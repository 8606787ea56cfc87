"""The paper's Tables IV and VI beside what was measured here, and midpoint beside truncate."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from model.calibration.cost import PaperCost
from model.calibration.measured import P_FULL, Measured
from model.calibration.models import SMOLLM2, find_shape
from model.calibration.paper import DRAFTS, GAMMA, TARGETS, PaperTables
from model.calibration.report import Section, percent, short
from model.lm.config import ModelConfig
from model.lm.paper_models import PAPER_MODELS
from model.lm.precision import Precision

#: B S at which midpoint and truncate are compared.
TOTALS = (1 << 11, 1 << 15, 1 << 20)

#: What a cell says of what no file gives.
NOT_MEASURED = "not measured"


def _beside(
    name: str,
    title: str,
    paper: Mapping[str, Mapping[str, float]],
    names: Mapping[str, str],
    measured: Mapping[str, Mapping[str, float]],
    notes: list[str],
) -> Section:
    """The paper's columns, then a measured one for each model (SmolLM2's at least)."""
    models = [*measured, *([] if SMOLLM2 in measured else [SMOLLM2])]
    own = {each: dict(measured.get(each, {})) for each in models}
    keys = dict(names)
    for row in own.values():
        keys |= {key: key for key in row if key not in names}
    rows, records = [], []
    for key, title_of in keys.items():
        printed = {model: paper[model].get(title_of) for model in PAPER_MODELS}
        ours = {model: own[model].get(key) for model in models}
        label = title_of if key == title_of else f"{title_of} ({key})"
        rows.append(
            [
                label,
                *("" if v is None else percent(v, 1) for v in printed.values()),
                *(NOT_MEASURED if v is None else percent(v, 1) for v in ours.values()),
            ]
        )
        records.append(
            {
                "method": key,
                "paper_column": title_of if key in names else None,
                **{f"paper {model}": value for model, value in printed.items()},
                **{f"measured {model}": value for model, value in ours.items()},
            }
        )
    columns = ["", *(f"{m}\npaper" for m in PAPER_MODELS), *(f"{m}\nmeasured" for m in models)]
    return Section(name, title, columns, rows, records, notes)


def table_iv_section(paper: PaperTables, measured: Measured) -> Section:
    """Acceptance of other drafts."""
    note = "Paper: mean over HumanEval, GSM8K and MBPP. Another model is no repetition of it."
    title = "Table IV: acceptance rates of other drafts"
    return _beside("table_iv", title, paper.table_iv, DRAFTS, measured.drafts, [note])


def table_vi_section(paper: PaperTables, measured: Measured) -> Section:
    """Accuracy of targets."""
    note = "Paper: GSM8K. Another model or data set is no repetition of it."
    title = "Table VI: accuracy of the targets"
    return _beside("table_vi", title, paper.table_vi, TARGETS, measured.accuracy, [note])


class Comparison(NamedTuple):
    """A pair read both ways.

    Attributes:
        truncate, midpoint: the two drafts.
        alphas: their acceptance rates, or None where one was not measured.
        speedups: of both at each of TOTALS, or none where the shape is not known.
    """

    truncate: Precision
    midpoint: Precision
    alphas: tuple[float | None, float | None]
    speedups: list[tuple[float | None, float | None]]


def compare(rates: Mapping[Precision, float], config: ModelConfig | None) -> list[Comparison]:
    """Every pair that was measured in either form, by falling p_w, then falling p_kv."""
    sizes = sorted({(-pair.w.p, -pair.kv.p) for pair in rates})
    found = []
    for p_w, p_kv in ((-w, -kv) for w, kv in sizes):
        forms = [Precision.of(p_w, p_kv, r).exact(P_FULL) for r in ("truncate", "midpoint")]
        alphas = [rates.get(form) for form in forms]
        if forms[0] == forms[1] or alphas == [None, None]:
            continue
        speedups = []
        if config is not None:
            cost = PaperCost(config)
            for total in TOTALS:
                both = [
                    None if alpha is None else cost.speedup(form, GAMMA, alpha, 1, total)
                    for form, alpha in zip(forms, alphas, strict=True)
                ]
                speedups.append((both[0], both[1]))
        found.append(Comparison(forms[0], forms[1], (alphas[0], alphas[1]), speedups))
    return found


class Worth(NamedTuple):
    """A midpoint of p bits of the weights beside p + 1 bits truncated, the same p_kv.

    Attributes:
        midpoint, longer: the two drafts.
        alpha_midpoint, alpha_longer: their rates.
    """

    midpoint: Precision
    longer: Precision
    alpha_midpoint: float
    alpha_longer: float

    @property
    def holds(self) -> bool:
        """The midpoint is worth a bit: it is accepted at least as often."""
        return self.alpha_midpoint >= self.alpha_longer


def worth_a_bit(rates: Mapping[Precision, float]) -> list[Worth]:
    """W(p)m against W(p + 1), p_kv as it is, wherever both were measured."""
    found = []
    for pair in sorted(rates, key=lambda each: (-each.w.p, -each.kv.p)):
        longer = Precision.of(pair.w.p + 1, pair.kv.p)
        whole = pair == Precision.of(pair.w.p, pair.kv.p, "midpoint").exact(P_FULL)
        if pair.w.midpoint and whole and longer in rates:
            found.append(Worth(pair, longer, rates[pair], rates[longer]))
    return found


def midpoint_section(measured: Measured, model: str, dataset: str | None) -> Section:
    """Acceptance and modelled speedup of both reconstructions.

    Raises:
        ValueError: no such data set.
    """
    acceptance = measured.of_model(model)
    chosen = dataset or acceptance.usual()
    rates = acceptance.of_set(chosen)
    try:
        config = find_shape(model).config
    except ValueError:  # a model that is known by nothing but its name
        config = None
    rows, records = [], []
    for each in compare(rates, config):
        row = [str(each.truncate), *_two(each.alphas, lambda v: f"{v:.4f}")]
        record: dict[str, object] = {
            "pair": str(each.truncate),
            "alpha_truncate": each.alphas[0],
            "alpha_midpoint": each.alphas[1],
        }
        for total, both in zip(TOTALS, each.speedups, strict=False):
            row += _two(both, lambda v: f"{v:.3f}")
            record[f"speedup_truncate_{total}"], record[f"speedup_midpoint_{total}"] = both
        rows.append(row)
        records.append(record)
    columns = ["pair", "alpha\ntruncate", "alpha\nmidpoint"]
    if config is not None:
        columns += [
            text for t in TOTALS for text in (f"S {short(t)}\ntruncate", f"S {short(t)}\nmidpoint")
        ]
    worth = worth_a_bit(rates)
    notes = _worth_notes(worth)
    if config is None:
        notes.append(f"No speedups: the shape of {model} is not known.")
    title = (
        f"Midpoint beside truncate: {model}, alpha measured ({acceptance.source}, {chosen}),"
        f" S modelled at gamma {GAMMA}, T_V = T_T"
    )
    facts = {
        "worth_a_bit": [
            {
                "midpoint": str(w.midpoint),
                "longer": str(w.longer),
                "alpha_midpoint": w.alpha_midpoint,
                "alpha_longer": w.alpha_longer,
                "holds": w.holds,
            }
            for w in worth
        ]
    }
    stem = re.sub(r"[^\w.-]", "_", model)  # a file's name, whatever the model is called
    return Section(f"midpoint_{stem}", title, columns, rows, records, notes, facts)


def _two(both: tuple[float | None, float | None], form: Callable[[float], str]) -> list[str]:
    return ["" if value is None else form(value) for value in both]


def _worth_notes(worth: list[Worth]) -> list[str]:
    if not worth:
        return ["Whether a midpoint is worth a bit: needs W(p)m and W(p + 1) of one p_kv."]
    notes = ["Is a midpoint worth a bit of the weights, alpha of W(p)mKV(q)m >= W(p + 1)KV(q)?"]
    for p in sorted({each.midpoint.w.p for each in worth}, reverse=True):
        held = {str(w.midpoint.kv.p): w.holds for w in worth if w.midpoint.w.p == p}
        yes = [q for q, holds in held.items() if holds]
        no = [q for q, holds in held.items() if not holds]
        said = [f"yes at KV {', '.join(yes)}"] if yes else []
        said += [f"no at KV {', '.join(no)}"] if no else []
        notes.append(f"  p_w {p}: {'; '.join(said)}")
    return notes
