"""Bench of a read port: bursts in, lines out, behind memory of every kind."""

from __future__ import annotations

import cocotb

from hw.axi.config import LINE_BYTES, STREAM_ID
from hw.axi.read import ReadPort
from sim.axi import BASE_LINE, COUNTS, LINES, AxiBench, Rate, bursts_of, memory_of
from sim.axi_memory import DECERR, SLVERR, Behaviour
from sim.environment import Environment
from sim.harness import MOODS, MismatchError
from sim.words import unpack


class PortBench(AxiBench):
    """A read port of the wide stream. Its model is fed by the bursts that were taken."""

    def __init__(
        self,
        dut: object,
        env: Environment,
        mood: str = "steady",
        number: int = 0,
        behaviour: Behaviour | None = None,
    ) -> None:
        component = ReadPort(memory_of(env.config), axi_id=STREAM_ID, reserve=False)
        super().__init__(dut, env, component, mood, env.seed + number, behaviour)
        self.feed("bursts", [])
        self.want("lines", [])
        self.into["bursts"].observers.append(self._taken)
        self.position = 0

    def _taken(self, word: int) -> None:
        burst = unpack(self._shapes["bursts__payload"], word)
        for i in range(burst["lines"]):
            line = burst["line"] + i
            self.want(
                "lines",
                [
                    {
                        "data": self.line(line),
                        "error": int(self.error_in(line)),
                        "ends": int(i == burst["lines"] - 1),
                        "tag": burst["tag"],
                        "index": (burst["index"] + i) % (1 << self.config.index_bits),
                    }
                ],
            )

    def send(self, request: dict[str, int]) -> None:
        """The bursts of a request."""
        for burst in bursts_of(self.config, request):
            del burst["last"]
            burst["index"] = self.position % (1 << self.config.index_bits)
            self.position += burst["lines"]
            self.feed("bursts", [burst])


@cocotb.test()
async def moods(dut: object) -> None:
    """Random bursts in all moods, with errors; pauses; a reset in mid-burst, then more."""
    for number, mood in enumerate(MOODS):
        env = Environment.get()
        bench = PortBench(dut, env, mood, number)
        await bench.reset()
        for after_reset in (False, True):
            bench.sometimes_errors()
            for _ in range(env.scale(6, 40)):
                bench.send(bench.request(limit=100))
            for _ in range(2 if after_reset else 1):
                for _ in range(bench.rng.randint(40, 120)):
                    await bench.cycle()
                if after_reset:
                    await bench.pause()
            if not after_reset:
                await bench.reset()
                bench.clear_streams()
        await bench.finish()
        bench.send(bench.request(limit=4))
        await bench.held_back("bursts")
        await bench.finish()
        if bench.memory.most_bursts > bench.config.outstanding:
            raise MismatchError(f"{bench.memory.most_bursts} bursts outstanding")
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def errors(dut: object) -> None:
    """One beat of a burst answered with an error: the first, one in the middle, the last."""
    env = Environment.get()
    bench = PortBench(dut, env)
    await bench.reset()
    step = bench.config.port_bits // 8
    lines = bench.config.burst_lines
    beats = lines * bench.config.line_beats
    for code in (SLVERR, DECERR):
        for beat in sorted({0, 1, beats // 2 - 1, beats // 2, beats - 2, beats - 1}):
            start = BASE_LINE * LINE_BYTES + beat * step
            bench.memory.behaviour = Behaviour(errors={(start, start + step): code})
            bench.send({"line": BASE_LINE, "count": 2 * lines, "tag": 1})
            await bench.finish()
    env.report("errors", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def counts(dut: object) -> None:
    """Requests of 1, 63, 64, 65 and 1000 lines that begin on the last lines of a page."""
    env = Environment.get()
    bench = PortBench(dut, env)
    await bench.reset()
    for count in env.scale(1, 0) * COUNTS[:4] or COUNTS:
        for first in (62, 63):
            bench.send({"line": BASE_LINE + first, "count": count, "tag": 2})
    await bench.finish()
    env.report("counts", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def steady(dut: object) -> None:
    """Memory that answers a beat a cycle, as late as the outstanding bursts allow."""
    env = Environment.get()
    config = memory_of(env.config)
    hidden = (config.outstanding - 1) * config.burst_lines * config.line_beats - 8
    bench = PortBench(dut, env, behaviour=Behaviour(latency=(hidden, hidden)))
    await bench.reset()
    count = env.scale(512, 4096)
    rate = Rate(bench, count, edge=64)
    bench.out["lines"].observers.append(rate.line)
    for first in range(0, count, 512):
        bench.send({"line": BASE_LINE + first % LINES, "count": 512, "tag": 0})
    await bench.finish()
    offered = 1 / config.line_beats
    measured = rate.compare(offered, 0.99, f"latency {hidden}")
    env.report(
        "rate",
        transactions=bench.compared,
        cycles=bench.cycle_count,
        seed=env.seed,
        measured=measured,
    )
