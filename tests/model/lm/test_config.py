"""Shapes of models: counts of the paper's three, and values that are refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from model.datapath.special import RopeScaling
from model.lm.checkpoint import Checkpoint
from model.lm.config import ModelConfig, parameters
from model.lm.paper_models import PAPER_MODELS
from model.lm.random_model import TINY, random_checkpoint


@pytest.mark.parametrize(
    ("name", "shape", "total"),
    [
        ("Llama-3.2-3B", (28, 3072, 8192, 24, 8, 128, 128_256, True), 3_212_749_824),
        ("Llama-3.1-8B", (32, 4096, 14_336, 32, 8, 128, 128_256, False), 8_030_261_248),
        ("Qwen3-14B", (40, 5120, 17_408, 40, 8, 128, 151_936, False), 14_768_307_200),
    ],
)
def test_models_of_the_paper(name: str, shape: tuple, total: int) -> None:
    config = PAPER_MODELS[name]
    fields = ("layers", "width", "ff_width", "heads", "kv_heads", "head_width", "vocabulary")
    assert tuple(getattr(config, field) for field in (*fields, "tied")) == shape
    assert parameters(config) == total


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_parameters_are_those_of_the_tensors(tied: bool, family: str) -> None:
    config = dataclasses.replace(TINY, family=family, qk_norm=family == "qwen3", tied=tied)
    made = random_checkpoint(config, 0)
    weights = [made.embedding, made.norm, *([] if tied else [made.head_weight])]
    weights += [weight for block in made.blocks for weight in block.values()]
    assert parameters(config) == sum(weight.numel() for weight in weights)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"family": "gpt2"}, "family must be 'llama' or 'qwen3', not 'gpt2'"),
        ({"qk_norm": True}, "qk_norm must be False in family 'llama', not True"),
        ({"family": "qwen3"}, "qk_norm must be True in family 'qwen3', not False"),
        ({"layers": 0}, "layers must be in 1..2147483648, not 0"),
        ({"heads": 3}, "heads must be a multiple of kv_heads, not 3 and 2"),
        ({"head_width": 7}, "head_width must be even, not 7"),
        ({"norm_eps": 0.0}, r"norm_eps must be in \(0, 1\), not 0.0"),
        ({"norm_eps": float("nan")}, r"norm_eps must be in \(0, 1\), not nan"),
        ({"rope_base": float("inf")}, "rope_base must be finite and above 1, not inf"),
        ({"end_ids": (1, 97)}, r"end_ids\[1\] must be in 0..96, not 97"),
        ({"end_ids": (1, 1)}, r"end_ids must differ from each other, not \(1, 1\)"),
        ({"begin_id": -1}, "begin_id must be in 0..96, not -1"),
        ({"max_positions": 0, "width": -1}, "width must be .*; max_positions must be"),
    ],
)
def test_wrong_values(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": 2.0}, "layers must be an int, not 2.0"),
        ({"heads": True}, "heads must be an int, not True"),
        ({"tied": 1}, "tied must be a bool, not 1"),
        ({"norm_eps": "1e-5"}, "norm_eps must be a float, not '1e-5'"),
        ({"rope_scaling": {"factor": 8}}, "rope_scaling must be a RopeScaling or None"),
        ({"end_ids": [2]}, r"end_ids must be a tuple of ints, not \[2\]"),
        ({"end_ids": ("2",)}, r"end_ids\[0\] must be an int, not '2'"),
    ],
)
def test_wrong_kinds(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        dataclasses.replace(TINY, **changes)


def test_scaling_is_kept() -> None:
    scaling = RopeScaling(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_positions=64
    )
    assert dataclasses.replace(TINY, rope_scaling=scaling).rope_scaling == scaling
    assert isinstance(PAPER_MODELS["Llama-3.1-8B"].rope_scaling, RopeScaling)
    assert all(isinstance(config, ModelConfig) for config in PAPER_MODELS.values())


class TestCheckpoint:
    def test_missing_and_extra(self, tiny: Checkpoint) -> None:
        blocks = [dict(block) for block in tiny.blocks]
        blocks[1]["query"] = blocks[1].pop("q")
        message = r"blocks\[1\]: tensors that are missing: q; tensors .* no place for: query"
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(tiny, blocks=blocks)

    def test_shape_and_type(self, tiny: Checkpoint) -> None:
        with pytest.raises(ValueError, match=r"norm must have shape \(64,\), not \(63,\)"):
            dataclasses.replace(tiny, norm=tiny.norm[1:])
        with pytest.raises(TypeError, match=r"embedding must be bfloat16, not torch\.float32"):
            dataclasses.replace(tiny, embedding=tiny.embedding.float())

    def test_head(self, tiny: Checkpoint) -> None:
        assert tiny.head_weight is tiny.embedding
        with pytest.raises(ValueError, match=r"head must be a tensor where .* head is given"):
            dataclasses.replace(tiny, head=tiny.embedding)

    def test_layers(self, tiny: Checkpoint) -> None:
        with pytest.raises(ValueError, match="blocks must be 2, one a layer, not 1"):
            dataclasses.replace(tiny, blocks=tiny.blocks[:1])
