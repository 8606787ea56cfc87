"""QuantSpec: a hierarchical INT8 cache whose upper INT4 half is the draft's, and INT4 weights.

The cache keeps the newest tokens in 16 bits and older ones in groups of 128: keys channel by
channel over 128 tokens, values token by token over up to 128 channels. A group is quantised to 4
bits (asymmetric, to nearest), and the error of that to 4 bits more; the target reads both halves
(INT8), a KV4 draft the upper one. INT4 weights are asymmetric in groups of 128 inputs and stored
beside the 16-bit ones.

    QuantSpec-S     W16KV4                           no second copy of the weights
    QuantSpec-NS    W4KV8, W4KV4 or W16KV4           with one

What is ours, since the text leaves it open: which tokens are in 16 bits is decided by the position
of the row that reads them (its own group of 128 and the one before), so that a drafted, a verified
and an autoregressive row see the same, and speculation is lossless for this target too.

Source: Tiwari et al., "QuantSpec: Self-Speculative Decoding with Hierarchical Quantized KV Cache"
(2025), arXiv 2502.10424.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

from model.decoding.drafts.base import Loaded
from model.decoding.drafts.shared import SharedCacheDraft
from model.formats.checks import check_choice
from model.lm.checkpoint import Checkpoint
from model.lm.config import ModelConfig
from model.lm.dense import DenseWeights
from model.lm.fast import DenseView, FastPath
from model.lm.footprint import HALF, plain_kv_numbers, plain_weights
from model.lm.rows import Rows
from model.lm.transformer import Path

#: Tokens of a key group, and channels or inputs of a value or weight group at most.
GROUP = 128

#: Bits of a group's scale and of its zero, 16 each.
GROUP_BITS = 2 * HALF

#: Draft precisions (weights, cache) by name.
VARIANTS = {
    "quantspec-s": (16, 4),
    "quantspec-ns-w4kv8": (4, 8),
    "quantspec-ns-w4kv4": (4, 4),
    "quantspec-ns-w16kv4": (16, 4),
}


def halves(values: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Both readings of groups that span a dimension.

    Args:
        values: any shape.
        dim: one group along it.

    Returns:
        float32: the upper 4 bits alone, and all 8 bits.
    """
    values = values.float()
    least, most = values.amin(dim, keepdim=True), values.amax(dim, keepdim=True)
    step = ((most - least) / 15).clamp_min(2.0**-126)
    upper = least + step * ((values - least) / step).round_().clamp_(0, 15)
    fine = step / 16
    return upper, upper + fine * ((values - upper) / fine).round_().clamp_(-8, 7)


def int4_weights(weight: Tensor) -> Tensor:
    """INT4 weights (outputs, inputs) in groups of up to 128 inputs, as float32."""
    return torch.cat([halves(part, 1)[0] for part in weight.split(GROUP, 1)], 1)


