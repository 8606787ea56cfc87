"""Bench of the LUT generators and the table registers."""

from __future__ import annotations

import cocotb
import numpy as np

from hw.compute.layouts import table_layout
from hw.compute.lut import LutBank
from hw.config import GROUPS
from sim import lookups
from sim.environment import Environment
from sim.harness import Bench
from sim.stimulus import aligned_rows


@cocotb.test()
async def random_loads(dut: object) -> None:
    """Groups loaded alone, together and not at all: every table is the last one loaded, all along.

    What is at the input while nothing is loaded does not matter.
    """
    env = Environment.get()
    config = env.config
    bench = Bench(dut, env.seed, LutBank(config))
    rng = np.random.default_rng(env.seed)
    bench.put(load=0, aligned=None)
    await bench.reset()
    masks = lookups.group_masks(config, table_layout(config).size, 1)
    word = known = compared = 0
    rows = aligned_rows(config, rng, env.scale(600, 6000), config.group_k)
    full = lookups.tables(config, rows.reshape(-1)).reshape(len(rows), config.luts_per_group, -1)
    for row, aligned in enumerate(rows):
        load = bench.rng.choice((0, 1, 2, 4, 8, bench.rng.randrange(1 << GROUPS)))
        bench.put(load=load, aligned=aligned if load else None)
        await bench.settle()
        bench.expect_word("tables", word, known)
        await bench.clock()
        compared += bin(load).count("1") * config.luts_per_group
        loaded = lookups.tables_word(config, full[row]) if load else 0
        for group, mask in enumerate(masks):
            if load >> group & 1:
                word = word & ~mask | loaded << group * (masks[0].bit_length())
                known |= mask
    bench.put(load=0, aligned=None)
    await bench.settle()
    bench.expect_word("tables", word, known)
    env.report("tables", transactions=compared, cycles=bench.cycle_count, seed=env.seed)
