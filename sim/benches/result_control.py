"""Bench of the result control: room, order, slices, scales and hand-over, cycle by cycle.

There is no arithmetic in it; what must come is the contract in its docstring, in terms of the rows
that were reserved, written and read.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import cocotb

from hw.compute.results import ResultControl
from hw.compute.sequencer import job_layout
from sim.environment import Environment
from sim.harness import MOODS, Bench
from sim.words import pack, unpack

#: Cycles from a reservation (the last plane is accepted) to the first row that is written.
DELAY = 6


class _Note(dict[str, int]):
    """What is known of a row: rows, context, column, p, fp32, scaled."""


class _ResultsBench(Bench):
    """Column groups in, results out, and where each row is."""

    def __init__(self, dut: object, env: Environment, mood: str) -> None:
        super().__init__(dut, env.seed, ResultControl(env.config))
        self.config = env.config
        self.gap, self.stall = MOODS[mood]
        self.results = 0
        self.restart()

    def restart(self) -> None:
        """As after reset."""
        self.free = self.config.result_rows
        self.write_row = self.read_row = 0
        # Rows that will be written: (cycle, job, slice).
        self.coming: deque[tuple[int, dict[str, Any], int]] = deque()
        self.stored: deque[_Note] = deque()
        self.loaded: _Note | None = None
        self.part = 0
        self.stages: list[_Note | None] = [None, None, None]
        self.last_reserve = -DELAY
        self.put(reserve=0, write=0, job=None, slice=None, scale_valid=0, o_ready=0)

    @property
    def busy(self) -> bool:
        """Whether a row is reserved or on its way."""
        return self.free < self.config.result_rows or bool(self.loaded or any(self.stages))

    def _reserve(self, wanted: bool) -> bool:
        """Whether a column group's last plane is accepted; never two within five cycles."""
        config = self.config
        if not wanted or self.free < config.acc_rows or self.cycle_count < self.last_reserve + 5:
            return False
        layout = job_layout(config)
        job = unpack(layout, self.rng.getrandbits(layout.size))
        job["column_group"] %= config.fold
        for number in range(config.acc_rows):
            self.coming.append((self.cycle_count + DELAY + number, job, number))
        self.last_reserve = self.cycle_count
        return True

    def _write(self) -> _Note | None:
        """Drives the row that is written in this cycle, if there is one."""
        config = self.config
        if not self.coming or self.coming[0][0] != self.cycle_count:
            self.put(write=0, job=None, slice=None)
            return None
        _, job, number = self.coming.popleft()
        self.put(write=1, job=pack(job_layout(config), job), slice=number)
        tile = job["tile"]
        note = _Note({name: tile[name] for name in ("rows", "context", "p", "fp32", "scaled")})
        note["column"] = job["column_group"] * config.lanes + number * config.acc_columns
        return note

    async def step(self, *, reserve: bool) -> None:
        """A cycle."""
        config = self.config
        slices = config.acc_columns // config.drain
        reserve = self._reserve(reserve)
        written = self._write()
        scale, ready = self.rng.random() >= self.gap, self.rng.random() >= self.stall
        self.put(reserve=int(reserve), scale_valid=int(scale), o_ready=int(ready))
        row, shown = self.loaded, self.stages[2]
        advance = shown is None or ready
        taken = row is not None and advance and (scale or not row["scaled"])
        finished = taken and self.part == slices - 1
        read = bool(self.stored) and (row is None or finished)
        await self.settle()
        self.expect(
            room=int(self.free >= config.acc_rows),
            write_row=self.write_row if written else None,
            read=int(read),
            read_row=self.read_row if read else None,
            read_slice=self.part if row else None,
            p=row["p"] if row else None,
            scaled=row["scaled"] if row else None,
            fp32=self.stages[1]["fp32"] if self.stages[1] else None,
            advance=int(advance),
            scale_ready=int(row is not None and row["scaled"] and advance),
            o_valid=int(shown is not None),
            idle=int(not self.busy),
            **{
                port: shown[name] if shown else None
                for port, name in (
                    ("rows", "rows"),
                    ("context", "context"),
                    ("column", "column"),
                    ("o_fp32", "fp32"),
                )
            },
        )
        await self.clock()
        if advance:
            self.results += shown is not None
            entering = None
            if taken and row is not None:
                entering = _Note(row, column=row["column"] + self.part * config.drain)
            self.stages = [entering, *self.stages[:2]]
        if taken:
            self.part = 0 if finished else self.part + 1
        if finished:
            self.loaded = None
        if read:
            self.loaded = self.stored.popleft()
            self.read_row = (self.read_row + 1) % config.result_rows
        if written is not None:
            self.stored.append(written)
            self.write_row = (self.write_row + 1) % config.result_rows
        self.free += read - reserve * config.acc_rows


@cocotb.test()
async def random_rows(dut: object) -> None:
    """Column groups at any time that the room allows, scales and readiness at random, resets."""
    env = Environment.get()
    for mood in MOODS:
        bench = _ResultsBench(dut, env, mood)
        await bench.reset()
        for _ in range(env.scale(1500, 12000)):
            if bench.rng.random() < 0.002:
                bench.restart()
                await bench.reset()
            await bench.step(reserve=bench.rng.random() >= bench.gap)
        while bench.busy:
            await bench.step(reserve=False)
        await bench.step(reserve=False)
        env.report(mood, transactions=bench.results, cycles=bench.cycle_count, seed=env.seed)
