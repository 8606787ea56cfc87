"""Traps of the cache that real projects fell into; docs/verification.md lists all of them."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from model.decoding import sampling
from model.decoding.drafts.bs_spec import BsSpec
from model.decoding.drafts.separate import SeparateModel
from model.decoding.loop import Options, generate
from model.decoding.methods import Source, autoregressive, make_draft
from model.lm.cache import KVCache
from model.lm.precision import Precision
from model.lm.random_model import TINY, random_checkpoint
from model.lm.rows import Rows
from model.lm.stored import StoredModel, store
from model.verification.controls import SAMPLED, Replaced, is_bitwise_equal, planted
from model.verification.greedy import prompts_of

SMALL = dataclasses.replace(TINY, layers=1, width=32, ff_width=32, heads=2, kv_heads=1,
                            head_width=16)  # fmt: skip


@pytest.fixture(scope="module")
def model() -> StoredModel:
    """A random model with one narrow layer."""
    return store(random_checkpoint(SMALL, 2))


def exact(model: StoredModel, precision: str | None) -> BsSpec:
    """A draft on the exact path."""
    return BsSpec(model, precision and Precision.parse(precision), exact=True)


def fed(draft: BsSpec, pieces: Sequence[Sequence[int]], capacity: int = 256) -> Tensor:
    """Feeds and commits pieces of one sequence; logits behind the last token."""
    draft.start(1, capacity)
    for piece in pieces:
        rows = draft.verify([piece], last_only=True)[0]
        draft.commit([piece])
    return rows


def same_cache(first: BsSpec, second: BsSpec, b: int = 0, other: int = 0) -> bool:
    """Whether everything that is committed of two sequences is the same bytes."""
    pairs = zip(first.cache.committed(b), second.cache.committed(other), strict=True)
    return all(torch.equal(mine, theirs) for mine, theirs in pairs)


@pytest.mark.parametrize("accepted", range(8))
def test_roll_back_at_every_index_equals_a_new_prefill(model: StoredModel, accepted: int) -> None:
    """A round at 60 crosses the end of a block; any number of its tokens stays."""
    tokens = prompts_of(97, 4, (60 + 9,))[0]
    draft = exact(model, "W5KV5")
    fed(draft, [tokens[:60]])
    round_ = tokens[60:68]
    for token in round_[:7]:
        draft.draft([[token]])
    draft.verify([round_])
    draft.commit([round_[: accepted + 1]])
    last = 96 - tokens[-1]
    found = draft.verify([[last]])[0]
    draft.commit([[last]])
    new = exact(model, None)
    assert is_bitwise_equal(fed(new, [[*tokens[: 61 + accepted], last]]), found)
    assert same_cache(draft, new)


def test_all_accepted_for_64_rounds_leaves_no_gap(model: StoredModel) -> None:
    draft, plain = exact(model, "W9KV9"), exact(model, None)
    options = Options(gamma=1, max_new=64 * 2 + 1)
    prompts = prompts_of(97, 5, (3,))
    output = generate(draft, prompts, options)
    assert [r.accepted for r in output.rounds] == [1] * 64
    assert generate(plain, prompts, options).sequences[0].tokens == output.sequences[0].tokens
    assert same_cache(draft, plain)


def test_all_accepted_for_64_rounds_leaves_no_gap_in_a_draft_model() -> None:
    """Its own cache holds every committed token's keys, as a pass of the whole text gives them."""
    source = Source("small", random_checkpoint(SMALL, 2), None)
    draft = make_draft("separate:first-1", source, dtype=torch.float64)
    assert isinstance(draft, SeparateModel)
    prompt = prompts_of(97, 5, (3,))[0]
    with planted(*SAMPLED["accept always"]):
        output = generate(draft, [prompt], Options(gamma=2, max_new=64 * 3 + 1))
    assert [r.accepted for r in output.rounds] == [2] * 64
    keys = draft._path.view.own_keys[0].clone()
    text = [*prompt, *output.sequences[0].tokens]
    seen = draft._seen[0]
    assert text[seen : seen + len(draft._missing[0])] == draft._missing[0]
    assert seen + len(draft._missing[0]) == len(text) - 1
    draft.start(1, 256)
    draft.commit([text[:seen]])
    draft.draft([[0]])
    assert torch.equal(keys[:, :, :seen], draft._path.view.own_keys[0][:, :, :seen])


@pytest.mark.parametrize("precision", ["W5KV5", "W5mKV4m"])
def test_nothing_of_a_draft_stays_in_the_cache(model: StoredModel, precision: str) -> None:
    """Bytes of codes, exponents and open keys are those of autoregressive decoding."""
    draft, plain = exact(model, precision), exact(model, None)
    prompts = prompts_of(97, 6, (50, 120))
    output = generate(draft, prompts, Options(gamma=5, max_new=20))
    assert {r.accepted == len(r.drafted) for r in output.rounds} == {True, False}
    generate(plain, prompts, Options(max_new=20))
    assert same_cache(draft, plain)
    assert same_cache(draft, plain, 1, 1)


def test_200_tokens_at_once_one_by_one_and_by_eights(model: StoredModel) -> None:
    tokens = prompts_of(97, 7, (200,))[0]
    drafts = [exact(model, None) for _ in range(3)]
    rows = [
        fed(draft, [tokens[first : first + step] for first in range(0, 200, step)])
        for draft, step in zip(drafts, (200, 1, 8), strict=True)
    ]
    for draft, row in zip(drafts[1:], rows[1:], strict=True):
        assert same_cache(draft, drafts[0])
        assert is_bitwise_equal(row, rows[0])


