"""Bit-plane-major tiles: a BFP weight as the bytes that the machine reads.

A tile is 64 k by 64 n: 64 exponent bytes, a sign plane and p_full - 1 magnitude planes. A plane
is 512 bytes: row k is 8 bytes, output n is bit n % 8 (least significant first) of byte n // 8.

    image = n-tiles ascending
      n-tile = blocks of `tiles_per_block` k-tiles ascending; a last block of r tiles holds just r
        block = exponents of every tile, then the sign plane of every tile,
                then each magnitude plane of every tile, most significant first

So the exponents and the first p planes of a block are one contiguous run: a p-bit load.
K and N are padded to 64 with exponent 0, sign 0 and magnitude 0.

Contract: section 10.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.formats.bfp import Bfp
from model.formats.checks import check_int, check_p, check_p_full
from model.formats.constants import (
    EXPONENT_MAX,
    P_FULL_MIN,
    PLANE_BYTES,
    PLANE_ROW_BYTES,
    TILE_EXPONENT_BYTES,
    TILE_K,
    TILE_N,
    TILES_PER_BLOCK,
)

Bytes = NDArray[np.uint8]

_LARGEST = 1 << 40


class Run(NamedTuple):
    """A contiguous run of bytes.

    Attributes:
        offset: of its first byte, from the start of the image.
        length: in bytes.
    """

    offset: int
    length: int


def tile_counts(k: int, n: int) -> tuple[int, int]:
    """Tiles along K and along N of a (K, N) weight."""
    check_int("K", k, 0, _LARGEST)
    check_int("N", n, 0, _LARGEST)
    return -(-k // TILE_K), -(-n // TILE_N)


def image_size(k: int, n: int, p_full: int) -> int:
    """Bytes of the image of a (K, N) weight: ceil(K/64) ceil(N/64) (64 + 512 p_full)."""
    k_tiles, n_tiles = tile_counts(k, n)
    return k_tiles * n_tiles * (TILE_EXPONENT_BYTES + PLANE_BYTES * check_p_full(p_full))


def block_tiles(k: int, block: int, *, tiles_per_block: int = TILES_PER_BLOCK) -> int:
    """k-tiles in one block: `tiles_per_block`, or what is left for the last one."""
    check_int("tiles_per_block", tiles_per_block, 1, _LARGEST)
    k_tiles, _ = tile_counts(k, 0)
    blocks = -(-k_tiles // tiles_per_block)
    check_int("block", block, 0, blocks - 1)
    return min(tiles_per_block, k_tiles - block * tiles_per_block)


def load_run(
    k: int,
    n: int,
    p_full: int,
    *,
    n_tile: int,
    block: int,
    p: int,
    tiles_per_block: int = TILES_PER_BLOCK,
) -> Run:
    """The bytes of a p-bit load of one block: its exponents and first p planes.

    Args:
        k, n: shape (K, N) of the weight.
        p_full: planes stored.
        n_tile, block: which block.
        p: planes to load, 2..p_full.
        tiles_per_block: k-tiles in a full block.

    Raises:
        TypeError, ValueError: an argument out of range, by name.
    """
    tiles = block_tiles(k, block, tiles_per_block=tiles_per_block)
    k_tiles, n_tiles = tile_counts(k, n)
    check_int("n_tile", n_tile, 0, n_tiles - 1)
    per_tile = TILE_EXPONENT_BYTES + PLANE_BYTES * check_p_full(p_full)
    first = n_tile * k_tiles + block * tiles_per_block
    length = tiles * (TILE_EXPONENT_BYTES + PLANE_BYTES * check_p(p, p_full))
    return Run(first * per_tile, length)


def check_weight(bfp: Bfp) -> None:
    """TypeError or ValueError unless `bfp` is a (K, N) weight with groups of 64 along N."""
    if not isinstance(bfp, Bfp):
        raise TypeError(f"weight must be a Bfp, not {type(bfp).__name__}")
    if len(bfp.shape) != 2:
        raise ValueError(f"a weight must have shape (K, N), not {tuple(bfp.shape)}")
    if bfp.group_dim != 1 or bfp.group != TILE_N:
        raise ValueError(
            f"a weight must have groups of {TILE_N} along dimension 1 (N), not of "
            f"{bfp.group} along dimension {bfp.group_dim}",
        )


def to_image(bfp: Bfp, *, tiles_per_block: int = TILES_PER_BLOCK) -> Bytes:
    """The memory image of a weight.

    Args:
        bfp: shape (K, N), groups of 64 along N.
        tiles_per_block: k-tiles in a block.

    Returns:
        uint8, of length `image_size(K, N, p_full)`.

    Raises:
        TypeError, ValueError: a Bfp of another shape or grouping, or an argument out of range.
    """
    check_weight(bfp)
    check_int("tiles_per_block", tiles_per_block, 1, _LARGEST)
    exponents, planes = _exponent_tiles(bfp), _plane_tiles(bfp)
    k_tiles, n_tiles = tile_counts(*bfp.shape)
    parts = []
    for n_tile in range(n_tiles):
        for first in range(0, k_tiles, tiles_per_block):
            tiles = slice(first, first + tiles_per_block)
            parts += [exponents[n_tile, tiles].reshape(-1), planes[:, n_tile, tiles].reshape(-1)]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint8)


def from_image(
    image: bytes | bytearray | memoryview | Bytes,
    *,
    k: int,
    n: int,
    p_full: int = P_FULL_MIN,
    tiles_per_block: int = TILES_PER_BLOCK,
    strict: bool = True,
) -> Bfp:
    """The weight whose memory image is given.

    Args:
        image: `image_size(k, n, p_full)` bytes.
        k, n: shape (K, N) of the weight.
        p_full: planes stored.
        tiles_per_block: k-tiles in a block.
        strict: refuse magnitudes and signs in a group of exponent 0. The hardware does not look
            for them: it takes such a group as any other.

    Raises:
        TypeError: the image is not made of bytes, or an argument of another type.
        ValueError: a wrong size, a shared exponent of 255, padding that is not zero, or an
            argument out of range.
    """
    data = _as_bytes(image)
    size = image_size(k, n, p_full)
    check_int("tiles_per_block", tiles_per_block, 1, _LARGEST)
    if data.size != size:
        raise ValueError(
            f"image must have {size} bytes for K {k}, N {n} and p_full {p_full}, not {data.size}",
        )
    k_tiles, n_tiles = tile_counts(k, n)
    exponents = np.empty((n_tiles, k_tiles, TILE_K), np.uint8)
    planes = np.empty((p_full, n_tiles, k_tiles, PLANE_BYTES), np.uint8)
    offset = 0
    for n_tile in range(n_tiles):
        for first in range(0, k_tiles, tiles_per_block):
            tiles = slice(first, first + tiles_per_block)
            for target in (exponents[n_tile, tiles], planes[:, n_tile, tiles]):
                target[...] = data[offset : offset + target.size].reshape(target.shape)
                offset += target.size
    return _from_tiles(exponents, planes, k, n, strict=strict)


def tile_exponents(bfp: Bfp, *, k_tile: int, n_tile: int) -> Bytes:
    """The 64 exponent bytes of one tile of a weight; rows beyond K are 0."""
    _check_tile(bfp, k_tile, n_tile)
    rows = bfp.exponents[k_tile * TILE_K : (k_tile + 1) * TILE_K, n_tile]
    return np.pad(rows.numpy(), (0, TILE_K - len(rows)))


def tile_plane(bfp: Bfp, *, k_tile: int, n_tile: int, plane: int) -> Bytes:
    """The 512 bytes of one plane of one tile of a weight.

    Args:
        bfp: shape (K, N), groups of 64 along N.
        k_tile, n_tile: which tile.
        plane: 0 the signs, 1 the most significant magnitude bit, up to p_full - 1.

    Raises:
        TypeError, ValueError: an argument out of range, by name.
    """
    _check_tile(bfp, k_tile, n_tile)
    check_int("plane", plane, 0, bfp.p_full - 1)
    tile = (
        slice(k_tile * TILE_K, (k_tile + 1) * TILE_K),
        slice(n_tile * TILE_N, (n_tile + 1) * TILE_N),
    )
    bits = _plane_bits(bfp.signs[tile], bfp.magnitudes[tile], bfp.p_full, plane)
    return np.packbits(bits, axis=-1, bitorder="little").reshape(-1)


def _check_tile(bfp: Bfp, k_tile: int, n_tile: int) -> None:
    check_weight(bfp)
    k_tiles, n_tiles = tile_counts(*bfp.shape)
    check_int("k_tile", k_tile, 0, k_tiles - 1)
    check_int("n_tile", n_tile, 0, n_tiles - 1)


def _plane_bits(signs: Tensor, magnitudes: Tensor, p_full: int, plane: int) -> Bytes:
    """Bits of one plane, (k, n) padded to multiples of 64."""
    source = signs if plane == 0 else (magnitudes >> (p_full - 1 - plane)) & 1
    k, n = source.shape
    return np.pad(source.numpy().astype(np.uint8), ((0, -k % TILE_K), (0, -n % TILE_N)))


def _exponent_tiles(bfp: Bfp) -> Bytes:
    """Exponents as (n-tile, k-tile, 64)."""
    k_tiles, n_tiles = tile_counts(*bfp.shape)
    padded = np.pad(bfp.exponents.numpy(), ((0, -bfp.shape[0] % TILE_K), (0, 0)))
    return np.ascontiguousarray(padded.T).reshape(n_tiles, k_tiles, TILE_K)


def _plane_tiles(bfp: Bfp) -> Bytes:
    """Planes as (plane, n-tile, k-tile, 512)."""
    k_tiles, n_tiles = tile_counts(*bfp.shape)
    planes = np.empty((bfp.p_full, n_tiles, k_tiles, PLANE_BYTES), np.uint8)
    for plane in range(bfp.p_full):
        bits = _plane_bits(bfp.signs, bfp.magnitudes, bfp.p_full, plane)
        packed = np.packbits(bits, axis=-1, bitorder="little")
        by_row = packed.reshape(k_tiles, TILE_K, n_tiles, PLANE_ROW_BYTES)
        planes[plane] = by_row.transpose(2, 0, 1, 3).reshape(n_tiles, k_tiles, PLANE_BYTES)
    return planes


def _from_tiles(exponents: Bytes, planes: Bytes, k: int, n: int, *, strict: bool) -> Bfp:
    """The weight of exponents (n-tile, k-tile, 64) and planes (plane, n-tile, k-tile, 512)."""
    p_full, n_tiles, k_tiles, _ = planes.shape
    magnitudes = np.zeros((k_tiles * TILE_K, n_tiles * TILE_N), np.int16)
    signs = np.zeros(magnitudes.shape, np.uint8)
    for plane in range(p_full):
        by_row = planes[plane].reshape(n_tiles, k_tiles, TILE_K, PLANE_ROW_BYTES)
        packed = by_row.transpose(1, 2, 0, 3).reshape(k_tiles * TILE_K, n_tiles * PLANE_ROW_BYTES)
        bits = np.unpackbits(packed, axis=-1, bitorder="little")
        if plane == 0:
            signs[...] = bits
        else:
            magnitudes |= bits.astype(np.int16) << (p_full - 1 - plane)
    shared = np.ascontiguousarray(exponents.reshape(n_tiles, k_tiles * TILE_K).T)
    for name, array in (("exponents", shared), ("signs", signs), ("magnitudes", magnitudes)):
        columns = n_tiles if name == "exponents" else n
        if array[k:].any() or array[:, columns:].any():
            outside = array.copy()
            outside[:k, :columns] = 0
            index = tuple(int(i) for i in np.argwhere(outside)[0])
            raise ValueError(
                f"image must be zero in the padding beyond K {k} and N {n}, but "
                f"{name}[{index[0]}, {index[1]}] is {int(outside[index])}",
            )
    if (shared > EXPONENT_MAX).any():
        index = tuple(int(i) for i in np.argwhere(shared > EXPONENT_MAX)[0])
        raise ValueError(
            f"image exponents[{index[0]}, {index[1]}] must be in 0..{EXPONENT_MAX}, not 255",
        )
    make = Bfp.from_parts if strict else Bfp
    return make(
        torch.from_numpy(shared[:k].copy()),
        torch.from_numpy(signs[:k, :n].copy()),
        torch.from_numpy(magnitudes[:k, :n].copy()),
        group_dim=1,
        group=TILE_N,
        p_full=p_full,
    )


def _as_bytes(image: object) -> Bytes:
    if isinstance(image, (bytes, bytearray, memoryview)):
        return np.frombuffer(image, np.uint8)
    if isinstance(image, np.ndarray) and image.dtype == np.uint8:
        return image.reshape(-1)
    given = image.dtype if isinstance(image, np.ndarray) else type(image).__name__
    raise TypeError(f"image must be bytes or a numpy array of uint8, not {given}")
