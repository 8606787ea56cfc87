"""The runner without a simulator: its plan, what it refuses, what it says of an outcome."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path

import pytest

from sim import run
from sim.build import SIMULATORS, SimulatorMissing
from sim.registry import BENCHES, ODD, TINY
from sim.run import Outcome


def outcome(bench: str = "lane", error: str = "", **fields: object) -> Outcome:
    made = Outcome(bench, "tiny", "verilator", 7, 1234, 5678, int(bool(error)), 1.0, error, "l", [])
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def planned(**fields: object) -> list[tuple[str, str, str]]:
    asked = {"benches": list(BENCHES), "config": None, "simulator": None, "quick": False}
    return [(s.name, c.name, sim) for s, c, sim in run.plan(**{**asked, **fields})]


def test_quick_plan_has_every_bench_but_the_large_ones() -> None:
    runs = planned(quick=True)
    assert len(runs) == len(set(runs))
    assert {bench for bench, _, _ in runs} == set(BENCHES) - {"paper", "datapath"}
    assert {(bench, "tiny") for bench, _, _ in runs} <= {run[:2] for run in runs}
    assert {config for _, config, _ in runs} <= {"tiny", "small", "odd"}
    assert {simulator for _, _, simulator in runs} == set(SIMULATORS)


def test_full_plan_has_all_configurations() -> None:
    runs = planned()
    assert len(runs) == len(set(runs))
    for spec in BENCHES.values():
        for config in spec.full:
            assert (spec.name, config.name, "verilator") in runs
        for config in spec.icarus:
            assert (spec.name, config.name, "icarus") in runs


def test_one_bench_runs_in_full_even_when_quick() -> None:
    runs = planned(benches=["lane"], quick=True)
    assert {config for _, config, simulator in runs if simulator == "verilator"} == {
        config.name for config in BENCHES["lane"].full
    }


def test_named_configuration_and_simulator() -> None:
    assert planned(benches=["lane"], config=ODD) == [("lane", "odd", "verilator")]
    assert planned(benches=["lane"], config=ODD, simulator="icarus") == [("lane", "odd", "icarus")]
    assert planned(benches=["lane"], simulator="icarus") == [("lane", "tiny", "icarus")]


@pytest.mark.parametrize("spec", BENCHES.values(), ids=lambda spec: spec.name)
def test_every_bench_has_its_module(spec) -> None:
    path = Path(__file__).parents[2] / (spec.test_module.replace(".", "/") + ".py")
    assert path.exists()


def test_blocks_only_where_they_help() -> None:
    spec = BENCHES["array"]
    assert spec.blocks("verilator", waves=False) == spec.hierarchical != ()
    assert spec.blocks("verilator", waves=True) == spec.blocks("icarus", waves=False) == ()
    assert BENCHES["paper"].blocks("verilator", waves=True) != ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bench", "lan"], "BENCH must be one of aligner, .* not 'lan'"),
        (["--config", "large"], "not 'large'"),
        (["--config", "missing.toml"], "missing.toml"),
        (["--waves"], "WAVES=1 needs BENCH=name"),
        (["--jobs", "0"], "JOBS must be at least 1, not 0"),
    ],
)
def test_bad_arguments_are_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture, monkeypatch
) -> None:
    monkeypatch.setattr(run, "run_bench", lambda *_, **__: pytest.fail("a bench ran"))
    assert run.main(arguments) == 2
    assert re.search(message, capsys.readouterr().out)


RESULTS = "<testsuites><testsuite>{}</testsuite></testsuites>"
PASSED, SKIPPED = '<testcase name="a"/>', '<testcase name="b"><skipped/></testcase>'
FAILED = (
    '<testcase name="c"><failure message="first line&#10;MismatchError: p: 3, not 4"/></testcase>'
)


@pytest.mark.parametrize(
    ("cases", "error", "left_out"),
    [
        (PASSED, "", []),
        (PASSED + SKIPPED, "", ["b"]),
        (PASSED + FAILED + SKIPPED, "c: MismatchError: p: 3, not 4", ["b"]),
        (SKIPPED, "no test ran", ["b"]),
        ("", "no test ran", []),
        ('<testcase name="d"><error/></testcase>', "d: failed", []),
    ],
)
def test_results_files(tmp_path: Path, cases: str, error: str, left_out: list[str]) -> None:
    (tmp_path / "r.xml").write_text(RESULTS.format(cases))
    assert run._results(tmp_path / "r.xml", tmp_path / "log") == (error, left_out)


def test_no_results_file_is_an_early_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert run._results(tmp_path / "r.xml", log)[0] == "the simulation ended early: no output"
    log.write_text("one\nrow 3 is read and written in one cycle\n")
    assert run._results(tmp_path / "r.xml", log)[0].endswith(
        ": row 3 is read and written in one cycle"
    )


def test_a_memory_s_complaint_is_the_reason(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one\ntop.ram: row 3 is read and written in one cycle\nlast\n")
    case = (
        '<testcase name="e"><failure message="the simulation ended prematurely. Why?"/></testcase>'
    )
    (tmp_path / "r.xml").write_text(RESULTS.format(case))
    assert run._results(tmp_path / "r.xml", tmp_path / "log")[0] == (
        "e: the simulation ended early: top.ram: row 3 is read and written in one cycle"
    )


def _again(arguments: list[str], capsys: pytest.CaptureFixture) -> str:
    assert run.main(arguments) == 1
    return capsys.readouterr().out


def test_runs_are_shown_in_order_and_failures_count(capsys, monkeypatch, tmp_path: Path) -> None:
    together = threading.Barrier(2, timeout=20)

    def fake(spec, config, *, simulator: str, **_: object) -> Outcome:
        if simulator == "verilator" and config is TINY:
            together.wait()
            time.sleep(0.05)
        elif simulator == "verilator":
            if config.name == "nine":
                together.wait()
            return outcome(spec.name, "every_lookup: MismatchError: value", config=config.name)
        return outcome(spec.name, config=config.name, simulator=simulator, left_out=["x", "y"])

    monkeypatch.setattr(run, "run_bench", fake)
    monkeypatch.setattr(run, "simulator_version", lambda _: "1.0")
    report = tmp_path / "outcomes.json"
    assert run.main(["--bench", "lane", "--seed", "7", "--json", str(report)]) == 1
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if line.startswith("[")]
    assert lines[0].startswith("[1/5] lane tiny verilator")
    assert "ok (left out: x, y)" in lines[0]
    assert "every_lookup: MismatchError: value" in lines[1]
    assert "again: make sim BENCH=lane CONFIG=nine SIM=verilator SEED=7 WAVES=1" in out
    assert "benches: 2 passed, 3 failed, seed 7" in out
    assert "SEED=8 QUICK=1 WAVES=1" in _again(["--bench", "lane", "--seed", "8", "--quick"], capsys)
    assert [each["config"] for each in json.loads(report.read_text())][:2] == ["tiny", "nine"]


def test_a_missing_simulator_is_said(capsys, monkeypatch) -> None:
    def version(simulator: str) -> str:
        if simulator == "icarus":
            raise SimulatorMissing("iverilog is not installed: apt install iverilog")
        return "1.0"

    monkeypatch.setattr(run, "run_bench", lambda spec, config, **_: outcome(spec.name))
    monkeypatch.setattr(run, "simulator_version", version)
    assert run.main(["--bench", "feed"]) == 0
    out = capsys.readouterr().out
    assert "not run: 1 benches on a simulator that is missing (iverilog is not installed" in out


def test_a_design_that_cannot_be_built_fails(capsys, monkeypatch) -> None:
    def fail(*_: object, **__: object) -> Outcome:
        raise RuntimeError("verilator cannot build bsspec_feed: see build.log")

    monkeypatch.setattr(run, "run_bench", fail)
    monkeypatch.setattr(run, "simulator_version", lambda _: "1.0")
    assert run.main(["--bench", "feed", "--sim", "verilator"]) == 1
    assert "cannot build bsspec_feed" in capsys.readouterr().out
