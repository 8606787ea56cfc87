"""bsspec study: Eq. 1 from measured parts, and the factor that decides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from model.calibration.timing import PassTimes, judge_factors, time_passes
from model.cli import main
from model.commands.study import Run, Study, parse_gammas
from model.decoding.methods import Source, make_draft
from model.decoding.rates import Rates
from model.lm.random_model import TINY, random_checkpoint
from tests.model.lm.folders import options, tensors, write_folder


def times(t_d: float, t_v: float) -> PassTimes:
    return PassTimes(target=2.0, draft=2.0 * t_d, verify={4: 2.0 * t_v})


def test_eq_1_by_hand() -> None:
    verdict = judge_factors(times(0.25, 1.5), 4, 0.5)
    omega = 1 + 0.5 + 0.25 + 0.125 + 0.0625
    assert verdict.predicted == pytest.approx(omega / (4 * 0.25 + 1.5))
    assert verdict.without["draft cost"] == pytest.approx(omega / 1.5)
    assert verdict.without["acceptance"] == pytest.approx(5 / 2.5)
    assert verdict.without["verification"] == pytest.approx(omega / 2.0)


@pytest.mark.parametrize(
    ("t_d", "t_v", "alpha", "decides"),
    [
        (1.0, 1.0, 0.9, "draft cost"),  # an emulated draft
        (0.1, 1.1, 0.2, "acceptance"),
        (0.1, 5.0, 0.9, "verification"),  # one position after the other
    ],
)
def test_the_factor_that_decides(t_d: float, t_v: float, alpha: float, decides: str) -> None:
    assert judge_factors(times(t_d, t_v), 4, alpha).decides == decides


@pytest.mark.parametrize(
    ("seconds", "t_d", "conclusion"),
    [
        (5.0, 0.5, "pays at gamma 4: 2.00x"),
        (5.0, 1.5, "pays at gamma 4: 2.00x; the draft is not cheaper than its target"),
        (20.0, 1.5, "does not pay: draft cost decides; the draft is not cheaper than its target"),
    ],
)
def test_conclusions(seconds: float, t_d: float, conclusion: str) -> None:
    measured = times(t_d, 1.0)
    verdict = judge_factors(measured, 4, 0.8)
    run = Run(4, Rates(), 10, seconds, 10, 10.0, verdict)
    assert Study("W5KV5", measured, [run]).conclusion == conclusion


def test_passes_are_timed_at_one_length() -> None:
    draft = make_draft("W6KV6", Source("tiny", random_checkpoint(TINY, 0), None))
    found = time_passes(draft, [1, 2, 3], [1, 3], rounds=2)
    assert draft.lengths == [3]
    assert found.draft is not None
    assert min(found.target, found.draft, *found.verify.values()) > 0
    assert list(found.verify) == [1, 3]


def test_gammas() -> None:
    assert parse_gammas("1..4") == [1, 2, 3, 4]
    assert parse_gammas("1,5") == [1, 5]
    for text in ("", "0..3", "3,1", "2,2", "a", "4..1"):
        with pytest.raises(ValueError, match="--gammas must"):
            parse_gammas(text)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_folder(tmp_path / "tiny", options(TINY), tensors(random_checkpoint(TINY, 0)))
    prompts = tmp_path / "letters.txt"
    prompts.write_text("ABC\nZ\n")
    command = ["study", "--model", str(folder), "--prompts", str(prompts), "--out", str(tmp_path)]
    assert main([*command, "--drafts", "W9KV9,separate:first-1", "--gammas", "1,3"]) == 0
    printed = capsys.readouterr().out
    found = json.loads((tmp_path / "study.json").read_text())
    assert found["settings"]["path"] == "fast"
    runs = found["drafts"]["W9KV9"]["runs"]
    assert [run["gamma"] for run in runs] == [1, 3]
    assert runs[1]["alpha_cond"] == 1.0
    assert set(found["drafts"]) == {"W9KV9", "separate:first-1"}
    for name, entry in found["drafts"].items():
        assert f"{name}: {entry['conclusion']}" in printed
        assert entry["T_D"] > 0
    assert (tmp_path / "study.svg").stat().st_size > 1000
    assert main([*command, "--drafts", "none"]) == 2
    assert main([*command, "--gammas", "1..8", "--max-new", "9"]) == 2
    assert "--max-new must be in 10.." in capsys.readouterr().err
