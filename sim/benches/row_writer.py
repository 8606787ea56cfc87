"""Bench of the row writer: rows of every length from bank words to lines."""

from __future__ import annotations

import cocotb

from hw.keys.values import RowWriter
from sim.beats import BeatBench
from sim.chips import chip_of
from sim.environment import Environment
from sim.harness import MOODS, MismatchError

STROBE = (1 << 64) - 1


@cocotb.test()
async def rows(dut: object) -> None:
    """Rows of 1 to 4 lines in all moods, with a reset on the way; steady, a word a cycle."""
    env = Environment.get()
    for number, mood in enumerate(MOODS):
        component = RowWriter(chip_of(env.config))
        bench = BeatBench(dut, env, component, mood, env.seed + number)
        await bench.reset()
        for after_reset in (False, True):
            words = 0
            count = env.scale(20, 200)
            for _ in range(count):
                job = {"line": bench.rng.randrange(1 << 30), "count": bench.rng.randint(1, 4)}
                bench.feed("jobs", [job])
                bench.want("requests", [job])
                for _ in range(job["count"]):
                    line = bench.rng.getrandbits(512)
                    bench.feed("words", [line & ((1 << 256) - 1), line >> 256])
                    bench.want("lines", [{"data": line, "strobe": STROBE}])
                    words += 2
            if not after_reset:
                for _ in range(bench.rng.randint(5, 40)):
                    await bench.cycle()
                await bench.reset()
                bench.clear_streams()
                continue
            took = await bench.finish()
            # A row's job takes a cycle.
            if mood == "steady" and took > words + count + 4:
                raise MismatchError(f"{took} cycles for {words} words of {count} rows")
            if not bench.get("idle"):
                raise MismatchError("a row is left")
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)
