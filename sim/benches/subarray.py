"""Bench of a subarray: all its columns on the same tables."""

from __future__ import annotations

import cocotb

from hw.compute.subarray import Subarray
from sim.environment import Environment
from sim.reduction import ReductionBench


@cocotb.test()
async def random_tiles(dut: object) -> None:
    """Tiles of every precision and both reconstructions, corners in both operands."""
    env = Environment.get()
    config = env.config
    for mood in ("steady", "gaps"):
        bench = ReductionBench(dut, config, env.seed, Subarray(config), "half_sums")
        await bench.reset()
        await bench.random_tiles(config, config.fanout, env.scale(15, 250), mood)
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)
