"""Figures of `bsspec tables --out`: PNG and SVG, drawn without a display.

The same numbers give the same SVG: no date is in it, and its ids are fixed.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from model.calibration.curves import GAMMAS, TARGETS, curves, footprint, gamma_curve
from model.calibration.files import write_whole
from model.calibration.paper import TOTALS, PaperTables
from model.calibration.report import short
from model.calibration.sections import GAMMA_TOTALS
from model.lm.paper_models import PAPER_MODELS
from model.lm.precision import grid

#: B S of a curve's points: four an octave.
POINTS = tuple(round(2 ** (11 + step / 4)) for step in range(37))

_SAVED: dict[Any, Any] = {"svg.hashsalt": "bsspec", "svg.fonttype": "none", "font.size": 8.0}
_DPI = 150

#: Lines of Fig. 7: a colour for each p_w, one of these for each p_kv from 5 up.
_LINES: list[Any] = [(0, (1, 1)), (0, (3, 1, 1, 1)), (0, (3, 1)), (0, (6, 1)), "-"]


def fig_6(paper: PaperTables) -> Figure:
    """Footprints over B S, and the draft's share of the target's traffic for every pair."""
    figure = Figure(figsize=(10, 6), layout="constrained")
    axes = figure.subplots(2, len(PAPER_MODELS), squeeze=False)
    pairs = grid()
    for column, model in enumerate(PAPER_MODELS):
        points = [footprint(model, total) for total in POINTS]
        top, below = axes[0][column], axes[1][column]
        top.plot(POINTS, [p.weights / 1e9 for p in points], label="weights")
        top.plot(POINTS, [p.kv / 1e9 for p in points], label="KV cache")
        top.set(xscale="log", yscale="log", title=model, ylabel="GB at 9 bits")
        _ticks(top)
        top.legend()
        shares = [[footprint(model, total).ratios[pair] for total in TOTALS] for pair in pairs]
        image = below.imshow(shares, aspect="auto", vmin=5 / 9, vmax=1, cmap="viridis_r")
        below.set_yticks(range(len(pairs)), map(str, pairs), fontsize=5)
        below.set_xticks(range(len(TOTALS)), map(short, TOTALS), rotation=60)
        below.set(xlabel="B S")
        if column == len(PAPER_MODELS) - 1:
            figure.colorbar(image, ax=below, label="T_D / T_T")
    return figure


def fig_7(paper: PaperTables) -> Figure:
    """Speedup of every pair over B S, and their envelope."""
    figure = Figure(figsize=(10, 6), layout="constrained")
    axes = figure.subplots(
        len(TARGETS), len(PAPER_MODELS), squeeze=False, sharex=True, sharey="row"
    )
    for row, p_full in enumerate(TARGETS):
        for column, model in enumerate(PAPER_MODELS):
            found = curves(paper, model, p_full, POINTS)
            axis = axes[row][column]
            for pair, speedups in found.speedups.items():
                style = {"color": f"C{pair.w.p - 5}", "linestyle": _LINES[pair.kv.p - 5]}
                axis.plot(POINTS, speedups, linewidth=0.8, label=str(pair), **style)
            envelope = [best.speedup for best in found.envelope]
            axis.plot(POINTS, envelope, "k", linewidth=2, alpha=0.5, label="best")
            axis.set(xscale="log", title=f"{model}, BFP{p_full} target")
            _ticks(axis)
            if column == 0:
                axis.set_ylabel("modelled speedup")
            axis.legend(fontsize=4, ncols=3)
    return figure


def gamma(paper: PaperTables) -> Figure:
    """Speedup over gamma at short and long total lengths, the peak marked."""
    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axis = figure.subplots()
    for model in PAPER_MODELS:
        for total in GAMMA_TOTALS:
            curve = gamma_curve(paper, model, total)
            peak = curve.fixed.index(max(curve.fixed))
            label = f"{model} {short(total)} {curve.pair}"
            axis.plot(GAMMAS, curve.fixed, marker="o", markevery=[peak], label=label)
    axis.set(xlabel="gamma", ylabel="modelled speedup", title="Table V's pairs; dots: peaks")
    axis.legend(fontsize=6)
    return figure


def _ticks(axis: matplotlib.axes.Axes) -> None:
    axis.set_xticks(TOTALS, map(short, TOTALS), rotation=60)
    axis.minorticks_off()


#: Figures by the section that they belong to.
FIGURES: dict[str, Callable[[PaperTables], Figure]] = {
    "fig_6": fig_6,
    "fig_7": fig_7,
    "gamma": gamma,
}


def write_figure(folder: Path, name: str, paper: PaperTables) -> list[Path]:
    """Draws a figure and writes NAME.png and NAME.svg; returns their paths."""
    with matplotlib.rc_context(_SAVED):
        figure = FIGURES[name](paper)
        paths = []
        for suffix in ("png", "svg"):
            image = io.BytesIO()
            metadata = {"Date": None} if suffix == "svg" else None
            figure.savefig(image, format=suffix, dpi=_DPI, metadata=metadata)
            paths.append(write_whole(folder / f"{name}.{suffix}", image.getvalue()))
    return paths
