"""How close targets are to the 16-bit model: scores by hand, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from model.calibration import accuracy
from model.calibration.accuracy import (
    Item,
    Scores,
    difference_interval,
    last_number,
    load_items,
    same_tops,
    score,
    target_of,
)
from model.calibration.paper import TARGETS
from model.cli import main
from model.decoding.methods import Source
from model.lm.random_model import TINY, random_checkpoint
from tests.model.lm.folders import options, tensors, write_folder


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("so 3 + 4 = 7", "7"),
        ("#### 1,234", "1234"),
        ("it is $5.50.", "5.5"),
        ("2.00", "2"),
        ("100", "100"),
        ("-3 apples", "-3"),
        ("none", None),
    ],
)
def test_last_number(text: str, number: str | None) -> None:
    assert last_number(text) == number


def test_items_are_real() -> None:
    items = load_items(0)
    assert len(items) == 100
    for item in items:
        assert last_number(item.solution) == last_number(item.answer)
    assert load_items(3) == items[:3]


@pytest.mark.parametrize("name", list(TARGETS))
def test_losses_are_those_of_one_row_after_the_other(name: str) -> None:
    source = Source("tiny", random_checkpoint(TINY, 0), None)
    prompts, solutions = [[1, 2, 3], [4]], [[5, 6], [7, 8, 9]]
    losses, tops = score(target_of(name, source), prompts, solutions)
    for prompt, solution, loss, top in zip(prompts, solutions, losses, tops, strict=True):
        target = target_of(name, source)
        target.start(1, 16)
        expected, best = 0.0, []
        for t, token in enumerate(solution):
            (rows,) = target.verify([[*prompt, *solution[:t]]])
            expected -= float(torch.log_softmax(rows[-1].double(), -1)[token])
            best.append(int(rows[-1].argmax()))
        assert loss == pytest.approx(expected, rel=1e-2)
        assert top == best


def test_differences_are_between_items_not_tokens() -> None:
    a = Scores([1.0, 2.0, 3.0], [10, 10, 10], [[1, 2], [3], [4]], None)
    b = Scores([0.0, 1.0, 2.0], [10, 10, 10], [[1, 5], [3], [4]], None)
    assert difference_interval(a, b) == pytest.approx((0.1, 0.1))
    assert same_tops(a, b) == 3 / 4
    assert a.loss == 0.2


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_folder(tmp_path / "tiny", options(TINY), tensors(random_checkpoint(TINY, 0)))
    items = [Item("ABC", "DEF", "5"), Item("AA", "ZZZZ", "7")]
    monkeypatch.setattr(accuracy, "load_items", lambda limit: items)
    command = ["accuracy", "--model", str(folder), "--out", str(tmp_path / "out")]
    assert main(command) == 0
    found = json.loads((tmp_path / "out/accuracy.json").read_text())
    assert "table_VI" not in found
    assert found["details"]["bf16"]["more_than_bf16"] == 0
    assert found["details"]["bfp9"]["nats_a_token"] > 0
    assert main([*command, "--generate", "--max-new", "4"]) == 0
    found = json.loads((tmp_path / "out/accuracy.json").read_text())
    assert found["table_VI"]["tiny"] == dict.fromkeys(TARGETS, 0.0)
    assert "0 of 2" in capsys.readouterr().out
