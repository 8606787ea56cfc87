"""Acceptance rates against values worked out by hand."""

from __future__ import annotations

import json
import math

import pytest

from model.decoding.loop import Round
from model.decoding.rates import Rates


def rounds(*counts: tuple[int, int]) -> list[Round]:
    return [Round(0, (1,) * drafted, accepted, 2, (), 0) for drafted, accepted in counts]


def test_the_known_case() -> None:
    rates = Rates.of(rounds((7, 7), (7, 0), (7, 3)))
    assert rates.alpha_cond == 10 / 12
    assert rates.accept_per_draft == 10 / 21
    assert rates.mean_accept_len == 1 + 10 / 3
    assert rates.accept_at == [2 / 3] * 3 + [1 / 3] * 4


def test_a_short_round_counts_with_what_it_drafted() -> None:
    rates = Rates.of(rounds((4, 4), (2, 2), (1, 0)))
    assert (rates.tested, rates.rejections) == (7, 1)
    assert rates.accept_at == [2 / 3, 1.0, 1.0, 1.0]


def test_rounds_without_a_draft_do_not_count() -> None:
    assert Rates.of(rounds((0, 0), (3, 1))) == Rates.of(rounds((3, 1)))
    assert math.isnan(Rates.of(rounds((0, 0))).alpha_cond)
    assert Rates.of([]).accept_at == []


@pytest.mark.parametrize("split", [0, 1, 2, 3])
def test_sums_of_counts_are_counts_of_the_sum(split: int) -> None:
    all_rounds = rounds((7, 7), (2, 0), (4, 3))
    parts = Rates.of(all_rounds[:split]) + Rates.of(all_rounds[split:])
    assert parts == Rates.of(all_rounds)
    assert Rates.from_json(json.loads(json.dumps(parts.as_json()))) == parts
