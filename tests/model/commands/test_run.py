"""bsspec image and bsspec run on a tiny random model."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from model.calibration.plt import Entry, Plt
from model.cli import main
from model.lm.random_model import TINY, random_checkpoint
from tests.model.lm.folders import options, tensors, write_folder

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny random model as a checkpoint on disk, with a tokenizer of letters."""
    return write_folder(
        tmp_path_factory.mktemp("tiny"), options(TINY), tensors(random_checkpoint(TINY, 0))
    )


def run(capsys: Capture, folder: Path, *more: str) -> dict:
    assert main(["run", "--model", str(folder), "--max-new", "8", "--json", *more]) == 0
    return json.loads(capsys.readouterr().out)


def exact(capsys: Capture, folder: Path, *more: str) -> dict:
    """The same by bsspec generate."""
    common = ["--exact", "--no-compare", "--max-new", "8", "--json"]
    assert main(["generate", "--model", str(folder), *common, *more]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "more",
    [
        ("--draft", "W6KV7", "--gamma", "2"),
        ("--draft", "none"),
        ("--draft", "W6KV7", "--gamma", "2", "--prompt", "Z"),
        ("--draft", "W5mKV5", "--gamma", "3", "--temperature", "0.8", "--seed", "3"),
    ],
    ids=["greedy", "none", "batch", "sampled"],
)
def test_text_is_that_of_the_exact_path(
    folder: Path, capsys: Capture, more: tuple[str, ...]
) -> None:
    found, expected = (call(capsys, folder, "--prompt", "!#%", *more) for call in (run, exact))
    for name in ("tokens", "reasons", "text"):
        assert found[name] == expected[name]
    for name in ("rounds", "drafted", "accepted"):
        assert found["rates"][name] == expected["rates"][name]
    planes = found["bytes"]["READ_PLANES"]
    assert planes[0] >= planes[8] > 0
    assert (planes[0] > planes[8]) == (found["rates"]["drafted"] > 0)
    assert found["prefill_bytes"]["WRITE_VALUES"] > 0


def test_lookup_table(folder: Path, capsys: Capture, tmp_path: Path) -> None:
    table = Plt((Entry(6, 7, 3, midpoint_w=True),) * 16)
    (tmp_path / "plt.bin").write_bytes(table.image())
    more = ("--draft", "auto", "--plt", str(tmp_path / "plt.bin"), "--prompt", "!#%")
    for warmth in ((), ("--temperature", "1")):
        found, expected = (call(capsys, folder, *more, *warmth) for call in (run, exact))
        assert found["tokens"] == expected["tokens"]
        assert found["rates"]["drafted"] == expected["rates"]["drafted"] > 0


def test_image_of_another_day(folder: Path, capsys: Capture, tmp_path: Path) -> None:
    sizes = ("--capacity", "128", "--chip", "tiny", "--bits", "10")
    assert main(["image", str(folder), "--out", str(tmp_path), *sizes, "--list"]) == 0
    shown = capsys.readouterr().out
    assert "WEIGHTS" in shown
    assert "epilogue SILU_UP" in shown
    assert "bank words of a row: 52 of 208 (x 4, side 16, wide 32)" in shown
    again = run(capsys, folder, "--prompt", "!", "--image", str(tmp_path))
    assert again["tokens"] == run(capsys, folder, "--prompt", "!", *sizes)["tokens"]
    other = dataclasses.replace(TINY, rope_base=5000.0)
    write_folder(tmp_path / "other", options(other), tensors(random_checkpoint(other, 0)))
    arguments = ["--model", str(tmp_path / "other"), "--prompt", "!", "--image", str(tmp_path)]
    assert main(["run", *arguments]) == 2
    assert "must be an image of model" in capsys.readouterr().err


def test_sizes_of_a_paper_model_need_no_weights(capsys: Capture) -> None:
    assert main(["image", "Llama-3.1-8B", "--chip", "paper", "--sequences", "4"]) == 0
    shown = capsys.readouterr().out
    assert "8,560,001,024" in shown
    assert "1408 of 1744" in shown


def test_tables_of_a_run(folder: Path, capsys: Capture) -> None:
    for prompts in (("!#%",), ("!#%", "Z")):
        given = [word for prompt in prompts for word in ("--prompt", prompt)]
        assert main(["run", "--model", str(folder), "--max-new", "5", *given]) == 0
        shown = capsys.readouterr().out
        for line in ("new tokens", "read plane 8", "write values", "read open keys"):
            assert line in shown


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "give --prompt TEXT"),
        (("--prompt", "!", "--draft", "W4KV4x"), "a precision must be written as"),
        (("--prompt", "!", "--draft", "W10KV9"), "p must be in 2..p_full = 9, not 10"),
        (("--prompt", "!", "--draft", "auto"), "draft auto needs a precision lookup table"),
        (("--prompt", "!", "--chip", "big"), "chip must be one of tiny, small, paper, not 'big'"),
        (("--prompt", "!", "--capacity", "100"), "capacity must be a multiple of 64"),
        (("--prompt", "!" * 99, "--capacity", "64"), "prompts[0] must have 1..63 tokens, not 99"),
        (("--prompt", "!", "--gamma", "0"), "gamma must be in 1..65536, not 0"),
    ],
)
def test_refusals(folder: Path, capsys: Capture, more: tuple[str, ...], message: str) -> None:
    assert main(["run", "--model", str(folder), *more]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.strip().count("\n") == 0
