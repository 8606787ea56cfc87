"""Greedy equality, tokens and logit bits, over the shapes that models have."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from model.decoding.drafts.bs_spec import BsSpec
from model.decoding.loop import Options, generate
from model.decoding.methods import Source, autoregressive, make_draft
from model.lm.config import ModelConfig
from model.lm.precision import Precision
from model.lm.random_model import TINY, random_checkpoint
from model.lm.stored import store
from model.verification.greedy import Reference, prompts_of

SMALL = dataclasses.replace(TINY, layers=1, width=32, ff_width=32, head_width=16)


def check(config: ModelConfig, lengths: tuple[int, ...], gamma: int) -> None:
    model = store(random_checkpoint(config, 3))
    prompts = prompts_of(config.vocabulary, 1, lengths)
    reference = Reference(BsSpec(model, None, exact=True), prompts, 10)
    compared = reference.compare(BsSpec(model, Precision.parse("W5KV5"), exact=True), gamma)
    assert compared.equal
    assert compared.drafted > 0


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("ratio", [1, 3, 4, 5])
def test_query_heads_of_a_kv_head(ratio: int, batch: int) -> None:
    config = dataclasses.replace(SMALL, heads=2 * ratio, kv_heads=2)
    check(config, (60, 23)[:batch], 4)


@pytest.mark.parametrize("head_width", [64, 80, 128])
def test_head_widths(head_width: int) -> None:
    check(dataclasses.replace(SMALL, heads=2, kv_heads=1, head_width=head_width), (62,), 5)


@pytest.mark.parametrize("tied", [True, False])
def test_qwen3_family(tied: bool) -> None:
    config = dataclasses.replace(SMALL, family="qwen3", qk_norm=True, tied=tied)
    check(config, (60, 125), 7)


@pytest.mark.parametrize(
    "name", ["speq", "quantspec-s", "quantspec-ns-w4kv8", "quantspec-ns-w4kv4", "separate:first-1"]
)
def test_peers_give_their_target_s_tokens_in_float64(name: str) -> None:
    """The fast path, where rounding to BF16 hides what float64 sums differ by; no claim of bits."""
    source = Source("tiny", random_checkpoint(TINY, 0), None)
    draft = make_draft(name, source, dtype=torch.float64)
    prompts = prompts_of(97, 2, (40, 250))
    options = Options(gamma=4, max_new=16)
    plain = generate(autoregressive(draft), prompts, options)
    found = generate(draft, prompts, options)
    assert [s.tokens for s in found.sequences] == [s.tokens for s in plain.sequences]
