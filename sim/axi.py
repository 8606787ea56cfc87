"""What the benches of the memory ports share: ports by configuration, a memory, stop and go."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from hw.axi.config import LINE_BYTES, PAGE_LINES, PRESETS, MemoryConfig
from hw.config import Config
from hw.library import Unique
from sim.axi_memory import AxiMemory, Behaviour
from sim.beats import BeatBench
from sim.environment import Environment
from sim.harness import MismatchError

#: Ports by the name of a core's configuration: those of the presets, and other widths and numbers.
MEMORIES = {
    **PRESETS,
    "odd": MemoryConfig(
        name="odd",
        ports=2,
        port_bits=128,
        max_beats=256,
        outstanding=3,
        ring_lines=512,
        fifo_lines=2,
        reader_lines=128,
        writer_lines=128,
        tag_bits=3,
    ),
    "slice": MemoryConfig(name="slice", ports=4, port_bits=256, max_beats=12, outstanding=5),
}
#: Where memory begins: both halves of the address have ones and zeros.
BASE = 0xA5_5A5A_0000
BASE_LINE = BASE // LINE_BYTES
#: Lines of the memory, and guard lines before and behind what requests may touch.
LINES = 4096
GUARD = 4

#: How memory behaves in each mood of the streams.
BEHAVIOURS = {
    "steady": Behaviour(latency=(20, 20)),
    "gaps": Behaviour(latency=(1, 60), stall=0.2),
    "stalls": Behaviour(latency=(1, 4), swap=0.5),
    "both": Behaviour(latency=(1, 80), stall=0.3, swap=0.3, rate=48),
}

#: Counts around the 64 lines of a page, and one over many pages.
COUNTS = (1, 63, 64, 65, 1000)
#: Lines within a page that requests begin at.
STARTS = (0, 1, 31, 62, 63)


def memory_of(config: Config) -> MemoryConfig:
    """The memory ports that go with a core's configuration in the benches."""
    return MEMORIES[config.name]


