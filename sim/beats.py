"""Streams of beats under test: driven in moods, compared in order, one design after the other.

What fills a row's last beat is noise on the way in. Dead elements are 0 on the way out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from hw.library import Unique
from model.formats.floats import from_codes, to_codes
from sim.environment import Environment
from sim.harness import MOODS, Bench, MismatchError, Sink, Source
from sim.words import Array, difference, pack_known


class BeatBench(Bench):
    """A unit with streams and sticky status.

    Parameters
    ----------
    dut, env, component : as for a bench
    mood : str
        A name of :data:`~sim.harness.MOODS`.
    seed : int or None
        That of the environment by default.
    """

    def __init__(
        self,
        dut: Any,
        env: Environment,
        component: Unique,
        mood: str = "steady",
        seed: int | None = None,
    ) -> None:
        super().__init__(dut, env.seed if seed is None else seed, component)
        self.gap, self.stall = MOODS[mood]
        self.into: dict[str, Source] = {}
        self.out: dict[str, Sink] = {}
        self.expected: dict[str, deque[tuple[int, int]]] = {}
        for name in {port.removesuffix("__payload") for port in self._shapes if "__pay" in port}:
            self.expected[name] = deque()
        self.compared = 0
        self.has_status = "status" in self._shapes
        if self.has_status:
            self.put(clear=0)

    def feed(self, name: str, values: Iterable[Any]) -> int:
        """Appends beats to a stream in; how many they are."""
        source = self.into.get(name)
        if source is None:
            source = self.into[name] = self.source(name, gap=self.gap)
        shape = self._shapes[f"{name}__payload"]
        width = len(source.payload)
        count = 0
        for value in values:
            word, known = pack_known(shape, value)
            unknown = ((1 << width) - 1) & ~known
            source.send([word | (self.noise.getrandbits(width) & unknown)])
            count += 1
        return count

    def want(self, name: str, values: Iterable[Any]) -> int:
        """Appends what a stream out must bring; how many beats that is."""
        if name not in self.out:
            sink = self.out[name] = self.sink(name, stall=self.stall)
            sink.observers.append(lambda word: self._check(name, word))
        shape = self._shapes[f"{name}__payload"]
        before = len(self.expected[name])
        self.expected[name].extend(pack_known(shape, value) for value in values)
        return len(self.expected[name]) - before

    def _check(self, name: str, word: int) -> None:
        if not self.expected[name]:
            raise MismatchError(f"{name}: a beat that nothing accounts for: {word:#x}")
        wanted, known = self.expected[name].popleft()
        if (word ^ wanted) & known:
            where = difference(self._shapes[f"{name}__payload"], word, wanted, known)
            raise MismatchError(f"{name}{where} in cycle {self.cycle_count}")
        self.compared += 1

    async def finish(self, *, patient: bool = False) -> int:
        """Until all came, then some cycles in which no more may come; the cycles until then.

        Parameters
        ----------
        patient : bool
            Sinks do not become ready before they see a valid: a unit that waits for ready hangs.
        """
        left = sum(map(len, self.expected.values())) + sum(len(s.queue) for s in self.sources)
        start = self.cycle_count

        def done() -> bool:
            for sink in self.sinks:
                sink.blocked = patient and not self.bit(sink.valid)
            return not any(self.expected.values()) and not any(s.queue for s in self.sources)

        await self.run(done, limit=500 + 40 * left)
        took = self.cycle_count - start
        for sink in self.sinks:
            sink.blocked = False
        for _ in range(12):
            await self.cycle()
        return took

    async def expect_status(self, **raised: bool) -> None:
        """Compares the sticky bits, clears them, and sees them cleared."""
        wanted = {name: int(value) for name, value in raised.items()}
        self.expect(status=wanted)
        self.put(clear=1)
        await self.cycle()
        self.put(clear=0)
        await self.cycle()
        self.expect(status={})

    def clear_streams(self) -> None:
        """Forgets what was sent and expected, for a reset."""
        for queue in self.expected.values():
            queue.clear()


def beats(values: Sequence[Any], elements: int, *, live: Sequence[bool] | None = None) -> list[Any]:
    """A row as beats: ``values`` filled up with dead ones, ``last`` at its end.

    Parameters
    ----------
    live : sequence of bool or None
        Which elements are live; all by default. Dead ones carry their value nevertheless.
    """
    alive = [True] * len(values) if live is None else list(live)
    count = -(-len(values) // elements)
    missing = count * elements - len(values)
    padded = [*values, *[None] * missing]
    alive += [False] * missing
    result = []
    for number in range(count):
        part = slice(number * elements, (number + 1) * elements)
        bits = sum(int(each) << i for i, each in enumerate(alive[part]))
        last = int(number == count - 1)
        result.append({"values": padded[part], "live": bits, "last": last})
    return result


def zeros_for_dead(rows: Sequence[Any]) -> list[Any]:
    """The same beats as results: dead elements are 0."""
    return [
        {
            **beat,
            "values": [v if beat["live"] >> i & 1 else 0 for i, v in enumerate(beat["values"])],
        }
        for beat in rows
    ]


def bf16_numbers(codes: Array) -> torch.Tensor:
    """BF16 numbers of codes; Inf and NaN, which units refuse, are 0."""
    codes = codes.astype(np.int64)
    return from_codes(torch.from_numpy(np.where((codes >> 7) & 0xFF == 0xFF, 0, codes)), "bf16")


def fp32_numbers(codes: Array) -> torch.Tensor:
    """FP32 numbers of codes; Inf and NaN are 0."""
    codes = codes.astype(np.int64)
    return from_codes(torch.from_numpy(np.where((codes >> 23) & 0xFF == 0xFF, 0, codes)), "fp32")


def codes_of(numbers: torch.Tensor) -> Array:
    """Codes of BF16 or FP32 numbers, int64."""
    return to_codes(numbers).to(torch.int64).numpy()
