"""What the paper's Figs. 6 and 7 show, and the speedup over gamma: all modelled.

Fig. 6: footprints of weights and cache over B S (Eqs. 2, 3), R_kv, and the draft's share of the
target's traffic for every pair (Eq. 4). Fig. 7: the speedup of every pair over B S and their
envelope, with a 16-bit and a 9-bit target. The paper gives no acceptance rates for its 16-bit
target, so those of Table III serve for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from model.calibration.cost import PaperCost, mem_kv, mem_w, r_kv, relative_draft
from model.calibration.measured import GSM8K
from model.calibration.paper import GAMMA, PaperTables
from model.calibration.search import Best, best_draft, candidates
from model.lm.paper_models import PAPER_MODELS
from model.lm.precision import Precision, grid

#: Bits of the targets of Fig. 7.
TARGETS = (16, 9)

#: gammas that are tried.
GAMMAS = tuple(range(1, 17))


class Footprint(NamedTuple):
    """A model's memory at B S cached tokens, and what drafts load of it.

    Attributes:
        model, total: which, and B S.
        weights, kv: bytes in 9 bits a number, exponents not counted.
        r_kv: share of the cache.
        ratios: T_D / T_T of all pairs W9KV9..W5KV5, p_full 9.
    """

    model: str
    total: int
    weights: float
    kv: float
    r_kv: float
    ratios: dict[Precision, float]


def footprint(model: str, total: int, p_full: int = 9) -> Footprint:
    """Fig. 6 at one point.

    Args:
        model: one of PAPER_MODELS.
        total: B S.
        p_full: bits of the target.
    """
    config = PAPER_MODELS[model]
    share = float(r_kv(config, total))
    ratios = {
        pair: relative_draft(float(pair.w.p), float(pair.kv.p), share, float(p_full))
        for pair in grid()
    }
    weights, kv = mem_w(config, p_full), mem_kv(config, total, p_full)
    return Footprint(model, total, weights, kv, share, ratios)


class Curves(NamedTuple):
    """Fig. 7 of a model and a target.

    Attributes:
        model, p_full: which.
        totals: B S of the points.
        speedups: of each pair, by point.
        envelope: the best draft of each point.
        alone: the target without a draft.
    """

    model: str
    p_full: int
    totals: tuple[int, ...]
    speedups: dict[Precision, list[float]]
    envelope: list[Best]
    alone: float


def curves(paper: PaperTables, model: str, p_full: int, totals: Sequence[int]) -> Curves:
    """Fig. 7 of one model and target, gamma 7, GSM8K.

    Args:
        paper: the paper's tables.
        model: one of PAPER_MODELS.
        p_full: bits of the target, 9..16.
        totals: B S of the points.
    """
    rates = candidates(paper.acceptance(model).of_set(GSM8K))
    cost = PaperCost(PAPER_MODELS[model], p_full)
    speedups = {
        pair: [cost.speedup(pair, GAMMA, rate, 1, total) for total in totals]
        for pair, rate in rates.items()
    }
    envelope = [best_draft(cost, rates, [GAMMA], 1, total) for total in totals]
    alone = cost.speedup(Precision.full(p_full), 0, 0.0, 1, totals[0])
    return Curves(model, p_full, tuple(totals), speedups, envelope, alone)


class GammaCurve(NamedTuple):
    """Speedup over gamma at one point.

    Attributes:
        model, total: which, and B S.
        pair: Table V's pair, whose speedup `fixed` is.
        fixed: its speedup, gamma 1..16.
        best: the best draft of each gamma.
    """

    model: str
    total: int
    pair: Precision
    fixed: list[float]
    best: list[Best]

    @property
    def peak(self) -> Best:
        """The best of all; of equals the one with the lowest gamma."""
        return max(self.best, key=lambda best: best.speedup)


def gamma_curve(paper: PaperTables, model: str, total: int) -> GammaCurve:
    """Speedup over gamma of one model and a B S of Table V, GSM8K."""
    rates = candidates(paper.acceptance(model).of_set(GSM8K))
    cost = PaperCost(PAPER_MODELS[model])
    pair = paper.table_v[model][total]
    fixed = [cost.speedup(pair, gamma, rates[pair], 1, total) for gamma in GAMMAS]
    best = [best_draft(cost, rates, [gamma], 1, total) for gamma in GAMMAS]
    return GammaCurve(model, total, pair, fixed, best)
