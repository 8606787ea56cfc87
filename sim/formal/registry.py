"""All proofs, and the broken copies for which each of them must fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hw.axi.config import PRESETS as MEMORIES
from sim.fault_list import Fault, faults_of
from sim.formal.bench import Bench
from sim.formal.engine import Outcome, prove
from sim.formal.fifo import fifo
from sim.formal.splitter import splitter


@dataclass(frozen=True, kw_only=True)
class Proof:
    """A proof.

    Attributes
    ----------
    name : str
    component : str
        What it is about, for the report.
    build : Callable
        Makes its :class:`~sim.formal.bench.Bench`.
    depth : int
        Most cycles of the induction, or cycles after reset if ``bounded``.
    bounded : bool
        No induction: the properties hold for ``depth`` cycles after reset.
    quick : bool
        Part of the quick form.
    """

    name: str
    component: str
    build: Callable[[], Bench]
    depth: int = 4
    bounded: bool = False
    quick: bool = True

    def run(self, folder: Path, *, hunt: int = 0) -> Outcome:
        """Runs it; ``hunt`` looks for a run that breaks it, of so many cycles at most."""
        return prove(
            self.build(),
            self.name,
            self.component,
            folder,
            depth=hunt or self.depth,
            bounded=self.bounded or bool(hunt),
            hunt=bool(hunt),
        )


def _fifo(depth: int) -> Proof:
    return Proof(name=f"fifo_{depth}", component=f"Fifo, depth {depth}", build=lambda: fifo(depth))


def _splitter(name: str) -> Proof:
    return Proof(
        name=f"splitter_{name}",
        component=f"Splitter, {name}",
        build=lambda: splitter(MEMORIES[name]),
    )


PROOFS: list[Proof] = [
    *map(_fifo, (2, 3, 4, 5)),
    *map(_splitter, MEMORIES),
]

#: Faults that a proof must see; ``bench`` is its name.
BROKEN: list[Fault] = [
    *faults_of(
        "fifo_3",
        "memory/fifo.py",
        ("rows wrap too late", "Mux(row == depth - 1, 0, row + 1)", "row + 1"),
        ("a full queue takes a word", "stored != depth)", "stored != depth + 1)"),
        (
            "the next word is read before the last is taken",
            "(stored != 0) & (~shown | self.o.ready)",
            "stored != 0",
        ),
    ),
    *faults_of(
        "splitter_tiny",
        "axi/splitter.py",
        ("a burst crosses 4 KiB", "Mux(page_left < longest, page_left, longest)", "longest"),
        ("last one burst too late", "left <= allowed", "left < allowed"),
        ("a burst too long by a line", "page_left, longest)", "page_left, longest + 1)"),
        ("an empty request has bursts", "request.count != 0", "1"),
        ("lines do not follow", "line.eq(line + burst.lines)", "line.eq(line + allowed - 1)"),
    ),
]
