"""Drafts around another draft: one that notes logits, one that starts again where it was."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from model.decoding.drafts.base import Draft, Loaded


class Wrapped(Draft):
    """Passes everything on.

    Args:
        inner: the draft.
        drafts: whether it drafts; False for autoregressive decoding of its target.
    """

    def __init__(self, inner: Draft, *, drafts: bool | None = None) -> None:
        self.inner, self.name = inner, inner.name
        self.vocabulary, self.context = inner.vocabulary, inner.context
        self.drafts = inner.drafts if drafts is None else drafts

    def start(self, batch: int, capacity: int) -> None:
        """The inner draft's."""
        self.inner.start(batch, capacity)

    @property
    def lengths(self) -> list[int]:
        """The inner draft's."""
        return self.inner.lengths

    def verify(self, tokens: Sequence[Sequence[int]], *, last_only: bool = False) -> list[Tensor]:
        """The inner draft's."""
        return self.inner.verify(tokens, last_only=last_only)

    def draft(self, tokens: Sequence[Sequence[int]]) -> list[Tensor]:
        """The inner draft's."""
        return self.inner.draft(tokens)

    def commit(self, tokens: Sequence[Sequence[int]]) -> None:
        """The inner draft's."""
        self.inner.commit(tokens)

    def rewind(self, lengths: Sequence[int]) -> None:
        """The inner draft's."""
        self.inner.rewind(lengths)

    def begin_round(self, live: Sequence[int]) -> int | None:
        """The inner draft's."""
        return self.inner.begin_round(live)

    def teacher_forced(
        self, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The inner draft's."""
        return self.inner.teacher_forced(prompts, texts)

    def verify_loads(self, fed: Sequence[int]) -> Loaded:
        """The inner draft's."""
        return self.inner.verify_loads(fed)

    def draft_loads(self, fed: Sequence[int]) -> Loaded:
        """The inner draft's."""
        return self.inner.draft_loads(fed)


class Recorded(Wrapped):
    """Notes the target's logits behind every committed token.

    Attributes:
        logits: for each sequence float32 (vocabulary,) each; the first one is behind the prompt.
    """

    def start(self, batch: int, capacity: int) -> None:
        """Forgets what was noted."""
        super().start(batch, capacity)
        self.logits: list[list[Tensor]] = [[] for _ in range(batch)]

    def verify(self, tokens: Sequence[Sequence[int]], *, last_only: bool = False) -> list[Tensor]:
        """Keeps the rows until some of them are committed."""
        self._rows = super().verify(tokens, last_only=last_only)
        return self._rows

    def commit(self, tokens: Sequence[Sequence[int]]) -> None:
        """Notes the rows behind the committed tokens; of the prompt only the last."""
        super().commit(tokens)
        for noted, rows, given in zip(self.logits, self._rows, tokens, strict=True):
            noted += rows[: len(given)].unbind() if len(given) else []

    def noted(self, b: int) -> Tensor:
        """float32 (committed tokens behind the prompt + 1, vocabulary) of sequence b."""
        return torch.stack(self.logits[b])


class Restarts(Wrapped):
    """Makes the pass of its prompts once; every later start goes back to their end.

    It serves one batch of prompts, of any number of calls of `generate`.
    """

    def __init__(self, inner: Draft, *, drafts: bool | None = None) -> None:
        super().__init__(inner, drafts=drafts)
        self._prompts: list[list[int]] = []
        self._logits: list[Tensor] = []
        self._capacity = 0
        self._at_prompt = False

    def start(self, batch: int, capacity: int) -> None:
        """Goes back, if the prompts' pass was made.

        Raises:
            ValueError: more positions than the first start asked for, or another batch.
        """
        self._at_prompt = True
        if not self._prompts:
            self._capacity = capacity
            super().start(batch, capacity)
            return
        if capacity > self._capacity or batch != len(self._prompts):
            raise ValueError(
                f"a restart must have batch {len(self._prompts)} and at most {self._capacity} "
                f"positions, not {batch} and {capacity}"
            )
        self.rewind([len(prompt) for prompt in self._prompts])

    def verify(self, tokens: Sequence[Sequence[int]], *, last_only: bool = False) -> list[Tensor]:
        """The prompts' logits are kept."""
        if not self._at_prompt:
            return super().verify(tokens, last_only=last_only)
        given = [list(prompt) for prompt in tokens]
        if not self._prompts:
            self._logits = super().verify(tokens, last_only=last_only)
            return self._logits
        if given != self._prompts:
            raise ValueError("a restart must have the prompts of the first start")
        return self._logits

    def commit(self, tokens: Sequence[Sequence[int]]) -> None:
        """The prompts are committed once."""
        if not self._at_prompt:
            super().commit(tokens)
        elif not self._prompts:
            self._prompts = [list(prompt) for prompt in tokens]
            super().commit(tokens)
        self._at_prompt = False
