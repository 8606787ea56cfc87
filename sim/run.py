"""``make sim``: builds the benches, runs them, prints a table.

``python -m sim.run [--bench NAME] [--config C] [--sim S] [--seed N] [--waves] [--quick]
[--jobs N] [--json FILE]``
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import sys
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hw.config import Config, ConfigError, load
from hw.emit import emit
from sim.board.control import FOLDER
from sim.board.wrapper import wrapper
from sim.build import (
    BUILD,
    SIMULATORS,
    WAVES_FILE,
    Build,
    SimulatorMissing,
    compile_design,
    make_runner,
    simulation_arguments,
    simulator_version,
)
from sim.environment import Environment
from sim.registry import BENCHES, CONFIGS, BenchSpec


@dataclass
class Outcome:
    """One run of one bench.

    Attributes
    ----------
    bench, config, simulator : str
    seed : int
    transactions, cycles : int
        Sums over the parts that ended without a mismatch.
    mismatches : int
        1 if the bench stopped at a mismatch.
    seconds : float
        Build and run.
    error : str
        What stopped it, empty if nothing did.
    log : str
        Where everything it printed is.
    parts : list
        The records of the bench.
    left_out : list of str
        Parts that the bench does not run on this simulator.
    """

    bench: str
    config: str
    simulator: str
    seed: int
    transactions: int
    cycles: int
    mismatches: int
    seconds: float
    error: str
    log: str
    parts: list[dict[str, Any]]
    left_out: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether the bench ended without a mismatch."""
        return not self.error


def run_bench(
    spec: BenchSpec,
    config: Config,
    *,
    simulator: str = "verilator",
    seed: int,
    quick: bool = False,
    waves: bool = False,
    options: dict[str, Any] | None = None,
) -> Outcome:
    """Builds and runs one bench.

    Raises
    ------
    SimulatorMissing
        If the simulator is not installed.
    RuntimeError
        If the design cannot be built.
    """
    started = time.monotonic()
    design = emit(config, spec.make(config))
    build = compile_design(
        design.verilog,
        design.top,
        simulator=simulator,
        waves=waves,
        hierarchical=spec.blocks(simulator, waves=waves),
        board=wrapper(design.ports) if spec.board else "",
    )
    # Icarus is there to see X, not for the count: it always runs the short form.
    short = quick or simulator == "icarus"
    run = run_folder(f"{spec.name}-{config.name}-{simulator}", seed)
    return simulate(
        build,
        spec.test_module,
        Environment(config, seed, short, run / REPORT, options or {}),
        name=spec.name,
        started=started,
    )


#: The file in a run's folder that a bench reports to.
REPORT = "report.jsonl"


def run_folder(name: str, seed: int) -> Path:
    """A new folder for a run of this process."""
    run = BUILD / "runs" / f"{name}-{os.getpid()}-{seed}"
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    return run


def simulate(
    build: Build, test_module: str, environment: Environment, *, name: str, started: float
) -> Outcome:
    """Runs a cocotb module on a build, in the folder that the environment's report lies in.

    Parameters
    ----------
    build : Build
    test_module : str
    environment : Environment
    name : str
        Of the bench, for the outcome.
    started : float
        When the work began, by :func:`time.monotonic`.
    """
    simulator, waves, seed = build.simulator, build.waves, environment.seed
    report = environment.report_path
    report.touch()
    run = report.parent
    results, log = run / "results.xml", run / "run.log"
    with contextlib.suppress(SystemExit, RuntimeError):
        make_runner(simulator).test(
            test_module=test_module,
            hdl_toplevel=build.top,
            hdl_toplevel_lang="verilog",
            build_dir=build.directory,
            test_dir=run,
            extra_env={
                "PYTHONPATH": os.pathsep.join([os.getcwd(), *filter(None, sys.path)]),
                "COCOTB_ANSI_OUTPUT": "0",
                "OMP_NUM_THREADS": "1",
                FOLDER: str(run),
                **environment.to_env(),
            },
            results_xml=results,
            waves=waves,
            log_file=log,
            plusargs=simulation_arguments(simulator, seed),
        )
    parts = [json.loads(line) for line in report.read_text().splitlines()]
    error, left_out = _results(results, log)
    transactions = sum(part["transactions"] for part in parts)
    if not error and not transactions:
        error = "nothing was compared"
    outcome = Outcome(
        bench=name,
        config=environment.config.name,
        simulator=simulator,
        seed=seed,
        transactions=transactions,
        cycles=sum(part["cycles"] for part in parts),
        mismatches=int(bool(error)),
        seconds=time.monotonic() - started,
        error=error,
        log=os.path.relpath(log),
        parts=parts,
        left_out=left_out,
    )
    if outcome.passed and not waves:
        shutil.rmtree(run, ignore_errors=True)
    return outcome


def _results(results: Path, log: Path) -> tuple[str, list[str]]:
    """From a results file: the first failure in one line, empty if all passed; what was skipped."""
    try:
        root = ElementTree.parse(results).getroot()
    except (OSError, ElementTree.ParseError):
        return _ended_early(log), []
    cases = list(root.iter("testcase"))
    left_out = [case.get("name", "") for case in cases if case.find("skipped") is not None]
    if len(left_out) == len(cases):
        return "no test ran", left_out
    for case in cases:
        failure = case.find("failure") if case.find("failure") is not None else case.find("error")
        if failure is not None:
            text = failure.get("message") or failure.text or failure.get("error_msg") or "failed"
            if "ended prematurely" in text:
                text = _ended_early(log)
            return f"{case.get('name')}: {text.strip().splitlines()[-1]}", left_out
    return "", left_out


