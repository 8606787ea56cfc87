"""Bench of the running exponents: R of every context, and what each tile does to the sums."""

from __future__ import annotations

import cocotb

from hw.compute.accumulator import RunningExponent
from sim.accumulation import Contexts
from sim.environment import Environment
from sim.harness import MOODS, Bench

#: Least and largest tile exponent of a live tile.
LEAST, MOST = 2, 508


class _ExponentBench(Bench):
    """Tiles into the design and the model; the decision holds until the next tile."""

    def __init__(self, dut: object, env: Environment, gap: float) -> None:
        super().__init__(dut, env.seed, RunningExponent(env.config))
        self.model = Contexts(env.config)
        self.gap = gap
        self.decision: dict[str, int | None] | None = None
        self.tiles = 0
        self.quiet()

    def quiet(self) -> None:
        """No tile starts: the other inputs have no meaning."""
        self.put(decide=0, first=None, context=None, tile_exponent=None, rise=None)

    async def step(self) -> None:
        """A cycle; the decision is still that of the tile before."""
        await self.settle()
        self.expect(decision=self.decision)
        await self.clock()

    async def tile(self, context: int, first: bool, exponent: int, rise: int = 0) -> None:
        """A tile starts."""
        while self.rng.random() < self.gap:
            await self.step()
        self.put(decide=1, first=int(first), context=context, tile_exponent=exponent, rise=rise)
        await self.step()
        self.decision = self.model.tile(context, first, exponent, rise=rise)
        self.tiles += 1
        self.quiet()

    def report(self, env: Environment, part: str) -> None:
        """Ends a part."""
        env.report(part, transactions=self.tiles, cycles=self.cycle_count, seed=env.seed)


@cocotb.test()
async def every_distance(dut: object) -> None:
    """A tile above and a tile below the running exponent, at every distance up to the last."""
    env = Environment.get()
    bench = _ExponentBench(dut, env, 0.0)
    await bench.reset()
    distances = list(range(MOST - LEAST + 1))
    if env.quick:
        edges = {(1 << i) + j for i in range(9) for j in (-1, 0, 1)}
        distances = [d for d in distances if d in edges or d % 16 == 5 or d > MOST - LEAST - 2]
    for distance in distances:
        low = bench.rng.randint(LEAST, MOST - distance)
        context = bench.rng.randrange(env.config.contexts)
        for exponents in ((low, low + distance), (low + distance, low)):
            for number, exponent in enumerate(exponents):
                await bench.tile(context, number == 0, exponent)
    await bench.step()
    bench.report(env, "distances")


@cocotb.test()
async def random_tiles(dut: object) -> None:
    """Contexts interleaved, skipped tiles anywhere, first tiles too; resets between tiles."""
    env = Environment.get()
    config = env.config
    for mood in ("steady", "gaps"):
        bench = _ExponentBench(dut, env, MOODS[mood][0])
        await bench.reset()
        started: set[int] = set()
        for _ in range(env.scale(1000, 12000)):
            if bench.rng.random() < 0.005:
                # Every context starts anew behind a reset; what was decided is forgotten.
                await bench.reset()
                started.clear()
                bench.decision = None
            context = bench.rng.randrange(config.contexts)
            first = context not in started or bench.rng.random() < 0.2
            started.add(context)
            running = bench.model.running[context]
            exponent = bench.rng.choice(
                (
                    0,
                    bench.rng.randint(LEAST, MOST),
                    min(max(running + bench.rng.randint(-70, 70), LEAST), MOST),
                    min(max(running + bench.rng.randint(-3, 3), LEAST), MOST),
                )
            )
            rise = bench.rng.choice((0, 0, 1, bench.rng.randint(2, 70), bench.rng.randint(0, 1023)))
            await bench.tile(context, first, exponent, rise)
        await bench.step()
        bench.report(env, mood)


@cocotb.test()
async def every_rise(dut: object) -> None:
    """R falls by every amount, to below its least value too; a tile near, far or none follows."""
    env = Environment.get()
    bench = _ExponentBench(dut, env, 0.0)
    await bench.reset()
    for rise in range(0, 1024, env.scale(7, 1)):
        start = bench.rng.choice((LEAST, MOST, bench.rng.randint(LEAST, MOST)))
        after = min(max(start - rise + bench.rng.randint(-3, 3), LEAST), MOST)
        context = bench.rng.randrange(env.config.contexts)
        await bench.tile(context, True, start, bench.rng.randint(0, 1023))
        await bench.tile(context, False, bench.rng.choice((0, after)), rise)
        await bench.tile(context, False, bench.rng.choice((0, LEAST, after)), 1)
    # None stays none, whatever it falls by.
    for rise in (0, 1, 128, 1023):
        await bench.tile(0, True, 0, rise)
        await bench.tile(0, False, 0, rise)
        await bench.tile(0, False, 300, rise)
    await bench.step()
    bench.report(env, "rises")
