"""The plain form beside `transformers`, on checkpoints that `transformers` itself wrote.

Agreement of a tensor: max |ours - theirs| / max |theirs|, at most 1e-4 in FP32, for the hidden
states of every layer and for the logits.
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import transformers
from torch import Tensor

from model.datapath.special import RopeScaling
from model.lm import checkpoint as checkpoints
from model.lm import plain

BOUND = 1e-4
ORIGINAL = 32  # positions before scaling: most of those that are run lie beyond
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": ORIGINAL,
}


class Case(NamedTuple):
    """A model: `scaled` has Llama 3's RoPE scaling, `shard` is the largest size of a file."""

    family: str
    heads: int
    kv_heads: int
    tied: bool
    scaled: bool = False
    shard: str = "1GB"


CASES = [
    Case("llama", 4, 4, True),
    Case("llama", 6, 2, False, True, "100KB"),
    Case("llama", 4, 1, True, True),
    Case("llama", 5, 1, False),
    Case("qwen3", 4, 4, True),
    Case("qwen3", 3, 1, True, False, "60KB"),
    Case("qwen3", 8, 2, False, True),
    Case("qwen3", 5, 1, False, False, "100KB"),
]


def build(case: Case, seed: int = 0) -> transformers.PreTrainedModel:
    """A model of `transformers` with random BF16 weights, whose logits spread over some units."""
    kind = {"llama": transformers.LlamaConfig, "qwen3": transformers.Qwen3Config}[case.family]
    config = kind(
        vocab_size=97,
        hidden_size=60,
        intermediate_size=160,
        num_hidden_layers=3,
        num_attention_heads=case.heads,
        num_key_value_heads=case.kv_heads,
        head_dim=32,
        max_position_embeddings=256,
        rms_norm_eps=1e-5,
        tie_word_embeddings=case.tied,
        bos_token_id=1,
        eos_token_id=[2, 5],
        pad_token_id=None,
        rope_parameters=LLAMA3 if case.scaled else {"rope_type": "default", "rope_theta": 5_000.0},
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("norm.weight"):
                weight.copy_(1 + 0.3 * torch.randn(weight.shape))
            else:
                weight.copy_(2 / math.sqrt(weight.shape[1]) * torch.randn(weight.shape))
    return model.to(torch.bfloat16)


def apart(ours: Tensor, theirs: Tensor) -> float:
    assert ours.shape == theirs.shape
    return float((ours - theirs).abs().max() / theirs.abs().max())


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_hidden_states_and_logits_agree(case: Case, tmp_path: Path) -> None:
    build(case).save_pretrained(tmp_path, max_shard_size=case.shard)
    assert (len([*tmp_path.glob("*.safetensors")]) > 1) == (case.shard != "1GB")
    # Read anew, since a model that was BF16 once keeps rotary frequencies that were rounded.
    kind = transformers.AutoModelForCausalLM
    reference = kind.from_pretrained(tmp_path, dtype=torch.float32).eval()
    checkpoint, _ = checkpoints.load(str(tmp_path))
    spread = []
    for batch, length in ((1, 1), (1, 7), (2, 40), (3, 101)):
        tokens = torch.randint(97, (batch, length))
        with torch.no_grad():
            theirs = reference(tokens, output_hidden_states=True)
        ours = plain.forward(checkpoint, tokens)
        assert len(ours.hidden) == len(theirs.hidden_states) == 4
        for layer, (mine, other) in enumerate(zip(ours.hidden, theirs.hidden_states, strict=True)):
            assert apart(mine, other) < BOUND, (length, layer)
        assert apart(ours.logits, theirs.logits) < BOUND, length
        last = plain.forward(checkpoint, tokens[0], positions="last")
        assert apart(last.logits, theirs.logits[0, -1]) < BOUND
        spread.append(float(theirs.logits.std()))
    assert min(spread) > 1  # logits that say something


@pytest.mark.parametrize("case", CASES[1:7:5], ids=lambda case: case.family)
def test_config_is_read(case: Case, tmp_path: Path) -> None:
    build(case).save_pretrained(tmp_path, max_shard_size=case.shard)
    config = checkpoints.load(str(tmp_path))[0].config
    assert (config.family, config.heads, config.kv_heads) == case[:3]
    assert (config.layers, config.width, config.ff_width, config.head_width) == (3, 60, 160, 32)
    assert (config.tied, config.qk_norm) == (case.tied, case.family == "qwen3")
    assert (config.end_ids, config.begin_id) == ((2, 5), 1)
    assert (config.norm_eps, config.rope_base, config.max_positions) == (1e-5, 10_000.0, 256)
    assert config.rope_scaling == RopeScaling(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_positions=ORIGINAL
    )


def test_the_older_spelling_of_rope_is_the_same_model(tmp_path: Path) -> None:
    build(CASES[1]).save_pretrained(tmp_path)
    new, _ = checkpoints.load(str(tmp_path))
    path = tmp_path / "config.json"
    options = json.loads(path.read_text())
    scaling = options.pop("rope_parameters")
    options["rope_theta"] = scaling.pop("rope_theta")
    options["rope_scaling"] = scaling
    options["torch_dtype"] = options.pop("dtype")
    path.write_text(json.dumps(options))
    old, _ = checkpoints.load(str(tmp_path))
    assert old.config == new.config


@pytest.mark.parametrize(
    "left_out",
    ["q_norm", "k_norm", "attn_norm", "ffn_norm", "rope_scaling"],
)
def test_a_part_left_out_is_seen(left_out: str, tmp_path: Path) -> None:
    """The bound can fail: without any one of these the logits differ far more."""
    build(CASES[6]).save_pretrained(tmp_path)
    checkpoint, _ = checkpoints.load(str(tmp_path))
    tokens = torch.arange(97)
    right = plain.forward(checkpoint, tokens).logits
    if left_out == "rope_scaling":
        config = dataclasses.replace(checkpoint.config, rope_scaling=None)
        checkpoint = dataclasses.replace(checkpoint, config=config)
    else:
        checkpoint.blocks[1][left_out].fill_(1.0)
    assert apart(plain.forward(checkpoint, tokens).logits, right) > 100 * BOUND
