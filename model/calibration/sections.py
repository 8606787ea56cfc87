"""Sections of `bsspec tables` that need nothing but the paper's numbers: all modelled."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from model.calibration.cost import PaperCost, omega, r_kv
from model.calibration.curves import GAMMAS, TARGETS, Curves, curves, footprint, gamma_curve
from model.calibration.measured import GSM8K
from model.calibration.paper import GAMMA, TOTALS, PaperTables
from model.calibration.report import Section, percent, short
from model.calibration.table_v import NEAR, Cell, agreement, recompute, what_if
from model.lm.config import parameters
from model.lm.paper_models import PAPER_MODELS
from model.lm.precision import Precision

#: B S at which the speedup over gamma is shown.
GAMMA_TOTALS = (1 << 11, 1 << 20)

#: Pairs whose share of the target's traffic is printed.
SHOWN_RATIOS = ("W5KV9", "W9KV5", "W5KV5")

_GB = 1e9


class Known(NamedTuple):
    """A value that was worked out by other means.

    Attributes:
        quantity: "N", "R_w", "Omega" or "S".
        model, pair, total: whose; no pair and B S for N.
        value: as it was given.
    """

    quantity: str
    model: str
    pair: str
    total: int
    value: float


#: gamma 7, GSM8K, T_V = T_T. Worked out apart from this code.
KNOWN = (
    Known("N", "Llama-3.2-3B", "", 0, 3_212_749_824),
    Known("N", "Llama-3.1-8B", "", 0, 8_030_261_248),
    Known("N", "Qwen3-14B", "", 0, 14_768_307_200),
    Known("R_w", "Qwen3-14B", "W5KV8", 1 << 11, 0.988767),
    Known("Omega", "Qwen3-14B", "W5KV8", 1 << 11, 6.441616),
    Known("S", "Qwen3-14B", "W5KV8", 1 << 11, 2.329915),
    Known("S", "Qwen3-14B", "W7KV5", 1 << 20, 2.283780),
    Known("S", "Llama-3.1-8B", "W6KV9", 1 << 11, 1.973805),
    Known("S", "Llama-3.2-3B", "W8KV5", 1 << 20, 2.373802),
)


def known_value(paper: PaperTables, known: Known) -> float:
    """The same value by this package."""
    config = PAPER_MODELS[known.model]
    if known.quantity == "N":
        return parameters(config)
    if known.quantity == "R_w":
        return float(1 - r_kv(config, known.total))
    pair = Precision.parse(known.pair)
    alpha = paper.acceptance(known.model).of_set(GSM8K)[pair]
    if known.quantity == "Omega":
        return omega(GAMMA, alpha)
    return PaperCost(config).speedup(pair, GAMMA, alpha, 1, known.total)


def scalars_section(paper: PaperTables) -> Section:
    """Known values beside the computed ones."""
    rows, records = [], []
    for known in KNOWN:
        value = known_value(paper, known)
        form = ",.0f" if known.quantity == "N" else ".6f"
        given, ours = f"{known.value:{form}}", f"{value:{form}}"
        total = short(known.total) if known.total else ""
        verdict = "equal" if given == ours else f"off by {value - known.value:.1e}"
        rows.append([known.quantity, known.model, known.pair, total, given, ours, verdict])
        records.append({**known._asdict(), "computed": value})
    title = "Known values: gamma 7, Table III's GSM8K column, T_V = T_T"
    columns = ("quantity", "model", "draft", "B S", "known", "computed", "")
    return Section("scalars", title, columns, rows, records)


def table_v_section(paper: PaperTables) -> Section:
    """Table V as printed, and as Table III gives it."""
    cells = recompute(paper)
    by_place = {(cell.model, cell.total): cell for cell in cells}
    rows = [
        [short(total), *(text for model in PAPER_MODELS for text in _cell(by_place[model, total]))]
        for total in TOTALS
    ]
    columns = ["B S", *(f"{m}\n{text}" for m in PAPER_MODELS for text in ("printed", "computed"))]
    records = [
        {
            "model": cell.model,
            "total_length": cell.total,
            "printed": str(cell.printed),
            "printed_speedup": cell.printed_speedup,
            "computed": str(cell.best.precision),
            "computed_speedup": cell.best.speedup,
            "equal": cell.equal,
            "below_optimum": cell.loss,
            "suspect": cell.suspect,
        }
        for cell in cells
    ]
    counts = agreement(cells)
    notes = [
        f"{counts.equal} of {len(cells)} cells are equal. In {counts.near} the printed pair is"
        f" another one, at most {percent(counts.worst_near)} below the optimum; in {counts.far} it"
        f" is more than {percent(NEAR, 1)} below, marked *.",
        "computed: equal, or the best pair and how far the printed one lies below it.",
    ]
    facts: dict[str, object] = {"agreement": counts._asdict(), "what_if": []}
    for cell in cells:
        if not cell.equal and cell.loss > NEAR:
            text, fact = _flag(paper, cell)
            notes += text
            facts["what_if"] = [*facts["what_if"], fact]  # type: ignore[misc]
    title = "Table V as printed, and from Table III: GSM8K, gamma 7, T_V = T_T, all parameters"
    return Section("table_v", title, columns, rows, records, notes, facts)


def _cell(cell: Cell) -> tuple[str, str]:
    mark = "*" if cell.loss > NEAR else ""
    ours = "equal" if cell.equal else f"{cell.best.precision} {percent(cell.loss)}{mark}"
    return str(cell.printed), ours


def _flag(paper: PaperTables, cell: Cell) -> tuple[list[str], dict[str, object]]:
    found = what_if(paper, cell)
    rates = paper.acceptance(cell.model).of_set(GSM8K)
    lower = Precision.of(cell.printed.w.p - 1, cell.printed.kv.p)
    tried = ", ".join(percent(rate, 1) for rate in found.tried)
    equal = " to ".join(dict.fromkeys(str(n) for n in (min(found.equal), max(found.equal))))
    given, least = percent(found.given, 1), percent(rates[lower], 1)
    text = [
        f"* {cell.model} at {short(cell.total)}: Table III's {found.pair} ({given}) lies below"
        f" {lower} ({least}) and cannot have produced Table V: it looks like a misprint.",
        f"What if: {found.pair} is the best at {short(cell.total)} from {percent(found.low)} up,"
        f" and from {percent(found.high)} up at {short(found.bound_by)} too. With {tried} instead,"
        f" {equal} of {len(TOTALS)} cells of the column equal Table V, this one as {found.pair}.",
    ]
    return text, {**found._asdict(), "pair": str(found.pair)}


def fig_6_section() -> Section:
    """Fig. 6 as a table: at powers of two."""
    rows, records = [], []
    for model in PAPER_MODELS:
        for total in TOTALS:
            point = footprint(model, total)
            gigabytes = [f"{size / _GB:.2f}" for size in (point.weights, point.kv)]
            shares = [f"{point.ratios[Precision.parse(pair)]:.3f}" for pair in SHOWN_RATIOS]
            rows.append([model, short(total), *gigabytes, f"{point.r_kv:.4f}", *shares])
            records.append(
                {
                    "model": model,
                    "total_length": total,
                    "weights_bytes": point.weights,
                    "kv_bytes": point.kv,
                    "r_kv": point.r_kv,
                    **{f"ratio_{pair}": ratio for pair, ratio in point.ratios.items()},
                }
            )
    columns = ["model", "B S", "weights\nGB", "KV cache\nGB", "R_kv"]
    columns += [f"T_D / T_T\n{pair}" for pair in SHOWN_RATIOS]
    notes = [
        "GB: 10^9 bytes at 9 bits a number, exponents not counted. T_D / T_T: Eq. 4, p_full 9."
    ]
    title = "Fig. 6: footprints, the cache's share R_kv, and traffic of drafts"
    return Section("fig_6", title, columns, rows, records, notes)


def fig_7_section(paper: PaperTables) -> Section:
    """Fig. 7 as a table: the envelope at powers of two; all pairs in the records."""
    found: dict[tuple[str, int], Curves] = {
        (model, p_full): curves(paper, model, p_full, TOTALS)
        for model in PAPER_MODELS
        for p_full in TARGETS
    }
    rows = []
    for place, total in enumerate(TOTALS):
        best = [each.envelope[place] for each in found.values()]
        rows.append([short(total), *(f"{b.precision} {b.speedup:.3f}" for b in best)])
    records = [
        {
            "model": each.model,
            "p_full": each.p_full,
            "pair": str(pair),
            "total_length": total,
            "speedup": speedups[place],
            "envelope": pair == each.envelope[place].precision,
        }
        for each in found.values()
        for pair, speedups in each.speedups.items()
        for place, total in enumerate(TOTALS)
    ]
    columns = ["B S", *(f"{model}\nBFP{p_full}" for model, p_full in found)]
    alone = ", ".join(f"BFP{p} {found['Qwen3-14B', p].alone:.3f}" for p in TARGETS)
    notes = [
        f"Modelled, over 16-bit autoregressive decoding. A target without a draft: {alone}.",
        "The paper gives no rates for its BFP16 target; those of Table III serve for both.",
    ]
    title = "Fig. 7: the best pair and its speedup: GSM8K, gamma 7, T_V = T_T"
    return Section("fig_7", title, columns, rows, records, notes)


def gamma_section(paper: PaperTables) -> Section:
    """The speedup over gamma, and its peak."""
    found = [gamma_curve(paper, model, t) for model in PAPER_MODELS for t in GAMMA_TOTALS]
    rows = []
    for place, gamma in enumerate(GAMMAS):
        row = [str(gamma)]
        for curve in found:
            peak = "*" if curve.fixed[place] == max(curve.fixed) else " "
            row.append(f"{curve.fixed[place]:.3f}{peak}")
        rows.append(row)
    cells = [gamma_curve(paper, model, t) for model in PAPER_MODELS for t in TOTALS]
    records = [
        {
            "model": curve.model,
            "total_length": curve.total,
            "gamma": gamma,
            "pair": str(curve.pair),
            "speedup": curve.fixed[place],
            "best_pair": str(curve.best[place].precision),
            "best_speedup": curve.best[place].speedup,
        }
        for curve in cells
        for place, gamma in enumerate(GAMMAS)
    ]
    peaks = [
        (
            "Table V's pair",
            Counter(GAMMAS[c.fixed.index(max(c.fixed))] for c in cells),
        ),
        ("the best pair of each gamma", Counter(c.peak.gamma for c in cells)),
    ]
    notes = [
        f"Over the {len(cells)} cells of Table V, the peak of {what} is "
        + ", ".join(f"at gamma {g} in {n}" for g, n in sorted(counts.items()))
        + "."
        for what, counts in peaks
    ]
    gains = [c.peak.speedup / c.best[GAMMA - 1].speedup for c in cells]
    notes.append(
        f"Against the best pair at gamma {GAMMA}, the best gamma gains"
        f" {percent(min(gains) - 1, 1)} to {percent(max(gains) - 1, 1)}."
    )
    columns = ["gamma", *(f"{c.model}\n{short(c.total)} {c.pair}" for c in found)]
    title = "Speedup over gamma of Table V's pairs (* peak): GSM8K, T_V = T_T, modelled"
    return Section("gamma", title, columns, rows, records, notes)
