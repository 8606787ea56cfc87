"""The speed command: it measures the right shapes, prints ratios, writes JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from model.datapath import bench


def test_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "SIZES", (64, 130))
    path = tmp_path / "bench.json"
    assert bench.main(["--json", str(path), "--seconds", "0"]) == 0
    rows = json.loads(path.read_text())["timings"]
    assert [(row["d"], row["m"]) for row in rows] == [(d, m) for d in (64, 130) for m in (1, 8, 32)]
    for row in rows:
        assert row["target_ms"] > 0
        assert row["target_ratio"] == pytest.approx(row["target_ms"] / row["linear_ms"])
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(rows)


def test_default_shapes() -> None:
    assert (bench.SIZES, bench.ROWS) == ((576, 4096), (1, 8, 32))
