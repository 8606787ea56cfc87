"""The fast form's interface: flags, refusals, result exponents, prepared weights."""

from __future__ import annotations

import gc
from fractions import Fraction

import pytest
import torch

from model.datapath import Status, matmul, matmul_with_status, prepared, stepwise
from model.formats.bf16 import fields, from_codes
from model.formats.bfp import Bfp, quantize
from model.formats.floats import to_codes
from tests.model import reference
from tests.model.cases import make


def test_types_and_shapes() -> None:
    case = make(0, "normal", 3, 70, 100)
    for out, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        result = matmul(case.activations, case.bfp, p=9, out=out)
        assert (result.dtype, result.shape) == (dtype, (3, 100))
        assert result.is_contiguous()


@pytest.mark.parametrize(("m", "k", "n"), [(0, 64, 64), (2, 0, 64), (2, 64, 0), (0, 0, 0)])
def test_empty_products(m: int, k: int, n: int) -> None:
    bfp = quantize(torch.zeros(k, n))
    result, status = matmul_with_status(torch.zeros(m, k).bfloat16(), bfp, p=5)
    assert result.shape == (m, n)
    assert to_codes(result).to(torch.int64).sum() == 0
    assert status == Status(overflow=False, refused=False)


def test_no_tile_gives_plus_zero() -> None:
    case = make(0, "normal", 2, 100, 64)
    for a in (0.0, -0.0):
        activations = torch.full((2, 100), a).bfloat16()
        assert not to_codes(matmul(activations, case.bfp, p=9)).to(torch.int64).any()


def test_strided_operands() -> None:
    case = make(0, "normal", 6, 70, 64)
    expected = matmul(case.activations, case.bfp, p=7)
    strided = torch.empty(70, 6, dtype=torch.bfloat16).T
    strided.copy_(case.activations)
    assert torch.equal(matmul(strided, case.bfp, p=7), expected)
    parts = (case.bfp.exponents, case.bfp.signs, case.bfp.magnitudes)
    e, s, q = (part.T.contiguous().T for part in parts)
    assert torch.equal(matmul(case.activations, Bfp(e, s, q, 1), p=7), expected)


class TestFlags:
    @pytest.mark.parametrize("code", [0x7F80, 0xFF80, 0x7FC0, 0xFF81])
    def test_refused_activations_count_as_zero(self, code: int) -> None:
        case = make(1, "normal", 3, 130, 64)
        zero, bad = case.activations.clone(), case.activations.clone()
        zero[1, 70] = zero[2, 129] = 0
        bad[1, 70] = from_codes(torch.tensor(code))
        bad[2, 129] = from_codes(torch.tensor(code))
        result, status = matmul_with_status(bad, case.bfp, p=9)
        assert status == Status(overflow=False, refused=True)
        assert torch.equal(result, matmul(zero, case.bfp, p=9))
        with pytest.raises(ValueError, match=r"activations\[1, 70\] must be finite, not "):
            matmul(bad, case.bfp, p=9)

    def test_a_refused_exponent_counts_as_zero(self) -> None:
        case = make(1, "normal", 2, 130, 70)
        exponents, zero = case.bfp.exponents.clone(), case.bfp.exponents.clone()
        exponents[100, 1], zero[100, 1] = 255, 0
        bad = Bfp(exponents, case.bfp.signs, case.bfp.magnitudes, 1)
        good = Bfp(zero, case.bfp.signs, case.bfp.magnitudes, 1)
        result, status = matmul_with_status(case.activations, bad, p=9)
        assert status == Status(overflow=False, refused=True)
        assert torch.equal(result, matmul(case.activations, good, p=9))
        with pytest.raises(ValueError, match=r"weight exponents\[100, 1\] must be in 0..254"):
            matmul(case.activations, bad, p=9)

    def test_overflow_is_judged_for_the_format_asked(self) -> None:
        # (2^128 - 2^119) rounds to Inf in BF16 and is exact in FP32.
        a = torch.tensor([[2.0**64, 2.0**64]]).bfloat16()
        w = torch.tensor([[2.0**63], [2.0**63 - 2.0**55]]).bfloat16()
        bfp = quantize(w)
        for out, overflow in (("bf16", True), ("fp32", False)):
            result, status = matmul_with_status(a, bfp, p=9, out=out)
            assert status == Status(overflow=overflow, refused=False)
            assert bool(torch.isinf(result).any()) is overflow
            assert bool(torch.isinf(-matmul(-a, bfp, p=9, out=out)).any()) is overflow


