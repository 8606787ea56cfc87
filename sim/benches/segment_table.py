"""Bench of the segment tables: every index of each, against the model's look-up."""

from __future__ import annotations

import cocotb
import torch

from hw.special.tables import TABLES, SegmentTable
from model.datapath.special.exact import look_up
from sim.environment import Environment
from sim.harness import Bench


@cocotb.test()
async def every_index(dut: object) -> None:
    """All indices (or the first and last steps of every segment, and each 37th of the others)."""
    env = Environment.get()
    name = next(name for name in TABLES if dut._name.endswith(name))  # type: ignore[attr-defined]
    table = TABLES[name]()
    bench = Bench(dut, env.seed, SegmentTable(function=name))
    index = torch.arange(1 << table.index_bits)
    if env.quick:
        step = index & ((1 << table.step_bits) - 1)
        index = index[(step < 2) | (step > (1 << table.step_bits) - 3) | (index % 37 == 0)]
    for each, value in zip(index.tolist(), look_up(table, index).tolist(), strict=True):
        bench.put(index=each)
        await bench.settle()
        bench.expect(value=value)
    env.report(name, transactions=len(index), cycles=bench.cycle_count, seed=env.seed)
