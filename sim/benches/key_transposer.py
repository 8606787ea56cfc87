"""Bench of the key transposer: open and closed blocks of every size, read as the array reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import cocotb
import numpy as np

from hw.keys.transposer import KeyTransposer
from sim.beats import BeatBench
from sim.chips import chip_of
from sim.environment import Environment
from sim.harness import MOODS, MismatchError
from sim.keys import TILE, Block, distances, numbers

#: Cycles from the last read of a block to the first one of another, at least.
HELD = 20
STROBE = (1 << 64) - 1


class _Array:
    """Reads open blocks: tile by tile, every tile ``fold`` times, its planes in order."""

    def __init__(self, bench: _KeysBench) -> None:
        self.bench = bench
        self.blocks: deque[tuple[list[int], int]] = deque()
        self.order: Iterator[int] | None = None
        self.next: int | None = None
        self.row: int | None = None
        self.shown: int | None = None
        self.until = 0
        self.starts: list[int] = []

    def quiet(self) -> None:
        """Forgets all."""
        self.blocks.clear()
        self.order = self.next = self.row = self.shown = None
        self.bench.put(open_read=0, open_row=None)

    def drive(self) -> None:
        """Reads in order, with gaps, once a block is complete."""
        bench = self.bench
        ready = bench.get("open_ready")
        if ready and self.order is None:
            if not self.blocks:
                raise MismatchError("an open block that nothing accounts for is complete")
            tiles = self.blocks[0][1]
            rows = len(self.blocks[0][0])
            fold = bench.fold
            self.order = iter(
                [
                    row
                    for tile in range(tiles)
                    for _ in range(fold)
                    for row in range(tile, rows, tiles)
                ]
            )
            self.next = next(self.order)
            self.starts.append(bench.cycle_count)
        elif not ready and self.order is not None:
            raise MismatchError(f"open_ready fell before row {self.next} was read")
        self.row = self.next if bench.rng.random() >= bench.gap else None
        bench.put(open_read=int(self.row is not None), open_row=self.row)

    def sample(self) -> None:
        """What was read last is still there, until a later block is read."""
        if self.shown is not None and self.bench.cycle_count <= self.until:
            self.bench.expect(open_plane=self.shown)

    def settle(self) -> None:
        """The row that was read is what is shown from now on."""
        if self.row is None or self.order is None:
            return
        self.shown = self.blocks[0][0][self.row]
        self.until = self.bench.cycle_count + HELD
        self.bench.compared += 1
        self.next = next(self.order, None)
        if self.next is None:
            self.order = None
            self.blocks.popleft()


class _KeysBench(BeatBench):
    def __init__(self, dut: object, mood: str = "steady", number: int = 0) -> None:
        env = Environment.get()
        self.env = env
        self.chip = chip_of(env.config)
        self.fold = self.chip.core.fold
        self.data = np.random.default_rng(env.seed + number)
        super().__init__(dut, env, KeyTransposer(self.chip), mood, env.seed + number)
        self.array = _Array(self)
        self.agents.append(self.array)
        self.put(open_read=0, open_row=None)
        self.refused = False

    def block(self, block: Block) -> None:
        """Queues a job, its rows, and what must come of it."""
        self.refused |= block.refused
        self.feed("jobs", [block.job])
        self.feed("rows", block.rows())
        if block.close:
            self.want("closed", [{"data": line, "strobe": STROBE} for line in block.closed()])
            return
        planes, scales = block.opened()
        self.array.blocks.append((planes, block.head_tiles))
        drain = self.chip.core.drain
        self.want("scales", [scales[i : i + drain] for i in range(0, TILE, drain)])

    def random_block(self, *, refused: float = 0.2) -> Block:
        """Of any size and kind."""
        rng = self.rng
        tiles = rng.randint(1, self.chip.head_tiles_max)
        tokens = rng.choice((1, 7, 8, 9, 16, 63, 64, rng.randint(1, 64)))
        codes = numbers(self.data, (tokens, TILE * tiles), refused=rng.random() < refused)
        return Block(codes, rng.random() < 0.5, rng.choice((9, 9, 16, rng.randint(9, 16))))

    async def end(self, *, patient: bool = False) -> None:
        """Until everything came, and was read."""
        await self.finish(patient=patient)
        await self.run(lambda: not self.array.blocks, limit=20_000)
        for _ in range(3):
            await self.cycle()
        if self.get("open_ready") or not self.get("idle"):
            raise MismatchError("a block is left")

    def report(self, part: str, measured: str = "") -> None:
        """To the runner."""
        self.env.report(
            part,
            transactions=self.compared,
            cycles=self.cycle_count,
            seed=self.env.seed,
            measured=measured,
        )


@cocotb.test()
async def random_blocks(dut: object) -> None:
    """Open and closed blocks in any order, in all moods; a reset on the way, then more."""
    for number, mood in enumerate(MOODS):
        bench = _KeysBench(dut, mood, number)
        await bench.reset()
        for after_reset in (False, True):
            bench.refused = False
            for _ in range(bench.env.scale(4, 24) if after_reset else 3):
                bench.block(bench.random_block())
            if after_reset:
                await bench.end()
                await bench.expect_status(refused=bench.refused)
            else:
                for _ in range(bench.rng.randint(20, 900)):
                    await bench.cycle()
                await bench.reset()
                bench.clear_streams()
        bench.report(mood)


@cocotb.test()
async def every_count(dut: object) -> None:
    """Every number of tokens, each after the other, open and closed."""
    bench = _KeysBench(dut)
    await bench.reset()
    counts = range(1, TILE + 1, bench.env.scale(7, 1))
    for tokens in counts:
        for tiles in range(1, bench.chip.head_tiles_max + 1):
            codes = numbers(bench.data, (tokens, TILE * tiles), refused=False)
            bench.block(Block(codes, bool((tokens + tiles) & 1), 9))
        await bench.end()
    await bench.expect_status()
    bench.report("counts")


@cocotb.test()
async def every_distance(dut: object) -> None:
    """Numbers at every distance below every exponent: all shifts, both signs, both forms."""
    bench = _KeysBench(dut)
    await bench.reset()
    for i, exponent in enumerate(range(0, 255, bench.env.scale(64, 8))):
        tiles = 1 + i % bench.chip.head_tiles_max
        for close in (False, True):
            codes = distances(bench.data, (TILE, TILE * tiles), exponent)
            bench.block(Block(codes, close, 16))
        await bench.end()
    await bench.expect_status()
    bench.report("distances")


@cocotb.test()
async def refused(dut: object) -> None:
    """One Inf or NaN raises the flag; the largest finite numbers, and the next job, do not."""
    bench = _KeysBench(dut, "both")
    await bench.reset()
    for code in (0x7F80, 0xFF80, 0x7FC0, 0xFFFF, 0x7F7F):
        for close in (False, True):
            codes = numbers(bench.data, (3, TILE), refused=False)
            codes[codes >> 7 & 0xFF == 0xFF] = 0
            codes[1, bench.rng.randrange(TILE)] = code
            bench.block(Block(codes, close, 9))
            await bench.end(patient=True)
            await bench.expect_status(refused=code != 0x7F7F)
    bench.report("refused")


@cocotb.test()
async def nothing_is_taken(dut: object) -> None:
    """Exponents, and lines, are not taken for long: the ring fills, no block overwrites another."""
    for close in (False, True):
        bench = _KeysBench(dut)
        await bench.reset()
        channels = TILE * bench.chip.head_tiles_max
        # A closed block between open ones passes while their exponents wait.
        for kind in (True,) * 4 if close else (False, False, True, False, False):
            codes = numbers(bench.data, (TILE, channels), refused=False)
            bench.block(Block(codes, kind, 9))
        stalled = bench.out["closed" if close else "scales"]
        stalled.blocked = True
        uses = 2 * 16 * bench.chip.head_tiles_max * bench.fold
        for _ in range(12 * channels + (0 if close else uses)):
            await bench.cycle()
        if bench.get("rows__ready") or not bench.into["rows"].queue:
            raise MismatchError("rows are taken for which there is no room")
        stalled.blocked = False
        await bench.end()
        bench.report("stall")


async def _latency(bench: _KeysBench, tiles: int, *, close: bool) -> int:
    """Cycles from the last row to a complete block, or to the first line of a closed one."""
    await bench.reset()
    codes = numbers(bench.data, (TILE, TILE * tiles), refused=False)
    bench.block(Block(codes, close, 9))
    taken: list[int] = []
    left: list[int] = []
    bench.into["rows"].observers.append(lambda _: taken.append(bench.cycle_count))
    if close:
        bench.out["closed"].observers.append(lambda _: left.append(bench.cycle_count))
    await bench.end()
    if taken != list(range(taken[0], taken[0] + 128 * tiles)):
        raise MismatchError("rows waited although nothing else was in work")
    if close and left != list(range(left[0], left[0] + tiles * 73)):
        raise MismatchError("closed lines did not leave a cycle each")
    return (left if close else bench.array.starts)[0] - taken[-1]


@cocotb.test()
async def rate(dut: object) -> None:
    """Whole blocks, all willing: when the planes are complete, and how lines leave."""
    for close in (False, True):
        for tiles in range(1, chip_of(Environment.get().config).head_tiles_max + 1):
            bench = _KeysBench(dut)
            latency = await _latency(bench, tiles, close=close)
            if latency != (want := 16 * tiles * (TILE // 8 if close else 1) + 13):
                raise MismatchError(f"{latency} cycles from the last row, not {want}")
            bench.report("rate", f"{'closed' if close else 'open'} {tiles}: {latency} cycles")
