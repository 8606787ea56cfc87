"""Level 2, kernel: seeded rounds of the product's functions against the exact law.

Laws come from `probs` on random logits, drafted tokens from `draw`, and `judge` decides, with
float64 numbers and numpy's generators as in use. The laws of a position do not depend on tokens
before it, so that every token committed there has exactly the law p of that position, whatever
was accepted before; and the number of accepted tokens has a law too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from model.decoding import loop, sampling
from model.decoding.sampling import Sampling
from model.verification.controls import SAMPLED, Replaced, planted
from model.verification.report import Check
from model.verification.statistics import Statistic, detectable, goodness, total

GAMMA = 3
AT_1 = Sampling(temperature=1.0)
TOKENS = 10

#: Level of one test, for the distance that it would find: the level's limit over some 30 tests.
ALPHA = 3e-9


class Case(NamedTuple):
    """Laws of a round.

    Attributes:
        name: what is special.
        p: the target's, gamma + 1 of them.
        q: the draft's, gamma.
    """

    name: str
    p: list[np.ndarray]
    q: list[np.ndarray]


class Rounds(NamedTuple):
    """What rounds gave.

    Attributes:
        tokens: counts of the tokens committed at each position, int (gamma + 1, vocabulary).
        accepted: rounds by the number of accepted tokens, int (gamma + 1,).
    """

    tokens: np.ndarray
    accepted: np.ndarray


def cases(seed: int) -> Iterator[Case]:
    """Draft near the target, far from it, cut by top-k and top-p, equal, disjoint."""
    generator = np.random.default_rng(seed)

    def case(name: str, noise: float, how: Sampling, shift: float = 0.0) -> Case:
        logits = generator.normal(0, 1.2, (GAMMA + 1, TOKENS))
        other = logits[:GAMMA] + noise * generator.normal(0, 1, (GAMMA, TOKENS))
        logits[:, ::2] -= shift
        other[:, 1::2] -= shift
        laws = [
            [sampling.probs(torch.tensor(row, dtype=torch.float32), how) for row in rows]
            for rows in (logits, other)
        ]
        return Case(name, *laws)

    yield case("near", 0.5, Sampling(temperature=1.0))
    yield case("far, temperature 0.6", 2.0, Sampling(temperature=0.6))
    yield case("top-k 4", 1.0, Sampling(temperature=1.0, top_k=4))
    yield case("top-p 0.8", 1.0, Sampling(temperature=1.3, top_p=0.8))
    yield case("p = q", 0.0, Sampling(temperature=1.0))
    yield case("disjoint", 0.5, Sampling(temperature=1.0), shift=2000.0)


def run(case: Case, rounds: int, seed: int) -> Rounds:
    """Seeded rounds of one case."""
    random = loop.philox(seed)(0)
    tokens = np.zeros((GAMMA + 1, TOKENS), np.int64)
    accepted = np.zeros(GAMMA + 1, np.int64)
    for _ in range(rounds):
        drafted = [sampling.draw(law, AT_1, random) for law in case.q]
        count, token = sampling.judge(case.p, case.q, drafted, AT_1, random)
        accepted[count] += 1
        for position, committed in enumerate([*drafted[:count], token]):
            tokens[position, committed] += 1
    return Rounds(tokens, accepted)


def accepted_law(case: Case) -> np.ndarray:
    """Probabilities of 0..gamma accepted tokens: each one stays with sum min(p, q)."""
    stays = [float(np.minimum(p, q).sum()) for p, q in zip(case.p, case.q, strict=False)]
    reached = np.cumprod([1.0, *stays])
    law = np.append(reached[:-1] * (1 - np.array(stays)), reached[-1])
    # What is left of rounding where p = q or nothing is shared.
    return np.where(law < 1e-12, 0.0, law)


def statistics(case: Case, found: Rounds) -> list[Statistic]:
    """One for each position that was reached, and one for the number of accepted tokens."""
    reached = [
        goodness(counts, law) for counts, law in zip(found.tokens, case.p, strict=True)
        if counts.any()
    ]  # fmt: skip
    return [*reached, goodness(found.accepted, accepted_law(case))]


def check(seed: int, rounds: int) -> Iterator[Check]:
    """The level: every case and position, and the controls.

    Args:
        seed: of laws and random numbers.
        rounds: of each case.
    """
    for number, case in enumerate(cases(seed)):
        found = run(case, rounds, seed + number)
        *positions, accepted = statistics(case, found)
        for position, statistic in enumerate(positions):
            size = int(found.tokens[position].sum())
            yield Check(
                level="kernel",
                name=f"{case.name}: position {position + 1}",
                path="float64 laws",
                statistic=statistic,
                detectable=detectable(size, statistic.dof, ALPHA),
                tokens=size,
            )
        yield Check(
            level="kernel",
            name=f"{case.name}: number accepted",
            path="float64 laws",
            statistic=accepted,
            detail=f"{rounds:,} rounds",
        )
    for name, fault in SAMPLED.items():
        yield _control(name, fault, seed, rounds)


def _control(name: str, fault: tuple[Replaced, ...], seed: int, rounds: int) -> Check:
    """The far case with a fault: all of its positions together."""
    case = next(case for case in cases(seed) if case.name.startswith("far"))
    with planted(*fault):
        found = run(case, rounds, seed)
    return Check(
        level="kernel",
        name=name,
        path="float64 laws",
        # The counts of accepted tokens are left out: a law of tokens must show the fault.
        statistic=total(statistics(case, found)[:-1]),
        tokens=int(found.tokens.sum()),
        control=True,
    )
