"""``make faults``: plants deliberate faults in the hardware, one at a time.

Each must turn its bench red. A fault lives in a copy of ``hw/`` below ``build/faults``; the
working tree is never touched. Prints caught / planted and exits non-zero unless all are caught.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sim.axi_faults import AXI_FAULTS
from sim.build import ROOT
from sim.chip_faults import CHIP_FAULTS
from sim.control_faults import CONTROL_FAULTS
from sim.fault_list import FAULTS as CORE_FAULTS
from sim.fault_list import QUICK, Fault
from sim.issue_faults import ISSUE_FAULTS
from sim.keys_faults import KEYS_FAULTS
from sim.transfers_faults import TRANSFERS_FAULTS

FOLDER = ROOT / "build" / "faults"

FAULTS = [
    *CORE_FAULTS,
    *ISSUE_FAULTS,
    *AXI_FAULTS,
    *KEYS_FAULTS,
    *CONTROL_FAULTS,
    *TRANSFERS_FAULTS,
    *CHIP_FAULTS,
]


class StaleFault(ValueError):
    """A fault whose text does not occur exactly once: the list no longer fits the hardware."""


def planted(text: str, fault: Fault) -> str:
    """The text of a file with the fault in it."""
    count = text.count(fault.old)
    if count != 1:
        raise StaleFault(
            f"fault {fault.what!r}: its text must occur once in hw/{fault.file}, not {count} times"
        )
    return text.replace(fault.old, fault.new)


def _tree(name: str, fault: Fault | None) -> Path:
    """A copy of the project whose hardware has the fault."""
    tree = FOLDER / name
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    shutil.copytree(ROOT / "hw", tree / "hw", ignore=shutil.ignore_patterns("__pycache__"))
    for package in ("sim", "model"):
        (tree / package).symlink_to(ROOT / package)
    if fault is not None:
        path = tree / "hw" / fault.file
        path.write_text(planted(path.read_text(), fault))
    return tree


def run_in(tree: Path, bench: str, config: str, seed: int) -> tuple[str, bool]:
    """Runs a bench's short form in a copy of the project.

    Returns
    -------
    error : str
        What stopped the bench; empty if nothing did.
    ran : bool
        Whether it got as far as running.
    """
    report = tree / "outcome.json"
    command = [sys.executable, "-m", "sim.run", "--bench", bench, "--config", config]
    command += ["--sim", "verilator", "--quick", "--seed", str(seed), "--json", str(report)]
    done = subprocess.run(
        command,
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tree)},
    )
    if not report.exists():
        lines = (done.stdout + done.stderr).strip().splitlines()
        return lines[-1] if lines else "no output", False
    outcome = json.loads(report.read_text())[0]
    return outcome["error"], bool(outcome["log"])


def try_fault(number: int, fault: Fault, seed: int) -> tuple[str, float]:
    """Plants a fault and runs its bench.

    Returns
    -------
    verdict : str
        ``caught``, ``not caught``, or why the bench did not run.
    seconds : float
    """
    started = time.monotonic()
    tree = _tree(f"{number}", fault)
    error, ran = run_in(tree, fault.bench, fault.config, seed)
    if not ran:
        return f"the bench did not run: {error}", 0.0
    shutil.rmtree(tree, ignore_errors=True)
    return "caught" if error else "not caught", time.monotonic() - started


def check_unfaulted(faults: list[Fault], seed: int, pool: ThreadPoolExecutor) -> list[str]:
    """Runs the benches of ``faults`` on the hardware as it is; what is red before it is planted."""
    benches = sorted({(fault.bench, fault.config) for fault in faults})

    def one(item: tuple[int, tuple[str, str]]) -> str:
        number, (bench, config) = item
        copy = _tree(f"unfaulted-{number}", None)
        error, _ = run_in(copy, bench, config, seed)
        shutil.rmtree(copy, ignore_errors=True)
        return f"{bench} {config}: {error}" if error else ""

    return [line for line in pool.map(one, enumerate(benches)) if line]


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="sim.faults", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a handful, for make test")
    parser.add_argument("--bench", help="only the faults of one bench")
    parser.add_argument("--seed", type=int, default=1, help="of the benches")
    parser.add_argument("--jobs", type=int, default=2, help="at the same time")
    arguments = parser.parse_args(argv)
    chosen = [
        fault
        for fault in FAULTS
        if (not arguments.quick or fault.what in QUICK) and arguments.bench in (None, fault.bench)
    ]
    if not chosen:
        benches = sorted({fault.bench for fault in FAULTS})
        print(f"sim.faults: --bench must be one of {', '.join(benches)}, not {arguments.bench!r}")
        return 2
    try:
        for fault in chosen:
            planted((ROOT / "hw" / fault.file).read_text(), fault)
    except (StaleFault, OSError) as error:
        print(f"sim.faults: {error}")
        return 2
    caught = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        print("the benches on the hardware as it is ...", flush=True)
        red = check_unfaulted(chosen, arguments.seed, pool)
        if red:
            print("sim.faults: a bench is red before anything is planted:", *red, sep="\n  ")
            return 1
        jobs = [pool.submit(try_fault, n, fault, arguments.seed) for n, fault in enumerate(chosen)]
        for number, (fault, job) in enumerate(zip(chosen, jobs, strict=True), 1):
            verdict, seconds = job.result()
            caught += verdict == "caught"
            print(
                f"[{number}/{len(chosen)}] {fault.bench:<16} {fault.what}: {verdict}"
                f" ({seconds:.0f} s)",
                flush=True,
            )
    print(f"faults: {caught} caught / {len(chosen)} planted, seed {arguments.seed}")
    return 0 if caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
