"""`bsspec plt` and `bsspec tables`: what they print, write and refuse, and what the page shows."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from model import cli
from model.calibration import files, tables_command
from model.calibration.models import SMOLLM2
from model.calibration.plt import Plt
from model.calibration.plt_command import parse_gammas
from model.calibration.search import RECONSTRUCT
from model.calibration.tables_command import WHAT

PAGE = (Path(__file__).parents[3] / "docs" / "calibration.md").read_text()
QWEN = ["plt", "--model", "Qwen3-14B"]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A file of measured rates of SmolLM2, invented."""
    pairs = {"W9KV9": 1.0, "W7KV7": 0.95, "W6KV6": 0.90, "W6mKV6m": 0.95, "W7mKV7m": 0.97}
    path = tmp_path / "results.json"
    path.write_text(
        json.dumps(
            {
                "table_III": {SMOLLM2: {pair: {"HumanEval": a} for pair, a in pairs.items()}},
                "table_IV": {SMOLLM2: {"speq": 0.8125}},
                "table_VI": {SMOLLM2: {"bfp9": 0.25, "other": 0.5}},
            }
        )
    )
    return path


class TestPlt:
    def test_prints_and_writes(self, capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
        assert cli.main([*QWEN, "--out", str(tmp_path)]) == 0
        printed = capsys.readouterr().out
        assert "80070805" in printed
        assert "…" not in printed
        names = ["batches.csv", "plt.bin", "plt.csv", "plt.json"]
        assert sorted(path.name for path in tmp_path.iterdir()) == names
        tables = [Plt.load(tmp_path / f"plt.{suffix}") for suffix in ("json", "csv", "bin")]
        assert tables[0] == tables[1] == tables[2]
        pairs = [str(tables[0].lookup(1 << log2).precision) for log2 in (11, 17, 20)]
        assert pairs == ["W5KV8", "W6KV6", "W7KV5"]
        about = json.loads((tmp_path / "plt.json").read_text())
        assert about["choices"][0]["speedup"] == pytest.approx(2.329915, abs=1e-6)
        rows = list(csv.DictReader((tmp_path / "batches.csv").open()))
        assert len(rows) == 40
        assert {row["batch"] for row in rows} == {"1", "4", "8", "32"}

    def test_the_same_call_writes_the_same_bytes(self, tmp_path: Path) -> None:
        for name in "ab":
            cli.main([*QWEN, "--gamma", "best", "--cost", "machine", "--out", str(tmp_path / name)])
        for path in (tmp_path / "a").iterdir():
            assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()

    def test_an_entry_s_length_is_spread_over_the_batch(self, tmp_path: Path) -> None:
        machine = ["--cost", "machine", "--batch", "32", "--out", str(tmp_path)]
        assert cli.main([*QWEN, *machine]) == 0
        found = json.loads((tmp_path / "plt.json").read_text())
        grid = {(row["batch"], row["sequence"]): row["speedup"] for row in found["batches"]}
        for place in range(5, 10):  # 64K .. 1024K over 32 sequences: 2K .. 32K each
            assert found["choices"][place]["speedup"] == grid[32, 1 << (place + 6)]
        assert found["choices"][5]["gamma"] == 7

    @pytest.mark.parametrize("reconstruct", RECONSTRUCT)
    def test_measured(
        self, results: Path, reconstruct: str, tmp_path: Path, capsys: pytest.CaptureFixture
    ) -> None:
        out = tmp_path / "out"
        command = ["plt", "--model", "smollm2", "--acceptance", str(results), "--out", str(out)]
        assert cli.main([*command, "--reconstruct", reconstruct]) == 0
        assert "(SmolLM2-135M, mean)" in " ".join(capsys.readouterr().out.split())
        midpoints = [entry.midpoint_w for entry in Plt.load(out / "plt.bin").entries]
        assert any(midpoints) == (reconstruct != "truncate")

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["--model", "GPT"], "model must be Llama-3.2-3B"),
            (["--dataset", "MMLU"], "dataset must be one of paper_tables.json for Qwen3-14B (Hum"),
            (["--acceptance", "none.json"], "none.json is missing"),
            (["--acceptance-of", "GPT"], "paper_tables.json has no table_III of 'GPT'"),
            (["--model", "smollm2"], "paper_tables.json has no table_III of 'SmolLM2-135M'"),
            (["--gamma", "0"], "--gamma must be rising numbers in 1..255, not '0'"),
            (["--gamma", "x"], "--gamma must be a number, best, a range"),
            (["--t-v", "0"], "t_v must be finite and above 0, not 0.0"),
            (["--t-v", "nan"], "t_v must be finite and above 0, not nan"),
            (["--cost", "machine", "--t-v", "1"], "--t-v and --exponents go with --cost paper"),
            (["--rows", "8"], "--rows goes with --cost machine"),
            (["--cost", "machine", "--rows", "4"], "rows must be 5 or more"),
            (["--batch", "0"], "batch must be in 1..2048, not 0"),
            (["--reconstruct", "midpoint"], "no draft of 15 measured ones is midpoint"),
        ],
    )
    def test_refusals_are_one_line(
        self, arguments: list[str], said: str, capsys: pytest.CaptureFixture
    ) -> None:
        assert cli.main([*QWEN, *arguments]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"bsspec plt: {said}")
        assert error.count("\n") == 1

    def test_gammas(self) -> None:
        assert parse_gammas("7") == [7]
        assert parse_gammas("best") == parse_gammas("1..16") == list(range(1, 17))
        assert parse_gammas("7,3,2..4") == [2, 3, 4, 7]
        for text in ("", "4..2", "1..256", "3,,4", "-1", "7.5", "\N{ARABIC-INDIC DIGIT SEVEN}"):
            with pytest.raises(ValueError, match="--gamma must be"):
                parse_gammas(text)

    def test_a_folder_that_can_not_be(self, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
        (tmp_path / "file").write_text("")
        assert cli.main([*QWEN, "--out", str(tmp_path / "file")]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_files_are_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plt.bin"
    files.write_whole(path, b"old")

    def fail(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:1])
        raise OSError("no space")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="no space"):
        files.write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["plt.bin"]


