"""Bench of the whole array: streams in moods, cycle counts, reset in mid-job, refused input."""

from __future__ import annotations

import copy

import cocotb
import numpy as np

from hw.config import TILE, Config
from sim.core import CoreBench
from sim.environment import Environment
from sim.harness import MOODS, MismatchError, four_state
from sim.stimulus import KINDS, Tile, outputs, tile

#: Icarus runs some forty cycles of this design a second: it gets the parts that X can reach.
SHORT = four_state()


def _limit(config: Config, tiles: list[Tile]) -> int:
    """Cycles that are certainly enough, in any mood."""
    return 2000 + 20 * len(tiles) * (config.p_max * config.fold + 64 // config.drain)


@cocotb.test()
async def random_tiles(dut: object) -> None:
    """Precision, mode, context, mask, scales and format change from tile to tile."""
    env = Environment.get()
    for number, mood in enumerate(("steady", "both") if SHORT else MOODS):
        seed = env.seed + number
        bench = CoreBench(dut, env.config, seed, MOODS[mood])
        await bench.reset()
        rng = np.random.default_rng(seed)
        tiles = outputs(env.config, rng, 1 if SHORT else env.scale(6, 40))
        count = bench.send(tiles)
        await bench.finish(count, limit=_limit(env.config, tiles))
        raised = {name: value for name, value in bench.status().items() if value}
        if raised != ({"overflow": 1} if bench.model.overflow else {}):
            raise MismatchError(f"status {raised}, overflow {bench.model.overflow} in the model")
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=seed)


