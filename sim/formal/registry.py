"""All proofs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hw.axi.config import PRESETS as MEMORIES
from hw.chip_config import CHIPS
from sim.formal.bench import Bench
from sim.formal.credits import CREDITS
from sim.formal.engine import Outcome, prove
from sim.formal.fifo import fifo
from sim.formal.lengths import LengthProof
from sim.formal.program import ProgramProof
from sim.formal.splitter import splitter
from sim.formal.streams import STREAMS


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
    deaf : Callable or None
        Makes the bench of the copy that takes no notice of ``ready``, for which it must fail.
    deep : bool
        Of that copy, the induction must stay open.
    """

    name: str
    component: str
    build: Callable[[], Bench]
    depth: int = 4
    bounded: bool = False
    quick: bool = True
    deaf: Callable[[], Bench] | None = None
    deep: bool = False

    def run(self, folder: Path, *, hunt: int = 0, deaf: bool = False) -> Outcome:
        """Runs it; ``hunt`` looks for a run that breaks it, of so many cycles at most."""
        return prove(
            self.deaf() if deaf and self.deaf else self.build(),
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


def _credits(name: str) -> Proof:
    return Proof(
        name=f"credits_{name}",
        component=f"{name.replace('_', ' ')}: streams, room, silence",
        build=CREDITS[name],
    )


def _streams(name: str) -> Proof:
    one = STREAMS[name]
    return Proof(
        name=f"streams_{name}",
        component=f"{name.replace('_', ' ')}: streams",
        build=one.build,
        depth=one.bounded or one.depth,
        bounded=bool(one.bounded),
        quick=False,
        deaf=lambda: one.build(deaf=True),
        deep=one.deep,
    )


AnyProof = Proof | ProgramProof | LengthProof

PROOFS: list[AnyProof] = [
    *map(_fifo, (2, 3, 4, 5)),
    *map(_splitter, MEMORIES),
    *map(_credits, CREDITS),
    *map(ProgramProof, CHIPS),
    LengthProof(),
    *map(_streams, STREAMS),
]