class TestTables:
    def test_writes_everything_without_a_display(self, tmp_path: Path, results: Path) -> None:
        code = (
            "import os, sys; os.environ.pop('DISPLAY', None); os.environ.pop('MPLBACKEND', None);"
            "from model.cli import main; sys.exit(main(sys.argv[1:]))"
        )
        command = [sys.executable, "-c", code, "tables", "--measured", str(results)]
        ran = subprocess.run(
            [*command, "--out", str(tmp_path / "out")], capture_output=True, text=True, check=True
        )
        assert "…" not in ran.stdout
        assert max(map(len, ran.stdout.splitlines())) <= 120  # paths of tests are long
        tables = ["table_v", "scalars", "fig_6", "fig_7", "gamma", "table_iv", "table_vi"]
        names = {f"{t}.{s}" for t in [*tables, f"midpoint_{SMOLLM2}"] for s in ("json", "csv")}
        names |= {f"{t}.{s}" for t in ("fig_6", "fig_7", "gamma") for s in ("png", "svg")}
        assert {path.name for path in (tmp_path / "out").iterdir()} == names
        for path in (tmp_path / "out").glob("*.json"):
            found = json.loads(path.read_text())
            rows = list(csv.DictReader(path.with_suffix(".csv").open()))
            assert len(rows) == len(found["rows"]) > 0
        assert (tmp_path / "out" / "fig_7.png").read_bytes()[:4] == b"\x89PNG"

    def test_measured_stands_beside_the_paper(
        self, results: Path, capsys: pytest.CaptureFixture
    ) -> None:
        for what in ("IV", "VI", "midpoint"):
            assert cli.main(["tables", "--what", what, "--measured", str(results)]) == 0
        printed = capsys.readouterr().out
        assert re.search(r"SPEQ W4KV16 \(speq\) .* 81\.2 %", printed)
        assert re.search(r"W4KV8 \(quantspec-ns-w4kv8\) .* not measured", printed)
        assert re.search(r"BS-Spec BFP9 \(bfp9\) .* 25\.0 %", printed)
        assert re.search(r"other +50\.0 %", printed)
        assert "p_w 6: no at KV 6" not in printed  # W7KV6 was not measured
        assert "Whether a midpoint is worth a bit: needs" in printed

    def test_without_a_file(self, capsys: pytest.CaptureFixture) -> None:
        assert cli.main(["tables", "--what", "IV"]) == 0
        assert capsys.readouterr().out.count("not measured") == 4
        assert cli.main(["tables", "--what", "midpoint"]) == 2
        error = capsys.readouterr().err
        assert error == "bsspec tables: --what midpoint needs --measured FILE with a table_III\n"

    def test_an_unknown_table_is_refused(self, capsys: pytest.CaptureFixture) -> None:
        with pytest.raises(SystemExit) as left:
            tables_command.main(["--what", "VII"])
        assert left.value.code == 2
        assert "invalid choice: 'VII'" in capsys.readouterr().err


class TestPage:
    @pytest.mark.parametrize("what", ["V", "scalars", "6", "7", "gamma"])
    def test_shows_what_tables_prints(self, what: str, capsys: pytest.CaptureFixture) -> None:
        assert cli.main(["tables", "--what", what]) == 0
        printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
        assert printed.rstrip("\n") in PAGE

    @pytest.mark.parametrize("cost", ["paper", "machine"])
    def test_shows_what_plt_prints(self, cost: str, capsys: pytest.CaptureFixture) -> None:
        assert cli.main([*QWEN, "--cost", cost]) == 0
        entries, batches = capsys.readouterr().out.rstrip("\n").split("\n\n")
        text = entries if cost == "paper" else batches
        assert "\n".join(line.rstrip() for line in text.splitlines()) in PAGE

    def test_names_every_choice(self) -> None:
        assert "|".join(WHAT) in PAGE
