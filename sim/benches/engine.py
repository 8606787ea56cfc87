"""Bench of the engine: pieces and lines in, results out, against the golden model of the array."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable

import cocotb
import numpy as np

from hw.compute import layouts
from hw.issue.engine import Engine
from hw.issue.pieces import pieces_waiting, position_bits
from model.formats.commands import BANK_WORD
from sim import words
from sim.chips import chip_of
from sim.core import CoreModel
from sim.environment import Environment
from sim.harness import MOODS, Bench, MismatchError
from sim.issue import Deliveries, Piece, bank_groups, random_pieces
from sim.stimulus import tile


class _EngineBench(Bench):
    """The engine with its ports, banks that are written beforehand, and another reader."""

    def __init__(self, dut: object, env: Environment, seed: int, mood: str) -> None:
        self.config = chip_of(env.config)
        super().__init__(dut, seed, Engine(self.config))
        gap, stall = MOODS[mood]
        core = self.config.core
        self.mood = mood
        self.model = CoreModel(core)
        self.words_used = min(64, self.config.bank_words)
        rng = np.random.default_rng(seed)
        # Finite numbers: what is refused is the array's own bench's matter.
        shape = (core.t_m, self.words_used, BANK_WORD)
        self.banks = (
            rng.integers(0, 2, shape) << 15
            | rng.integers(100, 150, shape) << 7
            | rng.integers(0, 128, shape)
        ).astype(np.uint16)
        self.banks[rng.random(shape) < 0.1] = 0
        self.piece_source = self.source("pieces", gap=gap)
        self.lines = [self.source(f"lines_{i}", gap=gap) for i in range(self.config.ports)]
        self.scales = self.source("scales", gap=gap)
        self.results = self.sink("results", stall=stall)
        self.deliveries = Deliveries(self.config, random.Random(seed))
        for i, each in enumerate(self.lines):
            each.observers.append(self._arrived(i))
        self.results.observers.append(self._result)
        self.plane_cycles = 0
        self.rows_freed = self.lines_released = 0
        self.ahead: deque[Piece] = deque()
        self.expected: deque[int] = deque()
        self.rises: deque[list[int]] = deque()
        self.open_planes: deque[list[bytes]] = deque()
        self.compared = 0
        self.begun: list[int] = []
        self.filled = False
        self.stopped = False
        self._open_reads = 0
        self._read_before: int | None = None
        self._open_before: int | None = None
        self.watchers.append(self._watch)
        self.put(
            clear=0,
            go=1,
            written=0,
            writing=0,
            write_next=None,
            gates=0,
            open_ready=1,
            frontier=0,
            rises=None,
            open_plane=None,
            other_read=0,
            other_word=None,
            write_enable=0,
            write_word=None,
            write_data=None,
        )

    def _arrived(self, port: int) -> Callable[[int], None]:
        return lambda _word: self.deliveries.arrived(port)

    @property
    def delivered(self) -> bool:
        """Whether every line that was sent is in the ring."""
        return not self.ahead and not any(each.queue for each in self.lines)

    async def fill_banks(self) -> None:
        """Writes what the banks hold, a word of every row a cycle."""
        rows = self.config.core.t_m
        for word in range(self.words_used):
            data = [words.from_array(self.banks[row, word]) for row in range(rows)]
            self.put(write_enable=(1 << rows) - 1, write_word=[word] * rows, write_data=data)
            await self.cycle()
        self.put(write_enable=0, write_word=None, write_data=None)
        self.filled = True

    def send(self, pieces: list[Piece]) -> None:
        """Queues pieces; their lines are dealt as the ring has room for them."""
        self.ahead.extend(pieces)

    def _send_next(self) -> None:
        """A piece whose lines find room: what is released may be asked for again.

        As the stream reader does, lines of exponents are counted too: positions in the stream are
        compared by their difference, so no more than a ring of lines may be on its way or in use.
        """
        if not self.ahead or (self.piece_source.queue and self.piece_source.gap < 1):
            return
        piece = self.ahead[0]
        used = self.deliveries.sent_lines - self.lines_released
        if used + piece.line_count > self.config.memory.ring_lines:
            return
        self.ahead.popleft()
        if not piece.opened:
            for source, dealt in zip(self.lines, self.deliveries.deal(piece), strict=True):
                source.send(dealt)
        self.piece_source.send([piece.word(self.config)])
        self._tell_model(piece)

    def _tell_model(self, piece: Piece) -> None:
        core = self.config.core
        if piece.opened:
            self.open_planes.append(piece.planes())
        for number, each in enumerate(piece.tiles):
            rises = list(each.rises) or [0] * core.t_m
            if piece.mix:
                self.rises.append(rises)
            self.model.see_tile(
                words.tile_word(
                    core,
                    p=each.p,
                    midpoint=each.midpoint,
                    first=each.first,
                    last=each.last,
                    context=each.context,
                    fp32=each.fp32,
                    scaled=int(each.last and each.scales is not None),
                    rows=each.rows,
                    rises=rises,
                )
            )
            for word in bank_groups(self.banks, piece.source, number):
                self.model.see_activations(word)
            for part in each.exponents.astype(np.uint8).reshape(4, core.group_k):
                self.model.see_exponents(words.from_array(part))
            for word in words.plane_words(core, each.signs, each.magnitudes, each.p):
                self.model.see_plane(word)
            if each.last and each.scales is not None:
                parts = [words.from_array(s) for s in each.scales.reshape(-1, core.drain)]
                self.scales.send(parts)
                for scale in parts:
                    self.model.see_scales(scale)
        self.expected.extend(self.model.expected())

    def _result(self, word: int) -> None:
        if not self.expected:
            raise MismatchError("a result that no piece accounts for")
        wanted = self.expected.popleft()
        if word != wanted:
            layout = layouts.results_layout(self.config.core)
            got, want = words.unpack(layout, word), words.unpack(layout, wanted)
            fields = [name for name in want if got[name] != want[name]]
            raise MismatchError(f"result {self.compared}: {', '.join(fields)} differ")
        self.compared += 1
        if words.unpack(layouts.results_layout(self.config.core), word)["column"] == 0:
            self.begun.append(self.cycle_count)

    def _watch(self) -> None:
        """Just before the edge: ports that are no streams."""
        freed, released = self.get("freed"), self.get("released")
        self.rows_freed += (freed - self.rows_freed) % (2 * self.config.ring_rows)
        span = 1 << position_bits(self.config)
        self.lines_released += (released - self.lines_released) % span
        if self._read_before is not None:
            data = self.get("data")
            word = self._read_before
            want = [words.from_array(self.banks[row, word]) for row in range(len(self.banks))]
            if data != want:
                raise MismatchError(f"another reader's word {word} differs")
        asked = self.get("other_read") and self.get("other_granted")
        self._read_before = self.get("other_word") if asked else None
        if self.get("mix_taken"):
            self.rises.popleft()
            if self.stopped:
                raise MismatchError("a tile of probabilities is taken although none may be read")
        self._open_before = self.get("open_row") if self.get("open_read") else None

    async def cycle(self) -> None:
        """One clock period, with what follows from the last one."""
        self._send_next()
        busy = self.mood in ("gaps", "both")
        rng = self.rng
        other = int(busy and self.filled and rng.random() < 0.3)
        self.put(
            frontier=self.deliveries.frontier % (1 << position_bits(self.config)),
            go=int(not self.stopped and (not busy or rng.random() < 0.5)),
            rises=self.rises[0] if self.rises else None,
            other_read=other,
            other_word=rng.randrange(self.words_used) if other else None,
        )
        await super().cycle()
        if self._open_before is not None:
            # Rows of the open keys are plane-major too.
            planes = self.open_planes[0]
            self.put(open_plane=int.from_bytes(planes[self._open_before], "little"))
            self._open_reads += 1
            if self._open_reads == len(planes) * self.config.core.fold:
                self._open_reads = 0
                self.open_planes.popleft()

    async def finish(self, limit: int) -> None:
        """Until all has left."""
        await self.run(
            lambda: (
                not self.ahead
                and not self.piece_source.queue
                and not self.expected
                and bool(self.get("idle"))
            ),
            limit=limit,
        )
        # Positions in the ring and in the stream agree at the end.
        asked = self.deliveries
        if (self.rows_freed, self.lines_released) != (asked.sent_rows, asked.sent_lines):
            raise MismatchError(
                f"{self.rows_freed} rows and {self.lines_released} lines are free again, not"
                f" {asked.sent_rows} and {asked.sent_lines}"
            )


@cocotb.test()
async def random_pieces_in_moods(dut: object) -> None:
    """Blocks of every length and precision, open keys, probabilities, scales, another reader."""
    env = Environment.get()
    for number, mood in enumerate(MOODS):
        seed = env.seed + number
        bench = _EngineBench(dut, env, seed, mood)
        await bench.reset()
        await bench.fill_banks()
        rng = np.random.default_rng(seed)
        pieces = random_pieces(bench.config, rng, env.scale(4, 30), words_used=bench.words_used)
        bench.send(pieces)
        core = bench.config.core
        count = sum(len(piece.tiles) for piece in pieces)
        await bench.finish(4000 + 40 * count * (core.p_max * core.fold + 64))
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=seed)


@cocotb.test()
async def slow_lines(dut: object) -> None:
    """Lines come so slowly that the front waits for each tile's exponents."""
    env = Environment.get()
    bench = _EngineBench(dut, env, env.seed, "steady")
    await bench.reset()
    await bench.fill_banks()
    for source in bench.lines:
        source.gap = 0.9
    bench.deliveries.sizes = (1,)
    rng = np.random.default_rng(env.seed)
    size = min(bench.config.block_tiles, bench.words_used // 4)
    for _ in range(8):
        tiles = [tile(bench.config.core, rng, "plain", 5) for _ in range(size)]
        for i, each in enumerate(tiles):
            each.first, each.last = int(i == 0), int(i == size - 1)
        bench.send([Piece(tiles)])
    await bench.finish(100_000)
    env.report("slow", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def full_queue(dut: object) -> None:
    """Pieces wait until the queues are full, and none is lost."""
    env = Environment.get()
    bench = _EngineBench(dut, env, env.seed, "steady")
    await bench.reset()
    await bench.fill_banks()
    rng = np.random.default_rng(env.seed)
    config, core = bench.config, bench.config.core
    count = pieces_waiting(config) + 8
    pieces = []
    for number in range(count):
        made = tile(core, rng, "plain", core.p_max)
        made.exponents[:] = 1
        made.first, made.last = int(number == 0), int(number == count - 1)
        pieces.append(Piece([made], opened=True))
    head = tile(core, rng, "plain", 5)
    head.context = 1
    bench.stopped = True
    bench.send([Piece([head], mix=True), *pieces])
    for _ in range(6 * count):
        await bench.cycle()
    if not bench.ahead:
        raise MismatchError("the queues took more pieces than they hold")
    bench.stopped = False
    await bench.finish(100_000 + count * core.p_max * core.fold)
    env.report("full", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def full_ring(dut: object) -> None:
    """The front begins when the ring holds all the lines it can: the farthest positions apart."""
    env = Environment.get()
    config = chip_of(env.config)
    core = config.core
    rng = np.random.default_rng(env.seed)
    lines = config.memory.ring_lines
    for last in (7, 8):
        bench = _EngineBench(dut, env, env.seed, "steady")
        await bench.reset()
        await bench.fill_banks()
        # Eight tiles of 63 planes are 512 lines and fill the ring; with 64 planes the last tile
        # finds all rows it needs, but not all lines.
        pieces = []
        for number in range(lines // 512 * 8):
            made = tile(core, rng, "plain", last if number % 8 == 7 else 8)
            pieces.append(Piece([made], mix=number == 0))
        bench.stopped = True
        bench.send(pieces)
        for _ in range(2 * lines):
            await bench.cycle()
        if bench.deliveries.frontier != bench.deliveries.sent_lines:
            raise MismatchError("lines that were asked for have not arrived")
        left = len(bench.ahead)
        if (left == 0) != (last == 7):
            raise MismatchError(f"{left} pieces found no room in a ring of {lines} lines")
        bench.stopped = False
        await bench.finish(100_000)
        env.report(
            f"full ring, {left} pieces wait",
            transactions=bench.compared,
            cycles=bench.cycle_count,
            seed=env.seed,
        )


def bench_delivered(bench: _EngineBench) -> Callable[[], bool]:
    """Whether every line is in the ring, as what a run waits for."""
    return lambda: bench.delivered


@cocotb.test()
async def no_bubble(dut: object) -> None:
    """Blocks that have arrived follow each other without a bubble, whatever their precision."""
    env = Environment.get()
    config = chip_of(env.config)
    core = config.core
    rng = np.random.default_rng(env.seed)
    for p in (5, 9):
        bench = _EngineBench(dut, env, env.seed, "steady")
        await bench.reset()
        await bench.fill_banks()
        size = min(config.block_tiles, bench.words_used // 4)
        pieces = []
        for _ in range(min(4, config.ring_rows // (p * size))):
            tiles = [tile(core, rng, "plain", p) for _ in range(size)]
            for i, each in enumerate(tiles):
                each.first, each.last = int(i == 0), int(i == size - 1)
            pieces.append(Piece(tiles))
        # All lines first: the pieces are held back until they have arrived.
        bench.piece_source.gap = 1.0
        bench.send(pieces)
        await bench.run(bench_delivered(bench), limit=100_000)
        bench.piece_source.gap = 0.0
        await bench.finish(100_000)
        distances = {b - a for a, b in itertools.pairwise(bench.begun)}
        if distances != {size * p * core.fold}:
            raise MismatchError(
                f"output tiles {distances} cycles apart, not {size * p * core.fold}"
            )
        env.report(f"p {p}", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)