def _ended_early(log: Path) -> str:
    """Why a simulation did not come to its end: a memory's complaint, or its last words."""
    lines = log.read_text().splitlines() if log.exists() else []
    said = [line for line in lines if line.endswith("in one cycle")] or lines[-1:]
    return f"the simulation ended early: {said[0].strip() if said else 'no output'}"


def plan(
    *,
    benches: list[str],
    config: Config | None,
    simulator: str | None,
    quick: bool,
) -> list[tuple[BenchSpec, Config, str]]:
    """The runs that a call asks for."""
    runs = []
    for name in benches:
        spec = BENCHES[name]
        for each in SIMULATORS:
            if simulator not in (None, each):
                continue
            if config is not None:
                configs: tuple[Config, ...] = (config,) if simulator or each == "verilator" else ()
            elif each == "icarus":
                configs = spec.icarus
            else:
                configs = spec.quick if quick and len(benches) > 1 else spec.full
            runs += [(spec, chosen, each) for chosen in configs]
    return runs


def table(outcomes: list[Outcome]) -> Table:
    """The printed table."""
    result = Table(box=None, pad_edge=False)
    for heading in ("bench", "configuration", "simulator"):
        result.add_column(heading)
    for heading in ("transactions", "mismatches", "cycles", "seed", "seconds"):
        result.add_column(heading, justify="right")
    for outcome in outcomes:
        style = None if outcome.passed else "bold red"
        result.add_row(
            outcome.bench,
            outcome.config,
            outcome.simulator,
            f"{outcome.transactions:,}",
            str(outcome.mismatches),
            f"{outcome.cycles:,}",
            str(outcome.seed),
            f"{outcome.seconds:.0f}",
            style=style,
        )
    return result


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sim.run", description="Runs the cocotb benches.")
    parser.add_argument("--bench", help=f"one of {', '.join(BENCHES)}; all by default")
    parser.add_argument(
        "--config", help=f"{', '.join(CONFIGS)} or a .toml; by default what the bench names"
    )
    parser.add_argument("--sim", choices=SIMULATORS, help="both by default")
    parser.add_argument("--seed", type=int, help="of all random choices; drawn and printed")
    parser.add_argument("--waves", action="store_true", help="write waves of a single bench")
    parser.add_argument("--quick", action="store_true", help="the short form of make test")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time; 2 by default")
    parser.add_argument("--json", type=Path, help="also write the outcomes to a file")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """The command; 0 if every bench ended without a mismatch."""
    arguments = _arguments(argv)
    console = Console(width=max(100, Console().width))
    if arguments.bench is not None and arguments.bench not in BENCHES:
        print(f"sim.run: BENCH must be one of {', '.join(BENCHES)}, not {arguments.bench!r}")
        return 2
    try:
        name = arguments.config
        config = (CONFIGS.get(name) or load(name)) if name else None
    except ConfigError as error:
        print(f"sim.run: {error}")
        return 2
    if arguments.jobs < 1:
        print(f"sim.run: JOBS must be at least 1, not {arguments.jobs}")
        return 2
    if arguments.waves and arguments.bench is None:
        print("sim.run: WAVES=1 needs BENCH=name")
        return 2
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().getrandbits(24)
    benches = [arguments.bench] if arguments.bench else list(BENCHES)
    runs = plan(benches=benches, config=config, simulator=arguments.sim, quick=arguments.quick)
    missing: dict[str, str] = {}
    for simulator in {each for _, _, each in runs}:
        try:
            simulator_version(simulator)
        except SimulatorMissing as error:
            missing[simulator] = str(error)
    runnable = [run for run in runs if run[2] not in missing]
    short = " QUICK=1" if arguments.quick else ""
    again = f"make sim BENCH={{}} CONFIG={{}} SIM={{}} SEED={seed}{short} WAVES=1"
    outcomes: list[Outcome] = []

    def one(run: tuple[BenchSpec, Config, str]) -> Outcome:
        try:
            return run_bench(
                *run[:2],
                simulator=run[2],
                seed=seed,
                quick=arguments.quick,
                waves=arguments.waves,
            )
        except (RuntimeError, SimulatorMissing) as error:
            spec, chosen, simulator = run
            return Outcome(
                spec.name, chosen.name, simulator, seed, 0, 0, 1, 0.0, str(error), "", []
            )

    # Each run is processes of its own; the threads only wait for them.
    with ThreadPoolExecutor(max_workers=arguments.jobs) as pool:
        waiting = [pool.submit(one, run) for run in runnable]
        for number, (run, future) in enumerate(zip(runnable, waiting, strict=True), 1):
            spec, chosen, simulator = run
            label = f"[{number}/{len(runnable)}] {spec.name} {chosen.name} {simulator}"
            print(label, end=" ", flush=True)
            outcome = future.result()
            outcomes.append(outcome)
            left_out = f" (left out: {', '.join(outcome.left_out)})" if outcome.left_out else ""
            print(f"{outcome.seconds:.0f} s: {outcome.error or 'ok'}{left_out}", flush=True)
            for part in outcome.parts:
                if part.get("measured"):
                    print(f"  {part['part']}: {part['measured']}")
            if not outcome.passed:
                command = again.format(spec.name, arguments.config or chosen.name, simulator)
                print(f"  log: {outcome.log}\n  again: {command}")
            if arguments.waves:
                print(f"  waves: {Path(outcome.log).parent / WAVES_FILE}")
    console.print(table(outcomes))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=2) + "\n")
    for message in missing.values():
        skipped = sum(run[2] in missing for run in runs)
        print(f"not run: {skipped} benches on a simulator that is missing ({message})")
    failed = sum(not outcome.passed for outcome in outcomes)
    print(f"benches: {len(outcomes) - failed} passed, {failed} failed, seed {seed}")
    return 1 if failed or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
