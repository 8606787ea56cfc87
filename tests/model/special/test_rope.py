"""Rotary positions: the table against its formula, the rotation against exact fractions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model.datapath.special import FORMS, RopeScaling, rope_table, rotate
from model.formats.bf16 import from_codes, to_codes
from tests.model.cases import MOODS, make
from tests.model.special import reference

LLAMA = RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_positions=8192)


def codes(values: Tensor) -> list[int]:
    return to_codes(values).to(torch.int64).tolist()


def llama_frequency(frequency: float, scaling: RopeScaling) -> float:
    """As Llama 3.1 was published: by wave length."""
    wave = 2 * math.pi / frequency
    if wave < scaling.original_positions / scaling.high_freq_factor:
        return frequency
    if wave > scaling.original_positions / scaling.low_freq_factor:
        return frequency / scaling.factor
    smooth = (scaling.original_positions / wave - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    return (1 - smooth) * frequency / scaling.factor + smooth * frequency


@pytest.mark.parametrize("scaling", [None, LLAMA], ids=["plain", "llama"])
@pytest.mark.parametrize(("width", "base"), [(64, 1e4), (128, 5e5), (2, 10.0)])
def test_table(width: int, base: float, scaling: RopeScaling | None) -> None:
    count = 200
    table = rope_table(count, width, base, scaling)
    assert table.cosines.shape == table.sines.shape == (count, width // 2)
    assert table.cosines.dtype == table.sines.dtype == torch.int16
    for pair in range(width // 2):
        frequency = base ** (-2 * pair / width)
        if scaling is not None:
            frequency = llama_frequency(frequency, scaling)
        for position in (0, 1, 7, 64, 199):
            angle = position * frequency
            # Within half a unit, and what the angle's last bits move.
            assert abs(int(table.cosines[position, pair]) - 16384 * math.cos(angle)) < 0.5001
            assert abs(int(table.sines[position, pair]) - 16384 * math.sin(angle)) < 0.5001


def test_all_three_ranges_of_the_scaling_are_met() -> None:
    frequencies = [5e5 ** (-2 * pair / 128) for pair in range(64)]
    ratios = [llama_frequency(f, LLAMA) / f for f in frequencies]
    assert any(ratio == 1 for ratio in ratios)
    assert any(ratio == 1 / 8 for ratio in ratios)
    assert any(1 / 8 < ratio < 1 for ratio in ratios)


def test_empty_table() -> None:
    assert rope_table(0, 8, 1e4).cosines.shape == (0, 4)


@pytest.mark.parametrize("d", [2, 6, 64])
@pytest.mark.parametrize("mood", MOODS)
def test_equals_fractions(mood: str, d: int) -> None:
    x = make(d, mood, 6, d, 1).activations
    table = rope_table(200, d, 1e4)
    for position in (0, 1, 150):
        cosines, sines = table.cosines[position], table.sines[position]
        expected = [reference.rotated(r, cosines.tolist(), sines.tolist()) for r in codes(x)]
        assert codes(rotate(x, cosines, sines, form="hardware")) == expected


@given(
    st.tuples(*[st.integers(0, 0xFFFF).filter(lambda c: c & 0x7FFF < 0x7F80)] * 2),
    st.tuples(*[st.integers(-16384, 16384)] * 2),
)
@settings(max_examples=500, deadline=None)
def test_any_pair(pair: tuple[int, int], table: tuple[int, int]) -> None:
    x = from_codes(torch.tensor(pair))
    cosines, sines = (torch.tensor([each], dtype=torch.int16) for each in table)
    result = codes(rotate(x, cosines, sines, form="hardware"))
    assert result == reference.rotated(list(pair), [table[0]], [table[1]])


@pytest.mark.parametrize("gap", [8, 9, 22, 23, 24, 28, 29, 30, 31, 44, 45, 46, 47, 60, 120])
@pytest.mark.parametrize("sign", [0, 0x8000])
def test_lost_bits_break_a_tie(gap: int, sign: int) -> None:
    """129 * 3, 131 * 3 and 169 * 3 have 9 bits, the last a one: halfway between two BF16 numbers.

    The other term, a tiny one, decides.
    """
    for significand in (0x01, 0x03, 0x29):
        for cosine in (3, 6, 384, 12288):
            pair = [(160 << 7) | significand, ((160 - gap) << 7) | sign | 1]
            x = from_codes(torch.tensor(pair))
            c, s = torch.tensor([[cosine], [1]], dtype=torch.int16)
            result = codes(rotate(x, c, s, form="hardware"))
            assert result == reference.rotated(pair, [cosine], [1])


@pytest.mark.parametrize("form", FORMS)
def test_broadcasts(form: str) -> None:
    x = make(1, "normal", 24, 32, 1).activations.view(2, 4, 3, 32)
    table = rope_table(4, 32, 1e4)
    result = rotate(x, table.cosines[:, None], table.sines[:, None], form=form)
    for position in range(4):
        alone = rotate(x[:, position], table.cosines[position], table.sines[position], form=form)
        assert torch.equal(result[:, position], alone)
    assert torch.equal(result[:, 0], x[:, 0])  # position 0 turns nothing
    empty = rotate(x[:0], table.cosines[:, None], table.sines[:, None], form=form)
    assert empty.shape == (0, 4, 3, 32)
    assert rotate(x[..., :0], table.cosines[0, :0], table.sines[0, :0], form=form).numel() == 0


@pytest.mark.parametrize("form", FORMS)
def test_bad_input(form: str) -> None:
    x = torch.ones(2, 8).bfloat16()
    table = rope_table(3, 8, 1e4)
    c, s = table.cosines[1], table.sines[1]
    x[1, 6] = float("nan")
    with pytest.raises(ValueError, match=r"x\[1, 6\] must be finite"):
        rotate(x, c, s, form=form)
    x[1, 6] = 0
    with pytest.raises(ValueError, match=r"cosines must broadcast to \(2, 4\), not shape \(3, 4\)"):
        rotate(x, table.cosines, s, form=form)
    with pytest.raises(
        ValueError, match=r"sines must broadcast to \(2, 4\), not shape \(1, 2, 4\)"
    ):
        rotate(x, c, s.expand(1, 2, 4), form=form)
    with pytest.raises(ValueError, match="even last dimension"):
        rotate(x[:, :7], c, s, form=form)
    with pytest.raises(TypeError, match=r"sines must be torch\.int16"):
        rotate(x, c, s.int(), form=form)
    with pytest.raises(ValueError, match="form must be"):
        rotate(x, c, s, form=f"{form}s")


def test_bad_table() -> None:
    with pytest.raises(ValueError, match="width must be even, not 7"):
        rope_table(3, 7, 1e4)
    with pytest.raises(ValueError, match="count must be in"):
        rope_table(-1, 8, 1e4)
    with pytest.raises(ValueError, match="base must be above 0"):
        rope_table(3, 8, 0.0)
    with pytest.raises(ValueError, match="low_freq_factor < high_freq_factor"):
        RopeScaling(8.0, 4.0, 4.0, 8192)
