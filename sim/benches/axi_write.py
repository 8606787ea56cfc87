"""Bench of the line writer: strobes, guards, fences, errors, a client that stops in mid-burst."""

from __future__ import annotations

import cocotb

from hw.axi.config import LINE_BYTES
from hw.axi.write import LineWriter
from sim.axi import BASE, BASE_LINE, COUNTS, AxiBench, Rate, memory_of
from sim.axi_memory import DECERR, SLVERR, Behaviour
from sim.environment import Environment
from sim.harness import MOODS, MismatchError
from sim.words import unpack

ALL = (1 << LINE_BYTES) - 1


class WriterBench(AxiBench):
    """The line writer. ``wanted`` is what memory must hold when all is done."""

    def __init__(
        self,
        dut: object,
        env: Environment,
        mood: str = "steady",
        number: int = 0,
        behaviour: Behaviour | None = None,
    ) -> None:
        component = LineWriter(memory_of(env.config))
        super().__init__(dut, env, component, mood, env.seed + number, behaviour)
        self.feed("requests", [])
        self.feed("lines", [])
        self.into["requests"].observers.append(self._request)
        self.into["lines"].observers.append(self._line)
        self.watchers.append(self._watch)
        self.begin()

    def begin(self) -> None:
        """Memory is what it is; nothing is asked for."""
        self.wanted = bytearray(self.content)
        self.places: list[int] = []
        self.came = 0
        self.fresh = False
        self.before = len(self.memory.addresses)

    def _request(self, word: int) -> None:
        request = unpack(self._shapes["requests__payload"], word)
        self.places += range(request["line"], request["line"] + request["count"])
        self.fresh = True

    def _line(self, _: int) -> None:
        self.came += 1

    def _watch(self) -> None:
        issued = self.memory.addresses[self.before :]
        lines = sum(burst[4] for burst in issued) // self.config.line_beats
        if lines > self.came:
            raise MismatchError(f"{lines} lines issued, {self.came} have come")
        fresh, self.fresh = self.fresh, False
        quiet = not fresh and not self.bit(self.port("busy"))
        if quiet and (self.memory.outstanding or lines != len(self.places)):
            raise MismatchError(f"not busy in cycle {self.cycle_count}, but not done")
        if not self.bit(self.port("axi_bready")):
            raise MismatchError("bready is 0")

    def ask(self, request: dict[str, int], strobe: int | None = None) -> None:
        """Asks for lines with random data, and random strobes by default."""
        self.feed("requests", [request])
        for i in range(request["count"]):
            data = self.rng.getrandbits(8 * LINE_BYTES)
            mask = strobe
            if mask is None:
                mask = self.rng.choice((0, ALL, ALL, 0xFF << 8 * self.rng.randrange(8), None))
            if mask is None:
                mask = self.rng.getrandbits(LINE_BYTES)
            self.feed("lines", [{"data": data, "strobe": mask}])
            start = (request["line"] + i) * LINE_BYTES
            for byte, value in enumerate(data.to_bytes(LINE_BYTES, "little")):
                beat = start + byte - (start + byte) % (self.config.port_bits // 8)
                if mask >> byte & 1 and not self.memory.response(beat):
                    self.wanted[start - BASE + byte] = value

    async def done(self) -> None:
        """Until nothing is left to do; then memory must be what it should, guards included."""
        left = len(self.into["lines"].queue)
        idle, busy = self.port("idle"), self.port("busy")

        def over() -> bool:
            queues = any(source.queue for source in self.sources)
            return not queues and not self.bit(busy)

        await self.cycle()
        await self.run(over, limit=2000 + 60 * left)
        if not self.bit(idle):
            raise MismatchError("neither busy nor idle")
        if self.content != self.wanted:
            bad = [
                i for i, (a, b) in enumerate(zip(self.content, self.wanted, strict=True)) if a != b
            ]
            raise MismatchError(f"{len(bad)} bytes of memory differ, the first at {bad[0]:#x}")
        self.compared += self.came


@cocotb.test()
async def moods(dut: object) -> None:
    """Random requests in all moods, pauses; a reset in mid-burst, then more."""
    for number, mood in enumerate(MOODS):
        env = Environment.get()
        bench = WriterBench(dut, env, mood, number)
        await bench.reset()
        for after_reset in (False, True):
            bench.begin()
            for _ in range(env.scale(6, 30)):
                bench.ask(bench.request(limit=70))
            for _ in range(2 if after_reset else 1):
                for _ in range(bench.rng.randint(40, 120)):
                    await bench.cycle()
                if after_reset:
                    await bench.pause()
            if not after_reset:
                await bench.reset()
        await bench.done()
        bench.ask(bench.request(limit=4))
        await bench.held_back("requests")
        await bench.done()
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def counts(dut: object) -> None:
    """Requests of 1, 63, 64, 65 and 1000 lines around the end of a page, one fence after each."""
    env = Environment.get()
    bench = WriterBench(dut, env)
    await bench.reset()
    for count in env.scale(1, 0) * COUNTS[:4] or COUNTS:
        for first in (62, 64 + 64 - count % 64):
            bench.begin()
            bench.ask({"line": BASE_LINE + first, "count": count, "tag": 1}, strobe=ALL)
            await bench.done()
    env.report("counts", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def errors(dut: object) -> None:
    """An error in the first, a middle and the last beat: sticky, with the first tag."""
    env = Environment.get()
    bench = WriterBench(dut, env)
    await bench.reset()
    step = bench.config.port_bits // 8
    lines = bench.config.burst_lines
    beats = lines * bench.config.line_beats
    bench.expect(error=0)
    for code in (SLVERR, DECERR):
        for beat in sorted({0, beats // 2, beats - 1}):
            start = (BASE_LINE + 64) * LINE_BYTES + beat * step
            bench.memory.behaviour = Behaviour(errors={(start, start + step): code})
            bench.begin()
            bench.ask({"line": BASE_LINE, "count": lines, "tag": 6})
            bench.ask({"line": BASE_LINE + 64, "count": lines, "tag": 5})
            bench.ask({"line": BASE_LINE + 64, "count": lines, "tag": 2})
            await bench.done()
            bench.expect(error=1, error_tag=5)
            bench.put(clear=1)
            await bench.cycle()
            bench.put(clear=0)
            await bench.cycle()
            bench.expect(error=0)
    env.report("errors", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def client_rests(dut: object) -> None:
    """A client that stops in the middle of a burst: the bus ends what it began, stop finds idle."""
    env = Environment.get()
    bench = WriterBench(dut, env)
    await bench.reset()
    count = 3 * bench.config.burst_lines
    bench.ask({"line": BASE_LINE + 8, "count": count, "tag": 1})
    source = bench.into["lines"]
    kept = [source.queue.pop() for _ in range(bench.config.burst_lines // 2 + 1)]
    for _ in range(count * bench.config.line_beats + 60):
        await bench.cycle()
    if bench.memory.outstanding or not bench.bit(bench.port("busy")):
        raise MismatchError("a burst waits for its data, or the fence does not")
    await bench.pause()
    source.queue.extend(reversed(kept))
    await bench.done()
    env.report("rests", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def steady(dut: object) -> None:
    """Memory that takes a beat a cycle and answers late."""
    env = Environment.get()
    config = memory_of(env.config)
    latency = min(200, (config.outstanding - 1) * config.burst_lines * config.line_beats - 10)
    bench = WriterBench(dut, env, behaviour=Behaviour(latency=(latency, latency)))
    await bench.reset()
    count = env.scale(512, 2048)
    rate = Rate(bench, count, edge=64)
    seen = 0

    def watch() -> None:
        nonlocal seen
        written = bench.memory.beats_written // config.line_beats
        for _ in range(written - seen):
            rate.line()
        seen = written

    bench.watchers.append(watch)
    bench.ask({"line": BASE_LINE, "count": count, "tag": 0}, strobe=ALL)
    await bench.done()
    measured = rate.compare(1 / config.line_beats, 0.95, f"latency {latency}")
    env.report(
        "rate",
        transactions=bench.compared,
        cycles=bench.cycle_count,
        seed=env.seed,
        measured=measured,
    )
