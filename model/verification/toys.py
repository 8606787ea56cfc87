"""Three-token Markov toys: a target and a draft that are tables, and their autoregressive law.

The law of the next token depends on the last token and on whether its position is even, so that a
token at a wrong position is found. A toy is a `Draft` without any model; the loop does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from model.decoding.drafts.base import NOTHING, Draft, Loaded
from model.decoding.drafts.shared import check_lengths
from model.decoding.sampling import Sampling

TOKENS = 3
#: All probabilities are multiples of 1 / PARTS.
PARTS = 12


class Toy(NamedTuple):
    """Laws in units of 1 / PARTS, int (2, tokens, tokens): [parity of position][last][next]."""

    p: np.ndarray
    q: np.ndarray


def random_toy(seed: int, *, sparse: bool = False) -> Toy:
    """Tables with a zero here and there; one row in six is the same in both.

    Args:
        seed: of the tables.
        sparse: a zero in every row, so that there are fewer outcomes.
    """
    generator = np.random.default_rng(seed)

    def row() -> np.ndarray:
        cuts = np.sort(generator.integers(0, PARTS + 1, TOKENS - 1))
        if sparse:
            cuts[0] = 0
        return np.diff(cuts, prepend=0, append=PARTS)[generator.permutation(TOKENS)]

    p, q = (np.array([[row() for _ in range(TOKENS)] for _ in range(2)]) for _ in range(2))
    q[1, 0] = p[1, 0]
    return Toy(p, q)


class TableDraft(Draft):
    """A target and a draft that look their laws up.

    Its logits are the rows of the tables themselves, or their logarithms.

    Args:
        toy: the tables.
        logarithms: logits for the real `probs`; else numbers for `exact_probs`.
        context: most positions.

    Attributes:
        committed: tokens of each sequence.

    Raises:
        AssertionError: the loop commits what it has not verified.
    """

    def __init__(self, toy: Toy, *, logarithms: bool = False, context: int = 64) -> None:
        self.name, self.vocabulary, self.context = "table", toy.p.shape[-1], context
        tables = [torch.from_numpy(table).to(torch.float32) for table in toy]
        self._p, self._q = (table.log() if logarithms else table for table in tables)

    def start(self, batch: int, capacity: int) -> None:
        """Begins anew."""
        self.committed: list[list[int]] = [[] for _ in range(batch)]
        self._verified: list[list[int]] = [[] for _ in range(batch)]
        self._ahead = [0] * batch

    @property
    def lengths(self) -> list[int]:
        """Committed tokens of each sequence."""
        return [len(tokens) for tokens in self.committed]

    def verify(self, tokens: Sequence[Sequence[int]], *, last_only: bool = False) -> list[Tensor]:
        """Rows of the target's table."""
        self._verified = [list(fed) for fed in tokens]
        rows = [
            self._rows(self._p, fed, length)
            for fed, length in zip(tokens, self.lengths, strict=True)
        ]
        return [given[-1:] for given in rows] if last_only else rows

    def draft(self, tokens: Sequence[Sequence[int]]) -> list[Tensor]:
        """Rows of the draft's table."""
        starts = [n + ahead for n, ahead in zip(self.lengths, self._ahead, strict=True)]
        self._ahead = [ahead + len(fed) for ahead, fed in zip(self._ahead, tokens, strict=True)]
        return [self._rows(self._q, fed, start) for fed, start in zip(tokens, starts, strict=True)]

    def _rows(self, table: Tensor, fed: Sequence[int], start: int) -> Tensor:
        positions = torch.arange(start, start + len(fed))
        return table[positions % 2, torch.tensor(fed, dtype=torch.int64)]

    def commit(self, tokens: Sequence[Sequence[int]]) -> None:
        """Takes tokens that were verified."""
        for b, given in enumerate(tokens):
            assert self._verified[b][: len(given)] == list(given)
            self.committed[b] += given
        self._ahead = [0] * len(self._ahead)

    def teacher_forced(
        self, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Rows of both tables behind the given tokens."""
        laws: tuple[list[Tensor], list[Tensor]] = ([], [])
        for prompt, text in zip(prompts, texts, strict=True):
            fed = [prompt[-1], *text[:-1]]
            for table, found in zip((self._p, self._q), laws, strict=True):
                found.append(self._rows(table, fed, len(prompt) - 1))
        return laws

    def rewind(self, lengths: Sequence[int]) -> None:
        """Drops tokens."""
        kept = check_lengths(lengths, self.lengths)
        self.committed = [
            tokens[:length] for tokens, length in zip(self.committed, kept, strict=True)
        ]
        self._ahead = [0] * len(self._ahead)

    def verify_loads(self, fed: Sequence[int]) -> Loaded:
        """A table weighs nothing."""
        return NOTHING

    def draft_loads(self, fed: Sequence[int]) -> Loaded:
        """A table weighs nothing."""
        return NOTHING


def exact_probs(row: Tensor, sampling: Sampling) -> np.ndarray:
    """A row of a table as a law of fractions: stands in for `probs`."""
    return np.array([Fraction(int(parts), PARTS) for parts in row.tolist()], object)


def chain_law(toy: Toy, prompt: Sequence[int], count: int) -> dict[tuple[int, ...], Fraction]:
    """The joint law of `count` tokens behind a prompt: the product of the target's rows."""
    laws: dict[tuple[int, ...], Fraction] = {(): Fraction(1)}
    for step in range(count):
        parity = (len(prompt) + step - 1) % 2
        longer: dict[tuple[int, ...], Fraction] = {}
        for tokens, weight in laws.items():
            last = tokens[-1] if tokens else prompt[-1]
            for token, parts in enumerate(toy.p[parity, last].tolist()):
                if parts:
                    longer[(*tokens, token)] = weight * Fraction(parts, PARTS)
        laws = longer
    return laws
