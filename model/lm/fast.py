"""The fast path: dequantised matrix products in floating point, on any torch device.

It reads the same stored bits as the exact path, with the same roundings to BF16 between steps and
the `reference` form of special functions, but sums in floating point: results depend on the
device, and in the last bits on what else a product computes. It measures acceptance and runs
large models; it decides no claim of bit equality.

Contract: sections 4, 9 and 11.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn import functional

from model.datapath.special import residual_add, rms_norm, rotate, silu_times_up
from model.formats.bfp import Bfp
from model.lm.cache import BLOCK, KVCache
from model.lm.dense import DenseWeights
from model.lm.precision import Load
from model.lm.rows import Rows


class DenseView(ABC):
    """Keys and values as floating-point numbers, in two forms: `behind` and `own`.

    A row at position i reads tokens below `border(i)` in the form `behind` and the others, itself
    included, in the form `own`. The border depends on the position alone, so that a draft, a
    verified row and an autoregressive row see the same.

    Attributes:
        share: query heads of a KV head.
        behind_keys, own_keys, behind_values, own_values: for each layer,
            (batch, KV heads, capacity, d_h).
    """

    share: int
    behind_keys: list[Tensor]
    own_keys: list[Tensor]
    behind_values: list[Tensor]
    own_values: list[Tensor]

    @abstractmethod
    def border(self, positions: Tensor) -> Tensor:
        """First token that a row at each position reads in the form `own`."""

    @abstractmethod
    def write(self, layer: int, rows: Rows, keys: Tensor, values: Tensor) -> None:
        """Writes bfloat16 (rows, KV heads, d_h) into the cache."""

    def attend(self, layer: int, rows: Rows, queries: Tensor) -> Tensor:
        """Attention of bfloat16 (rows, heads, d_h), in the same shape."""
        own_keys, own_values = self.own_keys[layer], self.own_values[layer]
        behind_keys, behind_values = self.behind_keys[layer], self.behind_values[layer]
        heads, d = own_keys.shape[1], own_keys.shape[3]
        laid = rows.spread(queries).unflatten(2, (heads, self.share))
        laid = laid.permute(0, 2, 1, 3, 4).flatten(2, 3).to(own_keys.dtype)
        positions = rows.positions.repeat_interleave(self.share, 1)
        end = int(positions.max()) + 1

        def pick(part: Tensor) -> Tensor:
            part = part[:, :, :end]
            return part if len(rows.active) == len(part) else part[rows.active]

        tokens = torch.arange(end, device=positions.device)
        alive = (tokens <= positions.unsqueeze(-1))[:, None]
        scores = laid @ pick(own_keys).transpose(2, 3)
        borders = self.border(positions)
        split = int(borders.max()) > 0
        if split:
            is_behind = (tokens < borders.unsqueeze(-1))[:, None]
            behind = laid @ pick(behind_keys).transpose(2, 3)
            scores = torch.where(is_behind, behind, scores)
        # A gap of the rectangle has no token at all: its row is all zeros, not NaN.
        scores = scores.float().mul_(d**-0.5).masked_fill_(~alive, -1e30)
        p = scores.softmax(-1).masked_fill_(~alive, 0).to(own_keys.dtype)
        if split and behind_values is not own_values:
            mixed = (p * is_behind) @ pick(behind_values) + (p * ~is_behind) @ pick(own_values)
        else:
            mixed = p @ pick(own_values)
        mixed = mixed.to(torch.bfloat16).unflatten(2, (-1, self.share)).permute(0, 2, 1, 3, 4)
        return rows.gather(mixed.flatten(2, 3))


class BfpView(DenseView):
    """A BFP cache at one load.

    Args:
        cache: the stored codes.
        load: p_kv and its reconstruction.
        dtype, device: of the dequantised copy.
    """

    def __init__(
        self,
        cache: KVCache,
        load: Load,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        config = cache.config
        self.cache, self.load = cache, load.exact(cache.p_full)
        self.share = config.heads // config.kv_heads
        shape = (cache.batch, config.kv_heads, cache.capacity, config.head_width)

        def zeros() -> list[Tensor]:
            return [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.layers)]

        self.behind_keys, self.own_keys, self.own_values = zeros(), zeros(), zeros()
        self.behind_values = self.own_values
        cache.attach(self)

    def border(self, positions: Tensor) -> Tensor:
        """The start of the row's own block."""
        return positions // BLOCK * BLOCK

    def write(self, layer: int, rows: Rows, keys: Tensor, values: Tensor) -> None:
        """Into the codes; this view, and all others of the cache, are told."""
        self.cache.write(layer, rows, keys.to(self.cache.device), values.to(self.cache.device))

    def rows_written(self, layer: int, rows: Rows, keys: Bfp, values: Bfp) -> None:
        """Takes the open form of new keys, and new values at p_kv."""
        own_keys, own_values = self.own_keys[layer], self.own_values[layer]
        at = (rows.sequence, slice(None), rows.position)
        own_keys[at] = keys.dequantize().to(own_keys)
        loaded = values.dequantize(self.load.p, self.load.reconstruct)
        own_values[at] = loaded.to(own_values)

    def block_closed(self, layer: int, sequence: int, block: int) -> None:
        """Takes a closed key block at p_kv."""
        cache, behind = self.cache, self.behind_keys[layer]
        at = (sequence, slice(None), block)
        stored = Bfp(
            cache.closed_exponents[layer][at].unsqueeze(-1),
            cache.closed_signs[layer][at],
            cache.closed_magnitudes[layer][at],
            group_dim=2,
            p_full=cache.p_full,
        )
        keys = stored.dequantize(self.load.p, self.load.reconstruct).transpose(1, 2)
        behind[sequence, :, block * BLOCK : (block + 1) * BLOCK] = keys.to(behind)


