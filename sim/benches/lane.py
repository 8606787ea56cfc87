"""Bench of the BS-RAC lane: every look-up of tables of every kind."""

from __future__ import annotations

import cocotb
import numpy as np

from hw.compute.lane import BsRacLane
from sim import lookups
from sim.environment import Environment
from sim.harness import Bench, MismatchError
from sim.stimulus import aligned_rows


@cocotb.test()
async def every_lookup(dut: object) -> None:
    """Value, carry and parity make up T(v), for every v of tables from corners and at random."""
    env = Environment.get()
    config = env.config
    bench = Bench(dut, env.seed, BsRacLane(config))
    rng = np.random.default_rng(env.seed)
    rows = aligned_rows(config, rng, env.scale(100, 3000), config.mu)
    for full in lookups.tables(config, rows.reshape(-1)):
        table = lookups.table(config, full)
        bench.put(table=table)
        for v in rng.permutation(1 << config.mu):
            look = lookups.look(config, int(v))
            bench.put(look=look)
            await bench.settle()
            got = 2 * (bench.get("value") + bench.get("carry")) + table["odd"]
            if got != full[v]:
                raise MismatchError(f"look-up {look} of {table} reads {got}, not {full[v]}")
    env.report("look-ups", transactions=bench.cycle_count, cycles=bench.cycle_count, seed=env.seed)
