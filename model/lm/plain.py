"""The transformer in plain floating point: the reference for everything that uses BFP.

Both families, a whole sequence at a time, no cache. With `activations="fp32"` nothing is rounded
but by FP32 itself, and the result is that of `transformers` on the same weights. With "bf16" the
inputs of linear layers are rounded to BF16, as the core takes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from model.formats.checks import check_choice, check_integers
from model.lm.checkpoint import Checkpoint
from model.lm.config import ModelConfig

#: Called with a linear layer's name ("15.q", "head") and its input, (..., T, inputs), bfloat16 or
#: float32 as `activations` says.
Observer = Callable[[str, Tensor], None]

ACTIVATIONS = ("fp32", "bf16")
POSITIONS = ("all", "last")


class Forward(NamedTuple):
    """What a pass gives.

    Attributes:
        hidden: float32 (..., T, width) each, layers + 1 of them, as `output_hidden_states` of
            transformers: the embedding, the sum after each block but the last, the last norm's
            result.
        logits: float32 (..., T, vocabulary), or (..., vocabulary) of the last position.
    """

    hidden: list[Tensor]
    logits: Tensor


def forward(
    checkpoint: Checkpoint,
    tokens: Tensor,
    observe: Observer | None = None,
    *,
    activations: str = "fp32",
    positions: str = "all",
) -> Forward:
    """Runs sequences through the model.

    Args:
        checkpoint: the model.
        tokens: integers (..., T): a sequence, or several of one length.
        observe: sees the input of every linear layer.
        activations: "fp32", or "bf16" to round the inputs of linear layers.
        positions: whose logits, "all" or "last"; with "last" the head is given, and the observer
            shown, that position alone.

    Raises:
        TypeError: tokens are no integers.
        ValueError: a token outside the vocabulary, no tokens, or more than `max_positions`.
    """
    config = checkpoint.config
    check_choice("activations", activations, ACTIVATIONS)
    check_choice("positions", positions, POSITIONS)
    check_integers("tokens", tokens, 0, config.vocabulary - 1)
    count = tokens.shape[-1] if tokens.ndim else 0
    if not 1 <= count <= config.max_positions:
        raise ValueError(f"tokens must be 1..{config.max_positions} in a sequence, not {count}")

    def linear(name: str, inputs: Tensor, weight: Tensor) -> Tensor:
        inputs = inputs.to(torch.bfloat16) if activations == "bf16" else inputs
        if observe is not None:
            observe(name, inputs)
        return functional.linear(inputs.float(), weight.float())

    def norm(inputs: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(inputs, weight.shape, weight.float(), config.norm_eps)

    x = functional.embedding(tokens.to(torch.int64), checkpoint.embedding).float()  # (..., T, C)
    hidden = []
    cosines, sines = rotary(config, count)  # (T, d) each
    future = torch.full((count, count), -math.inf).triu(1)
    for layer, block in enumerate(checkpoint.blocks):
        hidden.append(x)
        inputs = norm(x, block["attn_norm"])
        q, k, v = (linear(f"{layer}.{name}", inputs, block[name]) for name in ("q", "k", "v"))
        queries = _heads(q, config.heads)  # (..., H, T, d)
        keys, values = _heads(k, config.kv_heads), _heads(v, config.kv_heads)  # (..., H_kv, T, d)
        if config.qk_norm:
            queries, keys = norm(queries, block["q_norm"]), norm(keys, block["k_norm"])
        queries, keys = _rotate(queries, cosines, sines), _rotate(keys, cosines, sines)
        share = config.heads // config.kv_heads  # query heads of a key head
        keys, values = (part.repeat_interleave(share, -3) for part in (keys, values))
        scores = queries @ keys.transpose(-2, -1) / math.sqrt(config.head_width)  # (..., H, T, T)
        mixed = (scores + future).softmax(-1) @ values  # (..., H, T, d)
        x = x + linear(f"{layer}.o", mixed.transpose(-3, -2).flatten(-2), block["o"])
        inputs = norm(x, block["ffn_norm"])
        gate, up = (linear(f"{layer}.{name}", inputs, block[name]) for name in ("gate", "up"))
        x = x + linear(f"{layer}.down", functional.silu(gate) * up, block["down"])
    hidden.append(norm(x, checkpoint.norm))
    last = hidden[-1] if positions == "all" else hidden[-1][..., -1:, :]
    logits = linear("head", last, checkpoint.head_weight)
    return Forward(hidden, logits if positions == "all" else logits[..., 0, :])


def rotary(config: ModelConfig, count: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of positions 0 to count - 1, float32 (count, head_width) each.

    Written out here rather than shared with the table of `model.datapath.special`, as this form is
    the reference that everything else is held against. Llama 3's scaling divides the frequencies
    of long waves by `factor`, keeps those of short ones, and goes linearly between the two, by
    turns within the original context.
    """
    width, scaling = config.head_width, config.rope_scaling
    frequencies = config.rope_base ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)
    if scaling is not None:
        turns = scaling.original_positions * frequencies / (2 * math.pi)
        low, high = scaling.low_freq_factor, scaling.high_freq_factor
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        frequencies = frequencies * (kept + (1 - kept) / scaling.factor)
    angles = torch.outer(torch.arange(count, dtype=torch.float64), frequencies)
    angles = torch.cat([angles, angles], 1)
    return angles.cos().float(), angles.sin().float()


def _heads(values: Tensor, heads: int) -> Tensor:
    """(..., T, heads * d) to (..., heads, T, d)."""
    return values.unflatten(-1, (heads, -1)).transpose(-3, -2)


def _rotate(values: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Turns the pairs (i, i + d/2) of (..., T, d)."""
    low, high = values.chunk(2, -1)
    return values * cosines + torch.cat([-high, low], -1) * sines
