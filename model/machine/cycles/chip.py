"""The machine: its parts, what the controller gives them, and what it reads of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simpy import Environment

from model.machine.cycles.array import Array
from model.machine.cycles.epilogue import Epilogue
from model.machine.cycles.memory import ReadPorts, WideStream, Writer
from model.machine.cycles.timing import Timing
from model.machine.cycles.transfers import Keys, Load, Loader, Mover
from model.machine.cycles.waiting import Steps
from model.machine.cycles.works import Work, Works


@dataclass(frozen=True)
class Stalls:
    """Cycles by what the array does.

    Attributes:
        busy: it reads a plane.
        memory: a plane is due, and has not arrived.
        special: a plane is there, and its tile's activations are not.
        results: results have no room.
    """

    busy: int
    memory: int
    special: int
    results: int


class Parts:
    """All parts but the controller, which drives them by `push` and reads `idle` and the counts.

    Args:
        env: of the simulation; a unit of time is a cycle.
        timing: sizes.
        op_names: names of the epilogue's operations by their codes.
    """

    def __init__(self, env: Environment, timing: Timing, op_names: Mapping[int, str]) -> None:
        self.env, self.timing, self.op_names = env, timing, op_names
        self.ports = ReadPorts(env, timing)
        self.stream = WideStream(env, timing, self.ports)
        self.writer = Writer(env, timing)
        self.array = Array(env, timing, self)
        self.epilogue = Epilogue(env, timing, self)
        self.keys = Keys(env, timing, self)
        self.loader = Loader(env, timing, self)
        self.mover = Mover(env, timing, self)
        self.works = Works(env, timing, self)

    def push(self, what: str, numbers: Mapping[str, int]) -> Steps[None]:
        """Gives a work, load, move or job of keys; waits until it is taken."""
        if what in ("MATRIX", "PASS", "JOB"):
            yield from self.works.queue.put(Work(what.lower(), dict(numbers)))
        elif what == "KEYS":
            yield from self.keys.put(bool(numbers["close"]), numbers["head_tiles"])
        elif what == "CLOSED":
            yield from self.keys.put_closed(numbers["count"])

    def load(self, load: Load) -> Steps[None]:
        """Gives a load."""
        yield from self.loader.put(load)

    def move(self, kind: str, numbers: Mapping[str, int]) -> Steps[None]:
        """Gives a move."""
        yield from self.mover.put(kind, dict(numbers))

    @property
    def settled(self) -> bool:
        """All works have come to their ends, all words are in the banks."""
        return self.works.queue.empty and self.array.idle and self.epilogue.idle

    @property
    def stalls(self) -> Stalls:
        """Cycles so far."""
        array = self.array
        return Stalls(array.busy, array.memory, array.special, array.results)
