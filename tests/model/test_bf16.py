"""BF16: every code against an integer reference, and every way in and out of the format."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.formats.bf16 import (
    check_finite,
    fields,
    from_codes,
    round_scaled,
    to_bf16,
    to_codes,
)
from tests.model import reference

ALL = torch.arange(1 << 16)
FINITE = ((ALL >> 7) & 255) != 255


def test_fields_of_all_codes() -> None:
    parts = fields(from_codes(ALL))
    assert torch.equal(parts.finite, FINITE)
    for code in ALL[FINITE].tolist():
        given_fields = (
            int(parts.sign[code]),
            int(parts.significand[code]),
            int(parts.exponent[code]),
        )
        assert given_fields == reference.split(code), hex(code)


def test_value_of_all_codes() -> None:
    values = from_codes(ALL).tolist()
    for code in ALL[FINITE].tolist():
        assert Fraction(values[code]) == reference.value(code), hex(code)


def test_codes_round_trip() -> None:
    for dtype in (torch.uint16, torch.int32, torch.int64):
        assert torch.equal(to_codes(from_codes(ALL.to(dtype))).to(torch.int64), ALL)
    assert to_codes(from_codes(ALL)).dtype == torch.uint16


def test_fields_of_a_strided_tensor() -> None:
    values = from_codes(ALL).reshape(256, 256).T
    assert torch.equal(fields(values).sign.T.reshape(-1).to(torch.int64), ALL >> 15)


def test_fields_of_fp32() -> None:
    codes = [0x00000000, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0xFF7FFFFF, 0x7F800000]
    parts = fields(torch.tensor(codes, dtype=torch.uint32).view(torch.float32))
    assert parts.sign.tolist() == [0, 1, 0, 0, 0, 1, 0]
    assert parts.significand.tolist()[:6] == [0, 1, 0x7FFFFF, 1 << 23, 1 << 23, 0xFFFFFF]
    assert parts.exponent.tolist() == [1, 1, 1, 1, 127, 254, 255]
    assert parts.finite.tolist() == [True] * 6 + [False]


@pytest.mark.parametrize("bad", [-1, 1 << 16])
def test_from_codes_refuses(bad: int) -> None:
    with pytest.raises(ValueError, match=rf"codes\[1\] must be in 0..65535, not {bad}"):
        from_codes(torch.tensor([0, bad]))
    with pytest.raises(TypeError, match="integers"):
        from_codes(torch.tensor([0.0]))


class TestConversion:
    def test_bf16_is_returned_as_it_is(self) -> None:
        values = from_codes(ALL[FINITE])
        assert to_bf16(values) is values

    def test_bf16_codes_survive_wider_types(self) -> None:
        values = from_codes(ALL[FINITE])
        for dtype in (torch.float32, torch.float64):
            assert torch.equal(to_codes(to_bf16(values.to(dtype))), to_codes(values))

    def test_all_fp16_codes(self) -> None:
        halves = ALL.to(torch.uint16).view(torch.float16)
        halves = halves[torch.isfinite(halves)]
        codes = to_codes(to_bf16(halves)).tolist()
        for half, code in zip(halves.tolist(), codes, strict=True):
            if half == 0:
                assert code == (0x8000 if math.copysign(1, half) < 0 else 0)
            else:
                assert code == reference.round_to(Fraction(half), "bf16"), half

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_neighbourhood_of_every_code(self, dtype: torch.dtype) -> None:
        """Every midpoint between two BF16 numbers, and the floats right beside it."""
        low = from_codes(torch.arange(0x7F7F)).to(dtype)
        high = from_codes(torch.arange(0x7F7F) + 1).to(dtype)
        tie = low + (high - low) / 2
        below = torch.nextafter(tie, torch.zeros_like(tie))
        above = torch.nextafter(tie, torch.full_like(tie, math.inf))
        even = torch.arange(0x7F7F) + (torch.arange(0x7F7F) & 1)
        for sign, code in ((1, 0), (-1, 0x8000)):
            for values, expected in (
                (below, torch.arange(0x7F7F)),
                (tie, even),
                (above, torch.arange(0x7F7F) + 1),
            ):
                got = to_codes(to_bf16(sign * values)).to(torch.int64)
                assert torch.equal(got, expected | code)

    def test_fp64_is_rounded_once(self) -> None:
        # Through FP32 this would first become the tie 1 + 2^-8, and then 1.
        value = 1 + 2**-8 + 2**-40
        assert float(torch.tensor(value, dtype=torch.float64).to(torch.bfloat16)) == 1.0
        assert float(to_bf16(torch.tensor(value, dtype=torch.float64))) == 1 + 2**-7

    @given(st.floats(allow_nan=False, allow_infinity=False))
    @settings(deadline=None, max_examples=300)
    def test_fp64_against_fractions(self, value: float) -> None:
        values = torch.tensor([value], dtype=torch.float64)
        expected = reference.round_to(Fraction(value), "bf16")
        if expected & 0x7FFF == 0x7F80:
            with pytest.raises(ValueError, match="must round to a finite BF16 number"):
                to_bf16(values)
        elif value == 0:
            assert int(to_codes(to_bf16(values))[0]) in (0, 0x8000)
        else:
            assert int(to_codes(to_bf16(values))[0]) == expected

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_overflow_begins_half_a_unit_above_the_largest(self, dtype: torch.dtype) -> None:
        largest, half = 2.0**128 - 2.0**120, 2.0**119
        edge = torch.tensor([largest + half], dtype=dtype)
        assert float(to_bf16(torch.nextafter(edge, torch.zeros_like(edge)))[0]) == largest
        with pytest.raises(ValueError, match=r"w\[0\] must round to a finite BF16 number"):
            to_bf16(edge, "w")
        with pytest.raises(ValueError, match=r"w\[0\] must round to a finite BF16 number"):
            to_bf16(-edge, "w")

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
    @pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
    def test_refuses_inf_and_nan_by_index(self, dtype: torch.dtype, bad: float) -> None:
        values = torch.zeros(3, 4, 5, dtype=dtype)
        values[1, 2, 3] = bad
        values[2, 0, 0] = bad
        with pytest.raises(ValueError, match=rf"keys\[1, 2, 3\] must be finite, not {bad}"):
            to_bf16(values, "keys")

    def test_refuses_other_types(self) -> None:
        with pytest.raises(TypeError, match=r"values must be bfloat16.*not torch.int32"):
            to_bf16(torch.zeros(1, dtype=torch.int32))
        with pytest.raises(TypeError, match=r"torch.Tensor, not list"):
            to_bf16([1.0])  # type: ignore[arg-type]

    def test_empty(self) -> None:
        for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
            assert to_bf16(torch.zeros(0, 3, dtype=dtype)).shape == (0, 3)
        check_finite(torch.zeros(0))


class TestRoundScaled:
    @pytest.mark.parametrize("fmt", ["bf16", "fp32"])
    @given(
        integer=st.one_of(
            st.integers(-(2**62) + 1, 2**62 - 1),
            st.builds(  # few bits: ties and exact values
                lambda bits, shift, low: (bits << shift) + low,
                st.integers(-(2**26), 2**26),
                st.integers(0, 30),
                st.integers(-1, 1),
            ),
        ),
        exponent=st.one_of(st.integers(-240, 160), st.integers(-165, -110), st.integers(40, 130)),
    )
    @settings(deadline=None, max_examples=600)
    def test_against_fractions(self, fmt: str, integer: int, exponent: int) -> None:
        codes, overflow = round_scaled(torch.tensor([integer]), exponent, fmt)
        expected = reference.round_to(integer * reference.power(exponent), fmt)
        assert int(codes[0]) == expected
        infinities = (0x7F80, 0xFF80) if fmt == "bf16" else (0x7F800000, 0xFF800000)
        assert bool(overflow[0]) == (expected in infinities)

    @pytest.mark.parametrize("fmt", ["bf16", "fp32"])
    def test_every_length_at_every_edge(self, fmt: str) -> None:
        """Integers of all lengths around powers of two, scaled around every format border."""
        random.seed(7)
        integers, exponents = [], []
        for length in range(1, 63):
            for low in (0, 1, -1, random.getrandbits(length) >> 1):
                integer = min((1 << (length - 1)) + low, (1 << 62) - 1)
                for target in (-150, -149, -134, -133, -127, -126, 0, 127, 128):
                    integers += [integer, -integer]
                    exponents += [target - length, target - length]
        got = round_scaled(torch.tensor(integers), torch.tensor(exponents), fmt).codes.tolist()
        for integer, exponent, code in zip(integers, exponents, got, strict=True):
            expected = reference.round_to(integer * reference.power(exponent), fmt)
            assert code == expected, (integer, exponent)

    @pytest.mark.parametrize(("fmt", "sign"), [("bf16", 0x8000), ("fp32", 0x80000000)])
    def test_zeros(self, fmt: str, sign: int) -> None:
        integers = torch.tensor([0, 1, -1, 0, -(2**62) + 1])
        exponents = torch.tensor([5000, -5000, -5000, -5000, -300])
        codes, overflow = round_scaled(integers, exponents, fmt)
        assert codes.tolist() == [0, 0, sign, 0, sign]
        assert not overflow.any()

    def test_broadcasts_exponents(self) -> None:
        codes = round_scaled(torch.ones(2, 3, dtype=torch.int64), torch.tensor([[0], [1]]), "bf16")
        assert codes.codes.tolist() == [[0x3F80] * 3, [0x4000] * 3]
        assert codes.numbers("bf16").tolist() == [[1.0] * 3, [2.0] * 3]

    def test_ties_of_bf16_are_not_reached_through_fp32(self) -> None:
        # 1 + 2^-8 + 2^-30: FP32 would round it to the tie, BF16 then down to 1.
        integer = (1 << 30) + (1 << 22) + 1
        assert round_scaled(torch.tensor([integer]), -30, "bf16").codes.tolist() == [0x3F81]

    @pytest.mark.parametrize("bad", [2**62, -(2**62), 2**63 - 1, -(2**63)])
    def test_refuses_integers_beyond_its_bits(self, bad: int) -> None:
        with pytest.raises(ValueError, match=rf"integers\[1\] must be below 2\^62.*not {bad}"):
            round_scaled(torch.tensor([0, bad]), 0, "bf16")

    def test_refuses_other_types_and_formats(self) -> None:
        with pytest.raises(TypeError, match=r"int64, not torch.int32"):
            round_scaled(torch.zeros(1, dtype=torch.int32), 0, "bf16")
        with pytest.raises(ValueError, match="format must be 'bf16' or 'fp32', not 'fp16'"):
            round_scaled(torch.zeros(1, dtype=torch.int64), 0, "fp16")
