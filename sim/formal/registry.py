"""All proofs, and the broken copies for which each of them must fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hw.axi.config import PRESETS as MEMORIES
from sim.fault_list import Fault, faults_of
from sim.formal.bench import Bench
from sim.formal.credits import CREDITS
from sim.formal.engine import Outcome, prove
from sim.formal.fifo import fifo
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
    )


PROOFS: list[Proof] = [
    *map(_fifo, (2, 3, 4, 5)),
    *map(_splitter, MEMORIES),
    *map(_credits, CREDITS),
    *map(_streams, STREAMS),
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
    *faults_of(
        "fifo_4",
        "memory/fifo.py",
        (
            "room goes away without a word",
            "eq(stored != depth)",
            "eq((stored != depth) & self.o.ready)",
        ),
    ),
    *faults_of(
        "streams_controller",
        "control/controller.py",
        (
            "closed blocks outlive a flush",
            "with m.If(flush):\n            m.d.sync += closed.count.eq(0)",
            "with m.If(0):\n            m.d.sync += closed.count.eq(0)",
        ),
    ),
    *faults_of(
        "streams_read_arbiter",
        "axi/arbiter.py",
        (
            "an address that was shown gives way",
            "held.eq(bus.arvalid & ~bus.arready)",
            "held.eq(0)",
        ),
    ),
    *faults_of(
        "streams_write_arbiter",
        "transfers/arbiter.py",
        ("a request that was shown gives way", "held.eq(~request.ready)", "held.eq(0)"),
    ),
    *faults_of(
        "credits_read_port_passing",
        "axi/read.py",
        ("an address falls before it is taken", "with m.Elif(bus.arready):", "with m.Else():"),
    ),
    *faults_of(
        "credits_read_port_passing",
        "axi/read.py",
        ("more bursts than are noted", "room.eq(notes.count != config.outstanding)", "room.eq(1)"),
        ("idle with an answer due", "self.idle.eq(notes.count == 0)", "self.idle.eq(~pending)"),
    ),
    *faults_of(
        "credits_read_port_reserving",
        "axi/read.py",
        (
            "a burst without room",
            "promised + burst.lines <= self.depth",
            "promised < self.depth",
        ),
        ("room is given back too early", "left.eq(self.lines.valid &", "left.eq(complete &"),
    ),
    *faults_of(
        "credits_line_writer",
        "axi/write.py",
        ("a burst before its lines", "(burst.lines <= waiting) & room", "room"),
        ("idle with a burst on its way", "self.idle.eq(answers.count == 0)", "self.idle.eq(1)"),
        ("more answers than are noted", "answers.count != config.outstanding", "1"),
    ),
    *faults_of(
        "streams_read_dma",
        "axi/dma.py",
        ("more lines than rows", "used + burst.lines <= config.ring_lines", "used < 64"),
    ),
    *faults_of(
        "streams_write_arbiter",
        "transfers/arbiter.py",
        ("lines pass before their request", "with m.If(work.count != 0), m", "with m.If(1), m"),
        ("more requests than there is room for", "work.count != REQUESTS", "1"),
    ),
    *faults_of(
        "credits_line_writer",
        "axi/write.py",
        (
            "an address falls before it is taken",
            "with m.Elif(bus.awready):",
            "with m.Else():",
        ),
    ),
    *faults_of(
        "streams_residual",
        "special/flow.py",
        ("stages move over what nobody took", "~self.valid[-1] | ready", "1"),
    ),
    *faults_of(
        "streams_square_sum",
        "special/squares.py",
        ("a sum does not wait for the one before", "~(row_ends & reserved)", "1"),
    ),
    *faults_of(
        "streams_probabilities",
        "special/softmax.py",
        (
            "a sum falls before it is taken",
            "with m.If(self.totals.ready & waits):",
            "with m.If(waits):",
        ),
    ),
    *faults_of(
        "streams_loader",
        "transfers/loader.py",
        ("more requests than there is room for", "work.count != REQUESTS", "1"),
    ),
    *faults_of(
        "streams_plane_reader",
        "issue/planes.py",
        ("a plane falls before it is taken", "with m.If(self.planes.ready):", "with m.If(1):"),
    ),
    *faults_of(
        "streams_works",
        "control/works.py",
        ("what is joined is not waited for", "source.ready.eq(sink.ready)", "source.ready.eq(1)"),
    ),
]
