"""Random numbers that take every value."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from model.decoding.sampling import accepts, sample
from model.verification.branching import Tree, law


def test_a_draw_has_its_law() -> None:
    weights = np.array([Fraction(1, 6), Fraction(0), Fraction(1, 2), Fraction(1, 3)], object)
    assert law(lambda tree: sample(weights, tree.random())) == {
        0: Fraction(1, 6), 2: Fraction(1, 2), 3: Fraction(1, 3)
    }  # fmt: skip


def test_weights_need_not_sum_to_one() -> None:
    weights = np.array([0.25, 0.5])
    assert law(lambda tree: sample(weights, tree.random())) == {
        0: Fraction(1, 3), 1: Fraction(2, 3)
    }  # fmt: skip


def test_a_number_stays_the_same_number() -> None:
    def run(tree: Tree) -> tuple[bool, bool]:
        u = tree.random()
        return u * 1 < Fraction(1, 2), u * 2 < Fraction(1, 2)

    quarter = Fraction(1, 4)
    assert law(run) == {(True, True): quarter, (True, False): quarter, (False, False): 2 * quarter}


def test_acceptance_is_the_ratio() -> None:
    p, q = np.array([Fraction(1, 5), Fraction(4, 5)]), np.array([Fraction(1, 2), Fraction(1, 2)])
    assert law(lambda tree: accepts(p, q, 0, tree.random()))[True] == Fraction(2, 5)
    assert law(lambda tree: accepts(p, q, 1, tree.random())) == {True: Fraction(1)}


def test_two_numbers_are_independent() -> None:
    def run(tree: Tree) -> int:
        return sum(tree.random() * 3 < 1 for _ in range(2))

    assert law(run) == {0: Fraction(4, 9), 1: Fraction(4, 9), 2: Fraction(1, 9)}
