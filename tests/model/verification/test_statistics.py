"""Statistics against values worked out by hand, and against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from model.verification.statistics import (
    Statistic,
    detectable,
    goodness,
    holm,
    pooled,
    total,
    two_sample,
)


def test_cells_are_pooled_by_what_is_expected() -> None:
    assert pooled(np.array([50.0, 4.0, 20.0, 3.0])).tolist() == [0, 2, 1, 2]
    # What is left is too small for a cell of its own: it joins the smallest one.
    assert pooled(np.array([50.0, 2.0, 20.0, 1.0])).tolist() == [0, 1, 1, 1]
    assert pooled(np.array([1.0, 1.0])).tolist() == [0, 0]


def test_goodness_by_hand() -> None:
    found = goodness(np.array([30, 70]), np.array([0.5, 0.5]))
    assert found == Statistic(16.0, 1)
    assert found.p == pytest.approx(math.erfc(math.sqrt(8)))


def test_what_cannot_be_is_infinite() -> None:
    found = goodness(np.array([30, 1]), np.array([1.0, 0.0]))
    assert found.value == math.inf
    assert found.p == 0.0


def test_two_sample_by_hand() -> None:
    found = two_sample(np.array([30, 70]), np.array([50, 50]))
    assert found.value == pytest.approx(2 * (100 / 40 + 100 / 60))
    assert found.dof == 1


def test_one_cell_says_nothing() -> None:
    found = two_sample(np.array([3, 1]), np.array([1, 3]))
    assert found == Statistic(0.0, 0)
    assert found.p == 1.0
    assert total([found, Statistic(2.0, 1)]) == Statistic(2.0, 1)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_p_values_are_uniform_and_the_distance_is_found() -> None:
    """Two samples of one law, and of laws as far apart as `detectable` says; seed 0."""
    generator = np.random.default_rng(0)
    law = np.full(10, 0.1)
    size, alpha = 400, 0.01
    far = detectable(size / 2, 9, alpha)
    # The distance spread over all cells alike is the hardest one.
    other = law + np.tile([1, -1], 5) * far / 5
    same, apart = [], []
    for _ in range(400):
        first = generator.multinomial(size, law)
        same.append(two_sample(first, generator.multinomial(size, law)).p)
        apart.append(two_sample(first, generator.multinomial(size, other)).p)
    assert abs(np.mean(np.array(same) < 0.1) - 0.1) < 0.06
    assert abs(np.mean(np.array(apart) < alpha) - 0.9) < 0.06


def test_a_small_sample_finds_nothing() -> None:
    assert detectable(0, 5, 0.01) == 1.0
    assert detectable(100, 0, 0.01) == 1.0
    assert detectable(1, 50, 1e-9) == 1.0
