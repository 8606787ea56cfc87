"""BFP groups: quantisation, partial loads and the parts that are refused."""

from __future__ import annotations

import dataclasses
import random
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model.formats.bf16 import from_codes
from model.formats.bfp import Bfp, quantize
from tests.model import reference

P_FULLS = range(9, 17)
ALL = torch.arange(1 << 16)
FINITE = ALL[((ALL >> 7) & 255) != 255]


def groups_of(codes: list[list[int]], p_full: int, rounding: str) -> list[reference.Group]:
    return [reference.quantize_group(row, p_full, rounding) for row in codes]


def assert_equal(bfp: Bfp, expected: list[reference.Group]) -> None:
    """Rows of `bfp` are one group each."""
    assert bfp.exponents.squeeze(-1).tolist() == [group.exponent for group in expected]
    assert bfp.signs.tolist() == [group.signs for group in expected]
    assert bfp.magnitudes.tolist() == [group.magnitudes for group in expected]


@pytest.mark.parametrize("rounding", ["truncate", "nearest"])
@pytest.mark.parametrize("p_full", P_FULLS)
def test_all_codes_against_the_reference(p_full: int, rounding: str) -> None:
    """Every finite code in one group with a neighbour at a distance of its own."""
    random.seed(p_full)
    codes = [
        [code, random.choice((0x0000, 0x8000, code, min(254, (code >> 7 & 255) + d) << 7))]
        for code in FINITE.tolist()
        for d in (random.randint(0, 18),)
    ]
    bfp = quantize(from_codes(torch.tensor(codes)), group=2, p_full=p_full, rounding=rounding)
    assert_equal(bfp, groups_of(codes, p_full, rounding))


@pytest.mark.parametrize("p_full", P_FULLS)
@pytest.mark.parametrize("rounding", ["truncate", "nearest"])
def test_encode_decode_of_all_codes(p_full: int, rounding: str) -> None:
    """Quantising dequantised values gives the group back; signs where the magnitude is not 0."""
    for neighbour in (0, 1, 0x0080, 0x0500, 0x3F80, 0x7F7F):
        pairs = torch.stack([FINITE, torch.full_like(FINITE, neighbour)], dim=1)
        once = quantize(from_codes(pairs), group=2, p_full=p_full, rounding=rounding)
        twice = quantize(once.dequantize(), group=2, p_full=p_full, rounding=rounding)
        assert torch.equal(twice.exponents, once.exponents)
        assert torch.equal(twice.magnitudes, once.magnitudes)
        seen = once.magnitudes != 0
        assert torch.equal(twice.signs[seen], once.signs[seen])


@given(
    codes=st.lists(
        st.one_of(
            st.integers(0, 0xFFFF),
            st.integers(0x3F00, 0x4000),
            st.integers(0, 0x200),
            st.sampled_from([0, 0x8000, 1, 0x8001, 0x7F7F, 0xFF7F]),
        ).filter(lambda code: code >> 7 & 255 != 255),
        min_size=1,
        max_size=40,
    ),
    p_full=st.sampled_from(P_FULLS),
    rounding=st.sampled_from(["truncate", "nearest"]),
    data=st.data(),
)
@settings(deadline=None, max_examples=300)
def test_groups_and_loads_against_the_reference(
    codes: list[int], p_full: int, rounding: str, data: st.DataObject
) -> None:
    bfp = quantize(
        from_codes(torch.tensor([codes])), group=len(codes), p_full=p_full, rounding=rounding
    )
    (group,) = groups_of([codes], p_full, rounding)
    assert_equal(bfp, [group])
    p = data.draw(st.integers(2, p_full))
    for reconstruct in ("truncate", "midpoint"):
        values = [Fraction(v) for v in bfp.dequantize(p, reconstruct)[0].tolist()]
        assert values == reference.dequantized(group, p_full, p, reconstruct)


@pytest.mark.parametrize("p_full", P_FULLS)
def test_dequantised_values_are_exact_at_the_borders(p_full: int) -> None:
    """The least and the largest exponents, magnitudes from end to end, several loads."""
    every = torch.arange(1 << (p_full - 1), dtype=torch.int16)
    magnitudes = torch.cat([every[:300], every[300:-300:37], every[-300:]]).repeat(4, 1)
    signs = torch.tensor([0, 1, 0, 1], dtype=torch.uint8).unsqueeze(1).expand_as(magnitudes)
    exponents = torch.tensor([[1], [1], [254], [254]], dtype=torch.uint8)
    group = magnitudes.shape[1]
    bfp = Bfp(exponents, signs.contiguous(), magnitudes, 1, group, p_full)
    for p in {2, 5, 8, p_full - 1, p_full}:
        for reconstruct in ("truncate", "midpoint"):
            got = bfp.dequantize(p, reconstruct).tolist()
            for row in range(4):
                parts = reference.Group(
                    int(exponents[row, 0]), signs[row].tolist(), magnitudes[row].tolist()
                )
                expected = reference.dequantized(parts, p_full, p, reconstruct)
                assert [Fraction(v) for v in got[row]] == expected


