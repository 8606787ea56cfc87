"""Measurement of acceptance: tasks, sums over prompts, and runs that are disturbed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model.calibration import accept
from model.calibration.measure import Settings, Task, overlap, ratio_interval, run, summarise
from model.calibration.results import ResultFile
from model.cli import main
from model.decoding.drafts.base import Draft
from model.decoding.methods import Source, make_draft
from model.lm.random_model import TINY, random_checkpoint
from tests.model.lm.folders import options, tensors, write_folder

PROMPTS = ([1, 2, 3] * 9, [5], [7, 8] * 31)
TEXTS = ([4, 4, 9, 60], [3] * 7, [9, 10, 11])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny random model as a checkpoint on disk."""
    return write_folder(
        tmp_path_factory.mktemp("tiny"), options(TINY), tensors(random_checkpoint(TINY, 0))
    )


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prompts in the letters of the folder's tokenizer."""
    path = tmp_path_factory.mktemp("prompts") / "letters.txt"
    path.write_text("!\"#$%&\n''''''\nABCABCABC\nZ\n")
    return path


def settings(folder: Path, **changes: Any) -> Settings:
    return Settings(model=str(folder), **{"gamma": 3, "max_new": 8, **changes})


def test_overlap_of_laws_by_hand() -> None:
    p = torch.tensor([[0.5, 0.25, 0.25], [1.0, 1.0, 2.0]]).log()
    q = torch.tensor([[0.25, 0.25, 0.5], [1.0, 1.0, 2.0]]).log()
    assert overlap(p, q).tolist() == pytest.approx([0.75, 1.0], abs=1e-7)


def test_the_interval_is_that_of_prompts_not_of_tokens() -> None:
    same = ratio_interval(np.array([9.0, 18.0]), np.array([10.0, 20.0]))
    assert same == (0.9, 0.9)
    low, high = ratio_interval(np.array([0.0, 100.0] * 8), np.array([100.0] * 16))
    assert low < 0.35
    assert high > 0.65  # sixteen prompts, however many tokens
    assert np.isnan(ratio_interval(np.array([0.0]), np.array([0.0]))).all()


@pytest.mark.parametrize("exact", [False, True])
def test_a_full_load_drafts_the_targets_own_laws(folder: Path, exact: bool) -> None:
    task = Task("W9KV9", 0, ("a", "b", "c"), tuple(map(tuple, PROMPTS)))
    found = summarise([run(settings(folder, exact=exact), task)])
    assert found.rates.alpha_cond == 1.0
    assert found.alpha_tv == pytest.approx(1.0, abs=0 if exact else 1e-2)
    assert found.prompts == 3


@pytest.mark.parametrize("name", ["W5KV6", "W6mKV5m", "separate:first-1"])
def test_teacher_forced_laws_are_those_of_first_drafts(name: str) -> None:
    """Position by position: commit what comes before, draft one token, verify it."""
    source = Source("tiny", random_checkpoint(TINY, 0), None)
    draft = make_draft(name, source, exact=True)
    targets, drafted = draft.teacher_forced(PROMPTS, TEXTS)
    for b, (prompt, text) in enumerate(zip(PROMPTS, TEXTS, strict=True)):
        assert_laws(make_draft(name, source, exact=True), prompt, text, targets[b], drafted[b])


def assert_laws(
    draft: Draft, prompt: list[int], text: list[int], p: torch.Tensor, q: torch.Tensor
) -> None:
    assert len(p) == len(q) == len(text)
    draft.start(1, 128)
    draft.verify([prompt[:-1]])
    draft.commit([prompt[:-1]])
    for t, token in enumerate([prompt[-1], *text[:-1]]):
        # The separate model's products are in FP32, whose last bits depend on the batch.
        (law,) = draft.draft([[token]])
        torch.testing.assert_close(law[-1], q[t], rtol=1e-3, atol=1e-2)
        if draft.name.startswith("W"):
            assert torch.equal(law[-1], q[t])
        (law,) = draft.verify([[token]])
        assert torch.equal(law[-1], p[t])
        draft.commit([[token]])


def test_tasks_cover_every_prompt_once_a_draft() -> None:
    tasks = accept.tasks_of(["a", "b"], ["p", "q", "r"], [[1], [2], [3]], 2)
    assert [(task.draft, task.names) for task in tasks] == [
        ("a", ("p", "q")),
        ("a", ("r",)),
        ("b", ("p", "q")),
        ("b", ("r",)),
    ]
    assert len({task.key for task in tasks}) == 4


