"""The model of a stream reader: which lines must come, which have, and what the ring has free."""

from __future__ import annotations

from hw.axi.config import LINE_BITS, STREAM_ID
from sim.axi import AxiBench, Rate
from sim.harness import MismatchError
from sim.words import unpack


class StreamModel:
    """Watches the streams of a stream reader and plays the ring behind it.

    A line may come at any port, in the order of the positions there. Its position modulo
    ``2**index_bits`` names one place of the ring, which is never filled twice.

    Parameters
    ----------
    bench : AxiBench
        Its streams in are fed, its streams out get sinks.
    prefix : str
        Of the stream's ports, when it is a part of something larger.

    Attributes
    ----------
    eager : bool
        The ring's reader releases all that it may at once; else at random.
    resting : bool
        It releases nothing.
    """

    def __init__(self, bench: AxiBench, prefix: str = "") -> None:
        self.bench = bench
        self.config = bench.config
        self.modulus = 1 << self.config.index_bits
        self.eager = False
        self.resting = False
        self.rate: Rate | None = None
        self.requests = f"{prefix}requests"
        bench.feed(self.requests, [])
        bench.into[self.requests].observers.append(self._requested)
        for i in range(self.config.ports):
            self._watch_port(i, f"{prefix}lines_{i}")
        bench.watchers.append(self._watch)
        self.begin()

    def begin(self) -> None:
        """A new stream, after a reset."""
        self.lines: list[int] = []
        self.errors: list[bool] = []
        self.tags: list[int] = []
        self.came: set[int] = set()
        self.whole = self.whole_before = 0
        self.frontier = self.released = 0
        self.newest = [-1] * self.config.ports
        self.bench.put(released=0)
        self.seen = len(self.bench.memory.addresses)
        self.asked = 0

    def _count_asked(self) -> None:
        """Lines of the stream's bursts whose addresses memory has taken."""
        bursts = self.bench.memory.addresses
        for _, kind, axi_id, _, beats in bursts[self.seen :]:
            if (kind, axi_id) == ("r", STREAM_ID):
                self.asked += beats // self.config.line_beats
        self.seen = len(bursts)

    def _requested(self, word: int) -> None:
        shape = self.bench._shapes[f"{self.requests}__payload"]
        request = unpack(shape, word)
        numbers = range(request["line"], request["line"] + request["count"])
        self.lines += numbers
        self.errors += [self.bench.error_in(line) for line in numbers]
        self.tags += [request["tag"]] * request["count"]

    def _watch_port(self, port: int, name: str) -> None:
        bench = self.bench
        sink = bench.out[name] = bench.sink(name, stall=bench.stall)
        shape = bench._shapes[f"{name}__payload"]
        offset, width = shape["index"].offset, self.config.index_bits
        tag = dict(shape).get("tag")

        def came(word: int) -> None:
            index = word >> offset & ((1 << width) - 1)
            position = self.released + (index - self.released) % self.modulus
            if position >= min(len(self.lines), self.released + self.config.ring_lines):
                raise MismatchError(f"{name}: a line at {position}, where there is no room")
            if position in self.came or position <= self.newest[port]:
                raise MismatchError(f"{name}: the line at {position} after {self.newest[port]}")
            if word & ((1 << LINE_BITS) - 1) != bench.line(self.lines[position]):
                raise MismatchError(f"{name}: wrong data at {position}")
            if tag is not None and unpack(shape, word)["tag"] != self.tags[position]:
                raise MismatchError(f"{name}: wrong tag at {position}")
            self.came.add(position)
            self.newest[port] = position
            bench.compared += 1
            if self.rate:
                self.rate.line()

        sink.observers.append(came)

    def _watch(self) -> None:
        """Once a cycle: frontier and room, then what the ring's reader releases."""
        bench = self.bench
        step = (bench.word(bench.port("frontier")) - self.frontier) % self.modulus
        self.frontier += step
        # The frontier comes from a register, so lines of this cycle are not in it.
        if self.frontier > self.whole:
            raise MismatchError(f"the frontier is {self.frontier}, but {self.whole} lines came")
        # With one port there is one oldest burst, and the frontier follows line by line.
        if self.config.ports == 1 and self.frontier < self.whole_before:
            raise MismatchError(f"the frontier {self.frontier} is late, {self.whole} lines came")
        self.whole_before = self.whole
        while self.whole in self.came:
            self.came.discard(self.whole)
            self.whole += 1
        self._count_asked()
        if self.asked > self.released + self.config.ring_lines:
            raise MismatchError("a burst beyond the space of the ring")

    def release(self) -> None:
        """The ring's reader uses up lines; between two cycles."""
        free = self.frontier - self.released
        if free and not self.resting:
            self.released += free if self.eager else self.bench.rng.randint(0, free)
            self.bench.put(released=self.released % self.modulus)

    @property
    def done(self) -> bool:
        """Whether all came that was asked for, and the frontier says so."""
        queue = self.bench.into[self.requests].queue
        return not queue and self.frontier == self.whole == len(self.lines)

    async def cycle(self) -> None:
        """A cycle of the bench and of the ring's reader."""
        await self.bench.cycle()
        self.release()

    async def cycles(self, count: int) -> None:
        """Some of them."""
        for _ in range(count):
            await self.cycle()

    async def finish(self) -> None:
        """Until all came; a thousand cycles without a line are too many."""
        still, seen = 0, -1
        while not self.done:
            await self.cycle()
            still = still + 1 if seen == self.bench.compared else 0
            seen = self.bench.compared
            if still > 1000:
                raise MismatchError("no line for 1000 cycles: something hangs")
        await self.cycles(12)

    @property
    def first_error(self) -> int | None:
        """Tag of the first request in the stream with an error, of what was asked for."""
        return self.tags[self.errors.index(True)] if True in self.errors else None
