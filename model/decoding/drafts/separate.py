"""Conventional speculative decoding: a smaller model with the same vocabulary drafts.

The draft keeps its own 16-bit cache. It is fed the tokens that it drafts; whatever else the target
commits (the prompt, and the last drafted token when all were accepted) it is fed before it drafts
again, so that its cache has no gap.

Source: Leviathan et al. (2023), Chen et al. (2023).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from model.decoding.drafts.base import Draft, Loaded
from model.decoding.drafts.shared import run_pass
from model.lm.checkpoint import Checkpoint
from model.lm.dense import DenseWeights
from model.lm.fast import FastPath
from model.lm.footprint import HALF, plain_kv_numbers, plain_weights
from model.lm.plain_cache import PlainView


class SeparateModel(Draft):
    """Any target, drafted for by another model.

    Args:
        target: its `verify` is the target.
        checkpoint: the draft model.
        name: as tables write it.
        device, dtype: of the draft's fast path.

    Raises:
        ValueError: another vocabulary, or a shorter context than the target's.
    """

    def __init__(
        self,
        target: Draft,
        checkpoint: Checkpoint,
        *,
        name: str = "separate",
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        config = checkpoint.config
        if config.vocabulary != target.vocabulary:
            raise ValueError(
                f"the draft model's vocabulary must be the target's {target.vocabulary} tokens, "
                f"not {config.vocabulary}"
            )
        self.name, self.vocabulary = name, target.vocabulary
        self.context = min(target.context, config.max_positions)
        self.target, self.config, self.device, self.dtype = target, config, device, dtype
        self._weights = DenseWeights.of_checkpoint(checkpoint, None, dtype, device)

    def start(self, batch: int, capacity: int) -> None:
        """Begins anew with both caches empty."""
        self.target.start(batch, capacity)
        view = PlainView(self.config, batch, capacity, self.dtype, self.device)
        self._path = FastPath(self._weights, view)
        #: Committed tokens whose keys and values are in the draft's cache, and those still missing.
        self._seen = [0] * batch
        self._missing: list[list[int]] = [[] for _ in range(batch)]
        #: Tokens fed since the last commit.
        self._fed: list[list[int]] = [[] for _ in range(batch)]

    @property
    def lengths(self) -> list[int]:
        """Committed tokens of each sequence."""
        return self.target.lengths

    def verify(self, tokens: Sequence[Sequence[int]], *, last_only: bool = False) -> list[Tensor]:
        """The target's."""
        return self.target.verify(tokens, last_only=last_only)

    def draft(self, tokens: Sequence[Sequence[int]]) -> list[Tensor]:
        """Feeds what the draft has missed, then the tokens."""
        fed = [
            [*missing, *given] if given else []
            for missing, given in zip(self._missing, tokens, strict=True)
        ]
        starts = [seen + len(ahead) for seen, ahead in zip(self._seen, self._fed, strict=True)]
        logits = run_pass(self._path, fed, starts, self.device, last_only=True)
        for b, given in enumerate(tokens):
            if given:
                self._seen[b] += len(self._missing[b])
                self._missing[b] = []
                self._fed[b] += given
        return logits

    def commit(self, tokens: Sequence[Sequence[int]]) -> None:
        """Keeps what the draft was fed of the committed tokens, and notes the others as missing."""
        self.target.commit(tokens)
        for b, given in enumerate(tokens):
            kept = min(len(given), len(self._fed[b]))
            self._seen[b] += kept
            self._missing[b] += given[kept:]
            self._fed[b] = []

    def teacher_forced(
        self, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Logits of target and draft for given texts; both have their own cache."""
        fed = [[*prompt, *text[:-1]] for prompt, text in zip(prompts, texts, strict=True)]
        firsts = [len(prompt) - 1 for prompt in prompts]
        self.start(len(fed), max(map(len, fed)))
        laws = (
            self.target.verify(fed),
            run_pass(self._path, fed, [0] * len(fed), self.device),
        )
        targets, drafts = (
            [rows[first:] for rows, first in zip(one, firsts, strict=True)] for one in laws
        )
        return targets, drafts

    def rewind(self, lengths: Sequence[int]) -> None:
        """Moves the committed ends back, and that of the draft's own cache."""
        self.target.rewind(lengths)
        for b, length in enumerate(lengths):
            self._missing[b] = self._missing[b][: max(length - self._seen[b], 0)]
            self._seen[b] = min(self._seen[b], length)
            self._fed[b] = []

    def verify_loads(self, fed: Sequence[int]) -> Loaded:
        """The target's."""
        return self.target.verify_loads(fed)

    def draft_loads(self, fed: Sequence[int]) -> Loaded:
        """The draft model's weights and cache, 16 bits each."""
        numbers = sum(
            plain_kv_numbers(self.config, length + count)
            for length, count in zip(self.lengths, fed, strict=True)
            if count
        )
        return Loaded(plain_weights(self.config) * HALF, numbers * HALF)
