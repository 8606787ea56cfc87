"""A model from a Hugging Face folder: config.json, safetensors files, tokenizer.json.

What the folder must hold is known from config.json before any tensor is read: names, shapes and
types of all shards are checked first. Tensors are then read one at a time and rounded once to BF16,
so that beside the model only the tensor at hand is in memory. `transformers` keeps the two channels
of a RoPE pair half a head apart, as we do, so that nothing is permuted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from torch import Tensor

from model.formats.bf16 import to_bf16
from model.formats.checks import first_index
from model.lm.checkpoint import Checkpoint, check_names
from model.lm.config import ModelConfig
from model.lm.huggingface_config import read_config, read_json

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
#: Types of stored numbers, as safetensors names them.
DTYPES = ("BF16", "F16", "F32")

_EMBEDDING, _NORM, _HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
_BLOCK_NAMES = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
#: Tensors that may be there beside those of the model, and why each does no harm. The head of a
#: tied model may be there too, but only as a copy of the embedding: another one would be lost.
HARMLESS = {
    r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq": "rotary frequencies: config.json"
    " gives them exactly, older versions of transformers stored them as well",
}


class Stored(NamedTuple):
    """A tensor in a shard, as its header describes it."""

    path: Path
    shape: tuple[int, ...]
    dtype: str


def load(folder: str | Path) -> tuple[Checkpoint, Tokenizer]:
    """Reads a model and its tokenizer.

    Args:
        folder: its path.

    Returns:
        The checkpoint, and its tokenizer or, where there is no tokenizer.json, a stand-in that
        raises FileNotFoundError when it is used.

    Raises:
        FileNotFoundError: the folder, config.json, the weights or a shard of them are missing.
        ValueError: an option that is not built, a file that is not whole or not what its name
            says, shards that disagree with their index, a tensor that is missing, has no place,
            has a wrong shape or type, or holds an Inf or NaN; by name.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"model must be 'smollm2' or the path of a folder, not '{folder}'")
    config = read_config(folder)
    stored = _find(folder)
    shapes = _shapes(config)
    tied_head = config.tied and _HEAD in stored
    if tied_head:
        shapes[_HEAD] = (config.vocabulary, config.width)
    _check(folder, stored, shapes)
    tokenizer = _tokenizer(folder, config.vocabulary)
    tensors = _read(stored, shapes)
    if tied_head:
        _check_copy(tensors.pop(_HEAD), tensors[_EMBEDDING])
    return _assemble(config, tensors), tokenizer