def test_a_huge_rejected_key_leaves_no_trace_in_its_group() -> None:
    """S = 62, gamma 7, a drafted key of 2^20 at position 63 is rejected."""
    generator = torch.Generator().manual_seed(8)
    keys, values, other = (torch.randn(70, 1, 16, generator=generator).bfloat16() for _ in range(3))
    drafted = keys.clone()
    drafted[63:] = other[63:]
    drafted[63] = 2.0**20

    def write(cache: KVCache, source: Tensor, first: int, end: int) -> None:
        rows = Rows.of([[0] * (end - first)], [first])
        cache.write(0, rows, source[first:end], values[first:end])

    cache, clean = (KVCache(SMALL, 1, 128) for _ in range(2))
    for each in (cache, clean):
        write(each, keys, 0, 62)
        each.commit([62])
    for position in range(62, 69):  # seven drafts, each a pass
        write(cache, drafted, position, position + 1)
    assert int(cache.closed_exponents[0][0, 0, 0].max()) >= 147  # the draft closed the block
    write(cache, drafted, 62, 70)  # verification: 63 is rejected
    cache.commit([1])
    write(cache, keys, 63, 66)
    cache.commit([1])
    write(clean, keys, 62, 66)
    clean.commit([2])
    assert cache.final_blocks(0) == 1
    for mine, theirs in zip(cache.committed(0), clean.committed(0), strict=True):
        assert torch.equal(mine, theirs)
    assert int(cache.closed_exponents[0][0, 0, 0].max()) < 140


def test_verified_rows_across_a_block_end_equal_rows_one_by_one(model: StoredModel) -> None:
    tokens = prompts_of(97, 9, (70,))[0]
    at_once, one = exact(model, None), exact(model, None)
    fed(at_once, [tokens[:60]])
    rows = at_once.verify([tokens[60:68]])[0]
    fed(one, [tokens[:60]])
    for place, token in enumerate(tokens[60:68]):
        row = one.verify([[token]])[0]
        one.commit([[token]])
        assert is_bitwise_equal(row[0], rows[place])


def test_always_rejecting_for_200_tokens_equals_autoregressive(model: StoredModel) -> None:
    prompts = prompts_of(97, 10, (5,))
    draft, plain = exact(model, "W6KV6"), exact(model, None)
    with planted(Replaced(sampling, "accepts", lambda p, q, x, u: False)):
        output = generate(draft, prompts, Options(gamma=1, max_new=200))
    assert {r.accepted for r in output.rounds} == {0}
    assert output.sequences[0].tokens == (
        generate(plain, prompts, Options(max_new=200)).sequences[0].tokens
    )
    assert same_cache(draft, plain)


def test_a_ragged_batch_equals_batch_1(model: StoredModel) -> None:
    prompts = prompts_of(97, 11, (3, 66, 127))
    options = Options(gamma=4, max_new=12)
    together = exact(model, "W6KV6")
    output = generate(together, prompts, options)
    for b, prompt in enumerate(prompts):
        alone = exact(model, "W6KV6")
        assert generate(alone, [prompt], options).sequences[0].tokens == output.sequences[b].tokens
        assert same_cache(alone, together, 0, b)


def test_padding_never_enters_a_group(model: StoredModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gaps of the rectangle that attention sees hold garbage; no byte and no logit changes."""
    prompts = prompts_of(97, 12, (3, 66, 40))

    def run() -> tuple[BsSpec, list[Tensor]]:
        draft = exact(model, "W6KV6")
        draft.start(3, 128)
        draft.verify(prompts)
        draft.commit(prompts)
        draft.draft([[1], [], [2]])
        return draft, draft.verify([[1, 5, 6], [], [2]])

    plain, rows = run()
    spread, gaps = Rows.spread, []

    def garbage(self: Rows, values: Tensor) -> Tensor:
        laid = spread(self, values).clone()
        gap = self.positions < 0
        laid[gap] = 2.0**100
        gaps.append(int(gap.sum()))
        return laid

    monkeypatch.setattr(Rows, "spread", garbage)
    planted_draft, planted_rows = run()
    assert sum(gaps) > 0
    for b in range(3):
        assert same_cache(plain, planted_draft, b, b)
        assert is_bitwise_equal(rows[b], planted_rows[b])


def test_going_back_equals_never_having_been_there(model: StoredModel) -> None:
    tokens = prompts_of(97, 13, (80,))[0]
    draft = exact(model, "W6KV6")
    fed(draft, [tokens])
    draft.rewind([61])
    row = draft.verify([tokens[70:80]])[0]
    draft.commit([tokens[70:80]])
    new = exact(model, None)
    assert is_bitwise_equal(fed(new, [[*tokens[:61], *tokens[70:80]]])[0], row[-1])
    assert same_cache(draft, new)
    with pytest.raises(ValueError, match=r"lengths\[0\]"):
        draft.rewind([90])


def test_a_copy_without_draft_is_the_same_target(model: StoredModel) -> None:
    draft = exact(model, "W5KV5")
    prompts = prompts_of(97, 14, (5,))
    plain = generate(autoregressive(draft), prompts, Options(max_new=6))
    assert draft.drafts
    assert not any(r.drafted for r in plain.rounds)


@pytest.mark.parametrize("name", ["W5KV5", "quantspec-ns-w4kv4", "separate:first-1"])
def test_a_new_start_frees_the_old_cache(name: str) -> None:
    """Without the collector: references in a circle would keep caches of gigabytes."""
    draft = make_draft(name, Source("small", random_checkpoint(SMALL, 2), None))
    prompts = prompts_of(97, 15, (70,))
    generate(draft, prompts, Options(gamma=2, max_new=4))
    target = draft.target if isinstance(draft, SeparateModel) else draft
    old = weakref.ref(target._target.view)
    gc.disable()
    try:
        generate(draft, prompts, Options(gamma=2, max_new=4))
        assert old() is None
    finally:
        gc.enable()
