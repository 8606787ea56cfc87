"""SPEQ as we read its public text: the draft is the sign and exponent of 16-bit weights.

SPEQ (Zhao et al., "From Quarter to All", 2025) observes that the exponents of FP16 weights leave
their top bit unused, once a tensor with a member of 2 or more is scaled down by a power of two,
and drafts from a few bits of the stored weight: here the sign and the other four exponent bits, 5
bits fetched of 16. The target is the FP16 model with a 16-bit cache, shared by the draft.

What is ours, since the text leaves it open: a draft weight stands for the middle of its binade,
1.5 times its power of two, and a subnormal for half of the smallest normal number.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from model.decoding.drafts.base import Loaded
from model.decoding.drafts.shared import SharedCacheDraft
from model.lm.checkpoint import Checkpoint
from model.lm.dense import DenseWeights
from model.lm.fast import FastPath
from model.lm.footprint import HALF, plain_kv_numbers, plain_weights
from model.lm.plain_cache import PlainView
from model.lm.transformer import Path

#: Bits of a weight that a draft fetches: the sign and four exponent bits.
DRAFT_BITS = 5

_EXPONENTS = 16


def target_weights(weight: Tensor) -> Tensor:
    """The FP16 numbers of a BF16 weight, under a power-of-two scale that keeps them below 2.

    Args:
        weight: bfloat16, any shape.

    Returns:
        float32: the values that 16 stored bits and the tensor's scale stand for.
    """
    scale = _scale(weight)
    return (weight.float() / scale).to(torch.float16).float() * scale


def draft_weights(weight: Tensor) -> Tensor:
    """What the sign and four exponent bits of those numbers stand for: float32."""
    scale = _scale(weight)
    codes = (weight.float() / scale).to(torch.float16).view(torch.int16).to(torch.int32)
    exponent = (codes >> 10) & (_EXPONENTS - 1)
    middle = torch.where(exponent > 0, 1.5 * 2.0 ** (exponent - 15).float(), 2.0**-15)
    middle = torch.where((codes & 0x7FFF) == 0, 0.0, middle)
    return torch.where(codes < 0, -middle, middle) * scale


def _scale(weight: Tensor) -> float:
    largest = float(weight.abs().max())
    scale = 1.0
    # Rounding to FP16 must not reach 2 either.
    while largest / scale >= 2 - 2**-11:
        scale *= 2
    return scale


class Speq(SharedCacheDraft):
    """FP16 target, sign-and-exponent draft, 16-bit cache.

    Args:
        checkpoint: BF16 weights.
        device, dtype: of the fast path, the only one.
    """

    def __init__(
        self, checkpoint: Checkpoint, *, device: str = "cpu", dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__("speq", checkpoint.config, device)
        self.dtype = dtype
        self._target_weights = DenseWeights.of_checkpoint(checkpoint, target_weights, dtype, device)
        self._draft_weights = DenseWeights.of_checkpoint(checkpoint, draft_weights, dtype, device)

    def open_paths(self, batch: int, capacity: int) -> tuple[Path, Path | None]:
        """Both paths over one 16-bit cache."""
        view = PlainView(self.config, batch, capacity, self.dtype, self.device)
        return FastPath(self._target_weights, view), FastPath(self._draft_weights, view)

    def verify_loads(self, fed: Sequence[int]) -> Loaded:
        """16 bits of each weight, 16 of each cached number."""
        return self._loads(HALF, fed)

    def draft_loads(self, fed: Sequence[int]) -> Loaded:
        """5 bits of each weight, 16 of each cached number."""
        return self._loads(DRAFT_BITS, fed)

    def _loads(self, bits: int, fed: Sequence[int]) -> Loaded:
        numbers = sum(
            plain_kv_numbers(self.config, length + count)
            for length, count in zip(self._lengths, fed, strict=True)
            if count
        )
        return Loaded(plain_weights(self.config) * bits, numbers * HALF)
