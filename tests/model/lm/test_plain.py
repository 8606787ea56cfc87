"""The plain form by itself: rounding of inputs, the observer, causality, refusals.

test_against_transformers.py holds its numbers against another implementation.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from model.datapath.special import RopeScaling, rope_table
from model.lm import plain
from model.lm.checkpoint import Checkpoint
from model.lm.random_model import TINY, random_checkpoint

SCALING = RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_positions=32)
TOKENS = torch.arange(40) * 7 % 97


def test_random_models_repeat_and_differ(tiny: Checkpoint) -> None:
    again, other = random_checkpoint(TINY, 0), random_checkpoint(TINY, 1)
    assert torch.equal(again.blocks[1]["down"], tiny.blocks[1]["down"])
    assert torch.equal(again.embedding, tiny.embedding)
    assert not torch.equal(other.embedding, tiny.embedding)
    # The first numbers of seed 0: other machines must draw the same.
    assert tiny.embedding[0, :3].tolist() == [0.3359375, -0.416015625, -0.1279296875]
    with pytest.raises(ValueError, match="seed must be at least 0, not -1"):
        random_checkpoint(TINY, -1)


def test_logits_of_a_random_model_are_neither_flat_nor_decided(tiny: Checkpoint) -> None:
    laws = plain.forward(tiny, TOKENS).logits.softmax(-1)
    largest = laws.max(-1).values
    assert 0.05 < float(largest.mean()) < 0.9
    assert len(set(laws.argmax(-1).tolist())) > 10


@pytest.mark.parametrize("activations", plain.ACTIVATIONS)
def test_observer_sees_every_linear_layer(activations: str, tiny: Checkpoint) -> None:
    seen: dict[str, Tensor] = {}

    def observe(name: str, inputs: Tensor) -> None:
        assert name not in seen
        seen[name] = inputs

    plain.forward(tiny, TOKENS, observe, activations=activations)
    shapes = {
        f"{layer}.{name}": (40, inputs)
        for layer in range(2)
        for name, (_, inputs) in TINY.linear_shapes().items()
    }
    assert {name: each.shape for name, each in seen.items()} == shapes | {"head": (40, 64)}
    dtype = torch.bfloat16 if activations == "bf16" else torch.float32
    assert {each.dtype for each in seen.values()} == {dtype}
    before, seen = seen, {}
    plain.forward(tiny, TOKENS, observe, activations=activations, positions="last")
    assert {name: each.shape for name, each in seen.items()} == shapes | {"head": (1, 64)}
    assert torch.equal(seen["head"], before["head"][-1:])


def test_rounding_the_inputs_changes_little(tiny: Checkpoint) -> None:
    exact = plain.forward(tiny, TOKENS).logits
    rounded = plain.forward(tiny, TOKENS, activations="bf16").logits
    error = float((rounded - exact).norm() / exact.norm())
    assert 2**-12 < error < 2**-5


def test_positions_and_batches_are_the_same_numbers(tiny: Checkpoint) -> None:
    whole = plain.forward(tiny, torch.stack([TOKENS, TOKENS.flip(0)]))
    for row, tokens in enumerate((TOKENS, TOKENS.flip(0))):
        single = plain.forward(tiny, tokens)
        assert torch.allclose(whole.logits[row], single.logits, atol=1e-4)
        # No position sees a later one.
        part = plain.forward(tiny, tokens[:17], positions="last")
        assert part.logits.shape == (97,)
        assert torch.allclose(part.logits, single.logits[16], atol=1e-4)


@pytest.mark.parametrize("scaling", [None, SCALING])
def test_the_hardware_table_holds_the_same_angles(scaling: RopeScaling | None) -> None:
    config = dataclasses.replace(TINY, rope_scaling=scaling)
    table = rope_table(512, config.head_width, config.rope_base, scaling)
    for mine, theirs in zip(plain.rotary(config, 512), (table.cosines, table.sines), strict=True):
        assert float((mine[:, :32] - theirs * 2.0**-14).abs().max()) < 2.0**-15 + 1e-7
        assert torch.equal(mine[:, :32], mine[:, 32:])


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (torch.tensor([3, 97]), r"tokens\[1\] must be in 0..96, not 97"),
        (torch.tensor([-1]), r"tokens\[0\] must be in 0..96, not -1"),
        (torch.zeros(0, dtype=torch.int64), "tokens must be 1..512 in a sequence, not 0"),
        (torch.zeros(513, dtype=torch.int64), "tokens must be 1..512 in a sequence, not 513"),
        (torch.tensor(5), "tokens must be 1..512 in a sequence, not 0"),
    ],
)
def test_tokens_that_are_refused(tokens: Tensor, message: str, tiny: Checkpoint) -> None:
    with pytest.raises(ValueError, match=message):
        plain.forward(tiny, tokens)


def test_choices_that_are_refused(tiny: Checkpoint) -> None:
    with pytest.raises(ValueError, match="activations must be 'fp32' or 'bf16', not 'fp16'"):
        plain.forward(tiny, TOKENS, activations="fp16")
    with pytest.raises(ValueError, match="positions must be 'all' or 'last', not 'first'"):
        plain.forward(tiny, TOKENS, positions="first")
    with pytest.raises(TypeError, match="tokens must be a tensor of integers"):
        plain.forward(tiny, TOKENS.float())
