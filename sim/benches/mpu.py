"""Bench of an MPU: one row of activations under hand-made control, from BF16 to BF16 or FP32."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator
from typing import Any

import cocotb
import numpy as np
import torch

from hw.compute.layouts import look_layout
from hw.compute.mpu import Mpu
from hw.config import GROUPS
from model.datapath import TileMachine, TileTrace
from model.datapath.primitives import activation_terms
from model.formats.bf16 import from_codes
from sim import lookups
from sim.draining import Drainer, make_row
from sim.environment import Environment
from sim.harness import MOODS, Bench, four_state
from sim.reduction import Plane, Updates, looks_at, reduce_control
from sim.stimulus import Tile, outputs


@dataclasses.dataclass
class _Planned(Plane):
    """A plane, its tile, and what the model makes of it."""

    tile: Tile
    trace: TileTrace


class _MpuBench(Bench):
    """What the feed, the sequencer and the result control would do, with pauses anywhere."""

    def __init__(self, dut: object, env: Environment, mood: str) -> None:
        super().__init__(dut, env.seed, Mpu(env.config))
        self.config = dataclasses.replace(env.config, t_m=1)
        self.gap, self.stall = MOODS[mood]
        self.data = np.random.default_rng(env.seed)
        size = look_layout(self.config).size
        self.masks = lookups.group_masks(self.config, size, self.config.lanes)
        self.compared = 0
        self.restart()

    def restart(self) -> None:
        """Nothing on its way, as after reset."""
        config = self.config
        self.machine = TileMachine(
            1,
            contexts=config.contexts,
            align_guard_bits=config.align_guard_bits,
            acc_guard_bits=config.acc_guard_bits,
            p_max=config.p_max,
        )
        self.drainer = Drainer(config, self.rng, self.stall)
        self.filling: deque[Tile] = deque()
        self.waiting: deque[Tile] = deque()
        self.filled = self.aligned = self.known_from = self.loading = 0
        self.armed = False
        self.planes: Iterator[_Planned] = iter(())
        self.next_plane: _Planned | None = None
        self.history: deque[_Planned | None] = deque([None] * (GROUPS + 1), GROUPS + 1)
        self.updates = Updates(config)
        self.free_rows, self.write_row = config.result_rows, 0

    def send(self, count: int) -> None:
        """Queues the tiles of ``count`` output tiles, a few with Inf or NaN."""
        for made in outputs(self.config, self.data, count):
            if self.rng.random() < 0.05:
                made.activations[0, self.rng.randrange(64)] = self.rng.choice((0x7F80, 0xFFC0))
            self.filling.append(made)
            self.waiting.append(made)

    @property
    def busy(self) -> bool:
        """Whether anything is on its way."""
        ahead = self.waiting or self.next_plane or any(self.history) or self.updates.current
        return bool(ahead) or self.drainer.busy

    def _begin(self, tile: Tile) -> Iterator[_Planned]:
        trace = self.machine.tile(
            torch.from_numpy(tile.activations.astype(np.int64)),
            torch.from_numpy(tile.exponents.astype(np.int64)),
            torch.from_numpy(tile.signs),
            torch.from_numpy(tile.magnitudes),
            p=tile.p,
            midpoint=bool(tile.midpoint),
            first=bool(tile.first),
            context=tile.context,
            row_mask=torch.tensor([tile.rows]),
            rises=torch.tensor(tile.rises[:1] or [0]),
        )
        subtracted = lookups.subtracts(tile.signs, tile.magnitudes, tile.p)
        for group in range(self.config.fold):
            columns = slice(group * self.config.lanes, (group + 1) * self.config.lanes)
            for number in range(tile.p):
                yield _Planned(
                    lookups.looks_word(self.config, subtracted[number, :, columns]),
                    sign=number == 0,
                    last=number == tile.p - 1,
                    new_tile=group == number == 0,
                    midpoint=bool(tile.midpoint),
                    context=tile.context,
                    group=group,
                    tile=tile,
                    trace=trace,
                )

    def _accept(self) -> _Planned | None:
        """The plane that is accepted in this cycle."""
        if self.rng.random() < self.gap:
            return None
        if self.next_plane is None:
            if not self.armed:
                return None
            self.planes = self._begin(self.waiting.popleft())
            self.next_plane = next(self.planes)
        plane = self.next_plane
        if plane.last and plane.tile.last:
            if self.free_rows < self.config.acc_rows:
                return None
            self.free_rows -= self.config.acc_rows
        self.next_plane = next(self.planes, None)
        return plane

    def _front(self, start: bool) -> dict[str, Any]:
        """Fills, aligns, loads; ``start``: the first plane of a tile is accepted."""
        load = 1 if start else 1 << self.loading if self.loading else 0
        align = start or self.loading in (1, 2)
        if not align and not self.armed and self.filled >= self.aligned + GROUPS:
            align = self.cycle_count >= self.known_from and self.rng.random() >= self.gap
        fill = bool(self.filling) and self.filled - self.aligned < GROUPS + align
        fill &= self.rng.random() >= self.gap
        filling, self.refused = self.filled % GROUPS, 0
        group = self.aligned % GROUPS
        self.put(activations=None, shared_exponents=None, row_enable=None)
        if fill:
            tile = self.filling[0]
            part = slice(filling * self.config.group_k, (filling + 1) * self.config.group_k)
            codes = tile.activations[0, part].astype(np.int64)
            terms = activation_terms(from_codes(torch.from_numpy(codes)))
            self.refused = int(terms.refused.any()) & tile.rows
            self.put(activations=codes, shared_exponents=tile.exponents[part], row_enable=tile.rows)
            self.filled += 1
            if filling == GROUPS - 1:
                self.filling.popleft()
                self.known_from = self.cycle_count + 2
        if align:
            self.armed = group == 0
            self.aligned += 1
        self.loading = 1 if start else (self.loading + 1) % GROUPS if self.loading else 0
        return {
            "fill": int(fill),
            "fill_group": filling if fill else None,
            "align": int(align),
            "align_group": group if align else None,
            "load": load,
        }

    def _results(self) -> dict[str, Any]:
        """What is written to the result buffer."""
        current = self.updates.current
        result = current is not None and current.tile.last
        return {
            "result_write": int(result),
            "result_write_row": self.write_row if result else None,
        }

    def _store(self) -> None:
        """The row that was written to the result buffer is on its way out."""
        config = self.config
        current = self.updates.current
        if current is None or not current.tile.last:
            return
        tile, trace = current.tile, current.trace
        first = current.group * config.lanes + self.updates.part * config.acc_columns
        columns = slice(first, first + config.acc_columns)
        scales = np.zeros(64, int) if tile.scales is None else tile.scales
        self.drainer.stored.append(
            make_row(
                config,
                self.write_row,
                trace.accumulators[0, columns],
                int(trace.running[0]),
                p=tile.p,
                fp32=tile.fp32,
                scales=[int(scale) for scale in scales[columns]],
            )
        )
        self.write_row = (self.write_row + 1) % config.result_rows

    async def step(self) -> None:
        """A cycle."""
        plane = self._accept()
        start = plane is not None and plane.new_tile
        drain = self.drainer.decide()
        self.free_rows += drain["read"]
        follows = self.history[0]
        control: dict[str, Any] = {
            **self._front(start),
            "decide": int(start),
            "decide_first": plane.tile.first if plane and start else None,
            "decide_context": plane.tile.context if plane and start else None,
            "follow": int(follows is not None and follows.last),
            "reduce": reduce_control(self.history[GROUPS - 1], self.history[GROUPS]),
            **self.updates.control(self.history[GROUPS]),
            **self._results(),
            "advance": drain["advance"],
        }
        for name in ("read", "read_row", "slice", "p", "fp32"):
            control[f"result_{name}"] = drain[name]
        self.put(control=control, scales=drain["scales"])
        self.put(rise=(plane.tile.rises or [0])[0] if plane and start else None)
        self.write(self.port("looks"), *looks_at(self.history, self.masks))
        await self.settle()
        expected = self.drainer.expected()
        self.expect(refused=self.refused)
        if expected is not None:
            self.expect(codes=expected[0], overflow=expected[1])
        await self.clock()
        before = self.drainer.compared
        self.drainer.clock()
        self.compared += self.drainer.compared - before
        self._store()
        self.updates.clock(self.history[GROUPS])
        self.history.appendleft(plane)


#: Icarus runs this design slowly: few tiles, in two moods.
SHORT = four_state()


@cocotb.test()
async def random_tiles(dut: object) -> None:
    """Everything changes from tile to tile; pauses anywhere; a reset in the middle of the job."""
    env = Environment.get()
    for mood in ("steady", "both") if SHORT else MOODS:
        bench = _MpuBench(dut, env, mood)
        await bench.reset()
        bench.send(1)
        for _ in range(bench.rng.randrange(50, 100 + env.scale(1, 20) * env.config.fold)):
            await bench.step()
        bench.restart()
        await bench.reset()
        bench.send(2 if SHORT else env.scale(8, 40))
        while bench.busy:
            await bench.step()
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)
