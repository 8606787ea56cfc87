"""Loads, moves, and the keys of open and closed blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simpy import Environment

from model.machine.cycles.memory import PAGE_LINES
from model.machine.cycles.timing import Timing
from model.machine.cycles.waiting import Level, Pipe, Steps, later, until

if TYPE_CHECKING:
    from model.machine.cycles.chip import Parts

#: Requests that the loader remembers.
LOADS = 8
#: Cycles from the read of a move's last word to its end.
MOVED = 3
#: Cycles from the last line of a block of keys to its planes, beside those of eight tokens.
KEYS = 13


@dataclass(frozen=True)
class Load:
    """Lines to a target: what a line takes there is the target's."""

    target: str
    line: int
    count: int


class Loader:
    """Loads in order.

    Args:
        env, timing: of the machine.
        parts: memory, and who takes the lines.

    Attributes:
        asked, done: loads.
    """

    def __init__(self, env: Environment, timing: Timing, parts: Parts) -> None:
        self.env, self.timing, self.parts = env, timing, parts
        self.asked, self.done = 0, Level(env)
        self._queue: Pipe[Load] = Pipe(env, LOADS, 1)
        self._coming: Pipe[tuple[Load, list[tuple[int, int, int]]]] = Pipe(env, LOADS, 0)
        self._norms: deque[int] = deque()
        self._offered, self._taken = Level(env), Level(env)
        env.process(self._ask())
        env.process(self._give())

    @property
    def idle(self) -> bool:
        """No load is under way."""
        return self.asked == self.done.value

    def put(self, load: Load) -> Steps[None]:
        """Waits for room, and asks."""
        yield from self.done.reaches(self.asked + 1 - LOADS)
        self.asked += 1
        yield from self._queue.put(load)

    def _ask(self) -> Steps[None]:
        while True:
            load = yield from self._queue.head()
            line, left = load.line, load.count
            bursts = []
            while left:
                lines = min(left, self.timing.burst_lines, PAGE_LINES - line % PAGE_LINES)
                first, last = yield from self.parts.ports.burst(0, lines)
                bursts.append((first, last, lines))
                line, left = line + lines, left - lines
                yield self.env.timeout(1)
            self._queue.take()
            yield from self._coming.put((load, bursts))

    def _give(self) -> Steps[None]:
        words = {"SCRATCH": 16, "BANK": 2, "KEYS": 1}
        words |= {"WEIGHTS": 32 // self.timing.drain, "ROPE": 16 // self.timing.drain}
        time = 0
        while True:
            load, bursts = yield from self._coming.head()
            a_line = words[load.target]
            if load.target == "WEIGHTS":
                # The norm takes them when it can.
                self._norms.append(max(time, bursts[0][0]))
                self._offered.rise()
                yield from self._taken.reaches(self._offered.value)
                time = self._weights_end
            else:
                for first, last, lines in bursts:
                    time = max(max(time, first) + lines * a_line, last + a_line)
            yield from until(self.env, time)
            if load.target == "KEYS":
                self.parts.keys.lines(time, load.count)
            self._coming.take()
            self.done.rise_at(time + 1)

    def weights(self, lines: int) -> Steps[int]:
        """Waits for a norm's weights; when the first ones are there."""
        yield from self._offered.reaches(self._taken.value + 1)
        return self._norms.popleft()

    def weights_taken(self, time: int) -> None:
        """All of them, by then."""
        self._weights_end = time
        self._taken.rise_at(time)


class Keys:
    """The transposer: a block's lines become planes, to be read or to be written.

    Args:
        env, timing: of the machine.
        parts: the writer.
    """

    def __init__(self, env: Environment, timing: Timing, parts: Parts) -> None:
        self.env, self.timing, self.parts = env, timing, parts
        self.asked, self.done = 0, Level(env)
        self._lines: deque[tuple[int, int]] = deque()
        self._came = Level(env)
        self._ready, self._uses = Level(env), Level(env)
        self._opened = 0
        self._jobs: Pipe[tuple[bool, int]] = Pipe(env, 2, 0)
        self._closed: Pipe[int] = Pipe(env, 4, 0)
        env.process(self._run())

    @property
    def idle(self) -> bool:
        """No block is here."""
        return self.asked == self.done.value

    def put(self, close: bool, head_tiles: int) -> Steps[None]:
        """A block; its lines come by the loader."""
        yield from self._jobs.put((close, head_tiles))
        self.asked += 1

    def put_closed(self, lines: int) -> Steps[None]:
        """Where a closed block goes."""
        yield from self._closed.put(lines)

    def lines(self, time: int, count: int) -> None:
        """A block's lines are here."""
        self._lines.append((time, count))
        self._came.rise()

    def _run(self) -> Steps[None]:
        blocks = free = 0
        while True:
            close, head_tiles = yield from self._jobs.head()
            yield from self._came.reaches(blocks + 1)
            time, _ = self._lines.popleft()
            blocks += 1
            groups = 8 if close else 1
            made = max(time, free) + 16 * head_tiles * groups + KEYS
            yield from until(self.env, made)
            if close:
                lines = yield from self._closed.head()
                self._closed.take()
                free = max(made + lines, self.parts.writer.write(lines, made + lines))
                yield from until(self.env, free)
            else:
                self._ready.rise()
                yield from self._uses.reaches(self._ready.value)
                free = int(self.env.now)
            self._jobs.take()
            self.done.rise()

    def open_ready(self) -> Steps[None]:
        """Waits for the open block that is used next."""
        yield from self._ready.reaches(self._opened + 1)

    def used(self, time: int) -> None:
        """The array has read it."""
        self._opened += 1
        later(self.env, time, self._uses.rise)


class Mover:
    """Moves in order.

    Args:
        env, timing: of the machine.
        parts: the writer.

    Attributes:
        asked, done: moves.
    """

    def __init__(self, env: Environment, timing: Timing, parts: Parts) -> None:
        self.env, self.timing, self.parts = env, timing, parts
        self.asked, self.done = 0, Level(env)
        self.queue: Pipe[tuple[str, Mapping[str, int]]] = Pipe(env, 9, 2)
        self._busy_until = 0
        env.process(self._run())

    @property
    def idle(self) -> bool:
        """No move is here, all lines were taken."""
        return self.queue.empty and self.env.now >= self._busy_until

    def put(self, kind: str, numbers: Mapping[str, int]) -> Steps[None]:
        """Waits for room, and asks."""
        yield from self.queue.put((kind, numbers))
        self.asked += 1

    def _run(self) -> Steps[None]:
        timing, writer = self.timing, self.parts.writer
        writes = turned = 0
        while True:
            kind, numbers = yield from self.queue.head()
            now = int(self.env.now)
            if kind in ("GATHER", "SCATTER"):
                end = now + numbers["words"] * numbers["group"] * numbers["positions"]
                self._busy_until = max(self._busy_until, end + MOVED)
            elif kind == "KEYS":
                end = now + numbers["words"] + 1
                left = writer.write(numbers["words"] // 2, end + MOVED)
                self._busy_until = max(self._busy_until, left)
            else:
                begin = max(now, writes - timing.tile_beats)
                end = begin + timing.tile_beats
                # A row is quantised while the one before it is turned.
                turned = max(end + 6, turned) + numbers["p_full"]
                writes = turned
                if numbers["last"]:
                    for _ in range(1 + numbers["p_full"]):
                        writes = writer.write(1, writes)
                self._busy_until = max(self._busy_until, writes)
            yield from until(self.env, end)
            self.queue.take()
            self.done.rise_at(end + MOVED)
