"""The example of docs/number-format.md: its text is the command's, its numbers are the model's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from model.datapath.example import GUARD_BITS, describe, main, operands
from model.datapath.fast import matmul
from model.formats.floats import to_codes

DOC = Path(__file__).parents[2] / "docs" / "number-format.md"


def test_document_quotes_the_command() -> None:
    # The pieces that the page quotes, put together, are all that the command prints.
    text = DOC.read_text()
    example = text[text.index("## One example") :]
    quoted = re.findall(r"^```text\n(.*?)^```$", example, re.DOTALL | re.MULTILINE)
    said = [line for line in describe().splitlines() if line.strip()]
    assert [line for piece in quoted for line in piece.splitlines() if line.strip()] == said


@pytest.mark.parametrize("p", [2, 5, 7, 9])
@pytest.mark.parametrize("reconstruct", ["truncate", "midpoint"])
@pytest.mark.parametrize("guard_bits", [GUARD_BITS, 8])
def test_printed_results_are_those_of_matmul(p: int, reconstruct: str, guard_bits: int) -> None:
    text = describe(p, reconstruct, guard_bits)
    printed = [int(code, 16) for code in re.findall(r"BF16 ([0-9a-f]{4})", text)]
    made = operands()
    expected = matmul(
        made.activations,
        made.stored,
        p=p,
        reconstruct=reconstruct,
        align_guard_bits=guard_bits,
        acc_guard_bits=guard_bits,
    )
    assert printed == to_codes(expected)[0].tolist()


def test_printed_steps_add_up() -> None:
    """Every sum that is written out is right as a reader would redo it."""
    text = describe()
    horner = re.findall(r"2 x (-?\d+) ([+-]\d+) = (-?\d+)$", text, re.MULTILINE)
    assert len(horner) == 2 * 2 * 4
    assert all(2 * int(before) + int(value) == int(total) for before, value, total in horner)
    pattern = r"A = \((-?\d+) >> (\d+)\) \+ \(\((-?\d+) << (\d+)\) >> (\d+)\) = .* = (-?\d+)$"
    sums = [tuple(map(int, found)) for found in re.findall(pattern, text, re.MULTILINE)]
    assert len(sums) == 4
    assert all((a >> s) + ((i << f) >> t) == total for a, s, i, f, t, total in sums)


def test_example_shows_what_it_is_for() -> None:
    """A magnitude shifted out, and a floor below zero."""
    stored = operands().stored
    assert (stored.signs[3, 1], stored.magnitudes[3, 1]) == (1, 0)
    a, shift = map(int, re.findall(r"A = \((-\d+) >> ([1-9]\d*)\)", describe())[0])
    assert a % (1 << shift) != 0


def test_command_prints_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out == describe() + "\n"


def test_command_refuses_what_the_model_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--p", "10"])
    assert "p must be in" in capsys.readouterr().err
