"""Level 5, greedy decoding: tokens and logits equal to autoregressive ones, bit for bit.

A batch of two prompts of different lengths is decoded across the ends of key blocks (64 and 128
positions), by every precision of the draft and every gamma. The tokens must be those of
autoregressive decoding, and so must the bits of the target's logits behind every committed token:
logits show a wrong key or value long before a token does. A draft that loads all bits must have
all of its tokens accepted.

It is a claim of the exact path. The fast path sums in an order that depends on the number of rows
of a pass, so its logits differ in their last bits; `check` tells by how much, and claims nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from model.decoding.drafts.base import Draft
from model.decoding.drafts.bs_spec import BsSpec
from model.decoding.loop import Options, Output, generate
from model.lm.checkpoint import Checkpoint
from model.lm.precision import Precision, grid
from model.lm.stored import StoredModel, store
from model.verification.controls import greedy_faults, is_bitwise_equal, planted
from model.verification.report import Check
from model.verification.wrappers import Recorded, Restarts

GAMMAS = (1, 2, 3, 4, 5, 6, 7, 8, 20)

#: Prompt lengths and new tokens: one text ends behind position 64, the other behind 128.
LENGTHS = (52, 117)
NEW = 22

#: Precisions and gammas of the short form: every p_w, every p_kv, both reconstructions, and
#: every gamma.
QUICK = (
    ("W5KV5", 1), ("W5mKV5m", 20), ("W6KV7", 2), ("W6mKV8m", 8), ("W7KV6", 4), ("W7mKV9", 7),
    ("W8KV8", 6), ("W8mKV5m", 5), ("W9KV6m", 3), ("W9KV9", 7),
)  # fmt: skip

#: What an observer of a level's work is told: how much of it is done, 0 to 1.
Progress = Callable[[float], None]


class Compared(NamedTuple):
    """A speculative text beside the autoregressive one.

    Attributes:
        tokens, logits: whether they are equal, logits bit for bit.
        compared: tokens.
        drafted, accepted: tokens of all rounds.
        most: the largest difference of logits at equal tokens.
    """

    tokens: bool
    logits: bool
    compared: int
    drafted: int
    accepted: int
    most: float

    @property
    def equal(self) -> bool:
        """Both."""
        return self.tokens and self.logits


def prompts_of(vocabulary: int, seed: int, lengths: Sequence[int] = LENGTHS) -> list[list[int]]:
    """Random prompts."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(vocabulary, (n,), generator=generator).tolist() for n in lengths]


class Reference:
    """Autoregressive texts and logits of some prompts.

    Args:
        draft: its target is decoded.
        prompts: of a batch.
        new: tokens.
    """

    def __init__(self, draft: Draft, prompts: Sequence[Sequence[int]], new: int) -> None:
        self.prompts, self.new = prompts, new
        recorded = Recorded(draft, drafts=False)
        self.output = generate(recorded, prompts, Options(max_new=new))
        self.logits = [recorded.noted(b) for b in range(len(prompts))]

    def compare(self, draft: Draft, gamma: int) -> Compared:
        """Decodes the prompts with a draft and compares."""
        recorded = Recorded(draft)
        output = generate(recorded, self.prompts, Options(max_new=self.new, gamma=gamma))
        noted = [recorded.noted(b) for b in range(len(self.prompts))]
        return self._compared(output, noted)

    def _compared(self, output: Output, noted: list[Tensor]) -> Compared:
        pairs = zip(self.output.sequences, output.sequences, strict=True)
        tokens = all(mine.tokens == theirs.tokens for mine, theirs in pairs)
        # A last round may have committed tokens behind the limit; and after a wrong token nothing
        # can be compared.
        rows = [
            (mine[: self.new], theirs[: self.new])
            for mine, theirs in zip(self.logits, noted, strict=True)
        ]
        logits = all(is_bitwise_equal(mine, theirs) for mine, theirs in rows)
        most = max(
            float((mine - theirs).abs().max()) if mine.shape == theirs.shape else float("inf")
            for mine, theirs in rows
        )
        rounds = output.rounds
        return Compared(
            tokens,
            logits,
            output.new_tokens,
            sum(len(r.drafted) for r in rounds),
            sum(r.accepted for r in rounds),
            most,
        )


