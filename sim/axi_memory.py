"""A pipelined AXI4 memory for the benches: any number of ports on one array of bytes.

It answers late, out of order between IDs, with stalls on every channel and with error responses
where it is told to, and it checks the master: bursts, addresses, strobes, ``WLAST``, and that
what is valid stays until it is taken.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sim.harness import Bench, MismatchError

OKAY, SLVERR, DECERR = 0, 2, 3
PAGE = 4096
#: What every address must say, in the memory's own words: INCR; normal, not cacheable, not
#: bufferable; unprivileged, secure, data.
INCR, CACHE, PROT = 0b01, 0b0010, 0b000


@dataclass(kw_only=True)
class Behaviour:
    """How a memory behaves.

    Attributes
    ----------
    latency : (int, int)
        Fewest and most cycles from an address, or a burst's last datum, to its answer.
    stall : float
        Chance that a channel stands still in a cycle.
    slow : float
        Chance that no address is taken in a cycle, of those without a stall.
    rate : float or None
        Bytes a cycle for all ports together.
    swap : float
        Chance that data of another ID go first, beat by beat.
    errors : mapping
        Response code of every address range, ends excluded.
    """

    latency: tuple[int, int] = (1, 1)
    stall: float = 0.0
    slow: float = 0.0
    rate: float | None = None
    swap: float = 0.0
    errors: Mapping[tuple[int, int], int] = field(default_factory=dict)


@dataclass
class _Burst:
    address: int
    beats: int
    ready: int = 0
    done: int = 0
    response: int = OKAY


class AxiMemory:
    """The memory behind the ports of a design; add it to the bench's agents.

    Parameters
    ----------
    bench : Bench
    prefixes : sequence of str
        A port's signals are ``<prefix>_araddr`` and so on. A port has read channels, write
        channels, or both.
    content : bytearray
        Addresses from ``base`` on; what lies beyond is not there, and an access is a mismatch.
    behaviour : Behaviour
    seed : int
    max_beats : int
        Longest burst that is allowed.
    base : int
        Address of the first byte.

    Attributes
    ----------
    read_bytes, written_bytes : dict
        Bytes of each class that were read, and that strobes wrote.
    asked : int
        Bytes of all read bursts whose addresses were taken.
    beats_written : int
        Beats that were written.
    most_bursts : int
        Most read bursts that one ID of one port had outstanding.
    addresses : list
        ``(port, "r" or "w", ID, address, beats)`` of every burst, for a bench to look at.
    """

    def __init__(
        self,
        bench: Bench,
        prefixes: list[str],
        content: bytearray,
        behaviour: Behaviour,
        *,
        seed: int,
        max_beats: int,
        base: int = 0,
    ) -> None:
        self.bench = bench
        self.content = content
        self.behaviour = behaviour
        self.rng = random.Random(seed)
        self.max_beats = max_beats
        self.base = base
        self.count_in()
        self.asked = 0
        self.beats_written = 0
        self.most_bursts = 0
        self.budget = 0.0
        self.addresses: list[tuple[str, str, int, int, int]] = []
        self.channels: list[_Reads | _Writes] = []
        for prefix in prefixes:
            for kind, signal in ((_Reads, "arvalid"), (_Writes, "awvalid")):
                if hasattr(bench.dut, f"{prefix}_{signal}"):
                    self.channels.append(kind(self, prefix))
        if not self.channels:
            raise ValueError(f"no port of the design begins with {prefixes!r}")

    def count_in(self, **classes: tuple[int, int]) -> None:
        """Counts bytes by class from now on: named address ranges, ends excluded."""
        self.classes = classes
        self.read_bytes = dict.fromkeys(classes, 0)
        self.written_bytes = dict.fromkeys(classes, 0)

    def drive(self) -> None:
        """Chooses what the next rising edge sees; ports in random order, for the shared rate."""
        rate = self.behaviour.rate
        if rate is not None:
            self.budget = min(self.budget + rate, 2 * rate + 64)
            self.rng.shuffle(self.channels)
        for channel in self.channels:
            channel.drive()

    def sample(self) -> None:
        """Looks just before the rising edge."""
        for channel in self.channels:
            channel.sample()

    def settle(self) -> None:
        """After the edge: nothing changes before the next drive."""

    def quiet(self) -> None:
        """Forgets what is outstanding, for a reset."""
        for channel in self.channels:
            channel.quiet()

    @property
    def outstanding(self) -> int:
        """Bursts that have not been answered in full."""
        return sum(channel.outstanding for channel in self.channels)

    def pays(self, count: int) -> bool:
        """Takes bytes from the shared rate, if it has them."""
        if self.behaviour.rate is None:
            return True
        if self.budget < count:
            return False
        self.budget -= count
        return True

    def latency(self) -> int:
        """Cycle in which something that is taken now is answered."""
        return self.bench.cycle_count + self.rng.randint(*self.behaviour.latency)

    def stalls(self, *, address: bool = False) -> bool:
        """Whether a channel stands still in this cycle."""
        chances = [self.behaviour.stall, self.behaviour.slow if address else 0.0]
        return any(chance > 0 and self.rng.random() < chance for chance in chances)

    def response(self, address: int) -> int:
        """The response code of an address."""
        for (start, end), code in self.behaviour.errors.items():
            if start <= address < end:
                return code
        return OKAY

    def count(self, counters: dict[str, int], address: int, size: int) -> None:
        """Counts bytes in the class of their address."""
        for name, (start, end) in self.classes.items():
            if start <= address < end:
                counters[name] += size


class _Channels:
    """What the two kinds of channels share: handshakes and the checks of addresses."""

    def __init__(self, memory: AxiMemory, prefix: str) -> None:
        self.memory = memory
        self.bench = memory.bench
        self.prefix = prefix
        self._driven: dict[str, int] = {}
        self._held: dict[str, tuple[int, ...]] = {}
        self._ports: dict[str, Any] = {}

    def port(self, name: str) -> Any:
        if name not in self._ports:
            self._ports[name] = self.bench.port(f"{self.prefix}_{name}")
        return self._ports[name]

    def get(self, name: str) -> int:
        return self.bench.word(self.port(name))

    def put(self, name: str, value: int) -> None:
        """Drives a signal, if that changes it: each write costs microseconds."""
        if self._driven.get(name) != value:
            self._driven[name] = value
            self.port(name).value = value

    def silence(self, channel: str, fields: tuple[str, ...]) -> None:
        """Nothing is valid on a channel, and its payload has no meaning."""
        if self._driven.get(f"{channel}valid") == 0:
            return
        self.put(f"{channel}valid", 0)
        for name in fields:
            self._driven.pop(channel + name, None)
            self.bench.write(self.port(channel + name), 0, 0)

    def fail(self, what: str) -> MismatchError:
        return MismatchError(f"{self.prefix}: {what} in cycle {self.bench.cycle_count}")

    def transfer(self, channel: str, fields: tuple[str, ...]) -> tuple[int, ...] | None:
        """What the master sends on a channel in this cycle, if it is taken; it must not change."""
        if not self.get(f"{channel}valid"):
            if channel in self._held:
                raise self.fail(f"{channel}valid fell before its transfer")
            return None
        payload = tuple(self.get(channel + name) for name in fields)
        if self._held.get(channel, payload) != payload:
            raise self.fail(f"the {channel} payload changed before its transfer")
        if self._driven[f"{channel}ready"]:
            self._held.pop(channel, None)
            return payload
        self._held[channel] = payload
        return None

    def burst(self, channel: str) -> tuple[int, _Burst] | None:
        """ID and burst of an address that is taken in this cycle."""
        fields = ("id", "addr", "len", "size", "burst", "cache", "prot")
        payload = self.transfer(channel, fields)
        if payload is None:
            return None
        axi_id, address, length, size, kind, cache, prot = payload
        beats = length + 1
        if (kind, cache, prot) != (INCR, CACHE, PROT) or 1 << size != self.bytes:
            raise self.fail(f"{channel} of kind {kind}, size {size}, cache {cache}, prot {prot}")
        if address % 64 or beats * self.bytes % 64:
            raise self.fail(f"{channel} of {beats} beats from {address:#x} is not of whole lines")
        if beats > self.memory.max_beats:
            raise self.fail(f"{channel} of {beats} beats")
        if address // PAGE != (address + beats * self.bytes - 1) // PAGE:
            raise self.fail(f"{channel} of {beats} beats from {address:#x} crosses 4 KiB")
        start = address - self.memory.base
        if start < 0 or start + beats * self.bytes > len(self.memory.content):
            raise self.fail(f"{channel} from {address:#x} is outside of memory")
        self.memory.addresses.append((self.prefix, channel[1], axi_id, address, beats))
        return axi_id, _Burst(address, beats)

    @property
    def bytes(self) -> int:
        """Bytes of a beat."""
        raise NotImplementedError


class _Reads(_Channels):
    """AR and R of a port."""

    def __init__(self, memory: AxiMemory, prefix: str) -> None:
        super().__init__(memory, prefix)
        self._bytes = len(self.port("rdata")) // 8
        self.quiet()

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def outstanding(self) -> int:
        return sum(map(len, self.queues.values()))

    def quiet(self) -> None:
        self.queues: dict[int, deque[_Burst]] = {}
        self.current: int | None = None
        self.shown = False
        self._held.clear()
        self.put("arready", 0)
        self.silence("r", ("id", "data", "resp", "last"))

    def drive(self) -> None:
        self.put("arready", int(not self.memory.stalls(address=True)))
        if self.shown:
            return
        now = self.bench.cycle_count
        ready = [axi_id for axi_id, queue in self.queues.items() if queue and queue[0].ready <= now]
        if not ready or self.memory.stalls() or not self.memory.pays(self.bytes):
            self.silence("r", ("id", "data", "resp", "last"))
            return
        if self.current not in ready or self.memory.rng.random() < self.memory.behaviour.swap:
            self.current = self.memory.rng.choice(ready)
        assert self.current is not None
        burst = self.queues[self.current][0]
        address = burst.address + burst.done * self.bytes
        start = address - self.memory.base
        data = self.memory.content[start : start + self.bytes]
        self.put("rvalid", 1)
        self.put("rid", self.current)
        self.put("rdata", int.from_bytes(data, "little"))
        self.put("rresp", self.memory.response(address))
        self.put("rlast", int(burst.done == burst.beats - 1))
        self.shown = True

    def sample(self) -> None:
        if self.shown and self.get("rready"):
            assert self.current is not None
            queue = self.queues[self.current]
            burst = queue[0]
            address = burst.address + burst.done * self.bytes
            self.memory.count(self.memory.read_bytes, address, self.bytes)
            burst.done += 1
            if burst.done == burst.beats:
                queue.popleft()
            self.shown = False
        taken = self.burst("ar")
        if taken:
            axi_id, burst = taken
            burst.ready = self.memory.latency()
            self.queues.setdefault(axi_id, deque()).append(burst)
            self.memory.asked += burst.beats * self.bytes
            most = max(self.memory.most_bursts, len(self.queues[axi_id]))
            self.memory.most_bursts = most


class _Writes(_Channels):
    """AW, W and B of a port."""

    def __init__(self, memory: AxiMemory, prefix: str) -> None:
        super().__init__(memory, prefix)
        self._bytes = len(self.port("wdata")) // 8
        self.quiet()

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def outstanding(self) -> int:
        return len(self.open) + len(self.beats) + sum(map(len, self.answers.values()))

    def quiet(self) -> None:
        self.open: deque[tuple[int, _Burst]] = deque()
        self.beats: deque[tuple[int, int, int]] = deque()
        self.answers: dict[int, deque[_Burst]] = {}
        self.current: int | None = None
        self._held.clear()
        self.put("awready", 0)
        self.put("wready", 0)
        self.silence("b", ("id", "resp"))

    def drive(self) -> None:
        self.put("awready", int(not self.memory.stalls(address=True)))
        self.put("wready", int(not self.memory.stalls() and self.memory.pays(self.bytes)))
        if self.current is not None:
            return
        now = self.bench.cycle_count
        ready = [axi_id for axi_id, each in self.answers.items() if each and each[0].ready <= now]
        if not ready or self.memory.stalls():
            self.silence("b", ("id", "resp"))
            return
        self.current = self.memory.rng.choice(ready)
        self.put("bvalid", 1)
        self.put("bid", self.current)
        self.put("bresp", self.answers[self.current][0].response)

    def sample(self) -> None:
        if self.current is not None and self.get("bready"):
            self.answers[self.current].popleft()
            self.current = None
        taken = self.burst("aw")
        if taken:
            self.open.append(taken)
        beat = self.transfer("w", ("data", "strb", "last"))
        if beat:
            self.beats.append((beat[0], beat[1], beat[2]))
        # Data may come before their address; they follow the order of the addresses.
        while self.beats and self.open:
            self._write(*self.beats.popleft())

    def _write(self, data: int, strobe: int, last: int) -> None:
        axi_id, burst = self.open[0]
        address = burst.address + burst.done * self.bytes
        burst.done += 1
        self.memory.beats_written += 1
        if last != int(burst.done == burst.beats):
            raise self.fail(f"wlast is {last} in beat {burst.done} of {burst.beats}")
        burst.response = max(burst.response, self.memory.response(address))
        self.memory.count(self.memory.written_bytes, address, strobe.bit_count())
        if self.memory.response(address) == OKAY:
            start = address - self.memory.base
            for i, byte in enumerate(data.to_bytes(self.bytes, "little")):
                if strobe >> i & 1:
                    self.memory.content[start + i] = byte
        if last:
            self.open.popleft()
            burst.ready = self.memory.latency()
            self.answers.setdefault(axi_id, deque()).append(burst)
