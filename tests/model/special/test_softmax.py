"""Softmax in parts: every index of the tables, and rows under a running maximum."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model.datapath.special import (
    attention_output,
    exponentials,
    fixed_scores,
    integer_sum,
    softmax_reference,
)
from model.formats.bf16 import from_codes, to_codes
from model.formats.floats import from_codes as numbers
from tests.model.cases import BASE_SEED
from tests.model.reference import value
from tests.model.special import reference

ONE = 1 << 16
EXTREMES = [0, 0x80000000, 1, 0x80000001, 0x7F7FFFFF, 0xFF7FFFFF, 0x00800000, 0x3F800000]


def codes(values: Tensor) -> list[int]:
    return to_codes(values).to(torch.int64).tolist()


def single_codes(count: int, low: int, high: int, seed: int) -> Tensor:
    """FP32 codes with stored exponents low..high."""
    generator = torch.Generator().manual_seed(BASE_SEED + seed)
    parts = [
        torch.randint(first, last, (count,), generator=generator)
        for first, last in ((0, 2), (low, high + 1), (0, 1 << 23))
    ]
    return (parts[0] << 31) | (parts[1] << 23) | parts[2]


class TestFixedScores:
    @pytest.mark.parametrize("width", [1, 64, 80, 128, 256])
    def test_equals_integers(self, width: int) -> None:
        parts = [single_codes(400, *limits, 1) for limits in ((0, 254), (110, 145), (0, 0))]
        all_codes = torch.cat([*parts, torch.tensor(EXTREMES)])
        x = fixed_scores(numbers(all_codes, "fp32"), width)
        assert x.tolist() == [reference.fixed_score(c, width) for c in all_codes.tolist()]

    def test_floor_of_a_negative(self) -> None:
        assert fixed_scores(torch.tensor([-1e-30, -0.0, 1e-30]), 64).tolist() == [-1, 0, 0]

    def test_bad_input(self) -> None:
        scores = torch.tensor([[0.0, float("-inf")]])
        with pytest.raises(ValueError, match=r"scores\[0, 1\] must be finite"):
            fixed_scores(scores, 64)
        with pytest.raises(ValueError, match="width must be in"):
            fixed_scores(scores[:, :1], 0)
        assert fixed_scores(torch.empty(0, 3), 64).shape == (0, 3)


class TestExponentials:
    @pytest.mark.parametrize("part", [0, -1, -63, -126, -127])
    def test_every_fraction(self, part: int) -> None:
        below = torch.arange(part * ONE, part * ONE + ONE)
        expected = [reference.exponential(each) for each in below.tolist()]
        assert codes(exponentials(below, 0)) == expected
        assert codes(exponentials(below - 5 * ONE, -5)) == expected

    def test_flush(self) -> None:
        below = torch.tensor([-126 * ONE, -126 * ONE - 1, -(1 << 33), -(1 << 40)])
        assert codes(exponentials(below, 0)) == [0x0080, 0, 0, 0]

    def test_largest_is_2(self) -> None:
        assert exponentials(torch.tensor([ONE - 1, 0]), 0).tolist() == [2.0, 1.0]

    def test_rows_have_their_own_maximum(self) -> None:
        x = torch.tensor([[ONE + 5, -3 * ONE], [7 * ONE, 6 * ONE + 9]])
        maximum = torch.tensor([[1], [7]])
        expected = [
            [reference.exponential(each) for each in row] for row in (x - maximum * ONE).tolist()
        ]
        assert codes(exponentials(x, maximum)) == expected

    def test_bad_input(self) -> None:
        x = torch.tensor([[0, ONE], [0, 0]])
        with pytest.raises(ValueError, match=r"x\[0, 1\] must be less than 1"):
            exponentials(x, torch.zeros(2, 1, dtype=torch.int64))
        with pytest.raises(TypeError, match=r"x must be torch\.int64"):
            exponentials(x.int(), 0)
        assert exponentials(x[:0], torch.zeros(0, 1, dtype=torch.int64)).shape == (0, 2)


class TestIntegerSum:
    def test_every_probability(self) -> None:
        """All BF16 numbers from 0 to 2."""
        p = from_codes(torch.arange(0x4001))
        assert integer_sum(p).tolist() == [
            reference.floor(value(code) * 2**32) for code in range(0x4001)
        ]

    def test_bad_input(self) -> None:
        for bad in (-1.0, 2.015625, float("nan"), float("inf")):
            with pytest.raises(ValueError, match=r"p\[1\] must be in 0\.\.2"):
                integer_sum(torch.tensor([1.0, bad]).bfloat16())
        assert integer_sum(torch.empty(2, 0).bfloat16()).shape == (2, 0)


class TestAttentionOutput:
    def test_every_index_of_the_table(self) -> None:
        total = torch.arange(ONE, 2 * ONE) << 16
        sums = numbers(single_codes(ONE, 100, 150, 2), "fp32")
        expected = [
            reference.attended(code, each)
            for code, each in zip(codes(sums), total.tolist(), strict=True)
        ]
        assert codes(attention_output(sums.unsqueeze(-1), total).flatten()) == expected

    @pytest.mark.parametrize("exponents", [(0, 254), (0, 2), (250, 254)])
    def test_any_size(self, exponents: tuple[int, int]) -> None:
        generator = torch.Generator().manual_seed(BASE_SEED)
        total = torch.randint(0, 1 << 53, (2000,), generator=generator)
        total >>= torch.randint(0, 54, (2000,), generator=generator)
        total[:4] = torch.tensor([0, 1, (1 << 53) - 1, 1 << 32])
        sums = numbers(single_codes(2000, *exponents, 3), "fp32")
        expected = [
            reference.attended(code, each)
            for code, each in zip(codes(sums), total.tolist(), strict=True)
        ]
        assert codes(attention_output(sums.unsqueeze(-1), total).flatten()) == expected

    def test_no_token(self) -> None:
        sums = torch.tensor([[-1.0, 0.0]])
        assert codes(attention_output(sums, torch.tensor([0]))) == [[0, 0]]

    def test_bad_input(self) -> None:
        sums, total = torch.ones(2, 3), torch.ones(2, dtype=torch.int64)
        with pytest.raises(ValueError, match="total must have the shape of sums"):
            attention_output(sums, total[:1])
        for bad in (-1, 1 << 53):
            with pytest.raises(ValueError, match=r"total\[1\] must be in 0"):
                attention_output(sums, torch.tensor([5, bad]))
        sums[1, 2] = float("inf")
        with pytest.raises(ValueError, match=r"sums\[1, 2\] must be finite"):
            attention_output(sums, total)
        assert attention_output(sums[:0], total[:0]).shape == (0, 3)
        assert attention_output(sums[:, :0], total).shape == (2, 0)


@given(st.lists(st.integers(-200 * ONE, 200 * ONE), min_size=1, max_size=40), st.integers(1, 8))
@settings(max_examples=100, deadline=None)
def test_row_under_a_running_maximum(scores: list[int], tile: int) -> None:
    """L of a row in tiles, in tensors and in integers; the largest token is 1 or more."""
    maximum, total = None, 0
    m, l = torch.tensor(-(1 << 20)), torch.tensor(0)
    for first in range(0, len(scores), tile):
        part = scores[first : first + tile]
        latest = max(each // ONE for each in part)
        latest = latest if maximum is None else max(maximum, latest)
        total = 0 if maximum is None else total >> (latest - maximum)
        maximum = latest
        for each in part:
            p = reference.exponential(each - maximum * ONE)
            total += reference.floor(value(p) * 2**32)

        x = torch.tensor(part)
        risen = torch.maximum(m, x.max() >> 16)
        l = (l >> (risen - m).clamp_max(63)) + integer_sum(exponentials(x, risen)).sum()
        m = risen
    assert (int(m), int(l)) == (maximum, total)
    assert total >= 1 << 32


class TestReference:
    def test_shares(self) -> None:
        scores = torch.tensor([[8.0, 16.0, float("-inf")], [float("-inf")] * 3])
        shares = softmax_reference(scores, 64)
        low = 1 / (1 + math.e)
        assert shares.dtype == torch.float32
        assert torch.allclose(shares[0], torch.tensor([low, 1 - low, 0.0]))
        assert shares[1].tolist() == [0.0] * 3
        assert softmax_reference(scores[:, :0], 64).shape == (2, 0)

    def test_bad_input(self) -> None:
        for bad in (float("nan"), float("inf")):
            with pytest.raises(ValueError, match=r"scores\[1\] must be finite or -inf"):
                softmax_reference(torch.tensor([0.0, bad]), 64)