class FastPath:
    """Steps of the transformer in floating point (see `model.lm.transformer.Path`).

    Args:
        weights: dequantised weights, on the device to run on.
        view: the cache, on the same device.
    """

    def __init__(self, weights: DenseWeights, view: DenseView) -> None:
        self.config, self.weights, self.view = weights.config, weights, view

    def embed(self, tokens: Tensor) -> Tensor:
        """The checkpoint's rows."""
        return self.weights.embedding[tokens]

    def linear(self, layer: int, name: str, inputs: Tensor) -> Tensor:
        """One product in the weights' type, rounded to BF16."""
        weight = self.weights.linears[layer][name]
        return functional.linear(inputs.to(weight.dtype), weight).to(torch.bfloat16)

    def norm(self, layer: int, name: str, inputs: Tensor) -> Tensor:
        """RMSNorm, reference form."""
        weight = self.weights.norm if name == "norm" else self.weights.norms[layer][name]
        return rms_norm(inputs, weight, self.config.norm_eps, form="reference")

    def rotate(self, inputs: Tensor, positions: Tensor) -> Tensor:
        """RoPE, reference form."""
        cosines, sines = (part[positions].unsqueeze(1) for part in self.weights.rope)
        return rotate(inputs, cosines, sines, form="reference")

    def silu_times_up(self, gate: Tensor, up: Tensor) -> Tensor:
        """Reference form."""
        return silu_times_up(gate, up, form="reference")

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Reference form."""
        return residual_add(x, y, form="reference")

    def write(self, layer: int, rows: Rows, keys: Tensor, values: Tensor) -> None:
        """Into the view's cache."""
        self.view.write(layer, rows, keys, values)

    def attend(self, layer: int, rows: Rows, queries: Tensor) -> Tensor:
        """Attention over the view."""
        return self.view.attend(layer, rows, queries)

    def head(self, inputs: Tensor) -> Tensor:
        """Logits in FP32."""
        weight = self.weights.head
        return functional.linear(inputs.to(weight.dtype), weight).float()
