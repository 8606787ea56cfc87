"""Bench of one column: reduction of its look-ups and the sum over the planes."""

from __future__ import annotations

import cocotb

from hw.compute.column import Column
from sim.environment import Environment
from sim.reduction import ReductionBench


@cocotb.test()
async def random_tiles(dut: object) -> None:
    """Tiles of every precision and both reconstructions, corners in both operands."""
    env = Environment.get()
    config = env.config
    for mood in ("steady", "gaps"):
        bench = ReductionBench(dut, config, env.seed, Column(config), "half_sum")
        await bench.reset()
        await bench.random_tiles(config, 1, env.scale(40, 800), mood)
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)
