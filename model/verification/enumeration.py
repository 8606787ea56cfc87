"""Level 3, enumeration: the whole loop on Markov toys, every draft and accept pattern.

`generate` runs with random numbers that take every value (`model.verification.branching`), so that
its tokens come with their exact joint law. That must be the autoregressive joint law, as fractions,
for gamma + 3 tokens: the one behind the prompt, and two rounds or more.

`probs` is replaced by a function that gives the same laws as fractions; a run with the real one
must give the same law up to the rounding of its logarithms. A second sequence of another length
is in the batch: with seeded numbers, or with all of its values too, and then both sequences must
be independent.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from model.decoding import loop
from model.decoding.sampling import Random, Sampling
from model.verification.branching import Tree, explore
from model.verification.controls import SAMPLED, Replaced, planted
from model.verification.report import Check
from model.verification.toys import TableDraft, Toy, chain_law, exact_probs, random_toy

#: The prompts of a ragged batch: lengths of both parities.
PROMPTS = ((2, 0, 1), (1, 2))

EXACT = Replaced(loop, "probs", exact_probs)

#: The joint law of the tokens of each sequence.
Law = dict[tuple[tuple[int, ...], ...], Fraction]

#: Difference between probabilities that rounding of float32 logarithms explains.
ROUNDING = 1e-5


def enumerate_loop(
    draft: TableDraft, prompts: tuple[tuple[int, ...], ...], options: loop.Options, seeded: int = 0
) -> tuple[Law, int, int]:
    """Every outcome of `generate`.

    Args:
        draft: a toy.
        prompts: of a batch.
        options: gamma, new tokens.
        seeded: how many of the last sequences take seeded random numbers instead; they are not
            part of the law.

    Returns:
        The law, the number of outcomes, and the fewest rounds of one.
    """
    wanted = len(prompts) - seeded

    def run(tree: Tree) -> tuple[tuple[tuple[int, ...], ...], int]:
        usual = loop.philox(options.seed)

        def random(stream: int) -> Random:
            return tree if stream < wanted else usual(stream)

        sequences = loop.generate(draft, prompts, options, random=random).sequences[:wanted]
        return tuple(tuple(s.tokens) for s in sequences), min(len(s.rounds) for s in sequences)

    found: Law = {}
    outcomes, rounds = 0, 1 << 30
    for weight, (tokens, count) in explore(run):
        found[tokens] = found.get(tokens, Fraction(0)) + weight
        outcomes, rounds = outcomes + 1, min(rounds, count)
    return found, outcomes, rounds


def expected(toy: Toy, prompts: tuple[tuple[int, ...], ...], count: int) -> Law:
    """The autoregressive law of a batch: sequences are independent."""
    laws: Law = {(): Fraction(1)}
    for prompt in prompts:
        one = chain_law(toy, prompt, count)
        laws = {(*k, t): v * w for k, v in laws.items() for t, w in one.items()}
    return laws


def distance(first: Law, second: Law) -> Fraction:
    """Total variation."""
    keys = first.keys() | second.keys()
    nothing = Fraction(0)
    return sum((abs(first.get(k, nothing) - second.get(k, nothing)) for k in keys), nothing) / 2


def _options(gamma: int, count: int, seed: int) -> loop.Options:
    return loop.Options(gamma=gamma, max_new=count, sampling=Sampling(temperature=1.0), seed=seed)


def _check(
    name: str,
    toy: Toy,
    prompts: tuple[tuple[int, ...], ...],
    options: loop.Options,
    *faults: Replaced,
    seeded: int = 0,
    logarithms: bool = False,
) -> Check:
    laws = () if logarithms else (EXACT,)
    with planted(*laws, *faults):
        found, outcomes, rounds = enumerate_loop(
            TableDraft(toy, logarithms=logarithms), prompts, options, seeded
        )
    wanted = expected(toy, prompts[: len(prompts) - seeded], options.max_new)
    apart = distance(found, wanted)
    return Check(
        level="enumeration",
        name=name,
        path="float64 laws" if logarithms else "fractions",
        equal=apart < ROUNDING if logarithms else found == wanted,
        tokens=outcomes,
        detail=f"{len(wanted)} texts of {options.max_new} tokens, {rounds} rounds at least, "
        f"total variation {'0' if apart == 0 else f'{float(apart):.2g}'}",
        control=bool(faults),
    )


def check(seed: int, *, quick: bool = False) -> Iterator[Check]:
    """The level.

    Args:
        seed: of the tables.
        quick: the toy of gamma 3 has a zero in every row, two sequences are shorter.
    """
    for gamma in (1, 2, 3):
        toy = random_toy(seed, sparse=quick and gamma == 3)
        name = f"gamma {gamma}, beside a seeded sequence"
        yield _check(name, toy, PROMPTS, _options(gamma, gamma + 3, seed), seeded=1)
    toy = random_toy(seed)
    yield _check("gamma 1, both sequences", toy, PROMPTS, _options(1, 3 if quick else 4, seed))
    yield _check("gamma 2, the real probs", toy, PROMPTS[:1], _options(2, 5, seed), logarithms=True)
    for name, fault in SAMPLED.items():
        yield _check(name, toy, PROMPTS[:1], _options(2, 4, seed), *fault)
