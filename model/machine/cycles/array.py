"""The array: activations a tile ahead, planes, and when results can be taken."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from simpy import Environment

from model.machine.cycles.timing import Timing
from model.machine.cycles.waiting import Level, Pipe, Steps, until
from model.machine.cycles.works import TILE_WORDS, Piece

if TYPE_CHECKING:
    from model.machine.cycles.chip import Parts

#: Cycles from the read of a tile's first activations to its tables, and from the start of the tile
#: before: its tables are renewed behind it (`hw/compute/feed.py`).
FILL, RENEW = 8, 5
#: Cycles from a column group's last plane to its first result (`hw/compute/array.py`).
RESULT = 11


class Array:
    """Pieces in order.

    Args:
        env, timing: of the machine.
        parts: where its data come from and go to.

    Attributes:
        gates: gates that are open.
        busy, memory, special, results: cycles in which a plane is read, or why none is.
        waits: those of ``special`` by what the tile's activations came from: an operation of the
            epilogue, "moves" of attention's queries and results, "softmax", "memory" for exponents,
            or "tables" that are not made yet.
    """

    def __init__(self, env: Environment, timing: Timing, parts: Parts) -> None:
        self.env, self.timing, self.parts = env, timing, parts
        self.gates = Level(env)
        self.busy = self.memory = self.special = self.results = 0
        self._ahead: Pipe[Piece] = Pipe(env, timing.pieces + 1, 2)
        self._behind: Pipe[Piece] = Pipe(env, timing.pieces + 1, 2)
        self.waits: Counter[str] = Counter()
        self._ready: deque[tuple[int, str]] = deque()
        self._readied, self._started = Level(env), Level(env)
        self._start = 0
        self._end = 0
        #: Column groups whose results are there, and when; how many were taken.
        self.groups: deque[int] = deque()
        self.grouped, self.freed = Level(env), Level(env)
        env.process(self._front())
        env.process(self._planes())

    def put(self, piece: Piece) -> Steps[None]:
        """Both queues take a piece."""
        yield from self._ahead.put(piece)
        yield from self._behind.put(piece)

    @property
    def idle(self) -> bool:
        """Nothing waits, all results were taken."""
        done = self._ahead.empty and self._behind.empty and not self.groups
        return done and self.env.now >= self._end + RESULT

    def _activations(self, piece: Piece, tile: int, position: int) -> Steps[str]:
        """Waits until a tile's activations and exponents can be read; what came last."""
        env, epilogue = self.env, self.parts.epilogue
        cause, before = "tables", env.now
        yield from self.gates.reaches(piece.gate)
        if env.now > before:
            cause, before = "moves", env.now
        for word in (0, TILE_WORDS - 1):
            place = piece.source + tile * TILE_WORDS + word
            time = yield from epilogue.when_written(piece.needs, place)
            yield from until(env, time - word)
        if env.now > before:
            cause, before = epilogue.operation(piece.needs), env.now
        if not piece.opened:
            time = yield from self.parts.stream.when(position + tile + 1)
            yield from until(env, time)
        if env.now > before:
            cause, before = "memory", env.now
        if piece.block >= 0:
            yield from epilogue.staged(piece.block)
        return "softmax" if env.now > before else cause

    def _front(self) -> Steps[None]:
        env, parts = self.env, self.parts
        position = tile_number = ready = 0
        while True:
            piece = yield from self._ahead.head()
            for tile in range(piece.tiles):
                cause = yield from self._activations(piece, tile, position)
                begin = int(env.now)
                yield from self._started.reaches(tile_number)
                ready = max(begin + FILL, self._start + RENEW if tile_number else 0)
                self._ready.append((ready, cause))
                self._readied.rise()
                if piece.last_use and piece.last:
                    parts.epilogue.restart()
                tile_number += 1
            if not piece.opened:
                position += piece.tiles * (1 + 8 * piece.p)
            yield from until(env, ready - 3)
            self._ahead.take()

    def _planes(self) -> Steps[None]:
        env, parts, fold = self.env, self.parts, self.timing.fold
        position = 0
        while True:
            piece = yield from self._behind.head()
            seen = int(env.now)
            first_plane = position + piece.tiles
            for tile in range(piece.tiles):
                if piece.opened:
                    yield from parts.keys.open_ready()
                    arrived = int(env.now)
                else:
                    arrived = yield from parts.stream.when(first_plane + 8 * (tile + 1))
                offered = max(seen, arrived, self._end - 1) + 1
                yield from self._readied.reaches(self._started.value + 1)
                ready, cause = self._ready.popleft()
                start = max(offered, ready)
                self.memory += max(0, arrived - max(seen, self._end - 1))
                self.special += start - offered
                if start > offered:
                    self.waits[cause] += start - offered
                yield from until(env, start)
                self._start = start
                self._started.rise()
                # The last plane of the first column group may come late.
                shift = 0
                if not piece.opened:
                    row = (piece.p - 1) * piece.tiles + tile + 1
                    arrived = yield from parts.stream.when(first_plane + 8 * row)
                    shift = max(0, arrived + 2 - (start + piece.p))
                    self.memory += shift
                last = piece.last and tile == piece.tiles - 1
                end = start + shift
                for _ in range(fold):
                    end += piece.p
                    if last:
                        yield from until(env, end - 1)
                        yield from self.freed.reaches(
                            self.grouped.value + 1 - self.timing.result_groups
                        )
                        self.results += max(0, int(env.now) + 1 - end)
                        end = max(end, int(env.now) + 1)
                        self.groups.append(end - 1 + RESULT)
                        self.grouped.rise()
                self.busy += piece.p * fold
                self._end = end
            if piece.opened:
                parts.keys.used(self._end)
            else:
                position += piece.tiles * (1 + 8 * piece.p)
                parts.stream.released.rise_at(self._end, position - parts.stream.released_to)
                parts.stream.released_to = position
            yield from until(env, self._end - 1)
            self._behind.take()
