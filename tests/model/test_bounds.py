"""Bounds: the contract's own numbers, and what is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest

from model.datapath.bounds import (
    acc_bits,
    acc_bound,
    check_k,
    largest_k,
    lut_entry_bits,
    tile_sum_bits,
)


@pytest.mark.parametrize(
    ("max_k", "p_max", "bits"),
    [
        (64, 9, 40),
        (4096, 9, 46),
        (32768, 9, 49),
        (32768, 16, 56),
        (131072, 9, 51),
        (131072, 16, 58),
    ],
)
def test_accumulator_bits(max_k: int, p_max: int, bits: int) -> None:
    assert acc_bits(max_k, p_max, 8, 8) == bits
    assert acc_bound(max_k, p_max, 8, 8) == max_k * 255 * 2**16 * 2 * (2 ** (p_max - 1) - 1)


def test_other_bits() -> None:
    assert (tile_sum_bits(9, 8), tile_sum_bits(16, 8), lut_entry_bits(8)) == (32, 39, 19)


@pytest.mark.parametrize(("p", "g", "f"), [(9, 8, 8), (16, 8, 8), (16, 16, 16), (5, 0, 0)])
def test_largest_k(p: int, g: int, f: int) -> None:
    k = largest_k(p, g, f)
    assert acc_bits(k, p, g, f) <= 63 < acc_bits(k + 1, p, g, f)
    check_k(k, p, g, f)
    with pytest.raises(ValueError, match=f"K must be at most {k} for a 63-bit.*not {k + 1}"):
        check_k(k + 1, p, g, f)


def test_max_k() -> None:
    check_k(64, 9, 8, 8, max_k=64)
    with pytest.raises(ValueError, match="K must be at most max_k = 64, not 65"):
        check_k(65, 9, 8, 8, max_k=64)


@pytest.mark.parametrize("arguments", [(0, 9, 8, 8), (64, 1, 8, 8), (64, 9, 17, 8), (64, 9, 8, -1)])
def test_arguments_out_of_range(arguments: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be in"):
        acc_bound(*arguments)


def test_constants_need_no_torch() -> None:
    """`hw` reads them, and hardware is built without torch."""
    code = "import sys, model.formats.constants; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
