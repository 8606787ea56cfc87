"""Traps of sampling that real projects fell into; docs/verification.md lists all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from model.decoding import loop
from model.decoding.loop import Options, generate
from model.decoding.sampling import Sampling, accepts, draw, judge, probs, residual, sample
from model.verification.toys import TableDraft, random_toy

AT_1 = Sampling(temperature=1.0)


class Numbers:
    """Given numbers, one after another."""

    def __init__(self, *numbers: float) -> None:
        self.left = list(numbers)

    def random(self) -> float:
        return self.left.pop(0)


def test_equal_laws_accept_everything_and_leave_p() -> None:
    law = np.array([0.25, 0.5, 0.25])
    assert all(accepts(law, law, x, np.nextafter(1, 0)) for x in range(3))
    assert residual(law, law) is law


def test_a_token_that_the_draft_never_gives_is_accepted_if_the_target_may() -> None:
    p, q = np.array([0.5, 0.5, 0.0]), np.array([1.0, 0.0, 0.0])
    assert accepts(p, q, 1, 0.999)
    assert not accepts(p, q, 2, 0.0)  # neither may


def test_zero_random_number_rejects_a_token_that_the_target_never_gives() -> None:
    p, q = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert not accepts(p, q, 1, 0.0)
    assert judge([p, p], [q], [1], AT_1, Numbers(0.0, 0.0)) == (0, 0)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nan_logits_are_an_error_by_name_and_index(temperature: float, bad: float) -> None:
    row = torch.tensor([0.0, 1.0, bad, 2.0])
    with pytest.raises(ValueError, match=r"logits\[2\]"):
        probs(row, Sampling(temperature=temperature))
    with pytest.raises(ValueError, match="finite"):
        probs(torch.full((3,), -float("inf")), Sampling(temperature=temperature))


def test_minus_infinity_is_a_token_that_cannot_be() -> None:
    law = probs(torch.tensor([-float("inf"), 0.0, 0.0]), AT_1)
    assert law.tolist() == [0.0, 0.5, 0.5]


def test_a_tiny_temperature_is_nearly_greedy() -> None:
    assert probs(torch.tensor([1.0, 3.0, 2.0]), Sampling(temperature=1e-308)).tolist() == [0, 1, 0]


def test_greedy_ties_take_the_lowest_index() -> None:
    row = torch.tensor([1.0, 5.0, 5.0, -0.0])
    assert probs(row, Sampling()).tolist() == [0, 1, 0, 0]
    assert probs(torch.tensor([-0.0, 0.0]), Sampling()).tolist() == [1, 0]


def test_greedy_uses_no_random_number() -> None:
    """A source without any number is never asked, by either kind of decoding."""
    for drafts in (False, True):
        draft = TableDraft(random_toy(1))
        draft.drafts = drafts
        text = generate(
            draft, [[0, 1]], Options(max_new=9, gamma=3), random=lambda stream: Numbers()
        ).sequences[0]
        assert len(text.tokens) == 9


def test_sampling_uses_one_number_a_draft_a_test_and_a_token() -> None:
    law = np.array([0.5, 0.5])
    numbers = Numbers(0.1, 0.9, 0.3, 0.7)
    assert judge([law] * 3, [law] * 2, [0, 1], AT_1, numbers) == (2, 0)
    assert numbers.left == [0.7]


def test_the_top_of_the_range_is_the_last_possible_token() -> None:
    law = np.array([0.2, 0.1, 0.0]) / 0.3
    assert sample(law, np.nextafter(1, 0)) == 1
    assert sample(np.array([0.0, 0.3, 0.7]), 0.0) == 1


def test_top_k_ties_keep_the_lower_index() -> None:
    law = probs(torch.tensor([1.0, 2.0, 2.0, 2.0]), Sampling(temperature=1.0, top_k=2))
    assert law.tolist() == [0.0, 0.5, 0.5, 0.0]


def test_one_law_feeds_sampling_acceptance_and_residual(monkeypatch: pytest.MonkeyPatch) -> None:
    """The very arrays that `probs` gave, each made once, are drawn from and judged by."""
    made: list[np.ndarray] = []
    drawn: list[np.ndarray] = []
    judged: list[np.ndarray] = []

    def probs_once(*args: Any) -> np.ndarray:
        made.append(probs(*args))
        return made[-1]

    def draw_from(law: np.ndarray, *rest: Any) -> int:
        drawn.append(law)
        return draw(law, *rest)

    def judge_by(p: list, q: list, *rest: Any) -> tuple[int, int]:
        judged.extend([*q, *p])
        return judge(p, q, *rest)

    monkeypatch.setattr(loop, "probs", probs_once)
    monkeypatch.setattr(loop, "draw", draw_from)
    monkeypatch.setattr(loop, "judge", judge_by)
    toy = random_toy(3)
    options = Options(max_new=12, gamma=3, sampling=AT_1)
    generate(TableDraft(toy, logarithms=True), [[0], [1, 2]], options)

    def names(laws: list[np.ndarray]) -> set[int]:
        return {id(law) for law in laws}

    assert len(names(made)) == len(made)
    first = made[:2]  # of the tokens behind the prompts
    assert names(judged) | names(first) == names(made)
    assert len(judged) + len(first) == len(made)
    assert names(drawn) < names(made)
