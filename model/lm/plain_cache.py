"""A KV cache of 16-bit numbers, for the targets of peers and for separate draft models."""

from __future__ import annotations

import torch
from torch import Tensor

from model.lm.config import ModelConfig
from model.lm.fast import DenseView
from model.lm.rows import Rows


class PlainView(DenseView):
    """Keys and values as they were computed, BF16; one form only.

    Args:
        config: the model's shape.
        batch, capacity: sequences, and positions of each.
        dtype, device: of the products.
    """

    def __init__(
        self,
        config: ModelConfig,
        batch: int,
        capacity: int,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        self.share = config.heads // config.kv_heads
        shape = (batch, config.kv_heads, capacity, config.head_width)

        def zeros() -> list[Tensor]:
            return [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.layers)]

        self.own_keys, self.own_values = zeros(), zeros()
        self.behind_keys, self.behind_values = self.own_keys, self.own_values

    def border(self, positions: Tensor) -> Tensor:
        """0: every token is read in the same form."""
        return torch.zeros_like(positions)

    def write(self, layer: int, rows: Rows, keys: Tensor, values: Tensor) -> None:
        """Writes bfloat16 (rows, KV heads, d_h)."""
        at = (rows.sequence, slice(None), rows.position)
        self.own_keys[layer][at] = keys.to(self.own_keys[layer])
        self.own_values[layer][at] = values.to(self.own_values[layer])
