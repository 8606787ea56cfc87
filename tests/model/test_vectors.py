"""Golden vectors, held against the model; and the refusals of their loader."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from model.datapath.vectors import check_model, compare, load_vector

HERE = Path(__file__).resolve().parent.parent / "vectors"
FOLDERS = [HERE, *(Path(p) for p in os.environ.get("BSSPEC_VECTORS", "").split(":") if p)]
FILES = [file for folder in FOLDERS for file in sorted(folder.glob("*.json"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_model_equals_vector(path: Path) -> None:
    assert [str(difference) for difference in check_model(load_vector(path))] == []


def test_a_folder_has_vectors() -> None:
    assert all(any(folder.glob("*.json")) for folder in FOLDERS)


@pytest.fixture
def members() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((HERE / "midpoint_of_zero.json").read_text())
    return loaded


def _load(tmp_path: Path, members: dict[str, Any]) -> Any:
    path = tmp_path / "given.json"
    path.write_text(json.dumps(members))
    return load_vector(path)


def _flip(row: str, position: int) -> str:
    digit = f"{int(row[position], 16) ^ 1:x}"
    return row[:position] + digit + row[position + 1 :]


@pytest.mark.parametrize(
    ("member", "digits", "per_value", "found"),
    [
        ("weights", 4, 1, {"magnitudes"}),
        ("signs", 1, 1, {"signs", "fast bf16", "stepwise bf16"}),
        ("exponents", 2, 64, {"exponents", "fast fp32", "stepwise fp32"}),
        ("expected_bf16", 4, 1, {"fast bf16", "stepwise bf16"}),
        ("expected_fp32", 8, 1, {"fast fp32", "stepwise fp32"}),
    ],
)
def test_one_wrong_digit_is_found(
    tmp_path: Path,
    members: dict[str, Any],
    member: str,
    digits: int,
    per_value: int,
    found: set[str],
) -> None:
    # A weight with the exponent of its group, so that no digit of it is shifted out.
    row, column = next(
        (row, column)
        for row in range(len(members[member]))
        for column in range(members["N"])
        if int(members["magnitudes"][row][4 * column : 4 * column + 4], 16) >= 128
    )
    last = (column // per_value + 1) * digits - 1
    members[member][row] = _flip(members[member][row], last)
    differences = {d.what for d in check_model(_load(tmp_path, members))}
    assert found <= differences


def test_one_wrong_bit_of_an_image_is_found(tmp_path: Path) -> None:
    members = json.loads((HERE / "image.json").read_text())
    members["image"] = _flip(members["image"], 2 * 64 * 2 + 1)  # in the first sign plane
    found = {d.what for d in check_model(_load(tmp_path, members))}
    assert {"image", "signs of the image"} <= found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"K": None}, "K must be an int"),
        ({"K": 71}, "activations.* must have 71 numbers|must be a list of 71 rows"),
        ({"p": 10}, "p must be in 2..9"),
        ({"p_full": 17}, "p_full must be in 9..16"),
        ({"reconstruct": "middle"}, "reconstruct must be 'truncate' or 'midpoint'"),
        ({"activations": "00"}, "activations must be a list of 2 rows"),
        ({"activations": ["00", "00"]}, r"activations\[0\] must have 70 numbers of 4"),
        ({"activations": ["x" * 280] * 2}, r"activations\[0\] must be hexadecimal"),
        ({"image": "00"}, "image must have"),
    ],
)
def test_loader_refuses(
    tmp_path: Path, members: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        _load(tmp_path, {**members, **change})


def test_loader_names_a_missing_member(tmp_path: Path, members: dict[str, Any]) -> None:
    del members["signs"]
    with pytest.raises(ValueError, match="member signs is missing"):
        _load(tmp_path, members)


def test_loader_refuses_what_is_not_json(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text("{")
    with pytest.raises(ValueError, match="must be a JSON file"):
        load_vector(path)
    path.write_text("[]")
    with pytest.raises(ValueError, match="must hold a JSON object, not list"):
        load_vector(path)


def test_compare_names_the_first_difference() -> None:
    (found,) = compare("codes", torch.tensor([[1, 2], [3, 4]]), torch.tensor([[1, 2], [0, 0]]))
    assert str(found) == "codes: 2 differ, first at [1, 0]: expected 0x3, got 0x0"
    (shape,) = compare("codes", torch.zeros(2, 3), torch.zeros(3, 2))
    assert str(shape) == "codes: shape (3, 2), not (2, 3)"


def test_what_the_model_refuses_is_a_difference(tmp_path: Path, members: dict[str, Any]) -> None:
    members["weights"][3] = "7f80" + members["weights"][3][4:]
    members["activations"][1] = "7fc0" + members["activations"][1][4:]
    found = [str(d) for d in check_model(_load(tmp_path, members))]
    assert "quantisation refused: values[3, 0] must be finite, not inf" in found
    assert "fast refused: activations[1, 0] must be finite, not nan" in found
