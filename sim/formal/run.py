"""``make formal``: proofs by k-induction, and broken copies for which they must fail.

A broken copy is a copy of ``hw/`` below ``build/formal`` with one piece of text replaced; the
working tree is never touched. Exits non-zero if a proof fails or a broken copy passes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from sim.build import ROOT
from sim.fault_list import Fault
from sim.faults import StaleFault, planted
from sim.formal.broken import BROKEN
from sim.formal.engine import Outcome
from sim.formal.registry import PROOFS, AnyProof
from synth.errors import SynthError

FOLDER = ROOT / "build" / "formal"
#: Cycles in which a broken copy must break a property.
HUNT = 24
#: Properties of a broken copy that are named in the table.
SHOWN = 3
#: The fault of every component that has streams.
DEAF = Fault("takes no notice of `ready`", "", "", "", "")


def _tree(number: int, fault: Fault) -> Path:
    """A copy of the project whose hardware has the fault."""
    tree = FOLDER / "broken" / f"{fault.bench}-{number}"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(ROOT / "hw", tree / "hw", ignore=shutil.ignore_patterns("__pycache__"))
    for package in ("sim", "model", "synth"):
        (tree / package).symlink_to(ROOT / package)
    path = tree / "hw" / fault.file
    path.write_text(planted(path.read_text(), fault))
    return tree


def run_broken(number: int, fault: Fault) -> dict[str, Any]:
    """Looks for a run that breaks a property in a broken copy.

    Returns
    -------
    dict
        ``what``, ``caught``, ``failing``, ``cycles`` and ``seconds``; ``error`` if it did not run.
    """
    started = time.monotonic()
    tree = _tree(number, fault)
    report = tree / "outcome.json"
    command = [sys.executable, "-m", "sim.formal.run", "--name", fault.bench, "--hunt", str(HUNT)]
    command += ["--json", str(report), "--folder", str(tree / "work")]
    done = subprocess.run(
        command,
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tree)},
    )
    result: dict[str, Any] = {"what": fault.what, "file": fault.file, "caught": False, "error": ""}
    if report.exists():
        outcome = json.loads(report.read_text())["proofs"][0]
        result["caught"] = outcome["verdict"] == "fails"
        result |= {"failing": outcome["failing"], "cycles": outcome["depth"]}
    else:
        lines = (done.stdout + done.stderr).strip().splitlines()
        result["error"] = lines[-1] if lines else "no output"
    if result["caught"]:
        shutil.rmtree(tree, ignore_errors=True)
    return {**result, "seconds": time.monotonic() - started}


def run_deaf(proof: AnyProof, folder: Path) -> dict[str, Any]:
    """The same of a copy that believes taken at once whatever it offers."""
    outcome = proof.run(folder / "deaf", hunt=0 if proof.deep else HUNT, deaf=True)
    failing = outcome.failing
    if proof.deep and outcome.verdict == "open":
        failing = [f"induction open at {outcome.depth}"]
    return {
        "what": DEAF.what,
        "file": "",
        "error": "",
        "caught": bool(failing),
        "failing": failing,
        "cycles": outcome.depth,
        "seconds": outcome.seconds,
    }


def verdict_of(outcome: Outcome) -> str:
    """The verdict in words."""
    if outcome.verdict == "bounded":
        return f"bounded to {outcome.depth} cycles"
    if outcome.verdict == "fails":
        return f"FAILS: {', '.join(outcome.failing)}"
    if outcome.verdict == "open":
        return f"NOT PROVEN: induction open at {outcome.depth}"
    return outcome.verdict


def verdict_of_broken(result: dict[str, Any]) -> str:
    """The verdict on a broken copy in words."""
    if result["error"]:
        return f"DID NOT RUN: {result['error']}"
    if not result["caught"]:
        return "PASSES, and must not"
    names, more = result["failing"][:SHOWN], len(result["failing"]) - SHOWN
    return f"fails as it must: {', '.join(names)}" + (f" and {more} more" if more > 0 else "")


def table_of(outcomes: list[Outcome], broken: list[tuple[Fault, dict[str, Any]]]) -> Table:
    """All of it as a table."""
    table = Table(box=None, pad_edge=False)
    for name in ("proof", "component", "properties", "helpers", "depth", "seconds", "verdict"):
        right = name in ("properties", "helpers", "depth", "seconds")
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for outcome in outcomes:
        depth = f"{outcome.depth}" if outcome.depth else ""
        row = [outcome.name, outcome.component, str(outcome.properties)]
        row += [str(outcome.helpers), depth]
        table.add_row(*row, f"{outcome.seconds:.1f}", verdict_of(outcome))
        for fault, result in broken:
            if fault.bench == outcome.name:
                cycles = str(result.get("cycles") or "")
                row = ["", f"broken: {fault.what}", "", "", cycles, f"{result['seconds']:.1f}"]
                table.add_row(*row, verdict_of_broken(result))
    return table


def chosen(name: str | None, quick: bool) -> list[AnyProof]:
    """The proofs of a name, or of the first part of one; all, or the quick ones, without one."""
    if name is None:
        return [proof for proof in PROOFS if proof.quick or not quick]
    exact = [proof for proof in PROOFS if proof.name == name]
    return exact or [proof for proof in PROOFS if proof.name.startswith(name)]


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="sim.formal.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the short ones, for make test")
    parser.add_argument("--name", help="one proof, or those whose names begin so")
    parser.add_argument("--json", type=Path, help="the outcomes as a file")
    parser.add_argument("--jobs", type=int, default=2, help="at the same time")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of scripts, logs and waves")
    parser.add_argument(
        "--hunt", type=int, default=0, help="only look for a run of so many cycles that fails"
    )
    arguments = parser.parse_args(argv)
    proofs = chosen(arguments.name, arguments.quick)
    if not proofs:
        names = ", ".join(proof.name for proof in PROOFS)
        print(f"sim.formal: --name must be one of {names}, not {arguments.name!r}")
        return 2
    asked = {proof.name for proof in proofs}
    faults = [] if arguments.hunt else [fault for fault in BROKEN if fault.bench in asked]
    outcomes: list[Outcome] = []
    broken: list[tuple[Fault, dict[str, Any]]] = []
    started = time.monotonic()
    try:
        for fault in faults:
            planted((ROOT / "hw" / fault.file).read_text(), fault)
        with ThreadPoolExecutor(max(1, arguments.jobs)) as pool:
            jobs = [pool.submit(each.run, arguments.folder, hunt=arguments.hunt) for each in proofs]
            hunts: list[Future[dict[str, Any]]] = [
                pool.submit(run_broken, number, fault) for number, fault in enumerate(faults)
            ]
            for proof in proofs:
                if proof.deaf and not arguments.hunt:
                    faults.append(replace(DEAF, bench=proof.name))
                    hunts.append(pool.submit(run_deaf, proof, arguments.folder))
            total = len(jobs) + len(hunts)
            for number, job in enumerate(jobs, 1):
                outcomes.append(outcome := job.result())
                print(
                    f"[{number}/{total}] {outcome.name}: {verdict_of(outcome)}"
                    f" ({outcome.seconds:.1f} s)",
                    flush=True,
                )
            for number, (fault, hunt) in enumerate(zip(faults, hunts, strict=True), len(jobs) + 1):
                broken.append((fault, result := hunt.result()))
                print(
                    f"[{number}/{total}] {fault.bench}, {fault.what}: {verdict_of_broken(result)}"
                    f" ({result['seconds']:.1f} s)",
                    flush=True,
                )
    except (StaleFault, SynthError, OSError) as error:
        print(f"sim.formal: {error}")
        return 2
    if arguments.json:
        report = {
            "proofs": [outcome.as_dict() for outcome in outcomes],
            "broken": [{"proof": fault.bench, **result} for fault, result in broken],
        }
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    Console(width=max(120, Console().width)).print(table_of(outcomes, broken))
    for outcome in outcomes:
        if outcome.waves:
            print(f"{outcome.name}: the run that breaks it: {outcome.waves}")
    proven = sum(outcome.verdict == "proven" for outcome in outcomes)
    bounded = sum(outcome.verdict == "bounded" for outcome in outcomes)
    caught = sum(result["caught"] for _, result in broken)
    print(
        f"formal: {proven} proven, {bounded} bounded, {len(outcomes) - proven - bounded} failed;"
        f" broken copies: {caught} fail / {len(broken)}; {time.monotonic() - started:.0f} s"
    )
    return 0 if proven + bounded == len(outcomes) and caught == len(broken) else 1


if __name__ == "__main__":
    sys.exit(main())
