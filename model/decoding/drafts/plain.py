"""The 16-bit model itself, without a draft: what targets in other formats are compared with."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from model.decoding.drafts.base import Loaded
from model.decoding.drafts.shared import SharedCacheDraft
from model.lm.checkpoint import Checkpoint
from model.lm.dense import DenseWeights
from model.lm.fast import FastPath
from model.lm.footprint import HALF, plain_kv_numbers, plain_weights
from model.lm.plain_cache import PlainView
from model.lm.transformer import Path


class PlainModel(SharedCacheDraft):
    """BF16 weights and cache, autoregressive.

    Args:
        checkpoint: BF16 weights.
        device, dtype: of the fast path, the only one.
    """

    drafts = False

    def __init__(
        self, checkpoint: Checkpoint, *, device: str = "cpu", dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__("bf16", checkpoint.config, device)
        self.dtype = dtype
        self._weights = DenseWeights.of_checkpoint(checkpoint, None, dtype, device)

    def open_paths(self, batch: int, capacity: int) -> tuple[Path, Path | None]:
        """The target's path over a 16-bit cache."""
        view = PlainView(self.config, batch, capacity, self.dtype, self.device)
        return FastPath(self._weights, view), None

    def verify_loads(self, fed: Sequence[int]) -> Loaded:
        """16 bits of each weight and of each cached number."""
        numbers = sum(
            plain_kv_numbers(self.config, length + count)
            for length, count in zip(self._lengths, fed, strict=True)
            if count
        )
        return Loaded(plain_weights(self.config) * HALF, numbers * HALF)

    def draft_loads(self, fed: Sequence[int]) -> Loaded:
        """There is no draft."""
        raise ValueError("bf16 has no draft")
