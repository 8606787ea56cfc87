"""Hugging Face folders to read: written by hand, so that each fault can be put in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models
from torch import Tensor

from model.lm.checkpoint import Checkpoint
from model.lm.config import ModelConfig
from model.lm.huggingface import _BLOCK_NAMES, INDEX, SINGLE


def options(config: ModelConfig) -> dict[str, Any]:
    """config.json of a model, as the files of recent models spell it."""
    found: dict[str, Any] = {
        "model_type": config.family,
        "num_hidden_layers": config.layers,
        "hidden_size": config.width,
        "intermediate_size": config.ff_width,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_width,
        "vocab_size": config.vocabulary,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_base,
        "rope_scaling": None,
        "max_position_embeddings": config.max_positions,
        "tie_word_embeddings": config.tied,
        "eos_token_id": list(config.end_ids) or None,
        "bos_token_id": config.begin_id,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
    }
    if config.rope_scaling is not None:
        found["rope_scaling"] = {
            "rope_type": "llama3",
            "factor": config.rope_scaling.factor,
            "low_freq_factor": config.rope_scaling.low_freq_factor,
            "high_freq_factor": config.rope_scaling.high_freq_factor,
            "original_max_position_embeddings": config.rope_scaling.original_positions,
        }
    return found


def tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Its tensors by the names that they have in files."""
    found = {"model.embed_tokens.weight": checkpoint.embedding}
    found["model.norm.weight"] = checkpoint.norm
    if checkpoint.head is not None:
        found["lm_head.weight"] = checkpoint.head
    for layer, block in enumerate(checkpoint.blocks):
        for name, weight in block.items():
            found[f"model.layers.{layer}.{_BLOCK_NAMES[name]}.weight"] = weight
    return found


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


def write_tokenizer(path: Path, vocabulary: int) -> None:
    """A tokenizer of that many letters."""
    letters = {chr(33 + i): i for i in range(vocabulary)}
    Tokenizer(models.BPE(vocab=letters, merges=[])).save(str(path))


def write_folder(
    folder: Path,
    config: dict[str, Any],
    weights: dict[str, Tensor],
    *,
    shards: int = 1,
    tokenizer: bool = True,
) -> Path:
    """A folder as `transformers` writes it, with one file or several."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    if tokenizer:
        write_tokenizer(folder / "tokenizer.json", 64)
    # Its own storage each, which is what safetensors asks for.
    weights = {name: torch.clone(weight).contiguous() for name, weight in weights.items()}
    if shards == 1:
        save_file(weights, folder / SINGLE)
        return folder
    names = sorted(weights)
    listed = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = names[shard::shards]
        save_file({name: weights[name] for name in part}, folder / file)
        listed |= dict.fromkeys(part, file)
    write_json(folder / INDEX, {"metadata": {}, "weight_map": listed})
    return folder
