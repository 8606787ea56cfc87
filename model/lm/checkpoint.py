"""A model's weights in BF16, and where they are read from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from model.formats.checks import check_tensor
from model.lm.config import ModelConfig


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A model's weights, all bfloat16 and finite.

    Attributes:
        config: its shape.
        embedding: (vocabulary, width).
        blocks: for each layer, by name: "q", "k", "v", "o", "gate", "up", "down", each (outputs,
            inputs); "attn_norm", "ffn_norm", each (width,); with QK-norm "q_norm", "k_norm", each
            (head_width,). Channels i and i + head_width/2 of a head are a RoPE pair.
        norm: (width,), the last norm.
        head: (vocabulary, width), None where tied.

    Raises:
        TypeError: a weight is no tensor or not bfloat16, by name.
        ValueError: a weight is missing, has no place or has another shape, by name.
    """

    config: ModelConfig
    embedding: Tensor
    blocks: list[dict[str, Tensor]]
    norm: Tensor
    head: Tensor | None = None

    def __post_init__(self) -> None:
        config = self.config
        table = (config.vocabulary, config.width)
        _check("embedding", self.embedding, table)
        _check("norm", self.norm, (config.width,))
        if config.tied != (self.head is None):
            raise ValueError(
                "head must be a tensor where the head is not tied, and None where it is;"
                f" tied is {config.tied}, head is {'None' if self.head is None else 'given'}"
            )
        if self.head is not None:
            _check("head", self.head, table)
        if len(self.blocks) != config.layers:
            raise ValueError(f"blocks must be {config.layers}, one a layer, not {len(self.blocks)}")
        shapes: dict[str, tuple[int, ...]] = {**config.linear_shapes(), **config.norm_shapes()}
        for layer, block in enumerate(self.blocks):
            check_names(f"blocks[{layer}]", block, shapes)
            for name, shape in shapes.items():
                _check(f"blocks[{layer}].{name}", block[name], shape)

    @property
    def head_weight(self) -> Tensor:
        """bfloat16 (vocabulary, width): the head, which is the embedding where tied."""
        return self.embedding if self.head is None else self.head


def check_names(where: str, given: Iterable[str], wanted: Iterable[str]) -> None:
    """ValueError that names every tensor that is missing and every one that has no place."""
    missing, extra = sorted(set(wanted) - set(given)), sorted(set(given) - set(wanted))
    said = []
    if missing:
        said.append(f"tensors that are missing: {_some(missing)}")
    if extra:
        said.append(f"tensors that this model has no place for: {_some(extra)}")
    if said:
        raise ValueError(f"{where}: {'; '.join(said)}")


def _some(names: list[str], most: int = 8) -> str:
    """Names in a line, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _check(name: str, weight: Tensor, shape: tuple[int, ...]) -> None:
    check_tensor(name, weight)
    if weight.dtype != torch.bfloat16:
        raise TypeError(f"{name} must be bfloat16, not {weight.dtype}")
    if weight.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, not {tuple(weight.shape)}")


def load(source: str) -> tuple[Checkpoint, Tokenizer]:
    """Reads a model.

    Args:
        source: "smollm2", or the path of a Hugging Face folder.

    Returns:
        The checkpoint and its tokenizer. A folder without tokenizer.json gives a stand-in that
        raises FileNotFoundError when text is asked of it.

    Raises:
        FileNotFoundError: no such folder or file, or a package that is not installed.
        ValueError: what is there is not a model of these families; the message says where and why.
    """
    # Here, because both readers make a Checkpoint, and because each brings a package to import.
    if source == "smollm2":
        from model.lm.smollm2 import load as load_smollm2

        return load_smollm2()
    from model.lm.huggingface import load as load_folder

    return load_folder(source)
