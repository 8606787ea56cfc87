"""Golden vectors: one product in a JSON file, made by a program that is not this model.

Form of a file: `M K N`, `p_full p reconstruct rounding align_guard_bits acc_guard_bits`, then
rows of fixed-width hexadecimal numbers without separators:

    activations    M rows of K BF16 codes (4 digits)
    weights        K rows of N BF16 codes
    exponents      K rows of ceil(N / 64) bytes (2 digits)
    signs          K rows of N digits 0 or 1
    magnitudes     K rows of N numbers (4 digits)
    expected_bf16  M rows of N BF16 codes
    expected_fp32  M rows of N FP32 codes (8 digits)

and optionally `image`, the memory image in hexadecimal, with its `tiles_per_block`; `name`
defaults to the file's. Groups run along N. Other members are ignored.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.datapath.bounds import GUARD_BITS_MAX
from model.datapath.fast import matmul
from model.datapath.steps import stepwise
from model.formats.bf16 import from_codes
from model.formats.bfp import RECONSTRUCTIONS, ROUNDINGS, Bfp, quantize
from model.formats.checks import check_choice, check_int, first_index
from model.formats.constants import (
    P_FULL_MAX,
    P_FULL_MIN,
    P_MIN_STUDY,
    TILE_N,
    TILES_PER_BLOCK,
)
from model.formats.floats import to_codes
from model.formats.planes import from_image, image_size, to_image

_LARGEST = 1 << 24


@dataclass(frozen=True, eq=False)
class Vector:
    """One golden vector.

    Attributes:
        name: what reports call it.
        m, k, n: shapes of the product, (m, k) by (k, n).
        p_full, p, reconstruct, rounding, align_guard_bits, acc_guard_bits: its parameters.
        activations: bfloat16 (m, k).
        weights: bfloat16 (k, n), before quantisation.
        exponents: uint8 (k, ceil(n / 64)), expected.
        signs: uint8 (k, n), expected.
        magnitudes: int16 (k, n), expected.
        expected: by format, "bf16" and "fp32": result codes, int64 (m, n).
        image: the expected memory image, where the file has one.
        tiles_per_block: of that image.
    """

    name: str
    m: int
    k: int
    n: int
    p_full: int
    p: int
    reconstruct: str
    rounding: str
    align_guard_bits: int
    acc_guard_bits: int
    activations: Tensor
    weights: Tensor
    exponents: Tensor
    signs: Tensor
    magnitudes: Tensor
    expected: dict[str, Tensor]
    image: bytes | None
    tiles_per_block: int

    def bfp(self) -> Bfp:
        """The weight as the file states it; ValueError if it states none that can be."""
        return Bfp.from_parts(self.exponents, self.signs, self.magnitudes, p_full=self.p_full)

    def parameters(self) -> dict[str, Any]:
        """The keyword arguments that `matmul` and `stepwise` take for it."""
        return {
            "p": self.p,
            "reconstruct": self.reconstruct,
            "align_guard_bits": self.align_guard_bits,
            "acc_guard_bits": self.acc_guard_bits,
        }


@dataclass(frozen=True)
class Difference:
    """Where a computed array differs from a vector's.

    Attributes:
        what: the array, such as "magnitudes" or "fast bf16".
        count: elements that differ; 0 where there is nothing to compare.
        detail: the first one: its index, what was expected, what was got; or why there is none.
    """

    what: str
    count: int
    detail: str

    def __str__(self) -> str:
        if self.count == 0:
            return f"{self.what}: {self.detail}"
        return f"{self.what}: {self.count} differ, first {self.detail}"


def load_vector(path: str | Path) -> Vector:
    """Reads and validates a vector file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not JSON, or a member is missing, of a wrong type, size or range.
    """
    path = Path(path)
    try:
        members = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} must be a JSON file: {error}") from error
    if not isinstance(members, dict):
        raise ValueError(f"{path} must hold a JSON object, not {type(members).__name__}")
    try:
        return _vector(members, path.stem)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def check_model(vector: Vector) -> list[Difference]:
    """Holds the model against a vector; an empty list means no difference.

    Checks the quantisation, the memory image in both directions where there is one, and both
    forms of the data path in both result formats, on the file's own exponents, signs and
    magnitudes. What the model refuses is a difference too.
    """
    differences: list[Difference] = []
    for check in (_check_quantisation, _check_image, _check_fast, _check_stepwise):
        try:
            differences += check(vector)
        except ValueError as error:
            what = check.__name__.removeprefix("_check_")
            differences.append(Difference(f"{what} refused", 0, str(error)))
    return differences


def compare(what: str, expected: Tensor, got: Tensor) -> list[Difference]:
    """The difference between two integer arrays: none, or one that names the first element."""
    if expected.shape != got.shape:
        return [Difference(what, 0, f"shape {tuple(got.shape)}, not {tuple(expected.shape)}")]
    wrong = expected.to(torch.int64) != got.to(torch.int64)
    count = int(wrong.sum())
    if count == 0:
        return []
    index = first_index(wrong)
    detail = f"at {list(index)}: expected {int(expected[index]):#x}, got {int(got[index]):#x}"
    return [Difference(what, count, detail)]


def _check_quantisation(vector: Vector) -> list[Difference]:
    quantized = quantize(vector.weights, p_full=vector.p_full, rounding=vector.rounding)
    return _compare_parts("", vector, quantized)


def _check_image(vector: Vector) -> list[Difference]:
    if vector.image is None:
        return []
    weight, blocks = vector.bfp(), vector.tiles_per_block
    expected = torch.from_numpy(np.frombuffer(vector.image, np.uint8).copy())
    written = torch.from_numpy(to_image(weight, tiles_per_block=blocks))
    differences = compare("image", expected, written)
    read = from_image(
        vector.image, k=vector.k, n=vector.n, p_full=vector.p_full, tiles_per_block=blocks
    )
    return differences + _compare_parts(" of the image", vector, read)


def _check_fast(vector: Vector) -> list[Difference]:
    weight = vector.bfp()
    differences: list[Difference] = []
    for fmt, expected in vector.expected.items():
        result = matmul(vector.activations, weight, out=fmt, **vector.parameters())
        differences += compare(f"fast {fmt}", expected, to_codes(result).to(torch.int64))
    return differences


def _check_stepwise(vector: Vector) -> list[Difference]:
    weight = vector.bfp()
    steps = [
        stepwise(vector.activations, weight, n_tile=n_tile, **vector.parameters())
        for n_tile in range(-(-vector.n // TILE_N))
    ]
    differences: list[Difference] = []
    for fmt, expected in vector.expected.items():
        codes = torch.cat([step.result(fmt).codes for step in steps], dim=1)
        differences += compare(f"stepwise {fmt}", expected, codes[:, : vector.n])
    return differences


def _compare_parts(where: str, vector: Vector, got: Bfp) -> list[Difference]:
    return [
        difference
        for part in ("exponents", "signs", "magnitudes")
        for difference in compare(part + where, getattr(vector, part), getattr(got, part))
    ]


def _vector(members: dict[str, Any], stem: str) -> Vector:
    m, k, n = (_int(members, name, 1, _LARGEST) for name in ("M", "K", "N"))
    p_full = _int(members, "p_full", P_FULL_MIN, P_FULL_MAX)
    groups = -(-n // TILE_N)
    tiles_per_block = TILES_PER_BLOCK
    if "tiles_per_block" in members:
        tiles_per_block = _int(members, "tiles_per_block", 1, _LARGEST)
    return Vector(
        name=str(members.get("name", stem)),
        m=m,
        k=k,
        n=n,
        p_full=p_full,
        p=_int(members, "p", P_MIN_STUDY, p_full),
        reconstruct=check_choice("reconstruct", _member(members, "reconstruct"), RECONSTRUCTIONS),
        rounding=check_choice("rounding", _member(members, "rounding"), ROUNDINGS),
        align_guard_bits=_int(members, "align_guard_bits", 0, GUARD_BITS_MAX),
        acc_guard_bits=_int(members, "acc_guard_bits", 0, GUARD_BITS_MAX),
        activations=from_codes(_hex_rows(members, "activations", m, k, 4)),
        weights=from_codes(_hex_rows(members, "weights", k, n, 4)),
        exponents=_hex_rows(members, "exponents", k, groups, 2).to(torch.uint8),
        signs=_hex_rows(members, "signs", k, n, 1).to(torch.uint8),
        magnitudes=_hex_rows(members, "magnitudes", k, n, 4).to(torch.int16),
        expected={
            "bf16": _hex_rows(members, "expected_bf16", m, n, 4),
            "fp32": _hex_rows(members, "expected_fp32", m, n, 8),
        },
        image=_image(members, image_size(k, n, p_full)),
        tiles_per_block=tiles_per_block,
    )


def _member(members: dict[str, Any], name: str) -> Any:
    if name not in members:
        raise ValueError(f"member {name} is missing")
    return members[name]


def _int(members: dict[str, Any], name: str, low: int, high: int) -> int:
    return check_int(name, _member(members, name), low, high)


def _hex_rows(members: dict[str, Any], name: str, rows: int, columns: int, digits: int) -> Tensor:
    """Rows of fixed-width hexadecimal numbers as int64 (rows, columns)."""
    lines = _member(members, name)
    if not isinstance(lines, list) or len(lines) != rows:
        given = f"{len(lines)} rows" if isinstance(lines, list) else type(lines).__name__
        raise ValueError(f"{name} must be a list of {rows} rows, not {given}")
    values = np.zeros((rows, columns), np.int64)
    for row, line in enumerate(lines):
        if not isinstance(line, str) or len(line) != columns * digits:
            given = f"{len(line)} characters" if isinstance(line, str) else type(line).__name__
            raise ValueError(
                f"{name}[{row}] must have {columns} numbers of {digits} hexadecimal digits, "
                f"{columns * digits} characters, not {given}",
            )
        nibbles = _nibbles(line, f"{name}[{row}]").reshape(columns, digits).astype(np.int64)
        for digit in range(digits):
            values[row] = (values[row] << 4) | nibbles[:, digit]
    return torch.from_numpy(values)


def _nibbles(line: str, name: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    try:
        packed = bytes.fromhex(line if len(line) % 2 == 0 else line + "0")
    except ValueError as error:
        raise ValueError(f"{name} must be hexadecimal: {error}") from error
    data = np.frombuffer(packed, np.uint8)
    return np.stack([data >> 4, data & 15], axis=1).reshape(-1)[: len(line)]


def _image(members: dict[str, Any], size: int) -> bytes | None:
    text = members.get("image")
    if text is None:
        return None
    if not isinstance(text, str) or len(text) != 2 * size:
        given = f"{len(text)} digits" if isinstance(text, str) else type(text).__name__
        raise ValueError(f"image must have {size} bytes, {2 * size} digits, not {given}")
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise ValueError(f"image must be hexadecimal: {error}") from error
