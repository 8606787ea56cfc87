"""Level 4, a real model: its tokens under speculation against its autoregressive tokens.

For each of some fixed prefixes many continuations are drawn, independently of each other, with
autoregressive decoding and with a draft; the streams of random numbers differ everywhere. What is
compared is the token at one position of the continuation: over restarts these are independent,
while tokens of one continuation are not. So a position has a two-sample chi-square statistic for
each prefix, and its sum over the prefixes, which are independent too, is one test. The tests of
different positions depend on each other; Holm's correction allows that.

A continuation has the token behind the prompt, which no draft touches and which is not tested, and
gamma + 2 more, which are two rounds or more.

The prompt's pass is made once for a batch of copies; restarts go back to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from model.decoding.drafts.base import Draft
from model.decoding.loop import Options, generate
from model.decoding.sampling import Sampling
from model.verification.controls import SAMPLED, planted
from model.verification.report import LIMITS, Check
from model.verification.statistics import Statistic, detectable, total, two_sample
from model.verification.wrappers import Restarts

#: Continuations of a prefix that are drawn side by side, at most: on SmolLM2 a cache takes 25 MB.
BATCH = 64

#: Controls are drawn with half of the restarts.
CONTROL_SHARE = 2

#: What an observer is told: continuations drawn since the last call.
Progress = Callable[[int], None]


class Prefix(NamedTuple):
    """A fixed beginning.

    Attributes:
        name: of the prompt that it was cut from.
        tokens: at least one.
    """

    name: str
    tokens: list[int]


class Plan(NamedTuple):
    """What is drawn.

    Attributes:
        prefixes: fixed beginnings.
        gamma: drafted tokens a round.
        sampling: temperature above 0.
        batches, batch: continuations of a prefix are batches * batch.
        seed: of all random numbers.
    """

    prefixes: list[Prefix]
    gamma: int
    sampling: Sampling
    batches: int
    batch: int
    seed: int

    @staticmethod
    def of(prefixes: list[Prefix], gamma: int, sampling: Sampling, tokens: int, seed: int) -> Plan:
        """The smallest plan that compares at least `tokens` tokens a method."""
        each = -(-tokens // (len(prefixes) * (gamma + 2)))
        batches = -(-each // BATCH)
        return Plan(prefixes, gamma, sampling, batches, -(-each // batches), seed)

    @property
    def restarts(self) -> int:
        """Continuations of each prefix."""
        return self.batches * self.batch

    @property
    def tokens(self) -> int:
        """Tokens of a method that are compared."""
        return len(self.prefixes) * self.restarts * (self.gamma + 2)


class Method(NamedTuple):
    """A draft and the kind of its target; methods of one target share its autoregressive sample.

    Attributes:
        name: of the draft.
        target: of its target.
        make: makes the draft.
        control: name of the fault that is planted, or none.
    """

    name: str
    target: str
    make: Callable[[], Draft]
    control: str | None = None


class Sample(NamedTuple):
    """Continuations of one prefix.

    Attributes:
        tokens: int (restarts, gamma + 2), without the token behind the prompt.
        drafted, accepted: tokens of all rounds.
    """

    tokens: np.ndarray
    drafted: int
    accepted: int


def draw(draft: Draft, plan: Plan, prefix: Prefix, seed: int, batches: int) -> Sample:
    """Continuations of one prefix.

    Args:
        draft: a `Restarts`, or any other where the prompts' pass may be repeated.
        plan: sizes.
        prefix: the prompt of all sequences.
        seed: of the random numbers; streams are numbered through.
        batches: how many.
    """
    texts, drafted, accepted = [], 0, 0
    for number in range(batches):
        options = Options(
            gamma=plan.gamma,
            sampling=plan.sampling,
            max_new=plan.gamma + 3,
            seed=seed,
            streams=tuple(range(number * plan.batch, (number + 1) * plan.batch)),
        )
        output = generate(draft, [prefix.tokens] * plan.batch, options)
        texts += [sequence.tokens[1:] for sequence in output.sequences]
        drafted += sum(len(round_.drafted) for round_ in output.rounds)
        accepted += sum(round_.accepted for round_ in output.rounds)
    return Sample(np.array(texts), drafted, accepted)


def compare(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> list[Statistic]:
    """One statistic for each position, summed over prefixes.

    Args:
        first, second: for each prefix int (restarts, positions).
    """
    positions = first[0].shape[1]
    return [
        total([_at(a[:, k], b[:, k]) for a, b in zip(first, second, strict=True)])
        for k in range(positions)
    ]


def _at(first: np.ndarray, second: np.ndarray) -> Statistic:
    categories, numbers = np.unique(np.concatenate([first, second]), return_inverse=True)
    counts = [
        np.bincount(part, minlength=len(categories)) for part in np.split(numbers, [len(first)])
    ]
    return two_sample(*counts)


def check(
    plan: Plan, methods: Sequence[Method], *, path: str, progress: Progress = lambda drawn: None
) -> Iterator[Check]:
    """The level.

    Args:
        plan: what is drawn.
        methods: controls last.
        path: "fast" or "exact", as the report says it.
        progress: told of every sample.
    """
    references: dict[str, list[np.ndarray]] = {}
    seeds = itertools.count(1000 * (plan.seed + 1))
    for method in methods:
        draft = method.make()
        batches = plan.batches
        if method.control is not None:
            batches = -(-plan.batches // CONTROL_SHARE)
        references.setdefault(method.target, [])
        samples = []
        for number, prefix in enumerate(plan.prefixes):
            restarts = Restarts(draft)
            if len(references[method.target]) <= number:
                restarts.drafts = False
                plain = draw(restarts, plan, prefix, next(seeds), plan.batches)
                references[method.target].append(plain.tokens)
                progress(plan.restarts)
                restarts.drafts = True
            with planted(*(SAMPLED[method.control] if method.control else ())):
                samples.append(draw(restarts, plan, prefix, next(seeds), batches))
            progress(batches * plan.batch)
            del restarts  # its cache, before the next one is made
        del draft
        yield from _checks(plan, method, references[method.target], samples, path)


def _checks(
    plan: Plan, method: Method, reference: list[np.ndarray], samples: list[Sample], path: str
) -> Iterator[Check]:
    texts = [sample.tokens for sample in samples]
    statistics = compare(reference, texts)
    accepted, drafted = sum(s.accepted for s in samples), sum(s.drafted for s in samples)
    detail = f"{accepted:,} of {drafted:,} drafted accepted"
    count = sum(map(len, texts))
    if method.control is not None:
        worst = min(statistics, key=lambda statistic: statistic.p)
        yield Check(
            level="real",
            name=f"{method.name}, {method.control}",
            path=path,
            statistic=worst,
            tokens=count,
            detail=f"position {statistics.index(worst) + 1}; {detail}",
            control=True,
        )
        return
    plain = sum(map(len, reference))
    for position, statistic in enumerate(statistics, 1):
        yield Check(
            level="real",
            name=f"{method.name}, position {position}",
            path=path,
            statistic=statistic,
            detectable=detectable(count * plain / (count + plain), statistic.dof, LIMITS["real"]),
            tokens=count,
            detail=detail if position == 1 else "",
        )


def work(plan: Plan, methods: Sequence[Method]) -> int:
    """Continuations that `check` draws, to tell progress."""
    targets = len({method.target for method in methods})
    drawn = sum(
        -(-plan.batches // CONTROL_SHARE) if method.control else plan.batches for method in methods
    )
    return (targets * plan.batches + drawn) * plan.batch * len(plan.prefixes)
