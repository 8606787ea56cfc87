"""Bench of an MPU's front: activations in, tile exponent and aligned activations out."""

from __future__ import annotations

import dataclasses
from collections import deque

import cocotb
import numpy as np
import torch

from hw.compute.aligner import AlignerBank
from hw.config import GROUPS, TILE
from model.datapath import TileMachine
from model.datapath.primitives import activation_terms
from model.formats.bf16 import from_codes
from sim.environment import Environment
from sim.harness import MOODS, Bench
from sim.stimulus import KINDS, tile
from sim.words import Array


@dataclasses.dataclass
class _Row:
    """One row of a tile, and what the model makes of it."""

    activations: Array
    exponents: Array
    enable: int
    refused: list[int]
    aligned: Array
    tile_exponent: int


class _BankBench(Bench):
    """Fills ahead of alignment as far as the slots allow, with pauses in both."""

    def __init__(self, dut: object, env: Environment, mood: str) -> None:
        super().__init__(dut, env.seed, AlignerBank(env.config))
        self.config = dataclasses.replace(env.config, t_m=1)
        self.fill_gap, self.align_gap = MOODS[mood]
        self.data = np.random.default_rng(env.seed)
        self.machine = TileMachine(1, align_guard_bits=self.config.align_guard_bits)
        self.restart()

    def restart(self) -> None:
        """Nothing filled, nothing aligned."""
        self.filled = self.aligned = 0
        self.known_from = 0
        self.rows: deque[_Row] = deque()
        self.shown: list[int] | None = None
        self.exponent: int | None = None
        self.put(fill=0, fill_group=None, row_enable=None, activations=None)
        self.put(shared_exponents=None, align=0, align_group=None)

    def _row(self) -> _Row:
        made = tile(self.config, self.data, self.rng.choice(KINDS), 5)
        codes = made.activations[0].astype(np.int64)
        if self.rng.random() < 0.15:
            codes[self.rng.randrange(TILE)] = self.rng.choice((0x7F80, 0xFF80, 0x7FC0, 0xFFFF))
        enable = int(self.rng.random() < 0.85)
        flags = activation_terms(from_codes(torch.from_numpy(codes))).refused
        zeros = torch.zeros(TILE, TILE, dtype=torch.int64)
        trace = self.machine.tile(
            torch.from_numpy(codes).unsqueeze(0),
            torch.from_numpy(made.exponents.astype(np.int64)),
            zeros,
            zeros,
            p=5,
            first=True,
            row_mask=torch.tensor([enable]),
        )
        return _Row(
            codes,
            made.exponents,
            enable,
            [int(part.any()) & enable for part in flags.reshape(GROUPS, -1)],
            trace.aligned[0].numpy(),
            int(trace.tile_exponent[0]),
        )

    async def step(self) -> None:
        """A cycle."""
        group_k = self.config.group_k
        # Group 0 waits until the maximum includes the last group.
        number, group = divmod(self.aligned, GROUPS)
        align = self.filled >= (number + 1) * GROUPS and self.rng.random() >= self.align_gap
        align &= group != 0 or self.cycle_count >= self.known_from
        self.put(align=int(align), align_group=group if align else None)
        fill = self.filled - self.aligned < GROUPS + align and self.rng.random() >= self.fill_gap
        filling = self.filled % GROUPS
        refused = 0
        if fill:
            if filling == 0:
                self.rows.append(self._row())
            row = self.rows[-1]
            part = slice(filling * group_k, (filling + 1) * group_k)
            self.put(fill=1, fill_group=filling, row_enable=row.enable)
            self.put(activations=row.activations[part], shared_exponents=row.exponents[part])
            refused = row.refused[filling]
        else:
            self.put(fill=0, fill_group=None, activations=None, shared_exponents=None)
            self.put(row_enable=None)
        await self.settle()
        self.expect(aligned=self.shown, tile_exponent=self.exponent, refused=refused)
        await self.clock()
        if align:
            row = self.rows[0]
            self.shown = row.aligned[group * group_k : (group + 1) * group_k].tolist()
            self.exponent = row.tile_exponent
            self.aligned += 1
            if group == GROUPS - 1:
                self.rows.popleft()
        if fill:
            self.filled += 1
            if filling == GROUPS - 1:
                self.known_from = self.cycle_count + 1

    async def align_groups(self, count: int) -> None:
        """Cycles until ``count`` groups have been aligned."""
        while self.aligned < count:
            await self.step()


@cocotb.test()
async def random_tiles(dut: object) -> None:
    """Tiles of all kinds, masked rows, Inf and NaN; as fast as can be, and with pauses; resets."""
    env = Environment.get()
    for mood in MOODS:
        bench = _BankBench(dut, env, mood)
        await bench.reset()
        compared = 0
        for round_number in range(4):
            goal = env.scale(10, 300) * GROUPS + bench.rng.randrange(GROUPS)
            await bench.align_groups(goal)
            if round_number < 3:
                compared += bench.aligned * env.config.group_k
                bench.restart()
                await bench.reset()
        await bench.step()
        compared += bench.aligned * env.config.group_k
        env.report(mood, transactions=compared, cycles=bench.cycle_count, seed=env.seed)