class HierarchicalView(DenseView):
    """One reading of a hierarchical cache.

    Args:
        config: the model's shape.
        batch, capacity: sequences, and positions of each.
        dtype, device: of the products.
        target: the view whose 16-bit part this one shares; None for the target itself, which
            reads all 8 bits and writes for both.
    """

    def __init__(
        self,
        config: ModelConfig,
        batch: int,
        capacity: int,
        dtype: torch.dtype,
        device: str | torch.device,
        target: HierarchicalView | None = None,
    ) -> None:
        self.share = config.heads // config.kv_heads
        self.capacity = -(-capacity // GROUP) * GROUP
        shape = (batch, config.kv_heads, self.capacity, config.head_width)

        def zeros() -> list[Tensor]:
            return [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.layers)]

        self.behind_keys, self.behind_values = zeros(), zeros()
        # Of the two only the draft's view holds the other one: a circle would keep the memory.
        self._target = target
        self._upper: weakref.ref[HierarchicalView] | None = None
        if target is None:
            self.own_keys, self.own_values = zeros(), zeros()
        else:
            self.own_keys, self.own_values = target.own_keys, target.own_values
            target._upper = weakref.ref(self)

    def border(self, positions: Tensor) -> Tensor:
        """The start of the group before the row's own one."""
        return (positions // GROUP - 1).clamp_min(0) * GROUP

    def write(self, layer: int, rows: Rows, keys: Tensor, values: Tensor) -> None:
        """Writes bfloat16 (rows, KV heads, d_h); quantises groups whose last row is among them."""
        target = self._target or self
        at = (rows.sequence, slice(None), rows.position)
        target.own_keys[layer][at] = keys.to(target.own_keys[layer])
        target.own_values[layer][at] = values.to(target.own_values[layer])
        for b in rows.active:
            end = rows.starts[b] + rows.counts[b]
            for group in range(rows.starts[b] // GROUP, end // GROUP):
                target._quantise(layer, b, slice(group * GROUP, (group + 1) * GROUP))

    def _quantise(self, layer: int, b: int, tokens: slice) -> None:
        keys = halves(self.own_keys[layer][b, :, tokens], 1)
        values = [
            torch.cat(parts, -1)
            for parts in zip(
                *(halves(part, 2) for part in self.own_values[layer][b, :, tokens].split(GROUP, 2)),
                strict=True,
            )
        ]
        upper = self._upper() if self._upper is not None else None
        for view, which in ((upper, 0), (self, 1)):
            if view is not None:
                kept_keys, kept_values = view.behind_keys[layer], view.behind_values[layer]
                kept_keys[b, :, tokens] = keys[which].to(kept_keys)
                kept_values[b, :, tokens] = values[which].to(kept_values)


class QuantSpec(SharedCacheDraft):
    """16-bit weights and INT8 cache as the target; one of the drafts of `VARIANTS`.

    Args:
        checkpoint: BF16 weights.
        variant: the draft's name.
        device, dtype: of the fast path, the only one.

    Raises:
        ValueError: a variant that is none.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        variant: str,
        *,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        check_choice("variant", variant, tuple(VARIANTS))
        super().__init__(variant, checkpoint.config, device)
        self.dtype = dtype
        self.w_bits, self.kv_bits = VARIANTS[variant]
        self._target_weights = DenseWeights.of_checkpoint(checkpoint, None, dtype, device)
        self._draft_weights = (
            self._target_weights
            if self.w_bits == HALF
            else DenseWeights.of_checkpoint(checkpoint, int4_weights, dtype, device)
        )

    def open_paths(self, batch: int, capacity: int) -> tuple[Path, Path | None]:
        """Both paths over one hierarchical cache."""
        shape = (self.config, batch, capacity, self.dtype, self.device)
        target = HierarchicalView(*shape)
        draft = target if self.kv_bits == 8 else HierarchicalView(*shape, target)
        return FastPath(self._target_weights, target), FastPath(self._draft_weights, draft)

    def verify_loads(self, fed: Sequence[int]) -> Loaded:
        """16 bits of each weight, both halves of the cache."""
        return self._loads(HALF, 8, fed)

    def draft_loads(self, fed: Sequence[int]) -> Loaded:
        """4 or 16 bits of each weight, one half of the cache or both."""
        return self._loads(self.w_bits, self.kv_bits, fed)

    def _loads(self, w_bits: int, kv_bits: int, fed: Sequence[int]) -> Loaded:
        weights = plain_weights(self.config) * w_bits
        if w_bits < HALF:
            weights += plain_weights(self.config) // GROUP * GROUP_BITS
        kv = 0
        for length, count in zip(self._lengths, fed, strict=True):
            if count:
                end = length + count
                old = max((end - 1) // GROUP - 1, 0) * GROUP
                numbers = plain_kv_numbers(self.config, old)
                kv += numbers * kv_bits + numbers // min(GROUP, self.config.head_width) * GROUP_BITS
                kv += plain_kv_numbers(self.config, end - old) * HALF
        return Loaded(weights, kv)
