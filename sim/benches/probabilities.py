"""Bench of the probabilities: rows of tiles, rises of M, masked tokens, sums, short tiles."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
import torch

from hw.config import TILE
from hw.special.softmax import Probabilities
from model.datapath.special import exponentials, integer_sum
from sim.beats import BeatBench, beats, codes_of, zeros_for_dead
from sim.environment import Environment
from sim.harness import MOODS, MismatchError
from sim.words import Array

LIMIT = (1 << 31) - 1
#: One tile: x of its tokens, and which of them are live.
Tile = tuple[Array, Array]


def _send(bench: BeatBench, elements: int, tiles: list[Tile], *, marked: bool = True) -> int:
    """A row: its beats in, what the model makes of it out; how many beats.

    The running maximum, its rises and the shifts of the sum are put together here as in the
    attention of the model.
    """
    maximum, total = None, 0
    rows: list[Any] = []
    results: list[Any] = []
    for number, (x, live) in enumerate(tiles):
        rise = 0
        alive = torch.from_numpy(live)
        fixed = torch.from_numpy(x)
        if live.any():
            top = int(fixed[alive].max()) >> 16
            if maximum is not None:
                rise = max(top - maximum, 0)
            maximum = top if maximum is None else max(maximum, top)
        codes = np.zeros(len(x), np.int64)
        if live.any():
            assert maximum is not None
            p = exponentials(fixed[alive], maximum)
            codes[live] = codes_of(p)
            total = (total >> min(rise, 63)) + int(integer_sum(p).sum())
        bench.want("rises", [{"rise": rise, "skipped": int(not live.any())}])
        final = int(number == len(tiles) - 1)
        for values, into in ((x.tolist(), rows), (codes.tolist(), results)):
            part = beats(values, elements, live=live.tolist())
            for beat in part:
                beat["tile_last"], beat["last"] = beat["last"], beat["last"] & final
            into.extend(part)
    results = zeros_for_dead(results)
    bench.want("probabilities", results)
    bench.want("totals", [total])
    if not marked:
        rows = [{**beat, "tile_last": 0} for beat in rows]
    return bench.feed("exponents", rows)


def _tile(rng: np.random.Generator, level: int, count: int) -> Tile:
    spread = int(rng.choice([1, 1 << 16, 4 << 16, 140 << 16]))
    x = np.clip(level * 65536 - rng.integers(0, spread, count), -LIMIT, LIMIT).astype(np.int64)
    if rng.random() < 0.2:
        x[rng.integers(0, count)] = rng.choice([-LIMIT, LIMIT, 0, -1, 65535, 65536])
    if rng.random() < 0.2:
        # Around the flush border.
        x[rng.integers(0, count)] = (x.max() >> 16 << 16) - (126 << 16) - int(rng.integers(-2, 3))
        x = np.clip(x, -LIMIT, LIMIT)
    live = rng.random(count) < rng.choice([1.0, 0.8, 0.1, 0.0], p=[0.5, 0.2, 0.2, 0.1])
    return x, live


def _row(rng: np.random.Generator, tiles: int) -> list[Tile]:
    """Tiles whose level stays, rises by 1, by 60 or more, or falls; the last one may be short."""
    level = int(rng.integers(-200, 200))
    row = []
    for number in range(tiles):
        count = TILE if number < tiles - 1 else int(rng.integers(1, TILE + 1))
        if rng.random() < 0.2:
            count = int(rng.integers(1, 9))
        row.append(_tile(rng, level, count))
        level += int(rng.choice([0, 1, 2, -1, 31, 52, 53, 60, 70, 300, -40]))
    return row


def _start(
    dut: object, mood: str = "steady", number: int = 0
) -> tuple[Environment, BeatBench, int, np.random.Generator]:
    env = Environment.get()
    elements = env.config.special_elements
    seed = env.seed + number
    bench = BeatBench(dut, env, Probabilities(elements=elements), mood, seed)
    for name in ("rises", "probabilities", "totals"):
        bench.want(name, [])
    return env, bench, elements, np.random.default_rng(seed)


@cocotb.test()
async def random_rows(dut: object) -> None:
    """Rows of tiles in all moods; a reset on the way, then more."""
    for number, mood in enumerate(MOODS):
        env, bench, elements, rng = _start(dut, mood, number)
        await bench.reset()
        for after_reset in (False, True):
            for _ in range(env.scale(5, 30)):
                _send(bench, elements, _row(rng, int(rng.integers(1, 5))))
            if not after_reset:
                for _ in range(int(rng.integers(20, 200))):
                    await bench.cycle()
                await bench.reset()
                bench.clear_streams()
            else:
                await bench.finish()
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def every_fraction(dut: object) -> None:
    """All fractions (or a part) at exponents down to and below the flush border."""
    env, bench, elements, _ = _start(dut)
    await bench.reset()
    fractions = np.arange(0, 1 << 16, env.scale(211, 3))
    integers = np.array([0, -1, -2, -32, -33, -34, -125, -126, -127, -128, -129, -40000])
    x = (fractions + integers[np.arange(len(fractions)) % len(integers)] * 65536).astype(np.int64)
    # A first token that holds M at 0.
    parts = [np.concatenate([[0], x[at : at + 63]]) for at in range(0, len(x), 63)]
    tiles = [(np.maximum(part, -LIMIT), np.ones(len(part), bool)) for part in parts]
    count = _send(bench, elements, tiles)
    took = await bench.finish()
    # After the last beat: 6 cycles to the tile's first probabilities, the rest of them, the sum.
    if took > count + TILE // elements + 8:
        raise MismatchError(f"{count} beats took {took} cycles")
    env.report("fractions", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def no_gap(dut: object) -> None:
    """Whole tiles, all streams willing: from the first probabilities on, a beat a cycle."""
    env, bench, elements, rng = _start(dut)
    await bench.reset()
    cycles: list[int] = []
    bench.out["probabilities"].observers.append(lambda _: cycles.append(bench.cycle_count))
    rows = [[_tile(rng, 5 * n, TILE) for n in range(env.scale(4, 20))] for _ in range(2)]
    count = sum(_send(bench, elements, row) for row in rows)
    await bench.finish()
    first = TILE // elements - 1 + 6
    if cycles != list(range(cycles[0], cycles[0] + count)):
        raise MismatchError(f"{count} beats left in {cycles[-1] - cycles[0] + 1} cycles")
    if cycles[0] - 2 != first:
        raise MismatchError(f"the first beat left in cycle {cycles[0] - 2}, not {first}")
    env.report("gaps", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def each_stream_alone_stalls(dut: object) -> None:
    """One stream out is not taken for long: nothing is lost, and nothing else is mixed up."""
    for name in ("rises", "probabilities", "totals"):
        env, bench, elements, rng = _start(dut)
        await bench.reset()
        for _ in range(6):
            _send(bench, elements, _row(rng, 3))
            # Tiles of one beat: more of them than there are places for what is known of a tile.
            _send(bench, elements, [_tile(rng, 7 * n, elements) for n in range(9)])
        for _ in range(4):
            bench.out[name].blocked = True
            for _ in range(6 * TILE // elements):
                await bench.cycle()
            bench.out[name].blocked = False
            for _ in range(bench.rng.randrange(1, 9)):
                await bench.cycle()
        await bench.finish()
        env.report(name, transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def unmarked_tiles(dut: object) -> None:
    """Without ``tile_last`` a tile ends after 64 tokens, and with its row."""
    env, bench, elements, rng = _start(dut, "both")
    await bench.reset()
    for short in (TILE, 5):
        row = [_tile(rng, n, TILE) for n in range(3)] + [_tile(rng, 9, short)]
        _send(bench, elements, row, marked=False)
    await bench.finish()
    env.report("unmarked", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)
