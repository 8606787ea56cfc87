"""Bench of the feed: its order and timing, cycle by cycle, and the pace that it can keep.

There is no arithmetic in it; what must come is the contract in its docstring, in terms of when
groups were taken and tiles started.
"""

from __future__ import annotations

import itertools

import cocotb

from hw.compute.feed import Feed
from hw.config import GROUPS, P_MIN
from sim.environment import Environment
from sim.harness import MOODS, Bench, MismatchError


class _FeedBench(Bench):
    """Groups offered and tiles started, and what the feed must do about it."""

    def __init__(self, dut: object, env: Environment) -> None:
        super().__init__(dut, env.seed, Feed())
        self.restart()

    def restart(self) -> None:
        """As after reset."""
        self.filled = self.aligned = 0
        self.known_from = 0
        self.armed = False
        self.started = -GROUPS

    async def step(self, *, offered: bool, hold: bool, start: bool) -> None:
        """A cycle; ``start`` counts only when the next tile's tables are ready."""
        start &= self.armed
        since = 0 if start else self.cycle_count - self.started
        complete = self.filled >= self.aligned + GROUPS and self.aligned % GROUPS == 0
        align = since < GROUPS - 1 or (
            complete and not self.armed and self.cycle_count >= self.known_from
        )
        last = self.filled % GROUPS == GROUPS - 1
        room = self.filled - self.aligned < GROUPS or align
        fill = offered and room and not (last and hold)
        self.put(offered=int(offered), hold=int(hold), start=int(start))
        await self.settle()
        self.expect(
            fill=int(fill),
            fill_group=self.filled % GROUPS,
            fill_last=int(last),
            ready=int(self.armed),
            align=int(align),
            align_group=self.aligned % GROUPS if align else None,
            load=1 << since if since < GROUPS else 0,
        )
        if start:
            self.armed, self.started = False, self.cycle_count
        if align:
            self.armed |= self.aligned % GROUPS == 0
            self.aligned += 1
        if fill:
            self.filled += 1
            if last:
                self.known_from = self.cycle_count + 2
        await self.clock()


@cocotb.test()
async def random_pace(dut: object) -> None:
    """Groups and starts at any time, the last group held back at random, resets in between."""
    env = Environment.get()
    for mood, (gap, stall) in MOODS.items():
        bench = _FeedBench(dut, env)
        bench.put(offered=0, hold=0, start=0)
        await bench.reset()
        compared = 0
        for _ in range(env.scale(1500, 15000)):
            if bench.rng.random() < 0.003:
                compared += bench.aligned
                bench.restart()
                await bench.reset()
            await bench.step(
                offered=bench.rng.random() >= gap,
                hold=bench.rng.random() < stall,
                start=bench.rng.random() >= stall,
            )
        compared += bench.aligned
        env.report(mood, transactions=compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def shortest_tiles(dut: object) -> None:
    """With groups always there, a tile can start every ``P_MIN`` cycles, and not one is lost.

    As in the array, the last group of a tile is held until the tile before it has started.
    """
    env = Environment.get()
    bench = _FeedBench(dut, env)
    bench.put(offered=0, hold=0, start=0)
    await bench.reset()
    starts: list[int] = []
    taken = 0
    for _ in range(env.scale(300, 1000)):
        due = not starts or bench.cycle_count - starts[-1] >= P_MIN
        start = due and bench.armed
        if start:
            starts.append(bench.cycle_count)
        waiting = taken > len(starts)
        await bench.step(offered=True, hold=waiting, start=start)
        taken = bench.filled // GROUPS
    gaps = {after - before for before, after in itertools.pairwise(starts[1:])}
    if gaps != {P_MIN}:
        raise MismatchError(f"tiles of {P_MIN} planes start {sorted(gaps)} cycles apart")
    env.report("pace", transactions=len(starts), cycles=bench.cycle_count, seed=env.seed)
