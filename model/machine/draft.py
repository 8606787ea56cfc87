"""A chip under `model.decoding.loop`: for sampled decoding, where the host accepts.

The chip gives the logits of each step; the loop draws, judges and commits with the functions that
every draft uses. Committing is nothing but a length that the host keeps: the next step's rows begin
there, and what lies behind is dead. It cannot go back by more than a round: the BF16 keys of older
blocks are gone.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from model.decoding.drafts.base import Draft, Loaded
from model.decoding.drafts.bs_spec import Choice
from model.formats.checks import check_int
from model.lm.footprint import bfp_kv_bits, bfp_weight_bits
from model.lm.precision import Precision
from model.machine.device import finish
from model.machine.jobs import chunks
from model.machine.runtime import Host

T = TypeVar("T")


class Drive(Protocol):
    """Runs a coroutine of a host to its end."""

    def __call__(self, coroutine: Coroutine[Any, Any, T]) -> T: ...


class MachineDraft(Draft):
    """BS-Spec on a chip, step by step.

    Args:
        host: of a chip with an image loaded.
        precision: of the draft; None for none (autoregressive decoding).
        choose: a lookup table that chooses precision and gamma before each round.
        drive: runs the host's coroutines.
    """

    def __init__(
        self,
        host: Host,
        precision: Precision | None,
        *,
        choose: Choice | None = None,
        drive: Drive = finish,
    ) -> None:
        self.host, self.config, self._drive = host, host.manifest.config, drive
        self.vocabulary, self.context = self.config.vocabulary, host.context
        self._choose = choose
        if choose is not None:
            precision, _ = choose(1)
        p_full = host.manifest.p_full
        self.precision = None if precision is None else precision.exact(p_full)
        self.full = Precision.full(p_full)
        self.drafts = precision is not None
        self.name = "auto" if choose is not None else str(self.precision or "none")
        self._lengths: list[int] = []
        self._ahead: list[int] = []

    def start(self, batch: int, capacity: int) -> None:
        """Begins anew; what memory holds of older sequences is dead."""
        check_int("batch", batch, 1, self.host.manifest.sequences)
        check_int("capacity", capacity, 1, self.host.manifest.capacity)
        self._lengths, self._ahead = [0] * batch, [0] * batch

    @property
    def lengths(self) -> list[int]:
        """Committed tokens of each sequence."""
        return list(self._lengths)

    def verify(self, tokens: Sequence[Sequence[int]], *, last_only: bool = False) -> list[Tensor]:
        """Target steps behind the committed end."""
        self._ahead = [0] * len(self._ahead)
        return self._drive(self._feed(tokens, self._lengths, None, last_only=last_only))

    def draft(self, tokens: Sequence[Sequence[int]]) -> list[Tensor]:
        """A draft step behind what was drafted before."""
        if self.precision is None:
            raise ValueError(f"{self.name} has no draft")
        starts = [length + ahead for length, ahead in zip(self._lengths, self._ahead, strict=True)]
        logits = self._drive(self._feed(tokens, starts, self.precision, last_only=False))
        self._ahead = [ahead + len(t) for ahead, t in zip(self._ahead, tokens, strict=True)]
        return logits

    async def _feed(
        self,
        tokens: Sequence[Sequence[int]],
        starts: Sequence[int],
        precision: Precision | None,
        *,
        last_only: bool,
    ) -> list[Tensor]:
        for b, given in enumerate(tokens):
            if given:
                await self.host.put_tokens(b, starts[b], given)
        pieces: list[list[Tensor]] = [[torch.empty(0, self.vocabulary)] for _ in tokens]
        wanted = {b: (starts[b], len(given)) for b, given in enumerate(tokens)}
        for segments, final in chunks(self.host.manifest.shape.t_m, wanted):
            found = await self.host.logits(
                segments, precision, head=final or not last_only, last_only=last_only
            )
            for b, logits in found.items():
                pieces[b].append(logits)
        return [torch.cat(piece) for piece in pieces]

    def commit(self, tokens: Sequence[Sequence[int]]) -> None:
        """Moves the committed ends."""
        self._lengths = [n + len(t) for n, t in zip(self._lengths, tokens, strict=True)]
        self._ahead = [0] * len(self._ahead)

    def begin_round(self, live: Sequence[int]) -> int | None:
        """Looks up the live sequences' total length, where there is a table."""
        if self._choose is None:
            return None
        precision, gamma = self._choose(max(sum(self._lengths[b] for b in live), 1))
        self.precision = precision.exact(self.host.manifest.p_full)
        return gamma

    def teacher_forced(
        self, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Not of a chip: it would go back further than the ring of open keys."""
        raise NotImplementedError("a chip cannot be asked for the laws of a given text")

    def verify_loads(self, fed: Sequence[int]) -> Loaded:
        """Bits of a target pass, as the model counts them; the chip's counters say what it read."""
        return self._loads(self.full, fed)

    def draft_loads(self, fed: Sequence[int]) -> Loaded:
        """Bits of a draft pass."""
        assert self.precision is not None
        return self._loads(self.precision, fed)

    def _loads(self, precision: Precision, fed: Sequence[int]) -> Loaded:
        kv = sum(
            bfp_kv_bits(self.config, length + count, precision.kv.p)
            for length, count in zip(self._lengths, fed, strict=True)
            if count
        )
        return Loaded(bfp_weight_bits(self.config, precision.w.p), kv)
