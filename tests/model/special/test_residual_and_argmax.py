"""The residual sum against exact fractions, and argmax on ties, padding and NaN."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from model.datapath.special import FORMS, argmax, residual_add
from model.formats.bf16 import from_codes, to_codes
from tests.model.cases import BASE_SEED, MOODS, make
from tests.model.special import reference


def codes(values: Tensor) -> list[int]:
    return to_codes(values).to(torch.int64).tolist()


def check(x: list[int], y: list[int]) -> None:
    tensors = [from_codes(torch.tensor(each)) for each in (x, y)]
    expected = [reference.summed(a, b) for a, b in zip(x, y, strict=True)]
    assert codes(residual_add(*tensors, form="hardware")) == expected
    # The reference differs in the sign of a zero at most.
    numbers = from_codes(torch.tensor(expected))
    assert torch.equal(residual_add(*tensors, form="reference"), numbers)


@pytest.mark.parametrize("mood", MOODS)
def test_sums(mood: str) -> None:
    check(*(codes(make(seed, mood, 20, 64, 1).activations.flatten()) for seed in (1, 2)))


def test_every_gap_of_exponents() -> None:
    rng = np.random.default_rng([BASE_SEED, 7])
    x, y = [], []
    for exponent, gap in itertools.product((0, 1, 2, 20, 127, 254), range(-30, 31)):
        if 0 <= exponent + gap <= 254:
            fractions = rng.choice([0, 1, 2, 63, 64, 65, 126, 127], (2, 40))
            signs = rng.integers(0, 2, (2, 40)) << 15
            pairs = (np.array([[exponent], [exponent + gap]]) << 7) | fractions | signs
            x += pairs[0].tolist()
            y += pairs[1].tolist()
    check(x, y)


def test_edges() -> None:
    edges = [0x0000, 0x8000, 0x0001, 0x8001, 0x7F7F, 0xFF7F, 0x7F00, 0x7780, 0x3F80, 0xBF80]
    pairs = list(itertools.product(edges, edges))
    check([x for x, _ in pairs], [y for _, y in pairs])


@pytest.mark.parametrize("form", FORMS)
def test_bad_sums(form: str) -> None:
    good = torch.ones(2, 3).bfloat16()
    bad = good.clone()
    bad[0, 1] = float("nan")
    with pytest.raises(ValueError, match=r"x\[0, 1\] must be finite"):
        residual_add(bad, good, form=form)
    with pytest.raises(ValueError, match=r"y\[0, 1\] must be finite"):
        residual_add(good, bad, form=form)
    with pytest.raises(ValueError, match="y must have the shape of x"):
        residual_add(good, good[:, :2], form=form)
    with pytest.raises(ValueError, match="form must be"):
        residual_add(good, good, form="both")
    assert residual_add(good[:0], good[:0], form=form).shape == (0, 3)


class TestArgmax:
    @pytest.mark.parametrize("size", [1, 2, 7, 16, 33, 64, 1000, 50000])
    def test_lowest_index_on_a_tie(self, size: int) -> None:
        generator = torch.Generator().manual_seed(BASE_SEED + size)
        for _ in range(20):
            logits = torch.randint(-3, 4, (5, size), generator=generator).float()
            expected = [row.index(max(row)) for row in logits.tolist()]
            assert argmax(logits).tolist() == expected
        assert argmax(torch.full((size,), -2.5)).item() == 0

    def test_zeros_of_both_signs_tie(self) -> None:
        assert argmax(torch.tensor([-1.0, -0.0, 0.0])).item() == 1
        assert argmax(torch.tensor([-1.0, 0.0, -0.0])).item() == 1

    def test_padding_never_wins(self) -> None:
        """Padded columns are 0, above logits that are all negative."""
        logits = torch.zeros(3, 128)
        logits[:, :100] = -1 - torch.arange(100.0)
        logits[1, 99] = -0.5
        assert argmax(logits, 100).tolist() == [0, 99, 0]
        assert argmax(logits).tolist() == [100] * 3
        logits[:, 100:] = float("nan")
        assert argmax(logits, 100).tolist() == [0, 99, 0]

    def test_extremes(self) -> None:
        largest = torch.finfo(torch.float32).max
        assert argmax(torch.tensor([-largest, largest, float("inf")])).item() == 2
        assert argmax(torch.tensor([float("-inf"), -largest])).item() == 1

    def test_shapes(self) -> None:
        assert argmax(torch.zeros(2, 3, 5)).shape == (2, 3)
        assert argmax(torch.zeros(0, 5)).shape == (0,)
        assert argmax(torch.zeros(5)).dtype == torch.int64

    def test_bad_input(self) -> None:
        logits = torch.zeros(2, 3, 8)
        logits[1, 2, 5] = float("nan")
        with pytest.raises(ValueError, match=r"logits\[1, 2, 5\] must not be NaN"):
            argmax(logits)
        with pytest.raises(ValueError, match=r"logits\[1, 2, 5\] must not be NaN"):
            argmax(logits, 6)
        for count in (0, 9):
            with pytest.raises(ValueError, match=r"count must be in 1\.\.8"):
                argmax(logits, count)
        with pytest.raises(ValueError, match="must have a column"):
            argmax(torch.zeros(2, 0))
        with pytest.raises(TypeError, match=r"logits must be torch\.float32"):
            argmax(torch.zeros(2).bfloat16())
