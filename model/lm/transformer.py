"""The decoder-only transformer, written once for every numeric path.

A path (`model.lm.exact`, `model.lm.fast`) says how each step computes; this module says which
steps there are, in the order and with the roundings of the machine: everything between two steps
is BF16, logits are FP32.

    embed -> [norm -> q, k, v -> QK-norm -> RoPE -> write K, V -> attend -> o -> add
              -> norm -> gate, up -> SiLU times up -> down -> add] a layer -> norm -> head
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from model.lm.config import ModelConfig
from model.lm.rows import Rows


class Path(Protocol):
    """The steps of one numeric path at one precision. Rows are the first dimension."""

    config: ModelConfig

    def embed(self, tokens: Tensor) -> Tensor:
        """Rows of the embedding: bfloat16 (rows, width)."""

    def linear(self, layer: int, name: str, inputs: Tensor) -> Tensor:
        """A linear layer: bfloat16 (rows, inputs) to bfloat16 (rows, outputs)."""

    def norm(self, layer: int, name: str, inputs: Tensor) -> Tensor:
        """RMSNorm over the last dimension; the last norm is ("norm", layer = layers)."""

    def rotate(self, inputs: Tensor, positions: Tensor) -> Tensor:
        """RoPE of bfloat16 (rows, heads, d_h)."""

    def silu_times_up(self, gate: Tensor, up: Tensor) -> Tensor:
        """silu(gate) * up."""

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """The residual sum."""

    def write(self, layer: int, rows: Rows, keys: Tensor, values: Tensor) -> None:
        """Keys and values of the rows, bfloat16 (rows, KV heads, d_h), enter the cache."""

    def attend(self, layer: int, rows: Rows, queries: Tensor) -> Tensor:
        """Attention of bfloat16 (rows, heads, d_h) over the cache, in the same shape."""

    def head(self, inputs: Tensor) -> Tensor:
        """Logits: float32 (rows, vocabulary)."""


def forward(path: Path, rows: Rows, *, last_only: bool = False) -> Tensor:
    """One pass: writes keys and values of all rows and returns logits.

    Args:
        path: how to compute, and the cache to read and write.
        rows: tokens and where they stand; everything before them must be in the cache.
        last_only: the head for the last row of each active sequence only (prefill).

    Returns:
        float32 (rows, vocabulary), or (active sequences, vocabulary).
    """
    config = path.config
    x = path.embed(rows.tokens)
    for layer in range(config.layers):
        inputs = path.norm(layer, "attn_norm", x)
        q, k, v = (
            path.linear(layer, name, inputs).unflatten(-1, (-1, config.head_width))
            for name in ("q", "k", "v")
        )
        if config.qk_norm:
            q, k = path.norm(layer, "q_norm", q), path.norm(layer, "k_norm", k)
        q, k = path.rotate(q, rows.position), path.rotate(k, rows.position)
        path.write(layer, rows, k, v)
        mixed = path.attend(layer, rows, q).flatten(-2)
        x = path.add(x, path.linear(layer, "o", mixed))
        inputs = path.norm(layer, "ffn_norm", x)
        gate, up = (path.linear(layer, name, inputs) for name in ("gate", "up"))
        x = path.add(x, path.linear(layer, "down", path.silu_times_up(gate, up)))
    if last_only:
        x = x[torch.tensor(rows.last(), device=x.device)]
    return path.head(path.norm(config.layers, "norm", x))
