"""The design under test: its ports, its clock, its streams. One coroutine drives a whole bench.

The clock is driven from here: inputs change at the falling edge, everything is read just before
the rising edge, so a transfer is exactly ``valid and ready`` there. What has no meaning (``None``
for a port, a source's payload while ``valid`` is low) is X where the simulator has X, else noise.
"""

from __future__ import annotations

import random
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import cocotb
from amaranth.hdl import UnusedElaboratable
from cocotb.handle import SimHandleBase
from cocotb.triggers import Timer
from cocotb.types import LogicArray

from hw.library import Unique, flat_ports
from sim.words import difference, pack_known, unpack

# Benches make components for the shapes of their ports alone.
warnings.simplefilter("ignore", UnusedElaboratable)

#: Moods of a bench: (chance of a gap at a source, chance of a stall at a sink).
MOODS = {
    "steady": (0.0, 0.0),
    "gaps": (0.4, 0.0),
    "stalls": (0.0, 0.4),
    "both": (0.3, 0.3),
}

#: Half a clock period in nanoseconds; the benches count cycles, not time.
HALF_PERIOD = 5


class MismatchError(AssertionError):
    """The design and the golden model differ, or a stream broke its rules."""


def four_state() -> bool:
    """Whether the simulator knows X."""
    return bool(cocotb.SIM_NAME.lower().startswith("icarus"))


class Source:
    """Drives a stream from a queue.

    Parameters
    ----------
    bench : Bench
    name : str
        Ports ``name__valid``, ``name__ready``, ``name__payload``.
    gap : float
        Chance that valid stays low in a cycle although there is something to send.
    """

    def __init__(self, bench: Bench, name: str, *, gap: float) -> None:
        self.bench = bench
        self.name = name
        self.gap = gap
        self.valid = bench.port(f"{name}__valid")
        self.ready = bench.port(f"{name}__ready")
        self.payload = bench.port(f"{name}__payload")
        self.queue: deque[int] = deque()
        self.seen: list[int] = []
        self.observers: list[Callable[[int], None]] = []
        self._active = False
        self.quiet()

    def send(self, words: Iterable[int]) -> None:
        """Appends words to what will be driven."""
        self.queue.extend(words)

    def quiet(self) -> None:
        """Valid low, payload without meaning."""
        self.valid.value = 0
        self._active = False
        self.bench.write(self.payload, 0, 0)

    def drive(self) -> None:
        """Chooses what the next rising edge sees."""
        if self._active:
            return
        if self.queue and self.bench.rng.random() >= self.gap:
            self.payload.value = self.queue[0]
            self.valid.value = 1
            self._active = True

    def sample(self) -> None:
        """Looks at the handshake just before the rising edge."""
        ready = self.bench.bit(self.ready)
        if self._active and ready:
            word = self.queue.popleft()
            self.seen.append(word)
            for observer in self.observers:
                observer(word)
            self._fired = True
        else:
            self._fired = False

    def settle(self) -> None:
        """After the edge: a sent word is gone."""
        if self._fired:
            self._active = False
            if not self.queue:
                self.quiet()
            else:
                self.valid.value = 0


class Sink:
    """Takes a stream and checks its rules: valid and payload hold until the transfer, no X."""

    def __init__(self, bench: Bench, name: str, *, stall: float) -> None:
        self.bench = bench
        self.name = name
        self.stall = stall
        self.valid = bench.port(f"{name}__valid")
        self.ready = bench.port(f"{name}__ready")
        self.payload = bench.port(f"{name}__payload")
        self.observers: list[Callable[[int], None]] = []
        self.count = 0
        self.blocked = False
        self._held: int | None = None
        self.ready.value = 0
        self._ready = False

    def drive(self) -> None:
        """Chooses ready for the next rising edge."""
        ready = not self.blocked and self.bench.rng.random() >= self.stall
        if ready != self._ready:
            self.ready.value = int(ready)
            self._ready = ready

    def sample(self) -> None:
        """Looks at the handshake just before the rising edge."""
        if not self.bench.bit(self.valid):
            if self._held is not None:
                raise MismatchError(f"{self.name}: valid fell before its transfer")
            return
        word = self.bench.word(self.payload)
        if self._held is not None and word != self._held:
            raise MismatchError(f"{self.name}: payload changed before its transfer")
        if self._ready:
            self._held = None
            self.count += 1
            for observer in self.observers:
                observer(word)
        else:
            self._held = word

    def settle(self) -> None:
        """After the edge."""


class Agent(Protocol):
    """What takes part in each cycle beside the streams, like a memory on a bus."""

    def drive(self) -> None:
        """Chooses what the next rising edge sees."""

    def sample(self) -> None:
        """Looks just before the rising edge."""

    def settle(self) -> None:
        """After the edge."""

    def quiet(self) -> None:
        """Forgets all, for a reset."""


