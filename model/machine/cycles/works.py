"""Works, and the walks through them: fetches, pieces for the array, jobs for the epilogue."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simpy import Environment

from model.machine.cycles.timing import Timing
from model.machine.cycles.waiting import Pipe, Steps

if TYPE_CHECKING:
    from model.machine.cycles.chip import Parts

#: Planes of an open key; key tiles that go ahead of value tiles; bank words of a tile.
OPEN_PLANES, STAGED_TILES, TILE_WORDS = 16, 4, 4


class Op(enum.Enum):
    """What the epilogue does with beats; as in the hardware."""

    PASS = enum.auto()
    RESIDUAL = enum.auto()
    GATE = enum.auto()
    UP = enum.auto()
    NORM = enum.auto()
    SQUARES = enum.auto()
    LOGITS = enum.auto()
    SCORES = enum.auto()
    SUMS = enum.auto()
    ROPE = enum.auto()
    SETUP = enum.auto()


#: Those whose results are packed into bank words.
PACKED = (Op.PASS, Op.RESIDUAL, Op.UP, Op.NORM, Op.SUMS, Op.ROPE)
#: Epilogues of a matrix by their codes in commands: even and odd output tiles.
EPILOGUES = {0: (Op.PASS, Op.PASS), 1: (Op.RESIDUAL, Op.RESIDUAL), 2: (Op.GATE, Op.UP)}


@dataclass(frozen=True)
class Piece:
    """A block of k-tiles of an output tile.

    Attributes:
        tiles, p: how many, and their planes.
        last: the output tile ends with it.
        source: first bank word of its activations.
        needs: jobs that must have written their words before.
        gate: that must be open.
        opened: from the open keys.
        block: of probabilities, if it is one; -1 for bank words.
        last_use: the probabilities are not read again.
    """

    tiles: int
    p: int
    last: bool
    source: int
    needs: int
    gate: int
    opened: bool = False
    block: int = -1
    last_use: bool = False


@dataclass(frozen=True)
class Job:
    """What becomes of an output tile or of bank words.

    Attributes:
        op, words, target: as in the hardware.
        barrier: only when all before it is written.
        tap: sums enter a norm.
        ends: the last of its row, or of its pass.
        block: of scores.
        final: no other form of the block's scores follows.
        rows: of a pass, for SETUP.
    """

    op: Op
    words: int = TILE_WORDS
    target: int = 0
    barrier: bool = False
    tap: bool = False
    ends: bool = True
    block: int = 0
    final: bool = True
    rows: int = 0


@dataclass(frozen=True)
class Work:
    """A matrix, a pass or a job, with the numbers that it was given."""

    kind: str
    numbers: Mapping[str, int]


class Works:
    """Walks through one work after the other.

    Args:
        env, timing: of the machine.
        parts: where the streams go.
    """

    def __init__(self, env: Environment, timing: Timing, parts: Parts) -> None:
        self.env, self.timing, self.parts = env, timing, parts
        self.queue: Pipe[Work] = Pipe(env, 5, 2)
        self.sent = 0
        env.process(self._run())

    def _run(self) -> Steps[None]:
        walks = {"matrix": self._matrix, "pass": self._pass, "job": self._job}
        while True:
            work = yield from self.queue.head()
            yield from walks[work.kind](work.numbers)
            self.queue.take()

    def _send(self, job: Job) -> Steps[None]:
        self.sent += job.op in PACKED
        yield from self.parts.epilogue.jobs.put(job)
        yield self.env.timeout(1)

    def _block(self, line: int, piece: Piece) -> Steps[None]:
        stream = self.parts.stream
        if not piece.opened:
            yield from stream.request(line, piece.tiles, exponents=True)
            yield self.env.timeout(1)
            yield from stream.request(line + piece.tiles, 8 * piece.tiles * piece.p)
            yield self.env.timeout(1)
        yield from self.parts.array.put(piece)
        yield self.env.timeout(1)

    def _job(self, numbers: Mapping[str, int]) -> Steps[None]:
        yield from self._send(
            Job(
                Op[self.parts.op_names[numbers["op"]]],
                numbers["words"],
                numbers["target"],
                barrier=True,
            )
        )

    def _matrix(self, numbers: Mapping[str, int]) -> Steps[None]:
        needs, line = self.sent, numbers["line"]
        ops = EPILOGUES[numbers["epilogue"]]
        k_tiles, n_tiles, most = (numbers[n] for n in ("k_tiles", "n_tiles", "tiles_per_block"))
        for n in range(n_tiles):
            for k in range(0, k_tiles, most):
                tiles = min(most, k_tiles - k)
                last = k + tiles == k_tiles
                source = numbers["source"] + k * TILE_WORDS
                piece = Piece(tiles, numbers["p"], last, source, needs, numbers["gate"])
                yield from self._block(line, piece)
                line += tiles * (1 + 8 * numbers["p_full"])
            op = Op.LOGITS if numbers["head"] else ops[n % 2]
            shown = n // 2 if op is Op.UP else n
            yield from self._send(
                Job(
                    op,
                    target=numbers["target"] + shown * TILE_WORDS,
                    barrier=op is Op.RESIDUAL and n == 0,
                    tap=op is Op.RESIDUAL and bool(numbers["tap"]),
                    ends=n == n_tiles - 1,
                )
            )

    def _pass(self, numbers: Mapping[str, int]) -> Steps[None]:
        needs, gate, head_tiles = self.sent, numbers["gate"], numbers["head_tiles"]
        first = numbers["start"] // 64
        last = first + (numbers["rows"] != numbers["rows_first"])
        tile_lines = 1 + 8 * numbers["p_full"]
        yield self.env.timeout(1)
        yield from self._send(Job(Op.SETUP, 1, barrier=True, rows=numbers["rows"]))
        key = value = 0
        while value <= last:
            yield self.env.timeout(1)
            if key <= last and key < value + STAGED_TILES:
                for opened in (False, True):
                    if (opened and key < first) or (not opened and key >= last):
                        continue
                    p = OPEN_PLANES if opened else numbers["p"]
                    piece = Piece(
                        head_tiles, p, True, numbers["source"], needs, gate, opened=opened
                    )
                    yield from self._block(numbers["line"] + key * head_tiles * tile_lines, piece)
                    final = opened or key < first
                    yield from self._send(Job(Op.SCORES, block=key, final=final))
                key += 1
                continue
            for channel in range(head_tiles):
                line = numbers["values"] + value * tile_lines
                piece = Piece(
                    1,
                    numbers["p"],
                    value == last,
                    0,
                    needs,
                    gate,
                    block=value,
                    last_use=channel == head_tiles - 1,
                )
                yield from self._block(line + channel * numbers["value_channels"], piece)
                if value == last:
                    target = numbers["target"] + channel * TILE_WORDS
                    ends = channel == head_tiles - 1
                    yield from self._send(Job(Op.SUMS, target=target, ends=ends))
            value += 1
