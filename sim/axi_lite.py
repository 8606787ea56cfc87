"""A master of AXI4-Lite that tries everything: AW before, with and after W, late answers taken."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from sim.harness import Bench, MismatchError


class Write(NamedTuple):
    """A write: byte address, word, its strobes."""

    address: int
    data: int
    strobe: int = 0xF


class LiteMaster:
    """Drives the five channels, each for itself, and checks what the slave owes.

    Parameters
    ----------
    bench : Bench
    prefix : str
        Of the ports, as ``s_axi``.
    seed : int
    gap, stall : float
        Chance that a channel stays idle in a cycle, that an answer is not taken.

    Attributes
    ----------
    on_write, on_read : callable
        Called with the response of a write; with word and response of a read.
    """

    #: Payload of each channel; the master drives those of the first three.
    CHANNELS = {
        "aw": ("addr", "prot"),
        "w": ("data", "strb"),
        "ar": ("addr", "prot"),
        "b": ("resp",),
        "r": ("data", "resp"),
    }
    DRIVEN = ("aw", "w", "ar")

    def __init__(
        self, bench: Bench, prefix: str, seed: int, *, gap: float = 0.0, stall: float = 0.0
    ) -> None:
        self.bench = bench
        self.rng = random.Random(seed)
        self.gap, self.stall = gap, stall
        self.queues: dict[str, deque[tuple[int, ...]]] = {name: deque() for name in self.DRIVEN}
        self.on_write: Callable[[int], None] = lambda _: None
        self.on_read: Callable[[int, int], None] = lambda *_: None
        #: Channels that stand still, by a bench's wish.
        self.blocked: set[str] = set()
        self.waiting = 0
        self._ports = {
            name: {
                each: bench.port(f"{prefix}_{name}{each}") for each in (*fields, "valid", "ready")
            }
            for name, fields in self.CHANNELS.items()
        }
        self._on = dict.fromkeys(self.CHANNELS, False)
        self._held: dict[str, tuple[int, ...]] = {}
        self.quiet()

    def write(self, *writes: Write) -> None:
        """Appends writes."""
        for each in writes:
            self.queues["aw"].append((each.address, self.rng.getrandbits(3)))
            self.queues["w"].append((each.data, each.strobe))
        self.waiting += len(writes)

    def read(self, *addresses: int) -> None:
        """Appends reads."""
        self.queues["ar"].extend((each, self.rng.getrandbits(3)) for each in addresses)
        self.waiting += len(addresses)

    def quiet(self) -> None:
        """Forgets all."""
        self.waiting = 0
        self._held.clear()
        for name, ports in self._ports.items():
            self._on[name] = False
            if name in self.DRIVEN:
                self.queues[name].clear()
                self._idle(name)
            else:
                ports["ready"].value = 0

    def _idle(self, name: str) -> None:
        ports = self._ports[name]
        ports["valid"].value = 0
        for each in self.CHANNELS[name]:
            self.bench.write(ports[each], 0, 0)

    def drive(self) -> None:
        """Chooses what the next rising edge sees."""
        for name in self.DRIVEN:
            idle = name in self.blocked or self.rng.random() < self.gap
            if self._on[name] or idle or not self.queues[name]:
                continue
            ports = self._ports[name]
            for each, value in zip(self.CHANNELS[name], self.queues[name][0], strict=True):
                ports[each].value = value
            ports["valid"].value = 1
            self._on[name] = True
        for name in ("b", "r"):
            self._on[name] = name not in self.blocked and self.rng.random() >= self.stall
            self._ports[name]["ready"].value = int(self._on[name])

    def sample(self) -> None:
        """Looks just before the rising edge."""
        self._taken = [
            name
            for name in self.DRIVEN
            if self.bench.bit(self._ports[name]["ready"]) and self._on[name]
        ]
        for name in ("b", "r"):
            ports = self._ports[name]
            if not self.bench.bit(ports["valid"]):
                if name in self._held:
                    raise MismatchError(f"{name}: valid fell before its transfer")
                continue
            payload = tuple(self.bench.word(ports[each]) for each in self.CHANNELS[name])
            if self._held.setdefault(name, payload) != payload:
                raise MismatchError(f"{name}: payload changed before its transfer")
            if self._on[name]:
                del self._held[name]
                self.waiting -= 1
                if name == "b":
                    self.on_write(*payload)
                else:
                    self.on_read(*payload)

    def settle(self) -> None:
        """After the edge."""
        for name in self._taken:
            self.queues[name].popleft()
            self._on[name] = False
            self._idle(name)
