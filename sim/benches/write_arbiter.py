"""Bench of the write arbiter: requests in turn, their lines together, stalls everywhere."""

from __future__ import annotations

from collections import deque
from typing import Any

import cocotb

from hw.transfers.arbiter import REQUESTS, WriteArbiter
from sim.beats import BeatBench
from sim.chips import chip_of
from sim.environment import Environment
from sim.harness import MOODS, MismatchError, Sink
from sim.words import unpack

#: Sources of the design under test.
SOURCES = 3


class _ArbiterBench(BeatBench):
    def __init__(self, dut: object, mood: str = "steady", number: int = 0) -> None:
        env = Environment.get()
        self.env = env
        self.chip = chip_of(env.config)
        component = WriteArbiter(self.chip, sources=SOURCES)
        super().__init__(dut, env, component, mood, env.seed + number)
        for name in ("requests", "lines"):
            for i in range(SOURCES):
                self.feed(f"{name}_{i}", [])
        self.requests: Sink = self.sink("requests", stall=self.stall)
        self.lines: Sink = self.sink("lines", stall=self.stall)
        self.requests.observers.append(self._asked)
        self.lines.observers.append(self._passed)
        #: Requests of each source that were not taken yet, and its lines.
        self.made: list[deque[dict[str, int]]] = [deque() for _ in range(SOURCES)]
        self.content: list[deque[int]] = [deque() for _ in range(SOURCES)]
        #: Source and lines left of requests that were taken.
        self.open: deque[list[int]] = deque()
        self.taken: list[tuple[int, int]] = []
        self.passed: list[int] = []
        self.most_open = 0
        self._patient = False
        self._last = SOURCES - 1
        self._shown: int | None = None
        self._done = False
        self._new: list[int] | None = None
        self.watchers.append(self._look)

    def add(self, source: int, count: int) -> None:
        """A request of a source, and its lines."""
        line = self.rng.randrange(1 << self.chip.memory.line_address_bits)
        request = {"line": line, "count": count}
        self.feed(f"requests_{source}", [request])
        self.made[source].append(request)
        for _ in range(count):
            word = self.rng.getrandbits(576)
            self.feed(f"lines_{source}", [word])
            self.content[source].append(word)

    def _asked(self, word: int) -> None:
        got: dict[str, Any] = unpack(self._shapes["requests__payload"], word)
        source = got.pop("tag")
        if source >= SOURCES or not self.made[source]:
            raise MismatchError(f"a request of source {source}, that has none")
        if got != (want := self.made[source].popleft()):
            raise MismatchError(f"{got}, not {want} of source {source}")
        self._new = [source, got["count"]]
        self.taken.append((self.cycle_count, source))
        self.compared += 1

    def _passed(self, word: int) -> None:
        if not self.open:
            raise MismatchError("a line without a request")
        source = self.open[0][0]
        if word != (want := self.content[source].popleft()):
            raise MismatchError(f"line {word:#x}, not {want:#x} of source {source}")
        self.open[0][1] -= 1
        self._done = self.open[0][1] == 0
        self.passed.append(self.cycle_count)
        self.compared += 1

    async def cycle(self) -> None:
        """One clock period."""
        self._new = None
        self._done = False
        for sink in self.sinks:
            if self._patient:
                sink.blocked = not self.bit(sink.valid)
        await super().cycle()

    def _look(self) -> None:
        # Whoever is shown is next in turn; it stays until it is taken.
        waiting = [self.bit(self.port(f"requests_{i}__valid")) for i in range(SOURCES)]
        if self.bit(self.requests.valid):
            word = self.word(self.requests.payload)
            tag = unpack(self._shapes["requests__payload"], word)["tag"]
            turn = [(self._last + 1 + i) % SOURCES for i in range(SOURCES)]
            next_one = next((i for i in turn if waiting[i]), None)
            if tag != (want := next_one if self._shown is None else self._shown):
                raise MismatchError(f"source {tag} is shown, not {want}")
            self._shown = tag if self._new is None else None
            self._last = tag
        elif any(waiting) and len(self.open) < REQUESTS:
            raise MismatchError("no request is shown, although one is there")
        self.expect(idle=int(not self.open))
        if self._done:
            self.open.popleft()
        if self._new is not None:
            self.open.append(self._new)
        self.most_open = max(self.most_open, len(self.open))
        if self.most_open > REQUESTS:
            raise MismatchError(f"{self.most_open} requests are ahead of their lines")

    async def reset(self, cycles: int = 2) -> None:
        """As that of every bench; forgets what is under way."""
        await super().reset(cycles)
        for i in range(SOURCES):
            self.made[i].clear()
            self.content[i].clear()
        self.open.clear()
        self._last, self._shown = SOURCES - 1, None

    async def end(self, *, patient: bool = False) -> int:
        """Until everything passed, and some cycles more; the cycles until then."""
        self._patient = patient
        start = self.cycle_count
        left = sum(map(len, self.made)) + sum(map(len, self.content))
        await self.run(
            lambda: not any((*self.made, *self.content, self.open)), limit=200 + 40 * left
        )
        took = self.cycle_count - start
        for _ in range(8):
            await self.cycle()
        self._patient = False
        for sink in self.sinks:
            sink.blocked = False
        return took

    def report(self, part: str, measured: str = "") -> None:
        """To the runner."""
        self.env.report(
            part,
            transactions=self.compared,
            cycles=self.cycle_count,
            seed=self.env.seed,
            measured=measured,
        )


