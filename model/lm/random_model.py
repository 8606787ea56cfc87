"""Random models: small, quick, and with logits that are neither flat nor decided beforehand."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from model.lm.checkpoint import Checkpoint
from model.lm.config import ModelConfig

#: Two layers, two query heads a key head, and a vocabulary that leaves the last group of 64 short.
TINY = ModelConfig(
    family="llama",
    layers=2,
    width=64,
    ff_width=128,
    heads=4,
    kv_heads=2,
    head_width=64,
    vocabulary=97,
    norm_eps=1e-5,
    rope_base=10_000.0,
    max_positions=512,
    tied=True,
)

#: Standard deviation of a linear layer's weights, times sqrt(inputs).
_GAIN = 1.4
#: The same of the head and embedding: logits of a few units, so that no token is certain.
_TABLE_GAIN = 2.4
#: Norm weights lie around 1 with this deviation, so that a norm left out is seen.
_NORM_SPREAD = 0.2


def random_checkpoint(config: ModelConfig, seed: int) -> Checkpoint:
    """A model of the given shape with random weights, the same for the same arguments.

    Args:
        config: any shape.
        seed: of the random numbers, at least 0.

    Raises:
        ValueError: a negative seed.
    """
    if seed < 0:
        raise ValueError(f"seed must be at least 0, not {seed}")
    generator = np.random.default_rng(seed)

    def normal(shape: tuple[int, ...], deviation: float, mean: float = 0.0) -> Tensor:
        values = generator.standard_normal(shape, np.float32)
        return torch.from_numpy(mean + deviation * values).to(torch.bfloat16)

    def table() -> Tensor:
        shape = (config.vocabulary, config.width)
        return normal(shape, _TABLE_GAIN / math.sqrt(config.width))

    embedding = table()
    blocks = []
    for _ in range(config.layers):
        block = {
            name: normal(shape, _GAIN / math.sqrt(shape[1]))
            for name, shape in config.linear_shapes().items()
        }
        for name, width in config.norm_shapes().items():
            block[name] = normal(width, _NORM_SPREAD, 1.0)
        blocks.append(block)
    norm = normal((config.width,), _NORM_SPREAD, 1.0)
    return Checkpoint(config, embedding, blocks, norm, None if config.tied else table())
