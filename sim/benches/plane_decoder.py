"""Bench of the plane decoder: sign latch, decoding, skew over the four groups."""

from __future__ import annotations

from collections import deque

import cocotb
import numpy as np

from hw.compute.lane import PlaneDecoder
from hw.compute.layouts import look_layout
from hw.config import GROUPS, TILE, Config
from sim import lookups
from sim.environment import Environment
from sim.harness import MOODS, Bench
from sim.words import Array


class _DecoderBench(Bench):
    """A decoder, and the look-ups of the planes that it accepted in the last four cycles."""

    def __init__(self, dut: object, config: Config, seed: int) -> None:
        super().__init__(dut, seed, PlaneDecoder(config))
        self.masks = lookups.group_masks(config, look_layout(config).size, config.lanes)
        self.idle()

    def idle(self) -> None:
        """Nothing at the input, nothing on its way."""
        self.put(valid=0, sign_plane=None, plane=None)
        self.history: deque[int | None] = deque([None] * GROUPS, GROUPS)

    async def show(self, looks: int | None) -> None:
        """A cycle; ``looks`` is what the accepted plane decodes to, None if there is none."""
        await self.settle()
        word = known = 0
        for past, mask in zip(self.history, self.masks, strict=True):
            if past is not None:
                word |= past & mask
                known |= mask
        self.expect_word("looks", word, known)
        await self.clock()
        self.history.appendleft(looks)


def _planes(signs: Array, magnitudes: Array, p: int) -> list[list[int]]:
    """Planes of one column group as values of ``plane_layout``, the sign plane first."""
    weights = 1 << np.arange(signs.shape[1], dtype=object)
    planes = [signs, *((magnitudes >> bit & 1) for bit in reversed(range(p - 1)))]
    return [[int(word) for word in plane @ weights] for plane in planes]


@cocotb.test()
async def random_planes(dut: object) -> None:
    """Column groups of every precision, with and without gaps, each look-up in its own cycle.

    A plane that is not valid is noise and must not touch the latched signs. A reset may come
    between any two planes; a column group starts with its sign plane.
    """
    env = Environment.get()
    config = env.config
    rng = np.random.default_rng(env.seed)
    for mood in ("steady", "gaps"):
        gap, _ = MOODS[mood]
        bench = _DecoderBench(dut, config, env.seed)
        await bench.reset()
        compared = 0
        for _ in range(env.scale(8, 300)):
            p = int(rng.integers(5, config.p_max + 1))
            signs = rng.integers(0, 2, (TILE, config.lanes))
            magnitudes = rng.integers(0, 1 << (p - 1), (TILE, config.lanes))
            subtracted = lookups.subtracts(signs, magnitudes, p)
            for number, plane in enumerate(_planes(signs, magnitudes, p)):
                while bench.rng.random() < gap:
                    bench.put(valid=0, sign_plane=None, plane=None)
                    await bench.show(None)
                if bench.rng.random() < 0.01:
                    bench.idle()
                    await bench.reset()
                    break
                bench.put(valid=1, sign_plane=int(number == 0), plane=plane)
                await bench.show(lookups.looks_word(config, subtracted[number]))
                compared += config.lanes * config.luts
        bench.put(valid=0, sign_plane=None, plane=None)
        for _ in range(GROUPS):
            await bench.show(None)
        env.report(mood, transactions=compared, cycles=bench.cycle_count, seed=env.seed)
