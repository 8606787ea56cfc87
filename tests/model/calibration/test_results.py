"""The file of results: appended whole, resumed from, never mixed."""

from __future__ import annotations

from pathlib import Path

import pytest

from model.calibration.results import ResultFile

SETTINGS = {"gamma": 7, "seed": 0}


def filled(path: Path, *keys: str) -> None:
    file = ResultFile(path, SETTINGS)
    for key in keys:
        file.add({"key": key, "value": len(key)})
    file.close()


def test_a_second_run_finds_what_the_first_one_wrote(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.jsonl"
    filled(path, "a", "bb")
    file = ResultFile(path, SETTINGS)
    assert {key: r["value"] for key, r in file.results.items()} == {"a": 1, "bb": 2}


def test_a_result_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    filled(path, "a")
    before = path.read_bytes()
    filled(path, "a")
    assert path.read_bytes() == before


@pytest.mark.parametrize("torn", [b'{"key": "c", "val', b'{"key": "c", "value": 3}', b"{"])
def test_a_torn_last_line_is_cut_off(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "results.jsonl"
    filled(path, "a", "bb")
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    file = ResultFile(path, SETTINGS)
    assert list(file.results) == ["a", "bb"]
    file.add({"key": "c", "value": 3})
    file.close()
    assert path.read_bytes() == whole + b'{"key":"c","value":3}\n'


def test_a_torn_first_line_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(b'{"settings":{"ga')
    filled(path, "a")
    assert list(ResultFile(path, SETTINGS).results) == ["a"]


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    filled(path, "a")
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"results\.jsonl holds .* another gamma: give another"):
        ResultFile(path, {"gamma": 6, "seed": 0})
    assert path.read_bytes() == before


def test_a_foreign_line_is_refused_by_number(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    filled(path, "a")
    path.write_bytes(path.read_bytes() + b"[1, 2]\n")
    with pytest.raises(ValueError, match=r"results\.jsonl:3 is not a line of results"):
        ResultFile(path, SETTINGS)


def test_nan_never_enters_the_file(tmp_path: Path) -> None:
    file = ResultFile(tmp_path / "results.jsonl", SETTINGS)
    with pytest.raises(ValueError, match="JSON"):
        file.add({"key": "a", "value": float("nan")})
    file.close()
    assert list(ResultFile(tmp_path / "results.jsonl", SETTINGS).results) == []
