"""Runs a proof: Yosys unrolls the component, MiniSat looks for a run that breaks a property.

k-induction: a property holds in the first k cycles after reset (base), and in every cycle that
follows k cycles in which it held (step). With the base alone a property is bounded: it holds for
so many cycles.
"""

from __future__ import annotations

import re
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sim.formal.bench import CHECK, Bench
from synth import yosys

#: Seconds for one question to the solver.
TIMEOUT = 240

_PREPARE = """read_rtlil {name}.il
hierarchy -top top
proc
flatten
opt_expr
opt_clean
memory_map
{rows}setattr -unset init w:dut.*
async2sync
chformal -lower
opt -full
opt_clean -purge
"""


@dataclass
class Outcome:
    """What came of a proof.

    Attributes
    ----------
    name, component : str
    properties, helpers : int
        How many there are of what is proven for its own sake, and for the induction.
    depth : int
        k of the induction, or cycles after reset if it is bounded.
    verdict : str
        ``proven``, ``bounded``, ``fails`` (there is a run that breaks a property) or ``open``
        (no such run in ``depth`` cycles, and the induction does not close).
    failing : list of str
        Properties that the run breaks in its last cycle.
    waves : str
        The run as a VCD file, if there is one.
    seconds : float
    """

    name: str
    component: str
    properties: int
    helpers: int
    depth: int
    verdict: str
    failing: list[str] = field(default_factory=list)
    waves: str = ""
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For a report."""
        return asdict(self)


def failing_in(text: str) -> list[str]:
    """Properties that are broken in the last cycle of the run that Yosys printed."""
    found = re.findall(rf"^ +(\d+) \\{CHECK}(\w+) +(\d+) ", text, re.MULTILINE)
    broken = [(int(cycle), name) for cycle, name, value in found if value == "0"]
    last = max((cycle for cycle, _ in broken), default=0)
    return sorted(name for cycle, name in broken if cycle == last)


def prove(
    bench: Bench,
    name: str,
    component: str,
    folder: Path,
    *,
    depth: int,
    bounded: bool,
    hunt: bool = False,
) -> Outcome:
    """Proves all properties of a bench together.

    Parameters
    ----------
    bench : Bench
    name, component : str
        For the report and the files in ``folder``.
    folder : Path
    depth : int
        Most cycles of the induction; cycles after reset if ``bounded``.
    bounded : bool
        Only the base.
    hunt : bool
        Without the helpers: what a broken copy breaks must be a property.
    """
    started = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.il").write_text(bench.rtlil(helpers=not hunt))
    waves = folder / f"{name}.vcd"
    waves.unlink(missing_ok=True)
    rows = "".join(
        f"delete -input top/{alias}\nconnect -set {alias} \\{row}\n"
        for alias, row in bench.rows.items()
    )
    kind = "-tempinduct-baseonly" if bounded else "-tempinduct"
    script = _PREPARE.format(name=name, rows=rows) + (
        f"sat {kind} -prove-asserts -set-assumes -seq 1 -maxsteps {depth} -timeout {TIMEOUT}"
        f" -show-public -dump_vcd {name}.vcd\n"
    )
    text = yosys.run(script, folder, name)
    outcome = Outcome(name, component, len(bench.checks), len(bench.helpers), depth, "open")
    tried = [int(number) for number in re.findall(r"Trying induction with length (\d+)", text)]
    if "SAT temporal induction proof finished - model found for base case: FAIL!" in text:
        outcome.verdict = "fails"
        outcome.failing = failing_in(text)
        outcome.waves = str(waves)
        outcome.depth = tried[-1] if tried else depth
    elif "Induction step proven: SUCCESS!" in text:
        outcome.verdict, outcome.depth = "proven", tried[-1]
    elif bounded and f"Base case for induction length {depth} proven." in text:
        outcome.verdict = "bounded"
    outcome.seconds = time.monotonic() - started
    return outcome
