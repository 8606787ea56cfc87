"""Bit-plane tiles: bytes against the reference, back again, and where a load lies."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.formats.bfp import Bfp, quantize
from model.formats.planes import (
    block_tiles,
    from_image,
    image_size,
    load_run,
    tile_exponents,
    tile_plane,
    to_image,
)
from tests.model import reference


def weight(k: int, n: int, p_full: int = 9, seed: int = 0) -> Bfp:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(k, n, generator=generator)
    return quantize(values * torch.randn(k, 1, generator=generator).exp(), p_full=p_full)


def as_matrix(bfp: Bfp) -> reference.Matrix:
    return reference.Matrix(bfp.exponents.tolist(), bfp.signs.tolist(), bfp.magnitudes.tolist())


def assert_same(first: Bfp, second: Bfp) -> None:
    assert torch.equal(first.exponents, second.exponents)
    assert torch.equal(first.signs, second.signs)
    assert torch.equal(first.magnitudes, second.magnitudes)
    assert (first.p_full, first.group_dim, first.group) == (
        second.p_full,
        second.group_dim,
        second.group,
    )


@pytest.mark.parametrize(
    ("k", "n", "p_full", "tiles_per_block"),
    [(64, 64, 9, 8), (65, 1, 9, 1), (200, 70, 9, 2), (130, 129, 12, 2), (577, 64, 16, 8)],
)
def test_image_against_the_reference(k: int, n: int, p_full: int, tiles_per_block: int) -> None:
    bfp = weight(k, n, p_full)
    image = to_image(bfp, tiles_per_block=tiles_per_block)
    assert image.dtype == np.uint8
    assert image.tobytes() == reference.image(as_matrix(bfp), n, p_full, tiles_per_block)


def test_one_bit_lies_where_the_contract_says() -> None:
    """k 3, n 10 of the tile (k-tile 1, n-tile 1): row 3, bit 2 of byte 1 of its planes."""
    parts = [torch.zeros(128, 2), torch.zeros(128, 128), torch.zeros(128, 128)]
    exponents, signs, magnitudes = (part.to(torch.int64) for part in parts)
    exponents[67, 1], signs[67, 74], magnitudes[67, 74] = 200, 1, 0b01000000
    image = to_image(Bfp.from_parts(exponents, signs, magnitudes))
    block = 2 * (64 + 512 * 9)  # the second n-tile's only block, of two tiles
    planes = block + 2 * 64
    expected = {
        block + 64 + 3: 200,
        planes + 512 + 3 * 8 + 1: 0b100,  # sign plane, tile 1
        planes + 2 * 2 * 512 + 512 + 3 * 8 + 1: 0b100,  # second magnitude plane, tile 1
    }
    assert {int(i): int(image[i]) for i in np.flatnonzero(image)} == expected


@given(
    k=st.integers(1, 200),
    n=st.integers(1, 140),
    p_full=st.integers(9, 16),
    tiles_per_block=st.integers(1, 4),
    seed=st.integers(0, 1 << 30),
)
@settings(deadline=None, max_examples=40)
def test_round_trip(k: int, n: int, p_full: int, tiles_per_block: int, seed: int) -> None:
    bfp = weight(k, n, p_full, seed)
    image = to_image(bfp, tiles_per_block=tiles_per_block)
    assert image.size == image_size(k, n, p_full)
    assert image.size == -(-k // 64) * -(-n // 64) * (64 + 512 * p_full)
    for given_as in (image, image.tobytes(), bytearray(image.tobytes())):
        again = from_image(given_as, k=k, n=n, p_full=p_full, tiles_per_block=tiles_per_block)
        assert_same(again, bfp)


@pytest.mark.parametrize(
    ("k", "n", "p_full", "tiles_per_block"), [(577, 130, 9, 8), (130, 64, 16, 1)]
)
@pytest.mark.parametrize("p", [2, 5, 9])
def test_a_load_is_one_run(k: int, n: int, p_full: int, tiles_per_block: int, p: int) -> None:
    bfp = weight(k, n, p_full)
    image = to_image(bfp, tiles_per_block=tiles_per_block)
    k_tiles = -(-k // 64)
    covered = 0
    for n_tile in range(-(-n // 64)):
        for block in range(-(-k_tiles // tiles_per_block)):
            run = load_run(
                k, n, p_full, n_tile=n_tile, block=block, p=p, tiles_per_block=tiles_per_block
            )
            tiles = block_tiles(k, block, tiles_per_block=tiles_per_block)
            first = block * tiles_per_block
            pieces = [
                tile_exponents(bfp, k_tile=tile, n_tile=n_tile)
                for tile in range(first, first + tiles)
            ] + [
                tile_plane(bfp, k_tile=tile, n_tile=n_tile, plane=plane)
                for plane in range(p)
                for tile in range(first, first + tiles)
            ]
            assert all(len(piece) in (64, 512) for piece in pieces)
            expected = np.concatenate(pieces)
            assert np.array_equal(image[run.offset : run.offset + run.length], expected)
            covered += tiles * (64 + 512 * p_full)
            whole = load_run(
                k, n, p_full, n_tile=n_tile, block=block, p=p_full, tiles_per_block=tiles_per_block
            )
            assert whole.offset + whole.length == covered
    assert covered == image.size


def test_an_empty_weight_has_no_bytes() -> None:
    bfp = quantize(torch.zeros(0, 64))
    assert to_image(bfp).size == 0
    assert_same(from_image(b"", k=0, n=64), bfp)


class TestRefusals:
    def test_wrong_sizes(self) -> None:
        image = to_image(weight(70, 64))
        for data in (image[:-1], np.append(image, np.uint8(0)), image[:0]):
            with pytest.raises(ValueError, match=f"must have 9344 bytes.*not {data.size}"):
                from_image(data, k=70, n=64)
        with pytest.raises(TypeError, match=r"uint8, not int64"):
            from_image(image.astype(np.int64), k=70, n=64)
        with pytest.raises(TypeError, match=r"bytes or a numpy array of uint8, not str"):
            from_image("00", k=70, n=64)  # type: ignore[arg-type]

    def test_an_exponent_of_255(self) -> None:
        image = to_image(weight(64, 64))
        image[5] = 255
        with pytest.raises(ValueError, match=r"exponents\[5, 0\] must be in 0..254, not 255"):
            from_image(image, k=64, n=64)

    def test_padding_that_is_not_zero(self) -> None:
        image = to_image(weight(63, 60))
        for offset, message in (
            (63, r"exponents\[63, 0\] is 1"),
            (64 + 7, r"signs\[0, 60\] is 1"),
            (64 + 512 + 63 * 8, r"magnitudes\[63, 4\] is 128"),
        ):
            broken = image.copy()
            broken[offset] ^= 1 if offset == 63 else 16
            with pytest.raises(ValueError, match=message):
                from_image(broken, k=63, n=60)

    def test_a_dead_group_with_bits(self) -> None:
        image = to_image(quantize(torch.zeros(64, 64)))
        image[64] = 1
        with pytest.raises(ValueError, match="must be 0 in a group of exponent 0"):
            from_image(image, k=64, n=64)
        # As the hardware reads it.
        assert from_image(image, k=64, n=64, strict=False).signs[0, 0] == 1

    def test_what_is_no_weight(self) -> None:
        for bfp in (
            quantize(torch.zeros(64)),
            quantize(torch.zeros(64, 64), group_dim=0),
            quantize(torch.zeros(64, 64), group=32),
        ):
            with pytest.raises(ValueError, match="a weight must have"):
                to_image(bfp)

    def test_indices(self) -> None:
        bfp = weight(70, 64)
        with pytest.raises(ValueError, match=r"k_tile must be in 0..1, not 2"):
            tile_plane(bfp, k_tile=2, n_tile=0, plane=0)
        with pytest.raises(ValueError, match=r"plane must be in 0..8, not 9"):
            tile_plane(bfp, k_tile=0, n_tile=0, plane=9)
        with pytest.raises(ValueError, match=r"n_tile must be in 0..0, not 1"):
            load_run(70, 64, 9, n_tile=1, block=0, p=5)
        with pytest.raises(ValueError, match=r"block must be in 0..0, not 1"):
            load_run(70, 64, 9, n_tile=0, block=1, p=5)
        with pytest.raises(ValueError, match=r"p must be in 2..p_full = 9, not 10"):
            load_run(70, 64, 9, n_tile=0, block=0, p=10)
        with pytest.raises(ValueError, match=r"tiles_per_block must be in 1.*not 0"):
            to_image(bfp, tiles_per_block=0)
