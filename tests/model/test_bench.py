"""The speed command: it measures the right shapes and passes, prints ratios, writes JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from model.cli import main
from model.commands import bench as command
from model.datapath import bench
from model.lm.random_model import TINY, random_checkpoint
from tests.model.lm.folders import options, tensors, write_folder


def test_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SIZES", (64, 130))
    rows = bench.as_json(timings := bench.measure_all(seconds=0))
    assert [(row["d"], row["m"]) for row in rows] == [(d, m) for d in (64, 130) for m in (1, 8, 32)]
    for row in rows:
        assert row["target_ms"] > 0
        assert row["target_ratio"] == pytest.approx(row["target_ms"] / row["linear_ms"])
    assert len(bench.table(timings).splitlines()) == 1 + len(rows)


def test_default_shapes() -> None:
    assert (bench.SIZES, bench.ROWS) == ((576, 4096), (1, 8, 32))


def test_decoding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_folder(tmp_path / "tiny", options(TINY), tensors(random_checkpoint(TINY, 0)))
    prompts = tmp_path / "letters.txt"
    prompts.write_text("ABC\nZ\n")
    path = tmp_path / "bench.json"
    more = ("--prompts", str(prompts), "--rounds", "1", "--json", str(path))
    assert main(["bench", "decoding", "--model", str(folder), *more]) == 0
    found = json.loads(path.read_text())
    assert "products" not in found
    rows = {row["pass"]: row for row in found["decoding"]["passes"]}
    plain, target, draft = (
        rows[name] for name in ("plain 16-bit model", "exact target", "exact draft W6mKV7m")
    )
    assert plain["time_over_plain"] == 1
    # 6 planes of 9 and the exponents of both, but for the open block's 16 bits.
    assert (6 + 1 / 8) / (9 + 1 / 8) < draft["bits_over_target"] < 0.75
    assert target["bits_loaded"] == rows["fast target"]["bits_loaded"] < plain["bits_loaded"]
    verification = rows["exact verification of 8"]
    assert verification["positions"] == 8
    for row in rows.values():
        assert 0.5 < sum(row["shares"].values()) <= 1
        assert set(row["shares"]) <= set(command.STEPS.values())
    printed = capsys.readouterr().out
    assert "calibration: " in printed
    assert "limited by" in printed
