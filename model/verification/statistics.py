"""Chi-square statistics, Holm's correction, and the distance that a test would have found.

Cells are pooled by one rule that is fixed before any sample is seen: a cell stands alone where it
is expected `LEAST` times in every sample; all others are one cell, which joins the smallest lone
one where it is itself too small. For two samples "expected" comes from the pooled counts of both,
which under the hypothesis do not favour either.

Sources: Holm, "A Simple Sequentially Rejective Multiple Test Procedure" (1979); power by the
non-central chi-square distribution (Cohen, "Statistical Power Analysis", 1988, chapter 7).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import optimize, stats

#: Least expected count of a cell in each sample.
LEAST = 5.0


class Statistic(NamedTuple):
    """A chi-square statistic; independent ones may be added.

    Attributes:
        value: infinite where something impossible was seen.
        dof: degrees of freedom; 0 where one cell is left.
    """

    value: float
    dof: int

    @property
    def p(self) -> float:
        """Probability of a value at least as large under the hypothesis."""
        return float(stats.chi2.sf(self.value, self.dof)) if self.dof else float(self.value == 0)


def total(statistics: Sequence[Statistic]) -> Statistic:
    """The sum of independent statistics."""
    return Statistic(sum(s.value for s in statistics), sum(s.dof for s in statistics))


def pooled(expected: np.ndarray) -> np.ndarray:
    """The cell of each category, numbered from 0.

    Args:
        expected: expected counts in the smaller sample, float (categories,).

    Returns:
        int (categories,).
    """
    order = np.argsort(-expected, kind="stable")
    alone = order[expected[order] >= LEAST]
    cells = np.full(len(expected), len(alone))
    cells[alone] = np.arange(len(alone))
    rest = expected.sum() - expected[alone].sum()
    if rest < LEAST and len(alone):
        cells[cells == len(alone)] = len(alone) - 1
    return cells


def goodness(counts: np.ndarray, law: np.ndarray) -> Statistic:
    """One sample against a law.

    Args:
        counts: int (categories,).
        law: probabilities, float (categories,).
    """
    if counts[law == 0].any():
        return Statistic(math.inf, 1)
    expected = counts.sum() * law / law.sum()
    cells = pooled(expected)
    expected = np.bincount(cells, expected)
    seen = np.bincount(cells, counts)
    alive = expected > 0
    terms = (seen[alive] - expected[alive]) ** 2 / expected[alive]
    return Statistic(float(terms.sum()), int(alive.sum()) - 1)


def two_sample(first: np.ndarray, second: np.ndarray) -> Statistic:
    """Whether two samples have one law.

    Args:
        first, second: counts over the same categories, int (categories,).
    """
    both = first + second
    shares = np.array([first.sum(), second.sum()]) / both.sum()
    cells = pooled(both * shares.min())
    value, alive = 0.0, np.bincount(cells, both) > 0
    for counts, share in zip((first, second), shares, strict=True):
        expected = np.bincount(cells, both * share)[alive]
        value += float(((np.bincount(cells, counts)[alive] - expected) ** 2 / expected).sum())
    return Statistic(value, int(alive.sum()) - 1)


def holm(values: Sequence[float]) -> list[float]:
    """p-values adjusted for their number; rejecting those below a limit keeps the family's."""
    adjusted = [0.0] * len(values)
    largest = 0.0
    for rank, index in enumerate(np.argsort(values, kind="stable")):
        largest = max(largest, min(1.0, values[index] * (len(values) - rank)))
        adjusted[index] = largest
    return adjusted


def detectable(size: float, dof: int, alpha: float, power: float = 0.9) -> float:
    """Total-variation distance that a chi-square test finds with some power.

    A distance d between laws gives a non-centrality of at least 4 size d^2 (Cauchy-Schwarz),
    whatever cells it lies in; so a distance of this size is found at least that often, wherever it
    is. For several strata d is the root mean square over them.

    Args:
        size: of the sample, or n1 n2 / (n1 + n2) for two.
        dof: degrees of freedom.
        alpha: level of the test.
        power: how often.

    Returns:
        The distance, at most 1.
    """
    if dof == 0 or size == 0:
        return 1.0
    limit = stats.chi2.isf(alpha, dof)

    def missing(noncentrality: float) -> float:
        return float(stats.ncx2.sf(limit, dof, noncentrality)) - power

    most = 10.0 * (limit + 10)
    found = optimize.brentq(missing, 1e-9, most)
    return min(1.0, math.sqrt(found / (4 * size)))
