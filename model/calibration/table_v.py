"""Table V of the paper from its Table III, cell by cell, and what its odd cell would need.

Everything here is modelled: the cost model of the paper (`PaperCost`, all parameters, T_V = T_T),
gamma 7 and the GSM8K rates of Table III.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from model.calibration.cost import Cost, PaperCost, check_number, omega
from model.calibration.measured import GSM8K
from model.calibration.paper import GAMMA, TOTALS, PaperTables
from model.calibration.search import Best, best_draft, candidates
from model.lm.paper_models import PAPER_MODELS
from model.lm.precision import Precision

#: How far a printed pair may lie below the optimum before its cell is flagged.
NEAR = 0.005

#: Halvings of an interval of acceptance rates: to the last bit of a float.
_HALVINGS = 60


@dataclass(frozen=True)
class Cell:
    """A cell of Table V.

    Attributes:
        model, total: its column and row (B S).
        printed: the paper's pair.
        printed_speedup: modelled, of the printed pair.
        best: the pair that the same formula and rates give.
        suspect: the printed pair's rate in Table III is one that looks misprinted.
    """

    model: str
    total: int
    printed: Precision
    printed_speedup: float
    best: Best
    suspect: bool

    @property
    def equal(self) -> bool:
        """The paper's pair is ours."""
        return self.printed == self.best.precision

    @property
    def loss(self) -> float:
        """How far the printed pair lies below the optimum, as a share of it."""
        return 1 - self.printed_speedup / self.best.speedup


class Agreement(NamedTuple):
    """Counts of cells.

    Attributes:
        equal: the paper's pair is ours.
        near: another pair, and the paper's lies at most 0.5 % below the optimum.
        far: the others.
        worst_near: the largest loss among the near ones.
    """

    equal: int
    near: int
    far: int
    worst_near: float


def column(
    model: str, rates: Mapping[Precision, float], printed: Mapping[int, Precision]
) -> list[Cell]:
    """A column of Table V from rates; no cell is suspect."""
    cost, kept = PaperCost(PAPER_MODELS[model]), candidates(rates)
    cells = []
    for total in TOTALS:
        best = best_draft(cost, kept, [GAMMA], 1, total)
        pair = printed[total]
        speedup = cost.speedup(pair, GAMMA, kept[pair], 1, total)
        cells.append(Cell(model, total, pair, speedup, best, False))
    return cells


def recompute(paper: PaperTables) -> list[Cell]:
    """All cells of Table V, column by column."""
    cells = []
    for model in PAPER_MODELS:
        rates = paper.acceptance(model).of_set(GSM8K)
        for cell in column(model, rates, paper.table_v[model]):
            suspect = (model, cell.printed) in paper.suspects
            cells.append(Cell(**{**vars(cell), "suspect": suspect}))
    return cells


def agreement(cells: list[Cell]) -> Agreement:
    """How many cells agree."""
    near = [cell for cell in cells if not cell.equal and cell.loss <= NEAR]
    equal = sum(cell.equal for cell in cells)
    worst = max((cell.loss for cell in near), default=0.0)
    return Agreement(equal, len(near), len(cells) - equal - len(near), worst)


def alpha_for(cost: Cost, pair: Precision, gamma: int, total: int, speedup: float) -> float | None:
    """The acceptance rate at which a pair has a modelled speedup.

    Args:
        cost: the cost model; speedup must be proportional to Omega.
        pair, gamma, total: the draft and B S, in one sequence.
        speedup: wanted, above 0.

    Returns:
        The rate in 0..1, or None where no rate gives that speedup.
    """
    check_number("speedup", speedup, 0, float("inf"), above=True)
    wanted = speedup / cost.speedup(pair, gamma, 0.0, 1, total)
    if not 1 <= wanted <= gamma + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if omega(gamma, middle) < wanted else (low, middle)
    return high


class WhatIf(NamedTuple):
    """Rates of one pair of Table III that would give Table V's column.

    Attributes:
        model, pair: whose rate.
        given: the rate in Table III.
        total: the cell that needs another one.
        low, high: the interval in which the pair is the best there and nowhere that Table V
            names another.
        bound_by: the B S of the cell that gives `high`.
        tried: rates of three decimals in the interval, as the table prints them.
        equal: for each of those, cells of the column that equal Table V.
    """

    model: str
    pair: Precision
    given: float
    total: int
    low: float
    high: float
    bound_by: int
    tried: tuple[float, ...]
    equal: tuple[int, ...]


def what_if(paper: PaperTables, cell: Cell) -> WhatIf:
    """What the rate of a cell's printed pair would have to be.

    Raises:
        ValueError: the cell is as printed already, or no rate gives it.
    """
    model, pair, printed = cell.model, cell.printed, paper.table_v[cell.model]
    if cell.equal:
        raise ValueError(f"{model} at {cell.total} is {pair} already")
    rates = paper.acceptance(model).of_set(GSM8K)
    others = {each: rate for each, rate in candidates(rates).items() if each != pair}
    cost = PaperCost(PAPER_MODELS[model])

    def limit(total: int) -> float | None:
        """The rate at which the pair equals the best of the others."""
        best = best_draft(cost, others, [GAMMA], 1, total)
        return alpha_for(cost, pair, GAMMA, total, best.speedup)

    lows = {total: limit(total) for total in TOTALS if printed[total] == pair}
    highs = {total: limit(total) for total in TOTALS if printed[total] != pair}
    low = max((1.0 if rate is None else rate) for rate in lows.values())
    bound_by, high = min(
        ((total, 1.0 if rate is None else rate) for total, rate in highs.items()),
        key=lambda item: item[1],
    )
    if low >= high:
        raise ValueError(f"no rate of {pair} gives Table V's column of {model}")
    tried = tuple(n / 1000 for n in range(1001) if low < n / 1000 < high)
    equal = tuple(
        sum(each.equal for each in column(model, {**rates, pair: rate}, printed)) for rate in tried
    )
    return WhatIf(model, pair, rates[pair], cell.total, low, high, bound_by, tried, equal)
