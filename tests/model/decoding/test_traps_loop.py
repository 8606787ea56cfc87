"""Traps of the loop that real projects fell into; docs/verification.md lists all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from model.decoding.loop import CONTEXT, END, LIMIT, Options, Text, generate
from model.decoding.sampling import Sampling
from model.verification.toys import TableDraft, Toy

VOCABULARY = 40
PROMPTS = ([3, 1], [7, 8, 9])


def toy(seed: int, agree: float = 0.8) -> Toy:
    """Many tokens; the draft's most likely one is the target's in most rows."""
    rng = np.random.default_rng(seed)
    shape = (2, VOCABULARY, VOCABULARY)
    p, q = rng.permuted(np.broadcast_to(np.arange(VOCABULARY), shape), axis=2), None
    q = np.where(rng.random((2, VOCABULARY, 1)) < agree, p, rng.permuted(p, axis=2))
    return Toy(p, q)


def text(draft: TableDraft, gamma: int, b: int = 0, **options: Any) -> Text:
    """One sequence's text; gamma 0 for autoregressive decoding."""
    draft.drafts = gamma > 0
    asked = Options(gamma=max(gamma, 1), **options)
    return generate(draft, PROMPTS, asked).sequences[b]


@pytest.mark.parametrize("gamma", [1, 2, 5, 8])
@pytest.mark.parametrize("b", [0, 1])
def test_end_of_text_at_every_offset_inside_a_round(gamma: int, b: int) -> None:
    """Every token of a text in turn is the one that ends it, alone and beside others."""
    draft = TableDraft(toy(0, 0.95))
    plain = text(draft, 0, b, max_new=20).tokens
    reached = set()
    for place, token in enumerate(plain):
        first = plain.index(token)
        for ends in ((token,), (token, *{0, 1, 2} - set(plain))):
            for each in (0, gamma):
                found = text(draft, each, b, max_new=30, end_ids=ends)
                assert found.tokens == plain[: first + 1], (place, ends)
                assert found.reason == END
            if found.rounds:
                reached.add(len(found.rounds[-1].emitted))
                assert sum(len(r.emitted) for r in found.rounds) + 1 == len(found.tokens)
    assert len(reached) > 1
    assert gamma != 5 or reached >= {1, 2, 3, 4, 5}


@pytest.mark.parametrize("gamma", [1, 3, 7])
def test_limit_of_new_tokens_cuts_as_autoregressive_decoding_does(gamma: int) -> None:
    draft = TableDraft(toy(6))
    for limit in range(1, 15):
        plain, found = text(draft, 0, max_new=limit), text(draft, gamma, max_new=limit)
        assert found.tokens == plain.tokens
        assert len(found.tokens) == limit
        assert found.reason == LIMIT


@pytest.mark.parametrize("gamma", [1, 4, 7])
@pytest.mark.parametrize("agree", [0.0, 0.8, 1.0])
def test_context_limit_clips_gamma(gamma: int, agree: float) -> None:
    """No pass feeds a position beyond the context, and the text ends where it would anyway."""
    table = toy(7, agree)
    for context in range(3, 20):
        draft = TableDraft(table, context=context)
        plain = text(draft, 0, max_new=50)
        found = text(draft, gamma, max_new=50)
        assert found.tokens == plain.tokens
        assert found.reason == plain.reason == CONTEXT
        assert len(found.tokens) == context - len(PROMPTS[0]) + 1
        for round_ in found.rounds:
            assert round_.length + len(round_.drafted) + 1 <= context


def test_a_sequence_does_not_depend_on_its_neighbours() -> None:
    """Sampled, ragged, one ends long before the other: the same tokens as alone."""
    table, sampling = toy(8), Sampling(temperature=1.0)
    logarithms = TableDraft(table, logarithms=True)
    plain = {"max_new": 24, "sampling": sampling, "gamma": 4, "end_ids": (11, 12)}
    both = generate(logarithms, PROMPTS, Options(**plain)).sequences
    for b, prompt in enumerate(PROMPTS):
        alone = generate(logarithms, [prompt], Options(**plain, streams=(b,))).sequences[0]
        assert alone.tokens == both[b].tokens
        assert alone.reason == both[b].reason


def test_listener_hears_every_token_once() -> None:
    heard: dict[int, list[int]] = {0: [], 1: []}
    draft = TableDraft(toy(9))
    output = generate(
        draft,
        PROMPTS,
        Options(max_new=17, gamma=5),
        lambda b, tokens, round_: heard[b].extend(tokens),
    )
    assert [heard[b] for b in (0, 1)] == [sequence.tokens for sequence in output.sequences]