def _shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor of the model, by the name that it has in the files."""
    table = (config.vocabulary, config.width)
    shapes: dict[str, tuple[int, ...]] = {_EMBEDDING: table, _NORM: (config.width,)}
    if not config.tied:
        shapes[_HEAD] = table
    for layer in range(config.layers):
        for name, shape in {**config.linear_shapes(), **config.norm_shapes()}.items():
            shapes[_block_name(layer, name)] = shape
    return shapes


def _block_name(layer: int, name: str) -> str:
    return f"model.layers.{layer}.{_BLOCK_NAMES[name]}.weight"


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """An open safetensors file; what the library says of a bad one becomes a ValueError."""
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from None


def _headers(path: Path) -> dict[str, Stored]:
    with _opened(path) as file:
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (no dict)
        return {
            name: Stored(path, tuple(part.get_shape()), part.get_dtype())
            for name, part in parts.items()
        }


def _find(folder: Path) -> dict[str, Stored]:
    """Every tensor of the folder: of the single file, or of the shards that the index names."""
    single, index = folder / SINGLE, folder / INDEX
    if single.is_file() and index.is_file():
        raise ValueError(f"{folder} must hold {SINGLE} or {INDEX}, not both")
    if single.is_file():
        return _headers(single)
    if not index.is_file():
        raise FileNotFoundError(f"{folder} has neither {SINGLE} nor {INDEX}")
    listed = read_json(index).get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(each, str) for each in listed.values()):
        raise ValueError(f"{index}: weight_map must be an object of tensor names and file names")
    files = sorted(set(listed.values()))
    for name in files:
        if Path(name).name != name:
            raise ValueError(f"{index}: a shard must be a file of the same folder, not {name!r}")
    missing = [name for name in files if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(f"{folder}: shards that are missing: {', '.join(missing)}")
    shards = {name: _headers(folder / name) for name in files}
    stored: dict[str, Stored] = {}
    for name, found in shards.items():
        for twice in sorted(set(found) & set(stored)):
            raise ValueError(f"tensor {twice} is in two shards, {stored[twice].path.name}, {name}")
        stored |= found
    for name, found in shards.items():
        here = {tensor for tensor, file in listed.items() if file == name}
        for tensor in sorted(here ^ set(found)):
            says, has = ("lists", "lacks") if tensor in here else ("does not list", "holds")
            raise ValueError(f"{index} {says} tensor {tensor} in {name}, which {has} it")
    return stored


def _check(folder: Path, stored: dict[str, Stored], shapes: dict[str, tuple[int, ...]]) -> None:
    """Names, then shapes and types, of all tensors."""
    harmless = {name for name in stored if any(re.fullmatch(each, name) for each in HARMLESS)}
    check_names(str(folder), set(stored) - harmless, shapes)
    wrong = []
    for name, shape in shapes.items():
        if stored[name].shape != shape:
            wrong.append(f"tensor {name} must have shape {shape}, not {stored[name].shape}")
        if stored[name].dtype not in DTYPES:
            allowed = " or ".join(DTYPES)
            wrong.append(f"tensor {name} must be {allowed}, not {stored[name].dtype}")
    if wrong:
        raise ValueError(f"{folder}: {'; '.join(wrong[:8])}")


def _read(stored: dict[str, Stored], names: Iterable[str]) -> dict[str, Tensor]:
    """The named tensors in BF16, shard by shard."""
    tensors: dict[str, Tensor] = {}
    for name in sorted(names, key=lambda name: stored[name].path):
        # Opened for one tensor: the pages of an open file that were read count as memory in use.
        with _opened(stored[name].path) as file:
            found = file.get_tensor(name)  # a view of the mapped file
            rounded = to_bf16(found, f"tensor {name}")
            tensors[name] = rounded.clone() if rounded is found else rounded
            del found, rounded
    return tensors


def _check_copy(head: Tensor, embedding: Tensor) -> None:
    differs = head.view(torch.int16) != embedding.view(torch.int16)
    if bool(differs.any()):
        row, column = first_index(differs)
        raise ValueError(
            f"tensor {_HEAD} of a tied model must be a copy of {_EMBEDDING}, but at"
            f" [{row}, {column}] it is {float(head[row, column])} and not"
            f" {float(embedding[row, column])}; is tie_word_embeddings right?"
        )


def _assemble(config: ModelConfig, tensors: dict[str, Tensor]) -> Checkpoint:
    names = [*config.linear_shapes(), *config.norm_shapes()]
    return Checkpoint(
        config,
        tensors[_EMBEDDING],
        [
            {name: tensors[_block_name(layer, name)] for name in names}
            for layer in range(config.layers)
        ],
        tensors[_NORM],
        None if config.tied else tensors[_HEAD],
    )


class NoTokenizer:
    """In a tokenizer's place: whatever is asked of it raises FileNotFoundError."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # asked by Python itself, as when copying
            raise AttributeError(name)
        raise FileNotFoundError(
            f"{self._path} is missing: text needs a tokenizer, token ids do not"
        )


def _tokenizer(folder: Path, vocabulary: int) -> Tokenizer:
    path = folder / "tokenizer.json"
    if not path.is_file():
        return cast(Tokenizer, NoTokenizer(path))
    read_json(path)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise ValueError(f"{path} is not a tokenizer: {error}") from None
    largest = max(tokenizer.get_vocab().values(), default=0)
    if largest >= vocabulary:
        raise ValueError(f"{path}: ids must be below vocab_size, {vocabulary}, not {largest}")
    return tokenizer