class Bench:
    """A design with its ports and streams.

    Parameters
    ----------
    dut : the cocotb handle of the top module
    seed : int
        Seed of all random choices of this run.
    component : Unique or None
        The component that the design was emitted from: it knows the shapes of the ports, for
        :meth:`put`, :meth:`get` and :meth:`expect`, and whether there is a clock.

    Attributes
    ----------
    rng : random.Random
        For the bench's own choices.
    cycle_count : int
        Rising edges since the start, or steps of a design without a clock.
    """

    def __init__(self, dut: SimHandleBase, seed: int, component: Unique | None = None) -> None:
        self.dut = dut
        self.rng = random.Random(seed)
        self.noise = random.Random(seed ^ 0x5EED)
        self.cycle_count = 0
        self.sources: list[Source] = []
        self.sinks: list[Sink] = []
        self.agents: list[Agent] = []
        self.watchers: list[Callable[[], None]] = []
        self._shapes = (
            {name: member.shape for name, member, _ in flat_ports(component)} if component else {}
        )
        self._clocked = component is None or component.sequential
        if self._clocked:
            self._clock = self.port("clk")
            self._reset = self.port("rst")
            self._clock.value = 0
            self._reset.value = 0

    # Ports ------------------------------------------------------------------------------------

    def port(self, name: str) -> Any:
        """A port of the design by name."""
        return getattr(self.dut, name)

    def bit(self, port: Any) -> int:
        """A one-bit value; X is a mismatch."""
        return self.word(port)

    def word(self, port: Any) -> int:
        """A value as an unsigned integer; X is a mismatch."""
        value = port.value
        try:
            return int(value) if not isinstance(value, LogicArray) else value.to_unsigned()
        except ValueError:
            raise MismatchError(f"{port._name} is X in cycle {self.cycle_count}") from None

    def write(self, port: Any, word: int, known: int) -> None:
        """Drives a port; bits that are not known are X or noise."""
        width = len(port)
        unknown = ((1 << width) - 1) & ~known
        if not unknown:
            port.value = word
        elif four_state():
            pairs = zip(f"{word:0{width}b}", f"{unknown:0{width}b}", strict=True)
            port.value = LogicArray("".join("X" if u == "1" else w for w, u in pairs))
        else:
            port.value = word | (self.noise.getrandbits(width) & unknown)

    def put(self, **values: Any) -> None:
        """Drives ports, each with a value of its shape (see :func:`sim.words.pack_known`)."""
        for name, value in values.items():
            self.write(self.port(name), *pack_known(self._shapes[name], value))

    def get(self, name: str) -> Any:
        """The value of a port; X is a mismatch."""
        return unpack(self._shapes[name], self.word(self.port(name)))

    def expect(self, **values: Any) -> None:
        """Compares ports; any difference or X in what has a meaning is a mismatch."""
        for name, value in values.items():
            self.expect_word(name, *pack_known(self._shapes[name], value))

    def expect_word(self, name: str, word: int, known: int) -> None:
        """The same for a packed value: compares the bits that are known."""
        value = self.port(name).value
        try:
            got = int(value) if not isinstance(value, LogicArray) else value.to_unsigned()
        except ValueError:
            bits = str(value)
            wanted = f"{known:0{len(bits)}b}"
            if any(w == "1" and b not in "01" for b, w in zip(bits, wanted, strict=True)):
                raise MismatchError(f"{name} is X in cycle {self.cycle_count}: {bits}") from None
            got = int("".join(b if b == "1" else "0" for b in bits), 2)
        if (got ^ word) & known:
            where = difference(self._shapes[name], got, word, known)
            raise MismatchError(f"{name}{where} in cycle {self.cycle_count}")

    # Streams ----------------------------------------------------------------------------------

    def source(self, name: str, *, gap: float = 0.0) -> Source:
        """Adds a driven stream."""
        source = Source(self, name, gap=gap)
        self.sources.append(source)
        return source

    def sink(self, name: str, *, stall: float = 0.0) -> Sink:
        """Adds an observed stream."""
        sink = Sink(self, name, stall=stall)
        self.sinks.append(sink)
        return sink

    # Time -------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """To just before the rising edge: outputs follow the inputs that were put."""
        await Timer(HALF_PERIOD, "ns")
        if not self._clocked:
            self.cycle_count += 1

    async def clock(self) -> None:
        """The rising edge, to the falling edge."""
        self._clock.value = 1
        await Timer(HALF_PERIOD, "ns")
        self._clock.value = 0
        self.cycle_count += 1

    async def edge(self) -> None:
        """One clock period without looking at anything."""
        await self.settle()
        await self.clock()

    async def cycle(self) -> None:
        """One clock period: drive, look, clock."""
        streams: list[Agent | Sink] = [*self.sources, *self.sinks, *self.agents]
        for stream in streams:
            stream.drive()
        await self.settle()
        for stream in streams:
            stream.sample()
        for watcher in self.watchers:
            watcher()
        await self.clock()
        for stream in streams:
            stream.settle()

    async def reset(self, cycles: int = 2) -> None:
        """Holds reset; sources and sinks are quiet meanwhile, their queues are emptied."""
        for source in self.sources:
            source.queue.clear()
            source.quiet()
        for sink in self.sinks:
            sink._held = None
        for agent in self.agents:
            agent.quiet()
        self._reset.value = 1
        for _ in range(cycles):
            await self.edge()
        self._reset.value = 0

    async def run(self, done: Callable[[], bool], *, limit: int) -> None:
        """Cycles until ``done()``; more than ``limit`` cycles are a mismatch."""
        for _ in range(limit):
            if done():
                return
            await self.cycle()
        raise MismatchError(f"no end after {limit} cycles: something hangs")
