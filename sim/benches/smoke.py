"""Smoke run of a large configuration: few output tiles, all rows, all moods."""

from __future__ import annotations

import cocotb
import numpy as np

from sim.core import CoreBench
from sim.environment import Environment
from sim.harness import MOODS
from sim.stimulus import KINDS, Tile, tile


@cocotb.test()
async def few_tiles(dut: object) -> None:
    """Output tiles of the lowest, the full BFP9 and the highest precision, one of two tiles."""
    env = Environment.get()
    config = env.config
    for number, mood in enumerate(MOODS):
        seed = env.seed + number
        bench = CoreBench(dut, config, seed, MOODS[mood])
        await bench.reset()
        rng = np.random.default_rng(seed)
        tiles: list[Tile] = []
        for context, p in enumerate((5, 9, config.p_max)):
            depth = 2 if p == 9 else 1
            for k in range(depth):
                made = tile(config, rng, str(rng.choice(KINDS)), p)
                made.first, made.last = int(k == 0), int(k == depth - 1)
                made.context = context % config.contexts
                made.midpoint = int(rng.integers(0, 2))
                made.fp32 = number & 1
                if made.last and p == config.p_max:
                    made.scales = rng.integers(0, 254, 64).astype(np.uint8)
                tiles.append(made)
        await bench.finish(bench.send(tiles), limit=5000)
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=seed)