@cocotb.test(skip=SHORT)
async def every_kind(dut: object) -> None:
    """Each kind of data at the lowest and the highest precision, alone."""
    env = Environment.get()
    bench = CoreBench(dut, env.config, env.seed, MOODS["steady"])
    await bench.reset()
    rng = np.random.default_rng(env.seed)
    tiles = []
    for kind in KINDS:
        for p in (5, env.config.p_max):
            for midpoint in (0, 1):
                made = tile(env.config, rng, kind, p)
                made.midpoint, made.fp32 = midpoint, int(rng.integers(0, 2))
                tiles.append(made)
    await bench.finish(bench.send(tiles), limit=_limit(env.config, tiles))
    env.report("kinds", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test(skip=SHORT)
async def longest_reduction(dut: object) -> None:
    """All operands at their maximum over max_k, or over a part of it that is quick to run.

    The accumulator's bound is reached only at max_k; configurations with a small one
    run all of it.
    """
    env = Environment.get()
    config = env.config
    bench = CoreBench(dut, config, env.seed, MOODS["steady"])
    await bench.reset()
    rng = np.random.default_rng(env.seed)
    count = min(config.max_k // 64, env.scale(4, 64))
    tiles = []
    for number in range(count):
        made = tile(config, rng, "maximum", config.p_max)
        made.activations[:] = 0x40FF
        made.exponents[:] = 130
        made.signs[:] = np.arange(64) % 2
        made.first, made.last = int(number == 0), int(number == count - 1)
        made.fp32 = 1
        tiles.append(made)
    await bench.finish(bench.send(tiles), limit=_limit(config, tiles))
    env.report("max_k", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test(skip=SHORT)
async def long_stall(dut: object) -> None:
    """Nobody takes results until the core stops by itself; then they leave back to back."""
    env = Environment.get()
    config = env.config
    bench = CoreBench(dut, config, env.seed, MOODS["steady"])
    await bench.reset()
    rng = np.random.default_rng(env.seed)
    tiles = []
    for number in range(2 * config.result_tiles + 2):
        made = tile(config, rng, "plain", 5 + number % 2)
        made.fp32, made.context = number % 2, number % config.contexts
        tiles.append(made)
    count = bench.send(tiles)
    # Full, then a result at a time: what one row frees is not room for a column group.
    for released in range(4):
        bench.results.blocked = True
        for _ in range((len(tiles) * 6 * config.fold if released == 0 else 0) + 60):
            await bench.cycle()
        if not bench.planes.queue:
            raise MismatchError("the core took more planes than it has room for results")
        if bench.cycle_count - bench.plane_cycles[-1] < 20:
            raise MismatchError("the core still takes planes while no result can leave")
        bench.results.blocked = False
        taken = bench.results.count
        while bench.results.count == taken:
            await bench.cycle()
    beats = count * (64 // config.drain)
    await bench.run(lambda: bench.results.count >= beats, limit=_limit(config, tiles))
    await bench.finish(0, limit=_limit(config, tiles))
    env.report("stall", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test(skip=SHORT)
async def steady_state(dut: object) -> None:
    """With every stream willing, an output tile takes max(K p fold, 64 / drain) cycles, exactly."""
    env = Environment.get()
    config = env.config
    rng = np.random.default_rng(env.seed)
    cases = [(k, p) for k in (1, 2) for p in (5, 6, 8, 9, config.p_max) if k * TILE <= config.max_k]
    transactions = cycles = 0
    for k_tiles, p in cases if not env.quick else cases[::3]:
        bench = CoreBench(dut, config, env.seed, MOODS["steady"])
        await bench.reset()
        # The drain bounds the core only once the result buffer is full.
        warm, measured = 4 + 3 * config.result_tiles, 6
        tiles = []
        for _ in range(warm + measured + 1):
            for number in range(k_tiles):
                made = tile(config, rng, "plain", p)
                made.first, made.last = int(number == 0), int(number == k_tiles - 1)
                tiles.append(made)
        await bench.finish(bench.send(tiles), limit=_limit(config, tiles))
        beats = k_tiles * p * config.fold
        took = bench.plane_cycles[(warm + measured) * beats] - bench.plane_cycles[warm * beats]
        expected = measured * max(beats, 64 // config.drain)
        if took != expected:
            raise MismatchError(
                f"{measured} output tiles of {k_tiles} x {p} planes took {took} cycles,"
                f" not {expected}"
            )
        transactions += bench.compared
        cycles += bench.cycle_count
    env.report("cycles", transactions=transactions, cycles=cycles, seed=env.seed)


@cocotb.test(skip=SHORT)
async def no_bubble(dut: object) -> None:
    """Drafts, targets, modes and contexts mixed: the planes never wait, not one cycle."""
    env = Environment.get()
    config = env.config
    bench = CoreBench(dut, config, env.seed, MOODS["steady"])
    await bench.reset()
    rng = np.random.default_rng(env.seed)
    tiles = outputs(config, rng, env.scale(6, 30))
    # Output tiles that the drain would hold back are another test's matter: make them longer.
    shortest = -(-64 // config.drain) // config.fold
    for made in tiles:
        if made.last:
            made.p = max(made.p, min(shortest, config.p_max))
            made.magnitudes = made.magnitudes & ((1 << (made.p - 1)) - 1)
        made.scales = None
    expected = sum(made.p for made in tiles) * config.fold
    await bench.finish(bench.send(tiles), limit=_limit(config, tiles))
    took = bench.plane_cycles[-1] - bench.plane_cycles[0] + 1
    if took != expected:
        raise MismatchError(f"{len(tiles)} tiles took {took} cycles, not {expected}")
    env.report("bubbles", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def reset_in_mid_job(dut: object) -> None:
    """A reset at any time leaves a core that does the next job, and the same job twice, right."""
    env = Environment.get()
    config = env.config
    bench = CoreBench(dut, config, env.seed, MOODS["both"])
    await bench.reset()
    rng = np.random.default_rng(env.seed)
    longest = 100 if SHORT else 60 * config.fold
    for _ in range(1 if SHORT else env.scale(3, 12)):
        bench.send(outputs(config, rng, 3))
        for _ in range(bench.rng.randrange(1, longest)):
            await bench.cycle()
        await bench.reset()
        bench.restart()
    tiles = outputs(config, rng, 1 if SHORT else 3)
    for _ in range(2):
        count = bench.send(copy.deepcopy(tiles))
        await bench.finish(count, limit=_limit(config, tiles))
    env.report("reset", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test(skip=SHORT)
async def refused_input(dut: object) -> None:
    """Inf, NaN, exponents of 255, bad p and contexts: flagged, dead or clamped, no hang."""
    env = Environment.get()
    config = env.config
    bench = CoreBench(dut, config, env.seed, MOODS["both"])
    await bench.reset()
    rng = np.random.default_rng(env.seed)

    async def check(made: Tile | list[Tile], expected: str | None, **change: int) -> None:
        tiles = made if isinstance(made, list) else [made]
        await bench.finish(bench.send(tiles, **change), limit=_limit(config, tiles))
        raised = {name for name, value in bench.status().items() if value}
        if raised != ({expected} if expected else set()):
            raise MismatchError(f"status bits {sorted(raised)}, not {expected}")
        bench.port("clear").value = 1
        await bench.cycle()
        bench.port("clear").value = 0
        await bench.cycle()
        if any(bench.status().values()):
            raise MismatchError("clear does not clear the status")

    await check(tile(config, rng, "plain", 5), None)
    for code in (0x7F80, 0xFF80, 0x7FC0, 0xFFFF):
        made = tile(config, rng, "plain", 6)
        row = int(rng.integers(0, config.t_m))
        made.activations[row, rng.integers(0, 64)] = code
        await check(made, "refused_activation")
        made.rows ^= 1 << row
        await check(made, None)
    made = tile(config, rng, "plain", 7)
    made.exponents[rng.integers(0, 64)] = 255
    await check(made, "refused_exponent")
    made.rows = 0
    await check(made, None)
    for fmt in (0, 1):
        made = tile(config, rng, "maximum", 9)
        made.activations[:] = 0x7F7F
        made.exponents[:] = 254
        made.fp32 = fmt
        await check(made, "overflow")
        if config.max_k > TILE:
            made.last = 0
            after = tile(config, rng, "plain", 9)
            after.first, after.fp32, after.rows = 0, fmt, 0
            await check([made, after], None)
    words = [{"p": p} for p in (0, 4, *range(config.p_max + 1, 1 << config.p_bits))]
    words += [{"context": c} for c in range(config.contexts, 1 << config.context_bits)]
    for change in words:
        # The data has the number of planes that the core will count.
        planes = min(max(change.get("p", 5), 5), config.p_max)
        await check(tile(config, rng, "plain", planes), "refused_tile", **change)
    env.report("refused", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)
