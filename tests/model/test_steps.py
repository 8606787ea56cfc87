"""The stepwise form: the tables, the look-ups and the text that an engineer reads."""

from __future__ import annotations

import itertools

import pytest
import torch

from model.datapath import Stepwise, stepwise
from tests.model.cases import MOODS, make


def steps_of(mood: str = "normal", p: int = 6, reconstruct: str = "midpoint") -> Stepwise:
    case = make(1, mood, 2, 130, 64)
    return stepwise(case.activations, case.bfp, p=p, reconstruct=reconstruct)


@pytest.mark.parametrize("mood", MOODS)
def test_tables_hold_signed_sums(mood: str) -> None:
    for tile in steps_of(mood).tiles:
        for row, lut in itertools.product(range(2), range(16)):
            a = tile.aligned[row, 4 * lut : 4 * lut + 4].tolist()
            sums = [sum(-x if v >> i & 1 else x for i, x in enumerate(a)) for v in range(16)]
            assert tile.lut[row, lut].tolist() == sums
            assert tile.lut_half[row, lut].tolist() == sums[:8]
            assert [-s for s in reversed(sums)] == sums


@pytest.mark.parametrize(("p", "reconstruct"), [(9, "truncate"), (5, "midpoint"), (6, "truncate")])
def test_look_ups_add_up_to_the_tile_sum(p: int, reconstruct: str) -> None:
    """Contract section 6, plane by plane, and the product that it stands for."""
    case = make(2, "normal", 2, 130, 64)
    steps = stepwise(case.activations, case.bfp, p=p, reconstruct=reconstruct)
    for index, tile in enumerate(steps.tiles):
        assert tile.patterns.shape == (p, 16, 64)
        assert tile.lookups.shape == (2, p, 16, 64)
        assert torch.equal(tile.lookups.sum(2), tile.plane_sums)
        weights = torch.tensor([1 << (p - 1)] + [1 << b for b in range(p - 2, -1, -1)])
        total = (tile.plane_sums * weights.reshape(1, -1, 1)).sum(1)
        if reconstruct == "truncate":
            total = total - tile.plane_sums[:, 0]
        assert torch.equal(total, tile.tile_sum)
        rows = slice(64 * index, 64 * index + 64)
        q = case.bfp.load(p)[rows].to(torch.int64)
        c = (2 * q + (reconstruct == "midpoint")) * (1 - 2 * case.bfp.signs[rows].to(torch.int64))
        assert torch.equal(tile.aligned[:, : len(c)] @ c, tile.tile_sum)


def test_patterns_decode_signs() -> None:
    """Plane 0 holds the signs; a plane's bit of 1 keeps a sign, a bit of 0 flips it."""
    case = make(3, "normal", 1, 64, 64)
    (tile,) = stepwise(case.activations, case.bfp, p=9).tiles
    for plane, k, n in itertools.product(range(9), (0, 1, 6, 63), (0, 33, 63)):
        sign = int(case.bfp.signs[k, n])
        decoded = int(tile.patterns[plane, k // 4, n]) >> (k % 4) & 1
        if plane == 0:
            assert decoded == sign
        else:
            bit = int(case.bfp.magnitudes[k, n]) >> (8 - plane) & 1
            assert decoded == (sign if bit else 1 - sign)


def test_one_tile_hands_its_state_to_the_next() -> None:
    steps = steps_of("rising")
    for before, after in itertools.pairwise(steps.tiles):
        assert torch.equal(after.running_before, before.running)
        assert torch.equal(after.accumulators_before, before.accumulators)
    for tile in steps.tiles:
        assert torch.equal(tile.shifted_accumulators + tile.addends, tile.accumulators)
    assert torch.equal(steps.tiles[-1].accumulators, steps.accumulators)


def test_columns_beyond_n_give_plus_zero() -> None:
    case = make(1, "normal", 2, 64, 70)
    steps = stepwise(case.activations, case.bfp, p=9, n_tile=1)
    assert not steps.result("fp32").codes[:, 6:].any()
    with pytest.raises(ValueError, match=r"n_tile must be in 0..1, not 2"):
        stepwise(case.activations, case.bfp, p=9, n_tile=2)


def test_refused_input_is_named() -> None:
    case = make(1, "normal", 2, 64, 64)
    case.activations[1, 3] = float("inf")
    with pytest.raises(ValueError, match=r"activations\[1, 3\] must be finite, not inf"):
        stepwise(case.activations, case.bfp, p=9)


class TestDescription:
    def test_it_shows_the_numbers(self) -> None:
        steps = steps_of()
        text = steps.describe(row=1, column=7)
        tile = steps.tiles[0]
        for number in (
            tile.tile_exponent[1],
            tile.aligned[1, 17],
            tile.lut_half[1, 3, 5],
            tile.lookups[1, 2, 9, 7],
            tile.plane_sums[1, 4, 7],
            tile.tile_sum[1, 7],
            tile.accumulators[1, 7],
        ):
            assert str(int(number)) in text
        assert f"{int(steps.result().codes[1, 7]):04x}" in text
        assert text.count("tile exponent X") == 3

    def test_one_tile_alone(self) -> None:
        steps = steps_of()
        assert steps.describe(k_tile=2).count("tile exponent X") == 1
        assert "tile exponent X none, tile skipped" in steps_of("sparse").describe(k_tile=0)

    @pytest.mark.parametrize("index", [{"row": 2}, {"column": 64}, {"k_tile": 3}])
    def test_refusals(self, index: dict[str, int]) -> None:
        with pytest.raises(ValueError, match=f"{next(iter(index))} must be in"):
            steps_of().describe(**index)
