"""The exact path: the machine's integers, bit for bit.

Linear layers run on the contract's data path, special functions in their `hardware` form,
attention in both key forms. No row looks at another: logits of a token do not depend on what else
a pass computes.

Contract: sections 5 to 9 and 11.
"""

from __future__ import annotations

import torch
from torch import Tensor

from model.datapath import matmul
from model.datapath.attention import KeyTiles, ValueTiles, attend, own_blocks
from model.datapath.primitives import Terms, group_terms, signed_weights
from model.datapath.special import residual_add, rms_norm, rotate, silu_times_up
from model.formats.bfp import Bfp, partial_load
from model.lm.cache import BLOCK, OPEN_P, KVCache
from model.lm.precision import Load, Precision
from model.lm.rows import Rows
from model.lm.stored import StoredModel


class OpenKeys:
    """Open form of all key rows of a cache, as the data path reads them; one for all precisions.

    Attributes:
        c: for each layer, float32 (batch, KV heads, blocks, d_h, 64).
        exponents: r_n = E_n - 1 for each layer, int64 (batch, KV heads, blocks, 1, 64).
    """

    def __init__(self, cache: KVCache) -> None:
        config = cache.config
        shape = (cache.batch, config.kv_heads, cache.capacity // BLOCK)
        layers = range(config.layers)
        self.c = [torch.zeros(*shape, config.head_width, BLOCK) for _ in layers]
        self.exponents = [torch.zeros(*shape, 1, BLOCK, dtype=torch.int64) for _ in layers]
        self.groups = group_terms(torch.ones(1, 1, 1, 1, dtype=torch.uint8))
        cache.attach(self)

    def rows_written(self, layer: int, rows: Rows, keys: Bfp, values: Bfp) -> None:
        """Takes the open form of new rows."""
        block, token = rows.position // BLOCK, rows.position % BLOCK
        c = signed_weights(keys.signs, keys.magnitudes, midpoint=False).to(torch.float32)
        self.c[layer][rows.sequence, :, block, :, token] = c
        exponents = keys.exponents.to(torch.int64) - 1
        self.exponents[layer][rows.sequence, :, block, :, token] = exponents

    def block_closed(self, layer: int, sequence: int, block: int) -> None:
        """The open form does not change."""


class ExactView:
    """Closed keys and values of a cache at one load.

    Args:
        cache: the stored codes.
        open_keys: shared by the views of a cache.
        load: p_kv and its reconstruction.
    """

    def __init__(self, cache: KVCache, open_keys: OpenKeys, load: Load) -> None:
        config = cache.config
        self.cache, self.open_keys, self.load = cache, open_keys, load.exact(cache.p_full)
        shape, d = (cache.batch, config.kv_heads), config.head_width
        blocks, n_tiles = cache.capacity // BLOCK, cache.value_exponents[0].shape[-1]
        layers = range(config.layers)
        self._key_c = [torch.zeros(*shape, blocks, d, BLOCK) for _ in layers]
        self._key_groups = [_no_groups(*shape, blocks, d) for _ in layers]
        self._value_c = [torch.zeros(*shape, cache.capacity, d) for _ in layers]
        self._value_groups = [_no_groups(*shape, cache.capacity, n_tiles) for _ in layers]
        cache.attach(self)

    def _weights(self, signs: Tensor, magnitudes: Tensor) -> Tensor:
        q = partial_load(magnitudes, self.cache.p_full, self.load.p)
        return signed_weights(signs, q, self.load.midpoint).to(torch.float32)

    def rows_written(self, layer: int, rows: Rows, keys: Bfp, values: Bfp) -> None:
        """Takes the values of new rows."""
        at = (rows.sequence, slice(None), rows.position)
        self._value_c[layer][at] = self._weights(values.signs, values.magnitudes)
        _put(self._value_groups[layer], at, values.exponents)

    def block_closed(self, layer: int, sequence: int, block: int) -> None:
        """Takes a closed key block."""
        at = (sequence, slice(None), block)
        cache = self.cache
        self._key_c[layer][at] = self._weights(
            cache.closed_signs[layer][at], cache.closed_magnitudes[layer][at]
        )
        _put(self._key_groups[layer], at, cache.closed_exponents[layer][at])

    def attend(self, layer: int, rows: Rows, queries: Tensor) -> Tensor:
        """Attention of bfloat16 (rows, heads, d_h): each row sees its own block in the open form
        and the blocks before it in the closed one."""
        config = self.cache.config
        heads = config.kv_heads
        share = config.heads // heads
        # (active, width, KV heads, share, d) to (active, KV heads, width * share, d)
        laid = rows.spread(queries).unflatten(2, (heads, share))
        laid = laid.permute(0, 2, 1, 3, 4).flatten(2, 3)
        positions = rows.positions.repeat_interleave(share, 1)
        own = own_blocks(positions)
        tiles = int(own.max()) + 1
        opened = slice(int(own[own >= 0].min()), tiles)
        before, tokens = slice(0, tiles - 1), slice(0, tiles * BLOCK)

        def pick(part: Tensor, count: slice) -> Tensor:
            part = part[:, :, count]
            return part if len(rows.active) == len(part) else part[rows.active]

        def by_tile(part: Tensor) -> Tensor:
            return pick(part, tokens).unflatten(2, (tiles, BLOCK))

        mixed = attend(
            laid,
            positions,
            KeyTiles(
                pick(self.open_keys.c[layer], opened),
                self.open_keys.groups,
                OPEN_P,
                pick(self.open_keys.exponents[layer], opened),
            ),
            KeyTiles(
                pick(self._key_c[layer], before),
                Terms(*(pick(part, before) for part in self._key_groups[layer])),
                self.load.p,
            )
            if tiles > 1
            else None,
            ValueTiles(
                by_tile(self._value_c[layer]),
                Terms(*(by_tile(part) for part in self._value_groups[layer])),
                self.load.p,
            ),
        )
        mixed = mixed.unflatten(2, (-1, share)).permute(0, 2, 1, 3, 4)
        return rows.gather(mixed.flatten(2, 3))


def _no_groups(*shape: int) -> Terms:
    """Terms of exponents that are all 0."""
    return group_terms(torch.zeros(shape, dtype=torch.uint8))


def _put(groups: Terms, at: tuple, exponents: Tensor) -> None:
    for part, new in zip(groups, group_terms(exponents), strict=True):
        part[at] = new


class ExactPath:
    """Steps of the transformer in the machine's integers (see `model.lm.transformer.Path`).

    Args:
        model: the stored bits.
        precision: loads of weights and KV cache.
        view: the cache at `precision.kv`.
    """

    def __init__(self, model: StoredModel, precision: Precision, view: ExactView) -> None:
        self.config, self.model, self.view = model.config, model, view
        self.load = precision.w.exact(model.p_full)

    def embed(self, tokens: Tensor) -> Tensor:
        """The checkpoint's rows."""
        return self.model.embedding[tokens]

    def linear(self, layer: int, name: str, inputs: Tensor) -> Tensor:
        """The contract's product at p_w."""
        weight = self.model.linears[layer][name]
        return matmul(inputs, weight, p=self.load.p, reconstruct=self.load.reconstruct)

    def norm(self, layer: int, name: str, inputs: Tensor) -> Tensor:
        """RMSNorm, hardware form."""
        weight = self.model.norm if name == "norm" else self.model.norms[layer][name]
        return rms_norm(inputs, weight, self.config.norm_eps, form="hardware")

    def rotate(self, inputs: Tensor, positions: Tensor) -> Tensor:
        """RoPE, hardware form."""
        table = self.model.rope
        cosines, sines = (part[positions].unsqueeze(1) for part in (table.cosines, table.sines))
        return rotate(inputs, cosines, sines, form="hardware")

    def silu_times_up(self, gate: Tensor, up: Tensor) -> Tensor:
        """Hardware form."""
        return silu_times_up(gate, up, form="hardware")

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Hardware form."""
        return residual_add(x, y, form="hardware")

    def write(self, layer: int, rows: Rows, keys: Tensor, values: Tensor) -> None:
        """Into the cache's codes."""
        self.view.cache.write(layer, rows, keys, values)

    def attend(self, layer: int, rows: Rows, queries: Tensor) -> Tensor:
        """Exact attention at p_kv."""
        return self.view.attend(layer, rows, queries)

    def head(self, inputs: Tensor) -> Tensor:
        """FP32 logits at p_w."""
        return matmul(
            inputs, self.model.head, p=self.load.p, reconstruct=self.load.reconstruct, out="fp32"
        )
