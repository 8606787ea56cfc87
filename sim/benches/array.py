"""Bench of the whole array."""

from __future__ import annotations

import cocotb
import numpy as np

from sim.core import CoreBench
from sim.environment import Environment
from sim.harness import MOODS
from sim.stimulus import outputs


@cocotb.test()
async def random_tiles(dut: object) -> None:
    """Everything changes from tile to tile, in each mood."""
    env = Environment.get()
    for number, mood in enumerate(MOODS):
        seed = env.seed + number
        bench = CoreBench(dut, env.config, seed, MOODS[mood])
        await bench.reset()
        rng = np.random.default_rng(seed)
        tiles = outputs(env.config, rng, env.scale(6, 24))
        count = bench.send(tiles)
        await bench.finish(count, limit=200 * len(tiles) * env.config.fold + 2000)
        env.report(mood, transactions=bench.results.count, cycles=bench.cycle_count, seed=seed)
