"""Bench of the sign decoder: every input."""

from __future__ import annotations

import itertools

import cocotb
import numpy as np

from hw.compute.lane import SignDecoder
from hw.config import TILE
from sim import lookups
from sim.environment import Environment
from sim.harness import Bench
from sim.words import Array


def _by_column(values: Array, mu: int) -> Array:
    """Numbers of ``mu`` bits as columns of a tile's first ``mu`` reduction indices."""
    tile = np.zeros((TILE, TILE), np.int64)
    tile[:mu, : len(values)] = values >> np.arange(mu)[:, None] & 1
    return tile


@cocotb.test()
async def every_input(dut: object) -> None:
    """All bits, signs and plane kinds: on the sign plane the latched signs do not matter."""
    env = Environment.get()
    mu = env.config.mu
    bench = Bench(dut, env.seed, SignDecoder(env.config))
    everything = range(1 << mu)
    for signs in everything:
        bits = np.array(everything)
        magnitude = lookups.subtracts(
            _by_column(np.full(len(bits), signs), mu), _by_column(bits, mu), 2
        )[1]
        sign = lookups.subtracts(_by_column(bits, mu), _by_column(0 * bits, mu), 2)[0]
        for plane, value in itertools.product((0, 1), everything):
            bench.put(bits=value, signs=signs, sign_plane=plane)
            await bench.settle()
            v = (sign if plane else magnitude)[:mu, value]
            bench.expect(look=lookups.look(env.config, int((v << np.arange(mu)).sum())))
    for value in everything:
        bench.put(bits=value, signs=None, sign_plane=1)
        await bench.settle()
        v = sign[:mu, value]
        bench.expect(look=lookups.look(env.config, int((v << np.arange(mu)).sum())))
    env.report("all", transactions=bench.cycle_count, cycles=bench.cycle_count, seed=env.seed)
