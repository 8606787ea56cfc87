"""The machine's cost against sums by hand."""

from __future__ import annotations

import pytest

from model.calibration.cost import PaperCost, omega
from model.calibration.machine import MachineCost
from model.lm.config import ModelConfig
from model.lm.paper_models import PAPER_MODELS
from model.lm.precision import Precision

#: One block; every weight is whole tiles.
SMALL = ModelConfig(
    family="llama",
    layers=1,
    width=128,
    ff_width=256,
    heads=4,
    kv_heads=2,
    head_width=64,
    vocabulary=512,
    norm_eps=1e-5,
    rope_base=10_000.0,
    max_positions=4096,
    tied=True,
)
#: Tiles: q 4 (128 x 256), k 4, v 4, o 8, gate, up, down 8 each, head 16, of 64 x 64.
LINEAR = 128 * 256 + 2 * 128 * 128 + 256 * 128 + 3 * 128 * 256 + 128 * 512
TILES = LINEAR // 4096


def weight_bits(p: int) -> int:
    return TILES * (64 * 8 + p * 4096)


def cache_bits(length: int, p: int) -> int:
    """2 heads; closed key tiles, value tiles, the open block's keys in 16 bits."""
    closed, opened = divmod(length - 1, 64)
    values = closed + 1
    return 2 * ((closed + values) * (64 * 8 + p * 4096) + (opened + 1) * 64 * 16)


class TestStep:
    COST = MachineCost(SMALL, rows=8)

    @pytest.mark.parametrize("length", [1, 63, 64, 65, 128, 129, 1000])
    def test_one_row(self, length: int) -> None:
        found = self.COST.step_bits(Precision.parse("W6KV7"), 1, 1, length)
        assert found == weight_bits(6) + cache_bits(length, 7) + 128 * 16

    def test_attention_passes_read_the_cache_again(self) -> None:
        # G = 2, 8 rows: 4 positions a pass.
        assert [self.COST.attention_passes(n) for n in (1, 4, 5, 8, 9)] == [1, 1, 2, 2, 3]
        found = self.COST.step_bits(Precision.full(), 1, 8, 200)
        assert found == weight_bits(9) + 2 * cache_bits(200, 9) + 8 * 128 * 16

    def test_batches_beyond_the_rows_read_the_weights_again(self) -> None:
        found = self.COST.step_bits(Precision.full(), 3, 4, 100)
        assert found == 2 * weight_bits(9) + 3 * cache_bits(100, 9) + 12 * 128 * 16

    def test_baseline(self) -> None:
        wanted = 16 * (LINEAR + 2 * 2 * 2 * 64 * 101 + 2 * 128)
        assert self.COST.half_bits(2, 101) == wanted

    def test_speedup_is_omega_times_bits(self) -> None:
        pair, full = Precision.parse("W5KV6"), Precision.full()
        drafts = sum(self.COST.step_bits(pair, 1, 1, 62 + step) for step in (1, 2, 3))
        verify = self.COST.step_bits(full, 1, 4, 66)
        wanted = omega(3, 0.8) * self.COST.half_bits(1, 63) / (drafts + verify)
        assert self.COST.speedup(pair, 3, 0.8, 1, 62) == wanted


def test_two_passes_verify_7_tokens_of_qwen() -> None:
    cost = MachineCost(PAPER_MODELS["Qwen3-14B"])
    assert cost.ratio == 5
    assert cost.attention_passes(8) == 2
    # 32 rows hold 6 positions of 5 heads and 2 rows are left over: 32 positions take 6, not 5.
    assert [cost.attention_passes(n) for n in (6, 7, 12, 13, 32)] == [1, 2, 2, 3, 6]
    assert cost.verify_ratio(7, 1, 1 << 20) == pytest.approx(1.85, abs=0.02)
    assert MachineCost(PAPER_MODELS["Llama-3.1-8B"]).verify_ratio(7, 1, 1 << 20) < 1.001


def test_is_never_better_than_the_paper_s_cost_at_one_sequence() -> None:
    for config in PAPER_MODELS.values():
        for total in (2048, 1 << 17, 1 << 20):
            pair = Precision.parse("W6KV6")
            machine = MachineCost(config).speedup(pair, 7, 0.95, 1, total)
            paper = PaperCost(config).speedup(pair, 7, 0.95, 1, total)
            assert 0.75 * paper < machine < paper


@pytest.mark.parametrize(
    ("rows", "error", "said"),
    [
        (4, ValueError, "rows must be 5 or more, the query heads of a KV head, not 4"),
        (0, ValueError, r"rows must be in 1\.\."),
        (8.0, TypeError, r"rows must be an int, not 8\.0"),
    ],
)
def test_refusals(rows: object, error: type, said: str) -> None:
    with pytest.raises(error, match=said):
        MachineCost(PAPER_MODELS["Qwen3-14B"], rows=rows)  # type: ignore[arg-type]


def test_arguments_are_refused_by_name() -> None:
    cost, pair = MachineCost(SMALL), Precision.parse("W6KV6")
    with pytest.raises(ValueError, match=r"batch must be in 1\.\."):
        cost.speedup(pair, 7, 0.9, 0, 2048)
    with pytest.raises(ValueError, match=r"sequence must be in 1\.\."):
        cost.speedup(pair, 7, 0.9, 1, 0)
    with pytest.raises(ValueError, match=r"alpha must be in \[0, 1\], not 2"):
        cost.speedup(pair, 7, 2.0, 1, 2048)