class AxiBench(BeatBench):
    """A component with AXI ports, and the memory behind them.

    Parameters
    ----------
    dut, env, component, mood, seed : as for a bench of beats
    behaviour : Behaviour or None
        That of the mood by default.
    """

    def __init__(
        self,
        dut: Any,
        env: Environment,
        component: Unique,
        mood: str = "steady",
        seed: int | None = None,
        behaviour: Behaviour | None = None,
    ) -> None:
        super().__init__(dut, env, component, mood, seed)
        self.config = memory_of(env.config)
        self.content = bytearray(self.rng.randbytes(LINES * LINE_BYTES))
        prefixes = [
            prefix
            for prefix in ("axi", *(f"m{i}_axi" for i in range(self.config.ports)))
            if hasattr(dut, f"{prefix}_arvalid") or hasattr(dut, f"{prefix}_awvalid")
        ]
        self.memory = AxiMemory(
            self,
            prefixes,
            self.content,
            behaviour or BEHAVIOURS[mood],
            seed=self.rng.getrandbits(32),
            max_beats=self.config.burst_lines * self.config.line_beats,
            base=BASE,
        )
        self.agents.append(self.memory)
        if "idle" in self._shapes:
            self.watchers.append(self._idle_is_true)
        for name in ("stop", "clear"):
            if name in self._shapes:
                self.put(**{name: 0})

    def _idle_is_true(self) -> None:
        if self.memory.outstanding and self.bit(self.port("idle")):
            raise MismatchError(f"idle in cycle {self.cycle_count} with bursts on the bus")

    def line(self, number: int) -> int:
        """The content of a line, by its address."""
        start = (number - BASE_LINE) * LINE_BYTES
        return int.from_bytes(self.content[start : start + LINE_BYTES], "little")

    def error_in(self, number: int) -> bool:
        """Whether memory answers any beat of a line with an error."""
        step = self.config.port_bits // 8
        start = number * LINE_BYTES
        return any(self.memory.response(start + i) for i in range(0, LINE_BYTES, step))

    def request(self, limit: int = 150) -> dict[str, int]:
        """A random request within memory, often near the end of a page."""
        rng = self.rng
        count = min(limit, rng.choice((1, 2, rng.randint(1, limit), *COUNTS)))
        first = rng.randrange(GUARD, LINES - GUARD - count)
        if rng.random() < 0.5:
            first = first // PAGE_LINES * PAGE_LINES + rng.choice(STARTS)
            first = max(GUARD, min(first, LINES - GUARD - count))
        tag = rng.getrandbits(self.config.tag_bits)
        return {"line": BASE_LINE + first, "count": count, "tag": tag}

    def sometimes_errors(self) -> None:
        """Lets memory answer some beats with an error."""
        step = self.config.port_bits // 8
        ranges = {}
        for _ in range(40):
            start = BASE + self.rng.randrange(LINES * LINE_BYTES // step) * step
            ranges[start, start + step * self.rng.choice((1, 1, 20))] = self.rng.choice((2, 3))
        self.memory.behaviour = dataclasses.replace(self.memory.behaviour, errors=ranges)

    async def finish(self, *, patient: bool = False) -> int:
        """Until all came, then some cycles in which no more may come; the cycles until then.

        How long that takes depends on memory; a thousand cycles without a line are too many.
        """
        start = self.cycle_count
        while any(self.expected.values()) or any(source.queue for source in self.sources):
            before = self.compared
            await self.run(self._moved(before), limit=1000)
        took = self.cycle_count - start
        for _ in range(12):
            await self.cycle()
        return took

    def _moved(self, before: int) -> Callable[[], bool]:
        return lambda: (
            self.compared != before
            or not (any(self.expected.values()) or any(source.queue for source in self.sources))
        )

    async def pause(self) -> None:
        """Stops the design, sees its bus fall silent, and lets it go on."""
        self.put(stop=1)
        before = len(self.memory.addresses)
        idle = self.port("idle")
        await self.cycle()
        await self.run(lambda: bool(self.bit(idle)), limit=4000)
        # What was shown when the stop came, on each address channel, and no more.
        if len(self.memory.addresses) - before > 2 * self.config.ports + 1:
            raise MismatchError("bursts were issued after the stop")
        silent = len(self.memory.addresses)
        for _ in range(30):
            await self.cycle()
            if not self.bit(idle):
                raise MismatchError("idle fell under stop")
        if len(self.memory.addresses) != silent:
            raise MismatchError("a burst was issued under stop")
        self.put(stop=0)

    async def held_back(self, name: str) -> None:
        """With a word just sent to a stream: under stop it is not taken, however idle all is."""
        self.put(stop=1)
        source = self.into[name]
        waiting = len(source.queue)
        for _ in range(20):
            await self.cycle()
        if len(source.queue) != waiting:
            raise MismatchError(f"{name} are taken under stop")
        self.put(stop=0)

    async def silence(self, limit: int = 4000) -> None:
        """Until nothing is on the bus."""
        await self.run(lambda: not self.memory.outstanding, limit=limit)


def bursts_of(config: MemoryConfig, request: dict[str, int]) -> list[dict[str, int]]:
    """The bursts of a request, told line by line: a new one where the last may not go on."""
    bursts: list[dict[str, int]] = []
    for line in range(request["line"], request["line"] + request["count"]):
        full = bursts and bursts[-1]["lines"] == config.burst_lines
        if not bursts or full or line % PAGE_LINES == 0:
            bursts.append({"line": line, "lines": 0, "last": 0, "tag": request["tag"]})
        bursts[-1]["lines"] += 1
    if bursts:
        bursts[-1]["last"] = 1
    return bursts


class Rate:
    """Lines a cycle in the middle of a run, while the way there is full and nothing ends yet.

    Parameters
    ----------
    bench : BeatBench
    total : int
        Lines of the run.
    edge : int
        Lines at its beginning and at its end that do not count.
    """

    def __init__(self, bench: BeatBench, total: int, edge: int) -> None:
        self.bench = bench
        self.first, self.last = edge, total - edge
        self.lines = 0
        self.start = self.end = 0

    def line(self, _: int = 0) -> None:
        """A line passed."""
        self.lines += 1
        if self.lines == self.first:
            self.start = self.bench.cycle_count
        if self.lines == self.last:
            self.end = self.bench.cycle_count

    @property
    def used(self) -> float:
        """Lines a cycle."""
        return (self.last - self.first) / (self.end - self.start)

    def compare(self, offered: float, least: float, what: str) -> str:
        """Offered and used, as text; less than a part of what is offered is a mismatch."""
        text = (
            f"{what}: {offered:.3f} lines a cycle offered, {self.used:.3f} used,"
            f" {self.used / offered:.1%}"
        )
        if self.used < least * offered:
            raise MismatchError(text)
        return text
