"""The cost model against exact fractions, values by hand and the known ones."""

from __future__ import annotations

from fractions import Fraction

import pytest

from model.calibration.cost import (
    PaperCost,
    loaded,
    mem_kv,
    mem_w,
    omega,
    r_kv,
    relative_draft,
    relative_time,
    speedup,
)
from model.calibration.paper import paper_tables
from model.calibration.sections import KNOWN, known_value
from model.lm.paper_models import PAPER_MODELS
from model.lm.precision import Precision

QWEN = PAPER_MODELS["Qwen3-14B"]
HALF = Fraction(1, 2)


class TestOmega:
    @pytest.mark.parametrize("gamma", [0, 1, 2, 7, 20, 255])
    @pytest.mark.parametrize("alpha", [Fraction(0), Fraction(1, 3), Fraction(937, 1000)])
    def test_is_the_closed_form_in_fractions(self, gamma: int, alpha: Fraction) -> None:
        assert omega(gamma, alpha) == (1 - alpha ** (gamma + 1)) / (1 - alpha)

    @pytest.mark.parametrize("gamma", [0, 1, 7, 255])
    def test_limit_at_alpha_1(self, gamma: int) -> None:
        assert omega(gamma, Fraction(1)) == omega(gamma, 1.0) == gamma + 1

    def test_loses_nothing_near_alpha_1(self) -> None:
        alpha = 1 - 2.0**-52
        assert omega(7, alpha) == pytest.approx(float(omega(7, Fraction(alpha))), rel=1e-15)

    def test_by_hand(self) -> None:
        assert omega(3, HALF) == Fraction(15, 8)
        assert omega(5, 0.0) == 1

    @pytest.mark.parametrize(
        ("gamma", "alpha", "error", "said"),
        [
            (-1, 0.5, ValueError, r"gamma must be in 0\.\.255, not -1"),
            (256, 0.5, ValueError, r"gamma must be in 0\.\.255, not 256"),
            (7.0, 0.5, TypeError, r"gamma must be an int, not 7\.0"),
            (True, 0.5, TypeError, "gamma must be an int, not True"),
            (7, 1.1, ValueError, r"alpha must be in \[0, 1\], not 1\.1"),
            (7, -0.1, ValueError, r"alpha must be in \[0, 1\], not -0\.1"),
            (7, float("nan"), ValueError, r"alpha must be in \[0, 1\], not nan"),
            (7, "0.5", TypeError, "alpha must be a number, not '0.5'"),
            (7, True, TypeError, "alpha must be a number, not True"),
        ],
    )
    def test_refusals(self, gamma: object, alpha: object, error: type, said: str) -> None:
        with pytest.raises(error, match=said):
            omega(gamma, alpha)  # type: ignore[type-var]


class TestFormulas:
    def test_eq_1_in_fractions(self) -> None:
        # (2 * 1/2 + 1) / (1 + 1/2 + 1/4)
        assert relative_time(2, HALF, HALF, Fraction(1)) == Fraction(8, 7)

    def test_eq_2_and_3_in_bytes(self) -> None:
        assert mem_w(QWEN, 16) == 14_768_307_200 * 2
        assert mem_w(QWEN, 9) == 14_768_307_200 * 9 / 8
        assert mem_kv(QWEN, 2048, 16) == 2 * 40 * 8 * 128 * 2048 * 2
        assert mem_kv(QWEN, 1, 9) == 2 * 40 * 8 * 128 * 9 / 8

    def test_a_tied_head_is_counted_once(self) -> None:
        assert mem_w(PAPER_MODELS["Llama-3.2-3B"], 8) == 3_212_749_824

    def test_shares_are_those_of_the_bytes(self) -> None:
        for total in (1, 2048, 1 << 20):
            kv, w = mem_kv(QWEN, total, 16), mem_w(QWEN, 16)
            assert float(r_kv(QWEN, total)) == pytest.approx(kv / (kv + w), rel=1e-15)

    def test_eq_4_in_fractions(self) -> None:
        assert loaded(Fraction(5), Fraction(8), Fraction(1, 4)) == Fraction(23, 4)
        share = relative_draft(Fraction(5), Fraction(8), Fraction(1, 4), Fraction(9))
        assert share == Fraction(23, 36)

    def test_speedup_in_fractions(self) -> None:
        # 16 * 7/4 / (2 * 23/4 + 3/2 * 9)
        found = speedup(
            2, HALF, Fraction(5), Fraction(8), Fraction(1, 4), Fraction(9), Fraction(3, 2)
        )
        assert found == Fraction(28) / (Fraction(23, 2) + Fraction(27, 2))

    def test_the_target_alone_gains_16_over_9(self) -> None:
        full = Precision.full()
        assert PaperCost(QWEN, t_v=3.0).speedup(full, 0, 0.0, 1, 2048) == pytest.approx(16 / 9)

    def test_only_the_product_of_batch_and_sequence_matters(self) -> None:
        cost, pair = PaperCost(QWEN), Precision.parse("W6KV7")
        assert cost.speedup(pair, 7, 0.9, 4, 512) == cost.speedup(pair, 7, 0.9, 1, 2048)

    def test_exponents_add_an_eighth_of_a_bit(self) -> None:
        cost, pair = PaperCost(QWEN, exponents=True), Precision.parse("W5KV5")
        wanted = 16 * omega(7, 0.9) / (7 * 5.125 + 9.125)
        assert cost.speedup(pair, 7, 0.9, 1, 2048) == pytest.approx(wanted, rel=1e-14)

    @pytest.mark.parametrize(
        ("call", "error", "said"),
        [
            (lambda: mem_w(QWEN, 0), ValueError, r"bits must be in \(0, 64\], not 0"),
            (lambda: mem_kv(QWEN, 0, 9), ValueError, r"total_length must be in 1\.\.\d+, not 0"),
            (lambda: r_kv(QWEN, 2.0), TypeError, r"total_length must be an int, not 2\.0"),  # type: ignore[arg-type]
            (lambda: relative_draft(10.0, 5.0, 0.1, 9.0), ValueError, r"p_w must be in \(0, 9\]"),
            (lambda: relative_draft(5.0, 5.0, 1.5, 9.0), ValueError, r"share_kv must be in \[0, 1"),
            (lambda: relative_time(7, 0.9, 0.5, 0.0), ValueError, "t_v must be finite and above 0"),
            (lambda: PaperCost(QWEN, t_v=float("inf")), ValueError, "t_v must be finite and above"),
            (lambda: PaperCost(QWEN, p_full=8), ValueError, r"p_full must be in 9\.\.16, not 8"),
            (lambda: PaperCost("Qwen3-14B"), TypeError, "config must be a ModelConfig, not 'Qwen"),  # type: ignore[arg-type]
            (lambda: PaperCost(QWEN, exponents=1), TypeError, "exponents must be a bool, not 1"),  # type: ignore[arg-type]
        ],
    )
    def test_refusals(self, call, error: type, said: str) -> None:
        with pytest.raises(error, match=said):
            call()


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known.quantity} {known.model}")
def test_known_values_to_6_digits(known) -> None:
    assert round(known_value(paper_tables(), known), 6) == known.value
