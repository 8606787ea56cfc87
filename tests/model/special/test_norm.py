"""RMSNorm: the hardware form against integers, and both forms against each other."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model.datapath.special import FORMS, rms_norm
from model.datapath.special.norm import accumulate_squares, inverse_root
from model.formats.bf16 import from_codes, to_codes
from model.formats.special_tables import rsqrt_table
from tests.model.cases import BASE_SEED, MOODS, make
from tests.model.special import reference

EPS = 1e-5


def codes(values: Tensor) -> list[int]:
    return to_codes(values).to(torch.int64).tolist()


def check(x: Tensor, weight: Tensor, eps: float = EPS) -> None:
    """The hardware form of rows (M, d) equals the reference of every row."""
    result = rms_norm(x, weight, eps, form="hardware")
    assert result.dtype == torch.bfloat16
    w = codes(weight)
    assert codes(result) == [reference.norm(row, w, eps) for row in codes(x)]


@pytest.mark.parametrize("d", [1, 5, 63, 64, 65, 130, 200])
@pytest.mark.parametrize("mood", MOODS)
def test_equals_integers(mood: str, d: int) -> None:
    case = make(d, mood, 3, d, 1)
    check(case.activations, make(d + 1, "normal", 1, d, 1).activations[0])


@pytest.mark.parametrize("mood", ["any_code", "extreme", "subnormal"])
def test_any_weight_and_eps(mood: str) -> None:
    x = make(3, mood, 4, 70, 1).activations
    for eps in (2.0**-126, 1e-6, 1.0, 2.0**127):
        check(x, make(4, mood, 1, 70, 1).activations[0], eps)


@pytest.mark.parametrize("rise", [1, 2, 15, 19, 20, 61, 64, 200])
def test_the_running_exponent_rises_late(rise: int) -> None:
    """One outlier in the last 64, a smaller rise before it, and a row that has neither."""
    rng = np.random.default_rng([BASE_SEED, rise])
    x = (40 << 7) | rng.integers(0, 128, (3, 320)) | (rng.integers(0, 2, (3, 320)) << 15)
    x[:2, 300] = ((40 + rise) << 7) | 85
    x[1, 100] = (41 << 7) | 3
    x[1, :64] = 0x8000
    check(from_codes(torch.from_numpy(x)), torch.ones(320).bfloat16())


def test_zeros() -> None:
    x = torch.tensor([[0.0, -0.0] * 70])
    assert codes(rms_norm(x.bfloat16(), torch.ones(140).bfloat16(), EPS, form="hardware")) == [
        [0] * 140
    ]


@given(
    st.lists(st.tuples(st.integers(0, (1 << 38) - 1), st.integers(0, 254)), min_size=1, max_size=12)
)
@settings(max_examples=200, deadline=None)
def test_stretches_equal_the_sequence(chunks: list[tuple[int, int]]) -> None:
    """A and R of any sums and exponents, beside a row that rises elsewhere."""

    def sequence(pairs: list[tuple[int, int]]) -> tuple[int, int]:
        total, running = 0, 0
        for s, x in pairs:
            latest = max(running, x)
            total = (total >> 2 * (latest - running)) + (s >> 2 * (latest - x))
            running = latest
        return total, running

    chunks = [(s if x else 0, x) for s, x in chunks]
    rows = [chunks, chunks[::-1]]
    sums, exponents = (torch.tensor([[pair[i] for pair in row] for row in rows]) for i in (0, 1))
    total, running = accumulate_squares(sums, exponents)
    assert list(zip(total.tolist(), running.tolist(), strict=True)) == list(map(sequence, rows))


def test_every_index_of_the_root() -> None:
    """A 2^0 of 17 and 18 bits; eps is too small to matter."""
    a = torch.arange(1 << 16, 1 << 17)
    total = torch.cat([a, 2 * a])
    r = inverse_root(total, torch.full_like(total, 142), 1, 2.0**-126)
    table = rsqrt_table()
    wanted = [table.value(i) * 2.0**-25 for i in range(1 << 17)]  # z = m 2^16
    assert r.tolist() == wanted


@pytest.mark.parametrize("running", [1, 60, 142, 254])
def test_scalar_steps(running: int) -> None:
    generator = torch.Generator().manual_seed(BASE_SEED + running)
    total = torch.randint(0, 1 << 52, (200,), generator=generator)
    total >>= torch.randint(0, 52, (200,), generator=generator)
    for d, eps in ((1, 1e-6), (576, 1e-5), (4097, 2.0**-126), (1 << 20, 0.3)):
        r = inverse_root(total, torch.full_like(total, running), d, eps)
        exact = [reference.root_of_mean(a, running, d, eps) for a in total.tolist()]
        assert r.tolist() == [float(each) for each in exact]


@pytest.mark.parametrize("d", [3, 576, 4097])
def test_every_scalar_step_rounds(d: int) -> None:
    """Means a few units of 2^-26 beside a step of the table: each rounding decides some."""
    rng = np.random.default_rng([BASE_SEED, d])
    steps = (1 << 16) + rng.integers(0, 1 << 16, 1000)
    offsets = rng.integers(-4, 5, 1000)
    total = [
        int(d * step * 2**18 * (1 + Fraction(int(offset), 1 << 26)))
        for step, offset in zip(steps.tolist(), offsets, strict=True)
    ]
    eps = 2.0**-126
    r = inverse_root(torch.tensor(total), torch.full((1000,), 125), d, eps)
    assert r.tolist() == [float(reference.root_of_mean(a, 125, d, eps)) for a in total]


def test_mean_and_eps_are_rounded_before_their_sum() -> None:
    """z a little more than half a unit (2^-21) below a step of the table.

    Mean or eps, in 2..4, is rounded to 2^-22 first; that leaves the half, a tie that goes up to
    the step. Rounded once, the sum would go down.
    """
    for step in range(9 << 13, 13 << 13, 97):
        part = Fraction(step, 1 << 14) - Fraction(5, 2) - Fraction(5, 1 << 24)  # z in 4.5..6.5
        # With R = 130, A is in units of 2^-24.
        for mean, eps in ((Fraction(5, 2), part), (part, Fraction(5, 2))):
            total = mean * (1 << 24)
            assert total.denominator == 1
            r = inverse_root(torch.tensor([int(total)]), torch.tensor([130]), 1, float(eps))
            wanted = reference.inverse_root(0, step - (1 << 16)) * 2.0**-18
            assert r.tolist() == [wanted]
            assert wanted == reference.root_of_mean(int(total), 130, 1, float(eps))
        # The product with 1/3 has more bits than the mean: some of these are just below the half.
        for near in range(-40, 8, 8):
            total = int(3 * part * (1 << 24)) + near
            r = inverse_root(torch.tensor([total]), torch.tensor([130]), 3, 2.5)
            assert r.tolist() == [float(reference.root_of_mean(total, 130, 3, 2.5))]


@pytest.mark.parametrize("form", FORMS)
def test_leading_dimensions(form: str) -> None:
    x = make(1, "normal", 12, 72, 1).activations
    weight = make(2, "normal", 1, 72, 1).activations[0]
    flat = rms_norm(x, weight, EPS, form=form)
    shaped = rms_norm(x.view(2, 3, 2, 72), weight, EPS, form=form)
    assert torch.equal(shaped.view(12, 72), flat)
    assert torch.equal(rms_norm(x[3], weight, EPS, form=form), flat[3])
    for shape in ((0, 72), (3, 0, 72)):
        assert rms_norm(torch.empty(shape).bfloat16(), weight, EPS, form=form).shape == shape
    none = torch.empty(4, 0).bfloat16()
    assert rms_norm(none, none[0], EPS, form=form).shape == (4, 0)
    strided = x.T.contiguous().T
    assert torch.equal(rms_norm(strided, weight, EPS, form=form), flat)


def test_overflow_is_infinite() -> None:
    x = torch.tensor([[4.0, 1e-30]]).bfloat16()
    weight = torch.full((2,), 3e38).bfloat16()
    assert rms_norm(x, weight, EPS, form="hardware")[0].tolist()[0] == float("inf")
    check(x, weight)


@pytest.mark.parametrize("form", FORMS)
def test_bad_input(form: str) -> None:
    x = torch.ones(2, 70).bfloat16()
    weight = torch.ones(70).bfloat16()
    for bad in (float("nan"), float("inf"), float("-inf")):
        wrong = x.clone()
        wrong[1, 66] = bad
        with pytest.raises(ValueError, match=r"x\[1, 66\] must be finite"):
            rms_norm(wrong, weight, EPS, form=form)
        with pytest.raises(ValueError, match=r"weight\[66\] must be finite"):
            rms_norm(x, wrong[1], EPS, form=form)
    with pytest.raises(ValueError, match=r"weight must have shape \(70,\), not \(69,\)"):
        rms_norm(x, weight[1:], EPS, form=form)
    for eps in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="eps must be in"):
            rms_norm(x, weight, eps, form=form)
    with pytest.raises(TypeError, match="eps must be a float, not 1"):
        rms_norm(x, weight, 1, form=form)
    with pytest.raises(TypeError, match=r"x must be torch\.bfloat16"):
        rms_norm(x.float(), weight, EPS, form=form)
    with pytest.raises(ValueError, match="at least one dimension"):
        rms_norm(x[0, 0], weight, EPS, form=form)
    with pytest.raises(ValueError, match="form must be 'reference' or 'hardware', not 'exact'"):
        rms_norm(x, weight, EPS, form="exact")
