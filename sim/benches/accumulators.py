"""Bench of the accumulators: shifts and sums in every row of every context."""

from __future__ import annotations

import cocotb
import numpy as np

from hw.compute.accumulator import Accumulators, decision_layout
from hw.config import P_MIN, TILE
from sim.accumulation import Contexts
from sim.environment import Environment
from sim.harness import MOODS, Bench
from sim.words import Array


class _AccumulatorBench(Bench):
    """Column groups of tiles into the design and the model."""

    def __init__(self, dut: object, env: Environment) -> None:
        super().__init__(dut, env.seed, Accumulators(env.config))
        self.config = env.config
        self.model = Contexts(env.config)
        self.compared = 0
        self.quiet()

    def quiet(self) -> None:
        """Nothing is read or written: the other inputs have no meaning."""
        self.put(read=0, read_row=None, write=0, write_row=None, slice=None)
        self.put(half_sums=None, odd=None, decision=None)

    async def column_group(
        self, context: int, group: int, sums: Array, decision: dict[str, int | None]
    ) -> None:
        """Reads, updates and writes the rows of a column group, one a cycle."""
        config = self.config
        base = context * config.tile_rows + group * config.acc_rows
        columns = slice(group * config.lanes, (group + 1) * config.lanes)
        for number in range(config.acc_rows + 1):
            read, write = number < config.acc_rows, number > 0
            self.put(read=int(read), read_row=base + number if read else None, write=int(write))
            if write:
                first = group * config.lanes + (number - 1) * config.acc_columns
                self.put(write_row=base + number - 1, slice=number - 1)
                if number == 1:
                    # What has no meaning is still 0 or 1: the core decides it somehow.
                    layout = decision_layout(config)
                    decided = {
                        name: self.rng.getrandbits(layout[name].width) if value is None else value
                        for name, value in decision.items()
                    }
                    odd = int(sums[0]) & 1
                    self.put(half_sums=sums[columns] >> 1, odd=odd, decision=decided)
            await self.settle()
            if write:
                row = self.model.accumulators[context, first : first + config.acc_columns]
                self.expect(updated=row.tolist())
                self.compared += config.acc_columns
            await self.clock()
        self.quiet()

    async def wait(self, gap: float) -> None:
        """To the next column group: never before ``P_MIN`` cycles after the last."""
        cycles = P_MIN - self.config.acc_rows - 1
        while self.rng.random() < gap:
            cycles += 1
        for _ in range(cycles):
            await self.edge()

    def report(self, env: Environment, part: str) -> None:
        """Ends a part."""
        env.report(part, transactions=self.compared, cycles=self.cycle_count, seed=env.seed)


def _sums(rng: np.random.Generator, bound: int) -> Array:
    """Tile sums of one parity: whole range, small, extreme, zero, a mixture."""
    wide = rng.integers(-bound, bound + 1, TILE)
    small = rng.integers(-4, 5, TILE)
    extreme = bound * rng.choice([-1, 1], TILE)
    narrow = wide >> rng.integers(0, bound.bit_length(), TILE)
    kinds = [wide, small, extreme, narrow, np.zeros(TILE, np.int64)]
    kinds.append(np.choose(rng.integers(0, 5, TILE), kinds))
    sums = kinds[rng.integers(0, len(kinds))]
    odd = int(rng.integers(0, 2))
    limit = bound - ((bound ^ odd) & 1)
    return np.clip((sums & ~1) | odd, -limit, limit)


@cocotb.test()
async def random_tiles(dut: object) -> None:
    """Whole tiles in all contexts: exponents near, far and absent, sums of every size."""
    env = Environment.get()
    config = env.config
    rng = np.random.default_rng(env.seed)
    bound = TILE * config.a_max * ((1 << config.p_max) - 1)
    for mood in ("steady", "gaps"):
        bench = _AccumulatorBench(dut, env)
        await bench.reset()
        depth: dict[int, int] = {}
        for _ in range(env.scale(24, 150)):
            if bench.rng.random() < 0.04:
                await bench.reset()
                depth.clear()
            context = bench.rng.randrange(config.contexts)
            first = depth.get(context, config.max_k) >= config.max_k or bench.rng.random() < 0.15
            depth[context] = TILE if first else depth[context] + TILE
            running = bench.model.running[context]
            near = running + bench.rng.choice((0, 1, -1, 4, -4, bench.rng.randint(-80, 80)))
            exponent = bench.rng.choice((near, near, near, bench.rng.randint(2, 508), 0))
            exponent = min(max(exponent, 2), 508) if exponent else 0
            sums = _sums(rng, bound) if exponent else np.zeros(TILE, np.int64)
            rise = bench.rng.choice((0, 0, 0, 1, bench.rng.randint(2, 200)))
            decision = bench.model.tile(context, first, exponent, sums, rise=rise)
            for group in range(config.fold):
                await bench.column_group(context, group, sums, decision)
                await bench.wait(MOODS[mood][0])
        bench.report(env, mood)


@cocotb.test()
async def longest_reduction(dut: object) -> None:
    """The largest sums of both signs over max_k: up to the accumulator's bound itself."""
    env = Environment.get()
    config = env.config
    bench = _AccumulatorBench(dut, env)
    await bench.reset()
    bound = TILE * config.a_max * ((1 << config.p_max) - 1)
    sums = bound * (1 - 2 * (np.arange(TILE, dtype=np.int64) & 1))
    context = config.contexts - 1
    for number in range(config.max_k // TILE):
        decision = bench.model.tile(context, number == 0, 300, sums)
        await bench.column_group(context, config.fold - 1, sums, decision)
        await bench.wait(0.0)
    bench.report(env, "max_k")
