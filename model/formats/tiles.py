"""Bit-plane-major tiles as keys and values meet them: partial loads of blocks, and single rows.

A cache is read while the bytes behind its committed end are undefined, and a value row is written
into a tile whose other rows stay as they are. So nothing here looks at what the bytes hold;
`model.formats.planes` has the checked forms for whole weights.

Contract: sections 4, 9 and 10.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from model.formats.bfp import Bfp
from model.formats.constants import PLANE_BYTES, PLANE_ROW_BYTES, TILE_EXPONENT_BYTES, TILE_K
from model.formats.planes import Bytes


class Loaded(NamedTuple):
    """A p-bit load of blocks.

    Attributes:
        exponents: uint8 (..., tiles, 64), one a row k.
        signs: uint8 (..., tiles, 64 k, 64 n).
        magnitudes: int16, the same shape: q, the top p - 1 bits.
    """

    exponents: Tensor
    signs: Tensor
    magnitudes: Tensor


def load_blocks(blocks: Bytes, tiles: int, p: int) -> Loaded:
    """A p-bit load of blocks of the image.

    Args:
        blocks: (..., bytes): each block's bytes from its first one on, at least those of the load.
        tiles: of a block.
        p: planes to load, the signs included.
    """
    first, end = TILE_EXPONENT_BYTES * tiles, (TILE_EXPONENT_BYTES + PLANE_BYTES * p) * tiles
    lead = blocks.shape[:-1]
    exponents = blocks[..., :first].reshape(*lead, tiles, TILE_K)
    planes = blocks[..., first:end].reshape(*lead, p, tiles, TILE_K, PLANE_ROW_BYTES)
    bits = np.unpackbits(planes, axis=-1, bitorder="little")
    magnitudes = np.zeros((*lead, tiles, *bits.shape[-2:]), np.int16)
    for plane in range(1, p):
        magnitudes |= bits[..., plane, :, :, :].astype(np.int16) << (p - 1 - plane)
    signs = np.ascontiguousarray(bits[..., 0, :, :, :])
    return Loaded(*map(torch.from_numpy, (exponents.copy(), signs, magnitudes)))


def put_rows(tile: Bytes, first: int, rows: Bfp) -> None:
    """Writes rows into one tile that is a block of its own; the bytes of other rows stay.

    Args:
        tile: (bytes) of the tile, changed in place.
        first: row k of the first one.
        rows: (rows, 64), groups of 64 along dimension 1.
    """
    count = len(rows.signs)
    tile[first : first + count] = rows.exponents[:, 0].numpy()
    planes = tile[TILE_EXPONENT_BYTES:].reshape(-1, TILE_K, PLANE_ROW_BYTES)
    for plane in range(rows.p_full):
        bits = rows.signs if plane == 0 else (rows.magnitudes >> (rows.p_full - 1 - plane)) & 1
        packed = np.packbits(bits.numpy().astype(np.uint8), axis=-1, bitorder="little")
        planes[plane, first : first + count] = packed
