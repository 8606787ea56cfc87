"""bsspec generate on a tiny random model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from model.cli import main
from model.commands.generate import ACCEPTED, BONUS, PROMPT, REPLACED, marks
from model.decoding.loop import Round
from model.lm.random_model import TINY, random_checkpoint
from tests.model.lm.folders import options, tensors, write_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny random model as a checkpoint on disk, with a tokenizer of letters."""
    return write_folder(
        tmp_path_factory.mktemp("tiny"), options(TINY), tensors(random_checkpoint(TINY, 0))
    )


def run(folder: Path, *more: str) -> int:
    return main(["generate", "--model", str(folder), "--max-new", "10", *more])


def test_marks_of_a_round() -> None:
    replaced = Round(0, (1, 2, 3), 1, 9, (1, 9), 5)
    assert marks(replaced, 2) == [ACCEPTED, REPLACED]
    assert marks(Round(0, (1, 2), 2, 9, (1, 2, 9), 5), 3) == [ACCEPTED, ACCEPTED, BONUS]
    assert marks(Round(0, (1, 2), 2, 9, (1,), 5), 1) == [ACCEPTED]  # cut short by an end of text
    assert marks(None, 1) == [PROMPT]


@pytest.mark.parametrize("draft", ["W5KV5", "W6mKV7m", "speq", "quantspec-s", "separate:first-1"])
def test_report_of_every_kind_of_draft(
    folder: Path, capsys: pytest.CaptureFixture[str], draft: str
) -> None:
    assert run(folder, "--prompt", "!#%", "--draft", draft, "--gamma", "3", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    rates = found["rates"]
    assert found["draft"] == draft
    assert len(found["tokens"][0]) == 10
    assert rates["accepted"] + found["target_passes"] == 9  # the first is of the prompt's pass
    assert rates["alpha_cond"] == rates["accepted"] / (rates["accepted"] + rates["rejections"])
    assert len(rates["accept_at"]) == 3
    assert 0 < rates["alpha_tv"] <= 1
    assert found["bits_per_token"]["weights"] > found["bits_per_token"]["weights_by_drafts"] > 0
    assert found["modelled_speedup"] > 0
    assert found["measured_speedup"] > 0


def test_exact_greedy_text_equals_autoregressive_text(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("--prompt", "!#%", "--prompt", "Z", "--exact", "--json")
    assert run(folder, *more, "--draft", "W5KV5") == 0
    speculative = json.loads(capsys.readouterr().out)
    assert speculative["equal_to_autoregressive"] is True
    assert speculative["exact"] is True
    assert run(folder, *more, "--draft", "none") == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["tokens"] == speculative["tokens"]
    assert plain["rates"]["rounds"] == 0
    assert plain["rates"]["alpha_cond"] is None
    # A BFP9 target loads 9.125 bits of 16 a weight, but for padding: the modelled gain of AR alone.
    assert 1.2 < plain["modelled_speedup_over_16_bit"] < 16 / 9.125


def test_the_same_seed_gives_the_same_text(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = []
    for seed in ("3", "3", "4"):
        more = ("--temperature", "1", "--seed", seed, "--exact", "--json", "--no-compare")
        assert run(folder, "--prompt", "!#%", *more) == 0
        found = json.loads(capsys.readouterr().out)
        assert "measured_speedup" not in found
        assert found["rates"]["alpha_tv"] is None
        texts.append(found["tokens"])
    assert texts[0] == texts[1] != texts[2]


def test_text_and_table_are_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--prompt", "!#%", "--draft", "W6KV7") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("!#%")
    for name in ("alpha_cond", "accept_per_draft", "mean_accept_len", "accept_at", "modelled"):
        assert name in printed


def test_one_token_has_no_rates(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--prompt", "!#%", "--max-new", "1") == 0
    assert "alpha_cond" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "give either --prompt TEXT or --prompts SET"),
        (["--prompt", "!", "--draft", "W6"], "a precision must be written as W6KV7"),
        (["--prompt", "!", "--draft", "W17KV9"], "p must be in 2..p_full = 9, not 17"),
        (["--prompt", "!", "--draft", "auto"], "draft auto needs a precision lookup table"),
        (["--prompt", "!", "--draft", "speq", "--exact"], "draft speq has a 16-bit target"),
        (["--prompt", "!", "--draft", "separate:first-9"], "must have N in 1..2, not '9'"),
        (["--prompt", "!", "--gamma", "0"], "gamma must be in 1..65536, not 0"),
        (["--prompt", "!", "--temperature", "-1"], "temperature must be 0 or more, not -1.0"),
        (["--prompt", "!", "--top-p", "0"], "top_p must be in (0, 1], not 0.0"),
        (["--prompt", ""], "prompts[0] must have 1..512 tokens (the context), not 0"),
        (["--prompt", "!" * 513], "prompts[0] must have 1..512 tokens (the context), not 513"),
        (["--prompt", "!", "--max-new", "0"], "max_new must be in 1.."),
    ],
)
def test_one_line_for_bad_arguments(
    folder: Path, capsys: pytest.CaptureFixture[str], more: list[str], message: str
) -> None:
    assert run(folder, *more) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert message in error[-1]
    assert error[-1].startswith("bsspec generate: ")
