"""The command that compares the forms, its limits, and the table that the documents show."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from model.datapath.special import accuracy
from model.datapath.special.sweeps import Sweep, order, sweeps, swept, term_distance, ulp_distance

PAGE = Path(__file__).parents[3] / "docs" / "number-format.md"


def test_order_counts_numbers() -> None:
    values = torch.tensor([-1.0, -1e-40, -0.0, 0.0, 1.0, 1.0078125]).bfloat16()
    assert order(values).tolist() == [-0x3F80, -1, 0, 0, 0x3F80, 0x3F81]
    assert ulp_distance(values[:1], values[-1:]).item() == 2 * 0x3F80 + 1


def test_ulp_of_a_term() -> None:
    """An ulp of 1.0 up to 1.99 is 2^-7; of subnormals, and of 0, 2^-133."""
    left, right = torch.tensor([0.25, 0.25, 2.0**-132, 2.0**-132]).bfloat16(), torch.zeros(4)
    term = torch.tensor([1.0, 1.99, 2.0**-130, 0.0], dtype=torch.float64)
    assert term_distance(left, right.bfloat16(), term).tolist() == [32.0, 32.0, 2.0, 2.0]


def test_limits() -> None:
    distances = torch.zeros(1000, dtype=torch.float64)
    assert swept("f", "x", distances).met
    distances[0] = 2
    assert swept("f", "x", distances).met
    distances[1] = 2
    assert not swept("f", "x", distances).met
    assert swept("f", "x", distances, judged=False).met
    distances[:2] = torch.tensor([3.0, 0.0])
    assert not swept("f", "x", distances).met
    assert not swept("f", "x", distances[1:], flushed_right=False).met


def test_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def few() -> Iterator[Sweep]:
        return sweeps(elements=1 << 14)

    monkeypatch.setattr(accuracy, "sweeps", few)
    file = tmp_path / "accuracy.json"
    assert accuracy.main(["--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "limits (99.9% within 1 ulp, none beyond 2): met" in printed
    rows = json.loads(file.read_text())["sweeps"]
    assert all(row["met"] and row["function"] in printed for row in rows)

    monkeypatch.setattr(accuracy, "sweeps", lambda: iter([Sweep("f", "x", 9, 1.0, 0.99, 1.0)]))
    assert accuracy.main([]) == 1
    assert "not met by f, x" in capsys.readouterr().out


def test_documents_show_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Every line of the command; shares may move by 0.05, with another build of torch."""
    assert accuracy.main([]) == 0
    page = PAGE.read_text()
    share = re.compile(r"(\d+\.\d+) %")
    lines = {share.sub("%", line.rstrip()): line for line in page.splitlines()}
    for line in capsys.readouterr().out.splitlines():
        shown = lines.get(share.sub("%", line.rstrip()))
        assert shown is not None, f"docs/number-format.md, section 11, lacks\n{line}"
        said, found = ([float(x) for x in share.findall(text)] for text in (shown, line))
        assert said == pytest.approx(found, abs=0.05)
