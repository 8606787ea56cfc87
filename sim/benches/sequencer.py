"""Bench of the sequencer: every control signal in the cycle that its docstring names.

There is no arithmetic in it; what must come is the contract, in terms of the planes that it
accepted.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import Any

import cocotb

from hw.compute.layouts import tile_layout
from hw.compute.sequencer import Sequencer
from hw.config import GROUPS, P_MIN
from sim.environment import Environment
from sim.harness import MOODS, Bench
from sim.reduction import Plane, Updates, reduce_control


@dataclasses.dataclass
class _Accepted(Plane):
    """A plane and its tile's word, as the core goes by it."""

    tile: dict[str, int]


class _SequencerBench(Bench):
    """Tiles and planes in; where each plane is."""

    def __init__(self, dut: object, env: Environment, mood: str) -> None:
        super().__init__(dut, env.seed, Sequencer(env.config))
        self.config = env.config
        self.gap, self.stall = MOODS[mood]
        self.planes = 0
        self.restart()

    def restart(self) -> None:
        """As after reset."""
        self.next_tile: dict[str, int] | None = None
        self.tile: dict[str, int] | None = None
        self.plane = self.group = self.pause = 0
        self.history: deque[_Accepted | None] = deque([None] * (GROUPS + 1), GROUPS + 1)
        self.updates = Updates(self.config)
        self.put(next_tile=None, next_ready=0, plane_valid=0, room=0)

    def _random_tile(self) -> dict[str, int]:
        word = {name: self.rng.getrandbits(field.width) for name, field in tile_layout(self.config)}
        contexts = range(self.config.contexts)
        if self.rng.random() < 0.2:
            contexts = range(1 << self.config.context_bits)[self.config.contexts :] or contexts
        word["context"] = self.rng.choice(contexts)
        kind = self.rng.random()
        if kind < 0.7:
            word["p"] = self.rng.choice((5, 6, 9, self.config.p_max))
        elif kind < 0.85:
            word["p"] = self.rng.randrange(P_MIN)
        return word

    def _accept(self, valid: bool, room: bool) -> tuple[_Accepted | None, dict[str, Any]]:
        """The plane that is accepted in this cycle, and the outputs that belong to it."""
        config, start = self.config, self.tile is None
        tile = self.next_tile if start else self.tile
        if tile is None:
            return None, {"plane_ready": 0, "start": 0, "reserve": 0, "refused": 0}
        used = {
            **tile,
            "p": min(max(tile["p"], P_MIN), config.p_max),
            "context": tile["context"] if tile["context"] < config.contexts else 0,
        }
        last = self.plane == used["p"] - 1
        ready = not (last and used["last"]) or room
        accepted = valid and ready
        outputs: dict[str, Any] = {
            "plane_ready": int(ready),
            "plane_sign": int(self.plane == 0),
            "start": int(accepted and start),
            "reserve": int(accepted and last and used["last"]),
            "refused": int(accepted and start and used != tile),
            "context": used["context"] if accepted and start else None,
        }
        if not accepted:
            return None, outputs
        plane = _Accepted(
            0,
            sign=self.plane == 0,
            last=last,
            new_tile=start,
            midpoint=bool(used["midpoint"]),
            context=used["context"],
            group=self.group,
            tile=used,
        )
        self.tile = used
        if start:
            self.next_tile = None
        self.plane = 0 if last else self.plane + 1
        if last:
            self.group += 1
            if self.group == config.fold:
                self.tile, self.group = None, 0
                # Now and then nothing follows until the pipeline is empty.
                self.pause = self.rng.choice((0, 0, self.rng.randrange(20)))
        return plane, outputs

    async def step(self) -> None:
        """A cycle: planes, tiles and room come and go at random."""
        if self.pause:
            self.pause -= 1
        elif self.next_tile is None and self.rng.random() >= self.gap:
            self.next_tile = self._random_tile()
        valid = not self.pause and self.rng.random() >= self.gap
        room = self.rng.random() >= self.stall
        self.put(
            next_tile=self.next_tile,
            next_ready=int(self.next_tile is not None),
            plane_valid=int(valid),
            room=int(room),
        )
        current = self.updates.current
        result = current is not None and current.tile["last"]
        idle = self.tile is None and not any(self.history) and current is None
        plane, outputs = self._accept(valid, room)
        arriving, follows = self.history[GROUPS], self.history[0]
        await self.settle()
        self.expect(
            **outputs,
            reduce=reduce_control(self.history[GROUPS - 1], arriving),
            follow=int(follows is not None and follows.last),
            **self.updates.control(arriving),
            result=int(result),
            result_job={"tile": current.tile, "column_group": current.group} if result else None,
            idle=int(idle),
        )
        await self.clock()
        self.updates.clock(arriving)
        self.history.appendleft(plane)
        self.planes += plane is not None


@cocotb.test()
async def random_tiles(dut: object) -> None:
    """Tiles of any word, in range or not; planes, tiles and room at any time; resets."""
    env = Environment.get()
    for mood in MOODS:
        bench = _SequencerBench(dut, env, mood)
        await bench.reset()
        for _ in range(env.scale(2000, 15000)):
            if bench.rng.random() < 0.001:
                bench.restart()
                await bench.reset()
            await bench.step()
        env.report(mood, transactions=bench.planes, cycles=bench.cycle_count, seed=env.seed)