class TestColumnExponents:
    def test_against_the_reference(self) -> None:
        case = make(2, "normal", 2, 70, 100)
        shifts = (torch.arange(100) * 37) % 500 - 250
        steps = [
            stepwise(case.activations, case.bfp, p=6, n_tile=tile, column_exponents=shifts)
            for tile in range(2)
        ]
        for fmt in ("bf16", "fp32"):
            result = matmul(case.activations, case.bfp, p=6, out=fmt, column_exponents=shifts)
            codes = to_codes(result).to(torch.int64)
            by_step = torch.cat([step.result(fmt).codes for step in steps], dim=1)
            assert torch.equal(codes, by_step[:, :100])
            for column in range(0, 100, 7):
                step = steps[column // 64]
                expected = reference.result(
                    int(step.accumulators[1, column % 64]),
                    int(step.running[1]),
                    p=6,
                    g=8,
                    f=8,
                    fmt=fmt,
                    column_exponent=int(shifts[column]),
                )
                assert int(codes[1, column]) == expected

    def test_open_keys(self) -> None:
        """Token-wise BFP16 keys: all E_k are 1, a token's exponent is applied at its column."""
        generator = torch.Generator().manual_seed(6)
        keys = (torch.randn(70, 64, generator=generator) * torch.rand(70, 1).exp()).bfloat16()
        keys[3] = 0
        query = torch.randn(5, 64, generator=generator).bfloat16()
        tokens = quantize(keys, group=64, p_full=16)
        open_block = Bfp.from_parts(
            torch.ones(64, 2, dtype=torch.uint8), tokens.signs.T, tokens.magnitudes.T, p_full=16
        )
        scores = matmul(
            query,
            open_block,
            p=16,
            out="fp32",
            column_exponents=tokens.exponents[:, 0].to(torch.int64) - 1,
        )
        exact = query.double() @ tokens.dequantize().double().T
        size = query.double().abs() @ tokens.dequantize().double().abs().T
        # Each aligned activation loses less than 2^-15 of the row's largest; the rest is exact.
        largest = fields(query).exponent.amax(1, keepdim=True).double()
        loss = torch.exp2(largest - 127 - 15) * tokens.dequantize().double().abs().sum(1)
        assert bool(((scores.double() - exact).abs() <= loss + size * 2**-24).all())
        assert not to_codes(scores)[:, 3].to(torch.int64).any()

    @pytest.mark.parametrize("bad", [-1025, 1024])
    def test_refusals(self, bad: int) -> None:
        case = make(2, "normal", 2, 70, 65)
        shifts = torch.zeros(65, dtype=torch.int64)
        with pytest.raises(ValueError, match=r"column_exponents must have shape \(65,\), not"):
            matmul(case.activations, case.bfp, p=6, column_exponents=shifts[:64])
        shifts[64] = bad
        with pytest.raises(ValueError, match=r"column_exponents\[64\] must be in -1024..1023"):
            matmul(case.activations, case.bfp, p=6, column_exponents=shifts)


class TestRefusals:
    @pytest.mark.parametrize("form", [matmul, matmul_with_status, stepwise])
    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"p": 1}, ValueError, r"p must be in 2..p_full = 9, not 1"),
            ({"p": 10}, ValueError, r"p must be in 2..p_full = 9, not 10"),
            ({"p": 7.0}, TypeError, r"p must be an int, not 7.0"),
            ({"reconstruct": "half"}, ValueError, "reconstruct must be 'truncate' or 'midpoint'"),
            ({"align_guard_bits": 17}, ValueError, r"align_guard_bits must be in 0..16, not 17"),
            ({"acc_guard_bits": -1}, ValueError, r"acc_guard_bits must be in 0..16, not -1"),
        ],
    )
    def test_arguments(
        self, form: object, arguments: dict[str, object], error: type[Exception], message: str
    ) -> None:
        case = make(0, "normal", 2, 70, 64)
        with pytest.raises(error, match=message):
            form(case.activations, case.bfp, **{"p": 9, **arguments})  # type: ignore[operator]

    @pytest.mark.parametrize("form", [matmul, matmul_with_status, stepwise])
    def test_operands(self, form: object) -> None:
        case = make(0, "normal", 2, 70, 64)
        with pytest.raises(TypeError, match=r"activations must be bfloat16, not torch.float32"):
            form(case.activations.float(), case.bfp, p=9)  # type: ignore[operator]
        for a in (case.activations[:, :69], case.activations[0], case.activations.unsqueeze(0)):
            with pytest.raises(ValueError, match=r"activations must have shape \(M, 70\)"):
                form(a, case.bfp, p=9)  # type: ignore[operator]
        for weight in (quantize(case.weights, group=32), quantize(case.weights, group_dim=0)):
            with pytest.raises(ValueError, match="a weight must have groups of 64 along dim"):
                form(case.activations, weight, p=9)  # type: ignore[operator]
        with pytest.raises(TypeError, match="weight must be a Bfp, not Tensor"):
            form(case.activations, case.weights, p=9)  # type: ignore[operator]

    def test_format(self) -> None:
        case = make(0, "normal", 2, 70, 64)
        with pytest.raises(ValueError, match="format must be 'bf16' or 'fp32', not 'fp16'"):
            matmul(case.activations, case.bfp, p=9, out="fp16")

    @pytest.mark.parametrize("form", [matmul, matmul_with_status])
    def test_a_product_beyond_the_bound(self, form: object) -> None:
        case = make(0, "normal", 1, 129, 1, p_full=16)
        with pytest.raises(ValueError, match=r"K must be at most max_k = 128, not 129"):
            form(case.activations, case.bfp, p=9, max_k=128)  # type: ignore[operator]
        guards = {"align_guard_bits": 16, "acc_guard_bits": 16}
        with pytest.raises(ValueError, match=r"K must be at most 64 for a 63-bit accumulator"):
            form(case.activations, case.bfp, p=16, **guards)  # type: ignore[operator]