def test_midpoint_at_full_precision_is_exact() -> None:
    bfp = quantize(torch.randn(4, 64, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(bfp.dequantize(9, "midpoint"), bfp.dequantize())
    assert not torch.equal(bfp.dequantize(8, "midpoint"), bfp.dequantize(8))


def test_a_zero_of_a_live_group_reads_as_half_a_unit() -> None:
    bfp = quantize(torch.tensor([[1.0, 0.0, -0.0], [0.0, 0.0, -0.0]]), group=3)
    assert bfp.signs.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert bfp.dequantize(5, "midpoint").tolist() == [[1.0625, 0.0625, 0.0625], [0, 0, 0]]


def test_a_shifted_out_value_keeps_its_sign() -> None:
    bfp = quantize(torch.tensor([1.0, -(2.0**-40)]))
    assert bfp.magnitudes.tolist() == [128, 0]
    assert bfp.signs.tolist() == [0, 1]
    assert bfp.dequantize(5, "midpoint").tolist() == [1.0625, -0.0625]


def test_floats_are_rounded_to_bf16_first() -> None:
    value = 1 + 2**-8 + 2**-20  # BF16: 1 + 2^-7
    for dtype in (torch.float32,):
        assert quantize(torch.tensor([value], dtype=dtype)).magnitudes.tolist() == [129]
    half = torch.tensor([1 + 2**-8 + 2**-10], dtype=torch.float16)
    assert quantize(half).magnitudes.tolist() == [129]


def test_nearest_rounds_ties_to_even_and_does_not_overflow() -> None:
    # E = 128 for 2.0; 1 + 1/128 is 129/128: quotient 64.5; 1 + 3/128: 65.5; 1 + 127/128: 127.5.
    values = torch.tensor([2.0, 1 + 1 / 128, 1 + 3 / 128, 2 - 1 / 128])
    assert quantize(values).magnitudes.tolist() == [128, 64, 65, 127]
    assert quantize(values, rounding="nearest").magnitudes.tolist() == [128, 64, 66, 128]


def moved(values: Tensor, dim: int) -> Tensor:
    return values.movedim(dim, -1)


@pytest.mark.parametrize(
    "shape", [(1,), (64,), (130,), (3, 70), (2, 100), (64, 64), (2, 3, 65), (2, 1, 3, 7)]
)
@pytest.mark.parametrize("group", [64, 9, 1])
def test_any_rank_and_dimension(shape: tuple[int, ...], group: int) -> None:
    generator = torch.Generator().manual_seed(len(shape) * 100 + group)
    values = torch.randn(shape, generator=generator).exp().bfloat16()
    for dim in range(-len(shape), len(shape)):
        bfp = quantize(values, group_dim=dim, group=group)
        axis = dim % len(shape)
        assert (bfp.group_dim, bfp.shape, bfp.signs.shape) == (axis, values.shape, values.shape)
        expected = list(shape)
        expected[axis] = -(-shape[axis] // group)
        assert list(bfp.exponents.shape) == expected
        assert (bfp.exponents.dtype, bfp.signs.dtype, bfp.magnitudes.dtype) == (
            torch.uint8,
            torch.uint8,
            torch.int16,
        )
        # The same as each run of the moved dimension alone.
        runs = moved(values, axis).reshape(-1, shape[axis])
        shared = moved(bfp.exponents, axis).reshape(len(runs), -1)
        dequantised = moved(bfp.dequantize(6), axis).reshape(runs.shape)
        for run in range(len(runs)):
            for index, first in enumerate(range(0, shape[axis], group)):
                alone = quantize(runs[run, first : first + group], group=group)
                assert int(alone.exponents[0]) == int(shared[run, index])
                part = dequantised[run, first : first + group]
                assert torch.equal(alone.dequantize(6), part)


def test_empty_dimensions() -> None:
    for shape in ((0, 64), (3, 0)):
        bfp = quantize(torch.zeros(shape))
        assert bfp.dequantize().shape == shape
    assert quantize(torch.zeros(3, 0)).exponents.shape == (3, 0)


def test_transposed_values() -> None:
    values = torch.randn(70, 130, generator=torch.Generator().manual_seed(2)).bfloat16()
    by_row, by_column = quantize(values.T, group_dim=0), quantize(values, group_dim=1)
    assert torch.equal(by_row.exponents.T, by_column.exponents)
    assert torch.equal(by_row.magnitudes.T, by_column.magnitudes)


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"p_full": 8}, ValueError, "p_full must be in 9..16, not 8"),
            ({"p_full": 17}, ValueError, "p_full must be in 9..16, not 17"),
            ({"p_full": 9.0}, TypeError, "p_full must be an int, not 9.0"),
            ({"group": 0}, ValueError, "group must be in 1.*not 0"),
            ({"group_dim": 2}, ValueError, r"group_dim must be in -2..1, not 2"),
            ({"rounding": "up"}, ValueError, "rounding must be 'truncate' or 'nearest', not 'up'"),
        ],
    )
    def test_arguments(
        self, arguments: dict[str, object], error: type[Exception], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            quantize(torch.zeros(2, 64), **arguments)  # type: ignore[arg-type]

    def test_values(self) -> None:
        values = torch.zeros(2, 70)
        values[1, 69] = float("nan")
        with pytest.raises(ValueError, match=r"values\[1, 69\] must be finite, not nan"):
            quantize(values)
        with pytest.raises(ValueError, match="at least one dimension"):
            quantize(torch.tensor(1.0))
        with pytest.raises(TypeError, match=r"torch.Tensor, not list"):
            quantize([1.0])  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("p", "error"), [(1, ValueError), (10, ValueError), (5.0, TypeError), (True, TypeError)]
    )
    def test_loads(self, p: int, error: type[Exception]) -> None:
        bfp = quantize(torch.ones(64))
        with pytest.raises(error, match="p must be"):
            bfp.dequantize(p)
        with pytest.raises(error, match="p must be"):
            bfp.load(p)

    def test_reconstruct(self) -> None:
        with pytest.raises(ValueError, match="reconstruct must be 'truncate' or 'midpoint'"):
            quantize(torch.ones(64)).dequantize(5, "middle")


