"""Level 1, algebra: q min(1, p/q) + (1 - beta) residual = p.

One drafted token x of the law q is judged by the product's own `accepts`, `residual` and `sample`
on laws that are exact fractions, with random numbers that take every value; the token that comes
out must have the law p. Laws are random with zeros, equal, of disjoint supports, or one token's.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from model.decoding import sampling
from model.decoding.sampling import Sampling
from model.verification.branching import Tree, law
from model.verification.controls import SAMPLED, Replaced, planted
from model.verification.report import Check

TOKENS = 5
SAMPLED_AT_1 = Sampling(temperature=1.0)


class Pair(NamedTuple):
    """Laws of target and draft: object arrays of fractions."""

    p: np.ndarray
    q: np.ndarray


def exact_law(weights: np.ndarray) -> np.ndarray:
    """Integers as a law of fractions."""
    whole = int(weights.sum())
    return np.array([Fraction(int(weight), whole) for weight in weights], object)


def random_law(generator: np.random.Generator, tokens: int = TOKENS) -> np.ndarray:
    """A law of fractions with zeros here and there."""
    weights = generator.integers(1, 12, tokens) * (generator.random(tokens) < 0.7)
    weights[generator.integers(tokens)] += 1
    return exact_law(weights)


def pairs(seed: int, count: int) -> Iterator[Pair]:
    """The special pairs, then random ones."""
    generator = np.random.default_rng(seed)
    same = random_law(generator)
    yield Pair(same, same)
    yield Pair(exact_law(np.array([1, 2, 0, 0, 0])), exact_law(np.array([0, 0, 3, 0, 4])))
    yield Pair(exact_law(np.array([0, 1, 0, 0, 0])), random_law(generator))
    yield Pair(random_law(generator), exact_law(np.array([0, 0, 0, 1, 0])))
    for _ in range(count):
        yield Pair(random_law(generator), random_law(generator))


def judged(pair: Pair) -> dict[tuple[int, ...], Fraction]:
    """The law of what one drafted token becomes, by the product's `judge`.

    Returns:
        Probabilities of (token,) where it was rejected, and of (token, bonus token).
    """

    def run(tree: Tree) -> tuple[int, ...]:
        x = sampling.draw(pair.q, SAMPLED_AT_1, tree)
        accepted, token = sampling.judge([pair.p, pair.p], [pair.q], [x], SAMPLED_AT_1, tree)
        return (x, token) if accepted else (token,)

    return law(run)


def wrong_pairs(seed: int, count: int) -> int:
    """Pairs whose first token has not the law p, or whose bonus token has not after it."""
    wrong = 0
    for pair in pairs(seed, count):
        found = judged(pair)
        first = [Fraction(0)] * len(pair.p)
        for tokens, weight in found.items():
            first[tokens[0]] += weight
        accepted = {x: min(pair.p[x], pair.q[x]) for x in range(len(pair.p))}
        bonus = all(
            weight == accepted[tokens[0]] * pair.p[tokens[1]]
            for tokens, weight in found.items()
            if len(tokens) == 2
        )
        wrong += first != list(pair.p) or not bonus
    return wrong


def check(seed: int, count: int) -> Iterator[Check]:
    """The level: `count` random pairs and the special ones, and its controls."""

    def one(name: str, *faults: Replaced) -> Check:
        with planted(*faults):
            wrong = wrong_pairs(seed, count)
        return Check(
            level="algebra",
            name=name,
            path="fractions",
            equal=wrong == 0,
            detail=f"{wrong} of {count + 4} pairs of laws differ",
            control=bool(faults),
        )

    yield one("judged token has the law p")
    for name, fault in SAMPLED.items():
        yield one(name, *fault)
