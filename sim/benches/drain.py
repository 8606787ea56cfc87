"""Bench of the drain: rows through the result buffer, slices through the converters."""

from __future__ import annotations

import cocotb
import torch

from hw.compute.drain import Drain
from sim.accumulation import biased
from sim.draining import Drainer, make_row
from sim.environment import Environment
from sim.harness import MOODS, Bench


class _DrainBench(Bench):
    """Rows of random accumulators into random free rows of the buffer."""

    def __init__(self, dut: object, env: Environment, stall: float) -> None:
        super().__init__(dut, env.seed, Drain(env.config))
        self.config = env.config
        self.drainer = Drainer(env.config, self.rng, stall)

    def _accumulator(self, likely: int) -> int:
        length = self.rng.choice((likely, self.rng.randrange(self.config.acc_width)))
        return self.rng.getrandbits(length) * self.rng.choice((-1, 1)) if length else 0

    async def step(self, *, write: bool) -> None:
        """A cycle in which a row may be written: one that holds nothing and is not being read."""
        config = self.config
        control = self.drainer.decide()
        taken = {row.number for row in self.drainer.stored} | {control["read_row"]}
        free = [number for number in range(config.result_rows) if number not in taken]
        row = None
        if write and free:
            likely = self.rng.randrange(config.acc_width)
            accumulators = [self._accumulator(likely) for _ in range(config.acc_columns)]
            running = self.rng.choice((self.rng.randint(2, 508), self.rng.randint(-127, 1)))
            exponent = biased(running)
            if self.rng.random() < 0.1:
                accumulators, running, exponent = [0] * config.acc_columns, 0, 0
            scaled = self.rng.random() < 0.5
            row = make_row(
                config,
                self.rng.choice(free),
                torch.tensor(accumulators),
                running,
                p=self.rng.randint(5, config.p_max),
                fp32=self.rng.randrange(2),
                scales=[self.rng.randint(0, 253) * scaled for _ in accumulators],
            )
            self.put(write=1, write_row=row.number, accumulators=accumulators, exponent=exponent)
        else:
            self.put(write=0, write_row=None, accumulators=None, exponent=None)
        self.put(**control)
        await self.settle()
        expected = self.drainer.expected()
        if expected is not None:
            self.expect(codes=expected[0], overflow=expected[1])
        await self.clock()
        self.drainer.clock()
        if row is not None:
            self.drainer.stored.append(row)


@cocotb.test()
async def random_rows(dut: object) -> None:
    """Rows at random and as fast as they leave, under stalls; a reset with rows on their way."""
    env = Environment.get()
    for mood, (gap, stall) in MOODS.items():
        bench = _DrainBench(dut, env, stall)
        await bench.reset()
        compared = 0
        for last in (False, True):
            for _ in range(env.scale(400, 4000)):
                await bench.step(write=bench.rng.random() >= gap)
            while last and bench.drainer.busy:
                await bench.step(write=False)
            compared += bench.drainer.compared
            bench.drainer = Drainer(env.config, bench.rng, stall)
            await bench.reset()
        env.report(mood, transactions=compared, cycles=bench.cycle_count, seed=env.seed)
