"""Weights in the layout that the fast form reads, made once for each load and kept.

Contract: sections 4 and 5 (c, and the exponents that are folded into the activations).
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from model.datapath.primitives import group_terms, signed_weights
from model.formats.bfp import Bfp
from model.formats.constants import TILE_K, TILE_N
from model.formats.planes import tile_counts

#: Loads of one weight that are kept: a target, and drafts at a few precisions.
KEPT_LOADS = 4


@dataclass(frozen=True, eq=False)
class PreparedWeight:
    """A p-bit load of a weight, padded to whole tiles, n-tile by n-tile.

    Attributes:
        c: int16 (n-tiles, K padded, 64): the signed weights c divided by `unit`.
        unit: 2 under truncate (every c is even: 16 bits hold any p), 1 under midpoint (which is
            never at full precision, so p <= 15 and |c| < 2^15).
        group_values: 2^E, float64 (n-tiles, K padded); 0 where dead.
        group_exponents: E, int16 (n-tiles, K padded); `DEAD` where dead.
        refused: whether a shared exponent is 255.
    """

    c: Tensor
    unit: int
    group_values: Tensor
    group_exponents: Tensor
    refused: bool


_kept: WeakKeyDictionary[Bfp, dict[tuple[int, ...], PreparedWeight]] = WeakKeyDictionary()


def prepare(weight: Bfp, p: int, midpoint: bool) -> PreparedWeight:
    """The prepared form of a p-bit load; kept as long as the weight lives.

    Args:
        weight: shape (K, N), groups of 64 along N.
        p: bits of the load, 2..p_full.
        midpoint: c = 2q + 1 rather than 2q; only at p < p_full.
    """
    loads = _kept.setdefault(weight, {})
    # A tensor counts its changes in place: a changed weight is prepared anew.
    parts = (weight.exponents, weight.signs, weight.magnitudes)
    key = (p, int(midpoint), *(part._version for part in parts))
    if key not in loads:
        while len(loads) >= KEPT_LOADS:
            del loads[next(iter(loads))]
        loads[key] = _prepare(weight, p, midpoint)
    return loads[key]


def _prepare(weight: Bfp, p: int, midpoint: bool) -> PreparedWeight:
    k, n = weight.shape
    k_tiles, n_tiles = tile_counts(k, n)
    pad_k, pad_n = k_tiles * TILE_K - k, n_tiles * TILE_N - n
    unit = 1 if midpoint else 2
    q = weight.load(p)
    c = torch.zeros(n_tiles, k_tiles * TILE_K, TILE_N, dtype=torch.int16)
    for first in range(0, k, TILE_K):  # a row of tiles at a time stays in the cache
        rows = slice(first, min(k, first + TILE_K))
        exact = signed_weights(weight.signs[rows], q[rows], midpoint)
        stored = (exact >> (unit - 1)).to(torch.int16)
        padded = torch.nn.functional.pad(stored, (0, pad_n))
        c[:, rows] = padded.reshape(len(padded), n_tiles, TILE_N).transpose(0, 1)
    groups = group_terms(torch.nn.functional.pad(weight.exponents, (0, 0, 0, pad_k)).T)
    return PreparedWeight(
        c=c,
        unit=unit,
        group_values=groups.values.contiguous(),
        group_exponents=groups.exponents.contiguous(),
        refused=bool(groups.refused.any()),
    )
