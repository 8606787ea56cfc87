"""SiLU times up: every gate against integers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from model.datapath.special import FORMS, silu_times_up
from model.formats.bf16 import from_codes, to_codes
from tests.model.cases import MOODS, make
from tests.model.special import reference

FINITE = [code for code in range(1 << 16) if code & 0x7FFF < 0x7F80]


def codes(values: Tensor) -> list[int]:
    return to_codes(values).to(torch.int64).tolist()


def check(gate: list[int], up: list[int]) -> None:
    tensors = (from_codes(torch.tensor(each)) for each in (gate, up))
    result = codes(silu_times_up(*tensors, form="hardware"))
    expected = [reference.silu(g, u) for g, u in zip(gate, up, strict=True)]
    assert result == expected


def test_every_gate() -> None:
    """Each with another up: all signs, fractions and exponents around 1."""
    generator = torch.Generator().manual_seed(1)
    up = torch.randn(len(FINITE), generator=generator).bfloat16()
    check(FINITE, codes(up))


@pytest.mark.parametrize("up", [0x7F7F, 0x0001, 0x8080, 0x8000])
def test_extreme_ups(up: int) -> None:
    """Gates of every exponent and sign, with the least and the largest up."""
    gates = FINITE[::31]
    check(gates, [up] * len(gates))


@pytest.mark.parametrize("mood", MOODS)
def test_moods(mood: str) -> None:
    gate, up = (codes(make(seed, mood, 4, 50, 1).activations.flatten()) for seed in (1, 2))
    check(gate, up)


def test_flush_range() -> None:
    gate = from_codes(torch.tensor(FINITE))
    result = silu_times_up(gate, torch.full_like(gate, 2.0**100), form="hardware")
    flushed = gate <= -87.5
    assert set(codes(result[flushed])) == {0}
    assert bool((result[(gate < 0) & ~flushed & (gate < -(2.0**-100))] < 0).all())


@pytest.mark.parametrize("form", FORMS)
def test_shapes(form: str) -> None:
    gate = make(1, "normal", 6, 10, 1).activations.view(2, 3, 10)
    up = make(2, "normal", 6, 10, 1).activations.view(2, 3, 10)
    result = silu_times_up(gate, up, form=form)
    assert result.dtype == torch.bfloat16
    assert torch.equal(result[1, 2, 4], silu_times_up(gate[1, 2, 4], up[1, 2, 4], form=form))
    assert silu_times_up(gate[:0], up[:0], form=form).shape == (0, 3, 10)


@pytest.mark.parametrize("form", FORMS)
def test_bad_input(form: str) -> None:
    good = torch.ones(2, 3).bfloat16()
    bad = good.clone()
    bad[1, 2] = float("inf")
    with pytest.raises(ValueError, match=r"gate\[1, 2\] must be finite, not inf"):
        silu_times_up(bad, good, form=form)
    with pytest.raises(ValueError, match=r"up\[1, 2\] must be finite, not inf"):
        silu_times_up(good, bad, form=form)
    with pytest.raises(ValueError, match=r"up must have the shape of gate, \(2, 3\), not \(3,\)"):
        silu_times_up(good, good[0], form=form)
    with pytest.raises(TypeError, match=r"up must be torch\.bfloat16, not torch\.float32"):
        silu_times_up(good, good.float(), form=form)
    with pytest.raises(ValueError, match="form must be"):
        silu_times_up(good, good, form="")