class TestPreparedWeights:
    def test_a_load_is_prepared_once(self) -> None:
        bfp = make(0, "normal", 1, 70, 64).bfp
        assert prepared.prepare(bfp, 6, False) is prepared.prepare(bfp, 6, False)
        assert prepared.prepare(bfp, 6, False) is not prepared.prepare(bfp, 6, True)

    def test_a_changed_weight_is_prepared_anew(self) -> None:
        case = make(0, "normal", 1, 70, 64)
        before = matmul(case.activations, case.bfp, p=9)
        case.bfp.signs.bitwise_xor_(1)
        assert torch.equal(matmul(case.activations, case.bfp, p=9), -before)

    def test_few_loads_are_kept_and_none_of_a_dead_weight(self) -> None:
        case = make(0, "normal", 1, 70, 64, p_full=16)
        gc.collect()
        count = len(prepared._kept)
        bfp = quantize(case.weights, p_full=16)
        for p in range(2, 17):
            matmul(case.activations, bfp, p=p)
        assert len(prepared._kept) == count + 1
        assert len(prepared._kept[bfp]) == prepared.KEPT_LOADS
        del bfp
        gc.collect()
        assert len(prepared._kept) == count


def test_error_of_a_product_is_small() -> None:
    """Not bit-exactness but sense: a target product is near the exact one of its weights."""
    case = make(4, "normal", 4, 512, 64)
    exact = case.activations.double() @ case.bfp.dequantize().double()
    got = matmul(case.activations, case.bfp, p=9, out="fp32").double()
    size = case.activations.double().abs() @ case.bfp.dequantize().double().abs()
    assert bool(((got - exact).abs() <= size * 2**-10).all())
    assert Fraction(float(exact[0, 0])) != 0