def test_names_of_drafts() -> None:
    assert len(accept.drafts_of("all")) == 25
    assert accept.drafts_of("all")[:2] == ["W9KV9", "W9KV8"]
    both = accept.drafts_of("all", "both")
    assert len(both) == len(set(both)) == 49  # W9KV9 has no midpoint of its own
    assert "W9KV8m" in both
    assert accept.drafts_of("W6KV7,speq") == ["W6KV7", "speq"]
    with pytest.raises(ValueError, match="W6KV7 twice"):
        accept.drafts_of("W6KV7,W6KV7")
    with pytest.raises(ValueError, match="at least one"):
        accept.drafts_of("")


def command(folder: Path, prompts: Path, out: Path, *more: str) -> list[str]:
    return [
        "accept",
        *("--model", str(folder), "--prompts", str(prompts), "--out", str(out)),
        *("--pairs", "W5KV5,W7mKV6,W9KV9", "--gamma", "3", "--max-new", "8"),
        *("--batch", "2", "--workers", "1", "--exact", *more),
    ]


def test_the_command_measures_resumes_and_repeats(
    folder: Path, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(folder, prompts, tmp_path / "a")) == 0
    printed = capsys.readouterr().out
    assert "W7mKV6" in printed
    first = json.loads((tmp_path / "a/acceptance.json").read_text())
    assert first["table_III"][folder.name]["W9KV9"] == {"letters": 1.0}
    assert 0 < first["details"]["W5KV5"]["alpha_tv"] < 1

    # Half of the lines, as a stopped run leaves them, and one that was torn.
    lines = (tmp_path / "a/results.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b/results.jsonl").write_text("".join(lines[:4]) + lines[4][:20])
    assert main(command(folder, prompts, tmp_path / "b")) == 0
    assert "3 of 6 tasks have their result already" in capsys.readouterr().out
    assert json.loads((tmp_path / "b/acceptance.json").read_text()) == first

    assert main(command(folder, prompts, tmp_path / "b", "--seed", "1")) == 2
    assert "another seed" in capsys.readouterr().err


def test_a_killed_worker_changes_nothing(folder: Path, tmp_path: Path) -> None:
    tasks = accept.tasks_of(["W5KV5", "W6KV6"], ["a", "b", "c"], PROMPTS, 1)
    chosen = settings(folder, exact=True, max_new=12)
    undisturbed = {task.key: run(chosen, task) for task in tasks}
    file = ResultFile(tmp_path / "results.jsonl", {})
    with accept.cluster(None, 1) as client:

        def kill() -> None:
            (pid,) = client.run(os.getpid).values()
            os.kill(pid, signal.SIGKILL)

        killers: list[threading.Thread] = []

        def done(_: dict[str, Any]) -> None:
            if not killers:
                killers.append(threading.Thread(target=kill))
                killers[0].start()
                time.sleep(0.5)

        accept.measure(client, chosen, tasks, file, done)
        killers[0].join()
    assert file.results.keys() == undisturbed.keys()
    for key, result in file.results.items():
        assert result["prompts"] == json.loads(json.dumps(undisturbed[key]["prompts"]))


@pytest.mark.parametrize(
    ("options_", "message"),
    [
        (["--gamma", "0"], r"--gamma must be in 1..65536, not 0"),
        (["--pairs", "W4KV17"], r"p must be in 2..p_full = 9, not 17"),
        (["--prompts", "/nowhere"], r"prompts must be 'humaneval' or 'gsm8k' or the path"),
        (["--pairs", "W5KV5,speck"], r"draft must be W5KV5..W9KV9 or one of none, .* not 'speck'"),
        (["--reconstruct", "middle"], r"--reconstruct must be 'truncate' or"),
        (["--scheduler", "tcp://127.0.0.1:1"], r"127.0.0.1:1"),
    ],
)
def test_one_line_for_bad_arguments(
    folder: Path,
    prompts: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options_: list[str],
    message: str,
) -> None:
    import re

    assert main([*command(folder, prompts, tmp_path), *options_]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert re.search(message, error)
    assert not (tmp_path / "acceptance.json").exists()