def _loads() -> list[Precision]:
    """All 25 pairs, truncated, and as midpoints where that is another load."""
    full = Precision.full()
    midpoints = [p for p in grid(reconstruct="midpoint") if p.exact(9) != full]
    return [*grid(), *midpoints]


def runs(quick: bool) -> list[tuple[Precision, int]]:
    """Precisions and gammas, all gammas of a precision in a row."""
    if quick:
        return [(Precision.parse(name), gamma) for name, gamma in QUICK]
    return [(precision, gamma) for precision in _loads() for gamma in GAMMAS]


def check(
    checkpoint: Checkpoint, seed: int, *, quick: bool, progress: Progress = lambda done: None
) -> Iterator[Check]:
    """The level on one model, exact path.

    Args:
        checkpoint: a small model.
        seed: of the prompts.
        quick: ten runs in place of all.
        progress: told how much is done.
    """
    model = store(checkpoint)
    prompts = prompts_of(checkpoint.config.vocabulary, seed)
    reference = Reference(BsSpec(model, None, exact=True), prompts, NEW)
    found: dict[int, list[Compared]] = {}
    full = Precision.full()
    everything: list[Compared] = []
    wanted = runs(quick)
    draft: tuple[Precision, Draft] | None = None
    for number, (precision, gamma) in enumerate(wanted):
        if draft is None or draft[0] != precision:
            draft = precision, Restarts(BsSpec(model, precision, exact=True))
        compared = reference.compare(draft[1], gamma)
        found.setdefault(gamma, []).append(compared)
        if precision == full:
            everything.append(compared)
        progress((number + 1) / len(wanted))
    for gamma, group in sorted(found.items()):
        drafted, accepted = sum(c.drafted for c in group), sum(c.accepted for c in group)
        yield Check(
            level="greedy",
            name=f"gamma {gamma}, {len(group)} loads",
            path="exact",
            equal=all(c.equal for c in group),
            tokens=sum(c.compared for c in group),
            detail=f"{accepted:,} of {drafted:,} drafted accepted",
        )
    drafted, accepted = sum(c.drafted for c in everything), sum(c.accepted for c in everything)
    yield Check(
        level="greedy",
        name=f"W9KV9 accepts every draft, {len(everything)} gammas",
        path="exact",
        equal=drafted == accepted,
        detail=f"{accepted:,} of {drafted:,}",
    )
    yield from _controls(model, reference)


def _controls(model: StoredModel, reference: Reference) -> Iterator[Check]:
    hard = Precision.parse("W5KV5")
    for name, fault in greedy_faults().items():
        with planted(*fault):
            # A gamma that reaches the end of a block by drafting.
            compared = reference.compare(BsSpec(model, hard, exact=True), 8)
        yield _told(name, "exact", compared, control=True)
    prompts, new = reference.prompts, reference.new
    fast = Reference(BsSpec(model, None), prompts, new).compare(BsSpec(model, hard), 4)
    yield _told("the fast path in FP32, W5KV5, gamma 4", "fast", fast, note=True)


def _told(
    name: str, path: str, compared: Compared, *, control: bool = False, note: bool = False
) -> Check:
    what = "equal" if compared.tokens else "differ"
    return Check(
        level="greedy",
        name=name,
        path=path,
        equal=compared.equal,
        tokens=compared.compared,
        detail=f"tokens {what}, logits up to {compared.most:.2g} apart",
        control=control,
        note=note,
    )


def check_model(
    model: StoredModel,
    prompts: Sequence[Sequence[int]],
    loads: Sequence[tuple[str, int]],
    *,
    new: int,
    progress: Progress = lambda done: None,
) -> Iterator[Check]:
    """A sample of the loads on a real model, exact path.

    Args:
        model: the stored bits.
        prompts: of a batch.
        loads: precision and gamma of each run.
        new: tokens.
        progress: told how much is done.
    """
    reference = Reference(BsSpec(model, None, exact=True), prompts, new)
    for number, (name, gamma) in enumerate(loads):
        compared = reference.compare(BsSpec(model, Precision.parse(name), exact=True), gamma)
        progress((number + 1) / len(loads))
        yield Check(
            level="greedy",
            name=f"model, {name}, gamma {gamma}",
            path="exact",
            equal=compared.equal,
            tokens=compared.compared,
            detail=f"{compared.accepted} of {compared.drafted} drafted accepted; prompts of "
            + ", ".join(str(len(prompt)) for prompt in prompts),
        )
