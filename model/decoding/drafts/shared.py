"""Drafts that read the target's own cache: everything self-speculative, and no draft at all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from model.decoding.drafts.base import Draft
from model.formats.checks import check_int
from model.lm.config import ModelConfig
from model.lm.rows import Rows
from model.lm.transformer import Path, forward

#: Positions of a sequence that one pass of a prompt feeds at most. It changes no result of the
#: exact path.
PROMPT_CHUNK = 128


def run_pass(
    path: Path,
    tokens: Sequence[Sequence[int]],
    starts: Sequence[int],
    device: str,
    *,
    last_only: bool = False,
) -> list[Tensor]:
    """Feeds tokens through a path, long ones in chunks.

    Returns:
        For each sequence its rows of logits, (tokens, vocabulary); one row under `last_only`.
    """
    longest = max(map(len, tokens), default=0)
    pieces: list[list[Tensor]] = [[] for _ in tokens]
    for first in range(0, longest, PROMPT_CHUNK):
        chunk = [given[first : first + PROMPT_CHUNK] for given in tokens]
        rows = Rows.of(chunk, [start + first for start in starts], device)
        logits = forward(path, rows, last_only=last_only)
        sizes = [1 if last_only else rows.counts[b] for b in rows.active]
        for b, piece in zip(rows.active, logits.split(sizes), strict=True):
            pieces[b] = [piece] if last_only else [*pieces[b], piece]
    none = torch.empty(0, path.config.vocabulary)
    return [torch.cat(piece) if piece else none for piece in pieces]


def check_lengths(lengths: Sequence[int], committed: Sequence[int]) -> list[int]:
    """Returns lengths that a batch can go back to; ValueError otherwise, by sequence."""
    if len(lengths) != len(committed):
        raise ValueError(f"lengths must be {len(committed)}, not {len(lengths)}")
    return [
        check_int(f"lengths[{b}]", length, 0, most)
        for b, (length, most) in enumerate(zip(lengths, committed, strict=True))
    ]


class SharedCacheDraft(Draft):
    """A target path and a draft path over one cache.

    Args:
        name: as tables write it.
        config: the model's shape.
        device: to run on.
    """

    def __init__(self, name: str, config: ModelConfig, device: str = "cpu") -> None:
        self.name, self.config, self.device = name, config, device
        self.vocabulary, self.context = config.vocabulary, config.max_positions
        self._lengths: list[int] = []
        self._ahead: list[int] = []
        self._target: Path | None = None
        self._draft: Path | None = None

    @abstractmethod
    def open_paths(self, batch: int, capacity: int) -> tuple[Path, Path | None]:
        """A target path and a draft path over a new cache."""

    def start(self, batch: int, capacity: int) -> None:
        """Begins anew with a new cache; the old one is let go first."""
        self._target = self._draft = None
        self._target, self._draft = self.open_paths(batch, capacity)
        self._lengths, self._ahead = [0] * batch, [0] * batch

    @property
    def lengths(self) -> list[int]:
        """Committed tokens of each sequence."""
        return list(self._lengths)

    def verify(self, tokens: Sequence[Sequence[int]], *, last_only: bool = False) -> list[Tensor]:
        """One target pass behind the committed end."""
        assert self._target is not None
        return run_pass(self._target, tokens, self._lengths, self.device, last_only=last_only)

    def draft(self, tokens: Sequence[Sequence[int]]) -> list[Tensor]:
        """One draft pass behind what was drafted before."""
        if self._draft is None:
            raise ValueError(f"{self.name} has no draft")
        starts = [length + ahead for length, ahead in zip(self._lengths, self._ahead, strict=True)]
        logits = run_pass(self._draft, tokens, starts, self.device)
        self._ahead = [ahead + len(t) for ahead, t in zip(self._ahead, tokens, strict=True)]
        return logits

    def commit(self, tokens: Sequence[Sequence[int]]) -> None:
        """Moves the committed ends; what lies behind them is dead."""
        self._lengths = [n + len(t) for n, t in zip(self._lengths, tokens, strict=True)]
        self._ahead = [0] * len(self._ahead)

    def teacher_forced(
        self, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Logits of target and draft for given texts.

        One target pass writes the whole texts. The draft then goes through the positions from the
        last to the first: what it writes lies behind everything that is still to be read.
        """
        fed = [[prompt[-1], *text[:-1]] for prompt, text in zip(prompts, texts, strict=True)]
        starts = [len(prompt) - 1 for prompt in prompts]
        self.start(len(fed), max(s + len(f) for s, f in zip(starts, fed, strict=True)))
        self.verify([prompt[:-1] for prompt in prompts], last_only=True)
        self.commit([prompt[:-1] for prompt in prompts])
        targets = self.verify(fed)
        drafts: list[list[Tensor]] = [[] for _ in fed]
        for step in range(1, max(map(len, fed)) + 1):
            at = [len(tokens) - step for tokens in fed]
            self._lengths = [start + max(t, 0) for start, t in zip(starts, at, strict=True)]
            self._ahead = [0] * len(fed)
            given = [[tokens[t]] if t >= 0 else [] for tokens, t in zip(fed, at, strict=True)]
            for b, rows in enumerate(self.draft(given)):
                if given[b]:
                    drafts[b].append(rows)
        return targets, [torch.cat(rows[::-1]) for rows in drafts]

    def rewind(self, lengths: Sequence[int]) -> None:
        """Moves the committed ends back."""
        self._lengths = check_lengths(lengths, self._lengths)
        self._ahead = [0] * len(self._ahead)