@cocotb.test()
async def mixed(dut: object) -> None:
    """All sources, requests of one line and of many, in all moods; a reset on the way."""
    for number, mood in enumerate(MOODS):
        bench = _ArbiterBench(dut, mood, number)
        await bench.reset()
        for after_reset in (False, True):
            for _ in range(bench.env.scale(60, 500)):
                count = bench.rng.choice((1, 1, 2, bench.rng.randint(1, 9)))
                bench.add(bench.rng.randrange(SOURCES), count)
            if after_reset:
                await bench.end(patient=mood == "steady")
            else:
                for _ in range(bench.rng.randint(20, 120)):
                    await bench.cycle()
                await bench.reset()
        bench.report(mood)


@cocotb.test()
async def alone(dut: object) -> None:
    """One source after the other, while the others are silent or have lines without a request."""
    bench = _ArbiterBench(dut, "both")
    await bench.reset()
    for source in range(SOURCES):
        for _ in range(10):
            bench.add(source, bench.rng.randint(1, 4))
        await bench.end()
    late = []
    for source in range(1, SOURCES):
        bench.add(source, 2)
        late.append((source, bench.into[f"requests_{source}"].queue.pop()))
    bench.add(0, 3)
    for _ in range(60):
        await bench.cycle()
    if bench.open or bench.made[0] or any(len(each) != 2 for each in bench.content[1:]):
        raise MismatchError("lines passed without their request")
    for source, word in late:
        bench.into[f"requests_{source}"].send([word])
    await bench.end()
    bench.report("alone")


@cocotb.test()
async def ahead(dut: object) -> None:
    """While no line passes, as many requests as the queue holds are taken."""
    bench = _ArbiterBench(dut)
    await bench.reset()
    for _ in range(4):
        for source in range(SOURCES):
            bench.add(source, 2)
    bench.lines.blocked = True
    for _ in range(20):
        await bench.cycle()
    if len(bench.open) != REQUESTS:
        raise MismatchError(f"{len(bench.open)} requests ahead of their lines, not {REQUESTS}")
    bench.lines.blocked = False
    await bench.end()
    bench.report("ahead")


@cocotb.test()
async def rate(dut: object) -> None:
    """A line in every cycle, and sources in turn."""
    bench = _ArbiterBench(dut)
    await bench.reset()
    for _ in range(30):
        for source in range(SOURCES):
            bench.add(source, bench.rng.randint(1, 3))
    await bench.end()
    if (took := bench.passed[-1] - bench.passed[0] + 1) != len(bench.passed):
        raise MismatchError(f"{took} cycles for {len(bench.passed)} lines")
    if bench.passed[0] != bench.taken[0][0] + 1:
        raise MismatchError("the first line does not pass in the cycle after its request")
    if any(source != i % SOURCES for i, (_, source) in enumerate(bench.taken)):
        raise MismatchError("the sources do not take turns")
    bench.report("rate", f"{len(bench.passed)} lines in {took} cycles")
