"""Bench of the line reader: small reads in order, a client that takes its time, errors."""

from __future__ import annotations

import cocotb

from hw.axi.config import LINE_BYTES
from hw.axi.read import LineReader
from sim.axi import BASE_LINE, COUNTS, AxiBench, Rate, memory_of
from sim.axi_memory import SLVERR, Behaviour
from sim.environment import Environment
from sim.harness import MOODS, MismatchError
from sim.words import unpack


class ReaderBench(AxiBench):
    """The line reader. Its model is fed by the requests that were taken."""

    def __init__(
        self,
        dut: object,
        env: Environment,
        mood: str = "steady",
        number: int = 0,
        behaviour: Behaviour | None = None,
    ) -> None:
        component = LineReader(memory_of(env.config))
        super().__init__(dut, env, component, mood, env.seed + number, behaviour)
        self.feed("requests", [])
        self.want("lines", [])
        self.into["requests"].observers.append(self._taken)
        self.watchers.append(self._always_ready)

    def _taken(self, word: int) -> None:
        request = unpack(self._shapes["requests__payload"], word)
        for i in range(request["count"]):
            line = request["line"] + i
            self.want(
                "lines",
                [
                    {
                        "data": self.line(line),
                        "error": int(self.error_in(line)),
                        "last": int(i == request["count"] - 1),
                        "tag": request["tag"],
                    }
                ],
            )

    def _always_ready(self) -> None:
        if not self.bit(self.port("axi_rready")):
            raise MismatchError(f"rready is 0 in cycle {self.cycle_count}")


@cocotb.test()
async def moods(dut: object) -> None:
    """Random requests in all moods, with errors; pauses; a reset in mid-burst, then more."""
    for number, mood in enumerate(MOODS):
        env = Environment.get()
        bench = ReaderBench(dut, env, mood, number)
        await bench.reset()
        for after_reset in (False, True):
            bench.sometimes_errors()
            bench.feed("requests", (bench.request(limit=70) for _ in range(env.scale(8, 40))))
            for _ in range(2 if after_reset else 1):
                for _ in range(bench.rng.randint(40, 120)):
                    await bench.cycle()
                if after_reset:
                    await bench.pause()
            if not after_reset:
                await bench.reset()
                bench.clear_streams()
        await bench.finish()
        bench.feed("requests", [bench.request(limit=4)])
        await bench.held_back("requests")
        await bench.finish()
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def client_rests(dut: object) -> None:
    """Nobody takes lines: the bus falls silent with all that was reserved, stop finds it so."""
    env = Environment.get()
    bench = ReaderBench(dut, env)
    await bench.reset()
    bench.out["lines"].blocked = True
    burst = bench.config.burst_lines
    for first in range(0, 6 * bench.config.reader_lines, burst):
        count = bench.rng.randint(1, burst)
        bench.feed("requests", [{"line": BASE_LINE + first, "count": count, "tag": 3}])
    for _ in range(40 + 2 * bench.config.reader_lines * bench.config.line_beats):
        await bench.cycle()
    asked = bench.memory.asked // LINE_BYTES
    if bench.memory.outstanding or not asked > bench.config.reader_lines - burst:
        raise MismatchError(f"{asked} lines asked for, {bench.memory.outstanding} bursts left")
    await bench.pause()
    bench.out["lines"].blocked = False
    await bench.finish()
    env.report("rests", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def counts(dut: object) -> None:
    """Requests of 1, 63, 64, 65 and 1000 lines that end on the last line of a page; an error."""
    env = Environment.get()
    step = memory_of(env.config).port_bits // 8
    start = (BASE_LINE + 1023) * LINE_BYTES
    errors = {(start, start + step): SLVERR}
    bench = ReaderBench(dut, env, behaviour=Behaviour(errors=errors))
    await bench.reset()
    for count in env.scale(1, 0) * COUNTS[:4] or COUNTS:
        bench.feed("requests", [{"line": BASE_LINE + 1024 - count, "count": count, "tag": 1}])
    await bench.finish()
    env.report("counts", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def steady(dut: object) -> None:
    """Memory that answers a beat a cycle, as late as the reserved lines allow."""
    env = Environment.get()
    config = memory_of(env.config)
    beats = (config.reader_lines - config.burst_lines) * config.line_beats
    hidden = min(beats, (config.outstanding - 1) * config.burst_lines * config.line_beats) - 12
    bench = ReaderBench(dut, env, behaviour=Behaviour(latency=(hidden, hidden)))
    await bench.reset()
    count = env.scale(512, 2048)
    rate = Rate(bench, count, edge=64)
    bench.out["lines"].observers.append(rate.line)
    bench.feed("requests", [{"line": BASE_LINE, "count": count, "tag": 0}])
    await bench.finish()
    measured = rate.compare(1 / config.line_beats, 0.95, f"latency {hidden}")
    env.report(
        "rate",
        transactions=bench.compared,
        cycles=bench.cycle_count,
        seed=env.seed,
        measured=measured,
    )
