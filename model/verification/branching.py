"""Random numbers that take every value: a program's outcomes with their exact probabilities.

A `Uniform` stands for all of [0, 1). Code compares it, or a multiple of it, with a bound; where
both answers are possible the run goes on with one of them, and another run follows with the other.
The weight of a run is the product of the shares that it kept, in exact fractions.

The code under test knows nothing of this: it calls `random()` and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, TypeVar

T = TypeVar("T")


class Tree:
    """The random numbers of one run; `random` is what the program calls.

    Attributes:
        weight: probability of the answers given so far.
    """

    def __init__(self, answers: list[bool], untried: list[list[bool]]) -> None:
        self._answers, self._untried, self._asked = answers, untried, 0
        self.weight = Fraction(1)

    def random(self) -> Any:
        """A new number, independent of all before."""
        return Uniform(self)

    def choose(self, share: Fraction) -> bool:
        """An answer that is True with probability `share`, strictly between 0 and 1."""
        if self._asked == len(self._answers):
            self._untried.append([*self._answers, False])
            self._answers = [*self._answers, True]
        answer = self._answers[self._asked]
        self._asked += 1
        self.weight *= share if answer else 1 - share
        return answer


class Uniform:
    """A number that is uniform in [low, high), times a scale."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._low, self._high = Fraction(0), Fraction(1)

    def below(self, bound: Fraction) -> bool:
        """Whether the number is below a bound. That it equals the bound has no weight."""
        if bound <= self._low:
            return False
        if bound >= self._high:
            return True
        answer = self._tree.choose((bound - self._low) / (self._high - self._low))
        if answer:
            self._high = bound
        else:
            self._low = bound
        return answer

    def __mul__(self, scale: Any) -> Scaled:
        return Scaled(self, Fraction(scale))

    __rmul__ = __mul__


class Scaled:
    """A `Uniform` times a scale of 0 or more, which answers comparisons."""

    def __init__(self, uniform: Uniform, scale: Fraction) -> None:
        self._uniform, self._scale = uniform, scale

    def __lt__(self, bound: Any) -> bool:
        if bound is self:  # numpy's binary search asks that
            return False
        if self._scale == 0:
            return bool(bound > 0)
        return self._uniform.below(Fraction(bound) / self._scale)

    def __gt__(self, bound: Any) -> bool:
        return self._scale > 0 and not self < bound


def explore(run: Callable[[Tree], T]) -> Iterator[tuple[Fraction, T]]:
    """Every outcome of a program, with its probability.

    Args:
        run: draws its random numbers from the tree, and does the same for the same answers.
    """
    untried: list[list[bool]] = [[]]
    while untried:
        tree = Tree(untried.pop(), untried)
        result = run(tree)
        yield tree.weight, result


def law(run: Callable[[Tree], T]) -> dict[T, Fraction]:
    """The law of a program's result."""
    found: dict[T, Fraction] = {}
    for weight, result in explore(run):
        found[result] = found.get(result, Fraction(0)) + weight
    return found
