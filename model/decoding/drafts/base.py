"""What the loop asks of a target and a way to draft for it.

A `Draft` holds a batch of sequences. Each has committed tokens, whose keys and values are final,
and behind them whatever the round in work has fed. Verification feeds from the committed end;
drafting feeds one token after another behind it; `commit` moves the end and forgets the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor


class Loaded(NamedTuple):
    """Bits that a pass loads from memory.

    Attributes:
        weights: once a pass, whatever the batch.
        kv: of all sequences that take part.
    """

    weights: int
    kv: int

    def __add__(self, other: object) -> Loaded:
        """Sums both counts."""
        if not isinstance(other, Loaded):
            return NotImplemented
        return Loaded(self.weights + other.weights, self.kv + other.kv)

    def times(self, count: int) -> Loaded:
        """Both counts, `count` times."""
        return Loaded(self.weights * count, self.kv * count)


#: No bits at all.
NOTHING = Loaded(0, 0)


class Draft(ABC):
    """A target and its draft over a batch of sequences.

    Attributes:
        name: as tables and the command line write it.
        vocabulary: tokens.
        context: most positions of a sequence.
        drafts: False where there is no draft at all (autoregressive decoding).
    """

    name: str
    vocabulary: int
    context: int
    drafts: bool = True

    @abstractmethod
    def start(self, batch: int, capacity: int) -> None:
        """Begins anew with empty sequences.

        Args:
            batch: sequences.
            capacity: positions of each.
        """

    @property
    @abstractmethod
    def lengths(self) -> list[int]:
        """Committed tokens of each sequence."""

    @abstractmethod
    def verify(self, tokens: Sequence[Sequence[int]], *, last_only: bool = False) -> list[Tensor]:
        """One target pass that feeds `tokens[b]` behind the committed end of sequence b.

        Args:
            tokens: for each sequence, none or several.
            last_only: only the logits behind each sequence's last token are wanted.

        Returns:
            For each sequence float32 (tokens fed, vocabulary): row t is the law behind the t-th;
            one row under `last_only`; no row where nothing was fed.
        """

    @abstractmethod
    def draft(self, tokens: Sequence[Sequence[int]]) -> list[Tensor]:
        """One draft pass that feeds tokens behind those drafted since the last commit.

        Args:
            tokens: for each sequence one, or none if it does not take part.

        Returns:
            For each sequence float32 (1, vocabulary), or no row.
        """

    @abstractmethod
    def commit(self, tokens: Sequence[Sequence[int]]) -> None:
        """Commits tokens whose keys and values the last verification has written.

        Args:
            tokens: for each sequence the first ones of those that it fed.
        """

    @abstractmethod
    def teacher_forced(
        self, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Logits of target and draft for given texts, as a first drafted token would see them.

        At every position of a text all tokens before it are committed, and the draft feeds the
        last of them itself. Begins anew.

        Args:
            prompts: at least one token each.
            texts: tokens behind each prompt, at least one each.

        Returns:
            For each sequence, of the target and of the draft: float32 (tokens, vocabulary), row t
            being the law of texts[b][t].
        """

    def rewind(self, lengths: Sequence[int]) -> None:
        """Moves the committed ends back: later tokens are forgotten, as after a rejection.

        Args:
            lengths: of each sequence, at most its committed tokens.

        Raises:
            ValueError: a length above the committed one, by sequence.
            NotImplementedError: a draft that cannot go back.
        """
        raise NotImplementedError(f"{self.name} cannot go back")

    def begin_round(self, live: Sequence[int]) -> int | None:
        """Called before each round; a draft may adapt to the lengths.

        Args:
            live: indices of the sequences that have not ended.

        Returns:
            The gamma that it wants, or None to leave it to the caller.
        """
        return None

    @abstractmethod
    def verify_loads(self, fed: Sequence[int]) -> Loaded:
        """Bits of one target pass, at the current committed lengths.

        Args:
            fed: tokens fed to each sequence.
        """

    @abstractmethod
    def draft_loads(self, fed: Sequence[int]) -> Loaded:
        """Bits of one draft pass.

        Args:
            fed: tokens drafted to each sequence since the commit, this one included; 0 for a
                sequence that does not take part.
        """
