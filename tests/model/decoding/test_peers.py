"""Peers' formats against values worked out by hand, and against their own definitions."""

from __future__ import annotations

import pytest
import torch

from model.decoding.drafts import quantspec, speq
from model.decoding.methods import Source, check_name, make_draft
from model.lm.random_model import TINY, random_checkpoint
from model.lm.rows import Rows


def test_speq_reads_a_weight_as_the_middle_of_its_binade() -> None:
    weight = torch.tensor([1.0, -1.75, 0.5, 0.375, 0.0, -(2.0**-14), 2.0**-15]).bfloat16()
    expected = [1.5, -1.5, 0.75, 0.375, 0.0, -1.5 * 2.0**-14, 2.0**-15]
    assert speq.draft_weights(weight).tolist() == expected
    assert torch.equal(speq.target_weights(weight), weight.float())


def test_speq_scales_a_tensor_that_reaches_two() -> None:
    weight = torch.tensor([2.0, 1.0, -0.75]).bfloat16()
    assert speq.draft_weights(weight).tolist() == [3.0, 1.5, -0.75]
    assert torch.equal(speq.target_weights(weight), weight.float())


def test_speq_fetches_a_sign_and_four_exponent_bits() -> None:
    """Sixteen magnitudes at most, each with two signs."""
    weight = torch.randn(64, 512, generator=torch.Generator().manual_seed(1)).bfloat16()
    values = speq.draft_weights(weight).abs().unique()
    assert 6 <= len(values) <= 16
    normal = weight.abs() >= 2.0**-12  # the largest is below 8: the scale is 4
    ratio = speq.draft_weights(weight)[normal] / speq.target_weights(weight)[normal]
    assert 0.75 <= float(ratio.min()) <= float(ratio.max()) <= 1.5


def test_halves_by_hand() -> None:
    """Steps of 1 from 0 to 15: the upper half is exact at whole numbers."""
    values = torch.tensor([[0.0, 15.0, 3.0, 3.25, 3.5, 7.47]])
    upper, both = quantspec.halves(values, 1)
    assert upper.tolist() == [[0.0, 15.0, 3.0, 3.0, 4.0, 7.0]]  # 3.5 to even
    assert both.tolist()[0] == pytest.approx([0.0, 15.0, 3.0, 3.25, 3.5, 7.4375])


def test_halves_of_a_constant_group_are_exact() -> None:
    values = torch.full((2, 5), -3.0)
    for half in quantspec.halves(values, 1):
        assert torch.equal(half, values)


def test_both_halves_are_sixteen_times_finer() -> None:
    values = torch.randn(100, 128, generator=torch.Generator().manual_seed(2))
    upper, both = quantspec.halves(values, 1)
    step = (values.amax(1) - values.amin(1)) / 15
    assert float(((upper - values).abs().amax(1) / step).max()) <= 0.5 + 1e-5
    assert float(((both - values).abs().amax(1) / step).max()) <= 1 / 16 + 1e-5


def test_int4_groups_run_along_inputs_and_may_be_short() -> None:
    weight = torch.randn(3, 300, generator=torch.Generator().manual_seed(3)).bfloat16()
    loaded = quantspec.int4_weights(weight)
    for columns in (slice(0, 128), slice(128, 256), slice(256, 300)):
        for row in range(3):
            assert len(loaded[row, columns].unique()) <= 16
            assert float(loaded[row, columns].min()) == float(weight[row, columns].min())


def view(bits: int) -> tuple[quantspec.HierarchicalView, quantspec.HierarchicalView]:
    target = quantspec.HierarchicalView(TINY, 1, 400, torch.float32, "cpu")
    draft = quantspec.HierarchicalView(TINY, 1, 400, torch.float32, "cpu", target)
    return target, draft


def test_quantspec_keeps_two_groups_in_sixteen_bits() -> None:
    target, draft = view(4)
    borders = target.border(torch.tensor([0, 127, 128, 255, 256, 300, 384]))
    assert borders.tolist() == [0, 0, 0, 0, 128, 128, 256]
    generator = torch.Generator().manual_seed(4)
    rows = Rows.of([[0] * 300], [0])
    keys, values = (torch.randn(300, 2, 64, generator=generator).bfloat16() for _ in range(2))
    draft.write(0, rows, keys, values)  # either view writes for both
    assert torch.equal(target.own_keys[0][0, :, :300], keys.float().transpose(0, 1))
    upper, both = quantspec.halves(keys[128:256], 0)  # a channel's 128 tokens are a group
    assert torch.equal(draft.behind_keys[0][0, :, 128:256], upper.transpose(0, 1))
    assert torch.equal(target.behind_keys[0][0, :, 128:256], both.transpose(0, 1))
    upper, both = quantspec.halves(values[:256], 2)  # a token's channels are a group
    assert torch.equal(draft.behind_values[0][0, :, :256], upper.transpose(0, 1))
    assert torch.equal(target.behind_values[0][0, :, :256], both.transpose(0, 1))
    assert not target.behind_keys[0][0, :, 256:].any()


@pytest.mark.parametrize(
    ("name", "weights", "old", "scales"),
    [("quantspec-s", 16, 4, 0), ("quantspec-ns-w4kv8", 4, 8, 1), ("quantspec-ns-w4kv4", 4, 4, 1)],
)
def test_quantspec_loads(name: str, weights: int, old: int, scales: int) -> None:
    draft = make_draft(name, Source("tiny", random_checkpoint(TINY, 0), None))
    draft.start(2, 400)
    draft.commit([[0] * 299, []])
    linear = 2 * (64 * 256 + 2 * 64 * 128 + 256 * 64 + 3 * 64 * 128) + 64 * 97
    loaded = draft.draft_loads([1, 0])
    assert loaded.weights == linear * weights + scales * (linear // 128 * 32)
    numbers = 2 * 2 * 2 * 64  # of a token
    assert loaded.kv == 128 * numbers * old + 128 * numbers // 64 * 32 + 172 * numbers * 16


def test_speq_loads() -> None:
    draft = make_draft("speq", Source("tiny", random_checkpoint(TINY, 0), None))
    draft.start(1, 100)
    draft.commit([[0] * 9])
    assert draft.draft_loads([1]).weights * 16 == draft.verify_loads([1]).weights * 5
    assert draft.draft_loads([1]).kv == draft.verify_loads([1]).kv == 10 * 2 * 2 * 2 * 64 * 16


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("w6kv7", "draft must be W5KV5..W9KV9 or one of none, auto, speq"),
        ("W6KV10", "p must be in 2..p_full = 9, not 10"),
        ("W6KV", "a precision must be written as W6KV7 or W6mKV7m, not 'W6KV'"),
        ("", "draft must be"),
    ],
)
def test_names_that_are_none(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        check_name(name)


def test_a_draft_model_of_another_vocabulary_is_refused() -> None:
    import dataclasses

    from model.decoding.drafts.separate import SeparateModel

    target = make_draft("none", Source("tiny", random_checkpoint(TINY, 0), None))
    other = random_checkpoint(dataclasses.replace(TINY, vocabulary=96), 0)
    with pytest.raises(ValueError, match="vocabulary must be the target's 97 tokens, not 96"):
        SeparateModel(target, other)