class TestParts:
    @pytest.fixture
    def bfp(self) -> Bfp:
        return quantize(torch.randn(5, 130, generator=torch.Generator().manual_seed(3)))

    def test_parts_make_the_same(self, bfp: Bfp) -> None:
        again = Bfp.from_parts(
            bfp.exponents.to(torch.int64), bfp.signs.to(torch.int32), bfp.magnitudes
        )
        assert torch.equal(again.dequantize(7), bfp.dequantize(7))
        assert again.signs.dtype == torch.uint8

    @pytest.mark.parametrize(
        ("part", "bad", "message"),
        [
            ("exponents", 255, r"exponents\[3, 1\] must be in 0..254, not 255"),
            ("exponents", -1, r"exponents\[3, 1\] must be in 0..254, not -1"),
            ("signs", 2, r"signs\[3, 1\] must be in 0..1, not 2"),
            ("magnitudes", 256, r"magnitudes\[3, 1\] must be in 0..255, not 256"),
            ("magnitudes", -1, r"magnitudes\[3, 1\] must be in 0..255, not -1"),
        ],
    )
    def test_elements_are_refused_by_index(
        self, bfp: Bfp, part: str, bad: int, message: str
    ) -> None:
        parts = {
            name: getattr(bfp, name).to(torch.int64)
            for name in ("exponents", "signs", "magnitudes")
        }
        parts[part][3, 1] = bad
        with pytest.raises(ValueError, match=message):
            Bfp.from_parts(**parts)

    def test_a_dead_group_holds_nothing(self, bfp: Bfp) -> None:
        exponents = bfp.exponents.clone()
        exponents[2, 1] = 0
        with pytest.raises(ValueError, match=r"magnitudes\[2, 64\] and its sign must be 0"):
            Bfp.from_parts(exponents, bfp.signs, bfp.magnitudes)

    def test_shapes_and_types(self, bfp: Bfp) -> None:
        with pytest.raises(ValueError, match=r"exponents must have shape \(5, 3\)"):
            Bfp.from_parts(bfp.exponents[:, :2], bfp.signs, bfp.magnitudes)
        with pytest.raises(ValueError, match=r"signs must have the shape of magnitudes"):
            Bfp.from_parts(bfp.exponents, bfp.signs[:4], bfp.magnitudes)
        with pytest.raises(TypeError, match="exponents must be a tensor of integers"):
            Bfp.from_parts(bfp.exponents.float(), bfp.signs, bfp.magnitudes)
        with pytest.raises(TypeError, match=r"magnitudes must be torch.int16, not torch.int32"):
            dataclasses.replace(bfp, magnitudes=bfp.magnitudes.to(torch.int32))
        with pytest.raises(ValueError, match=r"group_dim must be in 0..1, not -1"):
            dataclasses.replace(bfp, group_dim=-1)

    def test_it_is_frozen(self, bfp: Bfp) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            bfp.p_full = 16  # type: ignore[misc]
