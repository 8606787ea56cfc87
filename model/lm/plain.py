"""The transformer in plain arithmetic: FP32, with the inputs of linear layers rounded to BF16.

This is the reference that real activations are taken from; it uses no block floating point.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from model.lm.checkpoint import Checkpoint

#: Called with a linear layer's name ("15.q", "head") and its input, bfloat16 (tokens, inputs).
Observer = Callable[[str, Tensor], None]


def forward(checkpoint: Checkpoint, tokens: Tensor, observe: Observer | None = None) -> Tensor:
    """Logits of the last position.

    Args:
        checkpoint: the model.
        tokens: int64 (tokens,), one sequence.
        observe: sees the input of every linear layer.

    Returns:
        float32 (vocabulary,).
    """
    config = checkpoint.config

    def linear(name: str, inputs: Tensor, weight: Tensor) -> Tensor:
        rounded = inputs.to(torch.bfloat16)
        if observe is not None:
            observe(name, rounded)
        return functional.linear(rounded.float(), weight.float())

    def norm(inputs: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(inputs, (config.width,), weight.float(), config.norm_eps)

    count = len(tokens)
    x = checkpoint.embedding[tokens].float()
    cosines, sines = _rotary(count, config.head_width, config.rope_base)
    mask = torch.full((count, count), -math.inf).triu(1)
    for layer, block in enumerate(checkpoint.blocks):
        inputs = norm(x, block["attn_norm"])
        q, k, v = (linear(f"{layer}.{name}", inputs, block[name]) for name in ("q", "k", "v"))
        queries = _rotate(_heads(q, config.heads), cosines, sines)
        keys = _rotate(_heads(k, config.kv_heads), cosines, sines)
        values = _heads(v, config.kv_heads)
        share = config.heads // config.kv_heads
        keys, values = (part.repeat_interleave(share, 0) for part in (keys, values))
        scores = queries @ keys.transpose(1, 2) / math.sqrt(config.head_width) + mask
        mixed = (scores.softmax(-1) @ values).transpose(0, 1).reshape(count, -1)
        x = x + linear(f"{layer}.o", mixed, block["o"])
        inputs = norm(x, block["ffn_norm"])
        gate, up = (linear(f"{layer}.{name}", inputs, block[name]) for name in ("gate", "up"))
        x = x + linear(f"{layer}.down", functional.silu(gate) * up, block["down"])
    return linear("head", norm(x, checkpoint.norm), checkpoint.embedding)[-1]


def _heads(values: Tensor, heads: int) -> Tensor:
    """(tokens, heads * d) to (heads, tokens, d)."""
    return values.view(len(values), heads, -1).transpose(0, 1)


def _rotary(count: int, width: int, base: float) -> tuple[Tensor, Tensor]:
    frequencies = base ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.outer(torch.arange(count, dtype=torch.float64), frequencies)
    angles = torch.cat([angles, angles], 1)
    return angles.cos().float(), angles.sin().float()


def _rotate(values: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    low, high = values.chunk(2, -1)
    return values * cosines + torch.cat([-high, low], -1) * sines
