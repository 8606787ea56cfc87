"""Bench of the loader: every target, lines from a memory, stalls everywhere, errors, refusals."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any

import cocotb
import numpy as np

from hw.transfers.layouts import Target
from hw.transfers.loader import REQUESTS, Loader
from sim.beats import BeatBench
from sim.chips import chip_of
from sim.environment import Environment
from sim.harness import MOODS, MismatchError
from sim.keys import REFUSED
from sim.words import unpack

LINE_BITS = 512
MODULO = 256


class _Memory:
    """Answers read requests in order, as the line reader does: lines with marks, some errors."""

    def __init__(self, bench: _LoaderBench) -> None:
        self.bench = bench
        self.lines: dict[int, tuple[int, bool]] = {}
        self.silent = False
        self.waiting: deque[dict[str, int]] = deque()
        bench.out["read_requests"].observers.append(self._asked)

    def _asked(self, word: int) -> None:
        self.waiting.append(unpack(self.bench.shape("read_requests__payload"), word))

    def answer(self) -> None:
        """Gives the lines of what was asked for until now."""
        while self.waiting and not self.silent:
            request = self.waiting.popleft()
            for i in range(request["count"]):
                content, error = self.lines[request["line"] + i]
                last = i == request["count"] - 1
                self.bench.feed(
                    "read_lines", [{"data": content, "error": error, "last": last, "tag": None}]
                )


class _LoaderBench(BeatBench):
    def __init__(self, dut: object, mood: str = "steady", number: int = 0) -> None:
        env = Environment.get()
        self.env = env
        self.chip = chip_of(env.config)
        self.elements = self.chip.core.special_elements
        super().__init__(dut, env, Loader(self.chip), mood, env.seed + number)
        self.want("read_requests", [])
        self.memory = _Memory(self)
        #: What must leave, of all targets in one order, and what that ends of a line and request.
        self.events: deque[tuple[tuple[Any, ...], dict[str, bool]]] = deque()
        self.left: list[int] = []
        self.asked = self.done = 0
        self.raised = {"error": False, "refused": False}
        for name in ("weights", "rows"):
            sink = self.sink(name, stall=self.stall)
            sink.observers.append(partial(self._leaves, name))
        self.feed("requests", [])
        self.into["requests"].observers.append(self._asked)
        self._asks = False
        self._held: tuple[int, ...] | None = None
        self._patient = False
        self._bank_ready = False
        self.clears = 0.0
        self._clear = False
        self.put(bank_ready=0, clear=0)
        self.watchers.append(self._look)

    def shape(self, name: str) -> Any:
        """That of a port."""
        return self._shapes[name]

    def _asked(self, _: int) -> None:
        self._asks = True

    # What must happen -------------------------------------------------------------------------

    def load(self, target: Target, count: int, *, row: int, word: int, errors: float = 0.0) -> None:
        """A request of random lines, and what must leave for it."""
        rng = self.rng
        line = rng.randrange(1 << self.chip.memory.line_address_bits - 1)
        while any(line + i in self.memory.lines for i in range(count)):
            line = rng.randrange(1 << self.chip.memory.line_address_bits - 1)
        request = {"line": line, "count": count, "target": target, "row": row, "word": word}
        self.feed("requests", [request])
        self.want("read_requests", [{"line": line, "count": count}])
        number = 0
        for i in range(count):
            numbers = np.array([rng.getrandbits(16) for _ in range(LINE_BITS // 16)], "<u2")
            numbers[(numbers >> 7) & 0xFF == 0xFF] = 0x3F80
            if refused := rng.random() < errors:
                numbers[rng.randrange(len(numbers))] = rng.choice(REFUSED)
            content = int.from_bytes(numbers.tobytes(), "little")
            error = rng.random() < errors
            self.memory.lines[line + i] = content, error
            width = self.width(target)
            for part in range(LINE_BITS // width):
                value = content >> part * width & ((1 << width) - 1)
                marks: dict[str, bool] = {}
                if part == LINE_BITS // width - 1:
                    marks = {
                        "request": i == count - 1,
                        "error": error,
                        "refused": refused and target in (Target.BANK, Target.WEIGHTS),
                    }
                self.events.append((self._event(target, row, word, number, value), marks))
                number += 1

    def width(self, target: Target) -> int:
        """Bits of what leaves at once."""
        return {
            Target.SCRATCH: 32,
            Target.BANK: 256,
            Target.WEIGHTS: 16 * self.elements,
            Target.ROPE: 32 * self.elements,
            Target.KEYS: 512,
        }[target]

    @staticmethod
    def _event(target: Target, row: int, word: int, number: int, value: int) -> tuple[Any, ...]:
        return {
            Target.SCRATCH: ("scratch", word + number, value),
            Target.BANK: ("bank", row, word + number, value),
            Target.WEIGHTS: ("weights", value),
            Target.ROPE: ("rope", 1 << row, number, value),
            Target.KEYS: ("rows", value),
        }[target]

    def any_load(self, *, errors: float = 0.0) -> None:
        """A request of any target, and its place."""
        rng, chip = self.rng, self.chip
        target = rng.choice(list(Target))
        row = rng.randrange(chip.core.t_m)
        word = rng.getrandbits(8)
        most = 5
        if target == Target.ROPE:
            most = 2 * chip.head_tiles_max
        count = rng.randint(1, most)
        if target == Target.SCRATCH:
            word = rng.choice((0, (1 << 10) - 16 * count, rng.randrange((1 << 10) - 16 * count)))
        if target == Target.BANK:
            last = chip.bank_words - 2 * count
            word = rng.choice((0, last, rng.randrange(last)))
        self.load(target, count, row=row, word=word, errors=errors)

    # What happens -----------------------------------------------------------------------------

    def _leaves(self, name: str, *values: int) -> None:
        if not self.events:
            raise MismatchError(f"{name}: a word that nothing accounts for")
        wanted, marks = self.events[0]
        if (name, *values) != wanted:
            got = ", ".join(f"{value:#x}" for value in values)
            want = ", ".join(f"{value:#x}" for value in wanted[1:])
            raise MismatchError(
                f"{name}: {got}, not {wanted[0]}: {want} in cycle {self.cycle_count}"
            )
        self.events.popleft()
        self._marks.append(marks)
        self.left.append(self.cycle_count)
        self.compared += 1

    async def cycle(self) -> None:
        """One clock period; the bank port's side of it too."""
        self._marks: list[dict[str, bool]] = []
        self._asks = False
        ready = self.rng.random() >= self.stall
        if self._patient and not self.bit(self.port("bank_write")):
            ready = False
        for sink in self.sinks:
            sink.blocked = self._patient and not self.bit(sink.valid)
        self._bank_ready = ready
        self._clear = self.rng.random() < self.clears
        self.put(bank_ready=int(ready), clear=int(self._clear))
        self.memory.answer()
        await super().cycle()

    def _look(self) -> None:
        if self.bit(self.port("scratch_write")):
            self._leaves("scratch", self.get("scratch_row"), self.get("scratch_data"))
        if self.get("rope_write"):
            row = self.get("rope_row")
            self._leaves("rope", self.get("rope_write"), row, self.get("rope_data"))
        if self.bit(self.port("bank_write")):
            write = self.get("bank_row"), self.get("bank_word"), self.get("bank_data")
            if self._held not in (None, write):
                raise MismatchError("a write to a bank changed before it happened")
            self._held = None if self._bank_ready else write
            if self._bank_ready:
                self._leaves("bank", *write)
        elif self._held is not None:
            raise MismatchError("a write to a bank fell before it happened")
        if len(self._marks) > 1:
            raise MismatchError("two words in one cycle")

        # Counts and sticky bits are those of the cycles before.
        self.expect(done=self.done % MODULO, idle=int(self.asked == self.done), **self.raised)
        if self._clear:
            self.raised = dict.fromkeys(self.raised, False)
        for marks in self._marks:
            self.done += marks.get("request", False)
            for name in self.raised:
                self.raised[name] |= marks.get(name, False)
        self.asked += self._asks

    async def reset(self, cycles: int = 2) -> None:
        """As that of every bench; forgets what is under way."""
        await super().reset(cycles)
        self.clear_streams()
        self.events.clear()
        self.memory.waiting.clear()
        self.memory.lines.clear()
        self.asked = self.done = 0
        self.raised = dict.fromkeys(self.raised, False)
        self._held = None

    async def end(self, *, patient: bool = False) -> int:
        """Until everything came, and some cycles more; the cycles until then."""
        self._patient = patient
        start = self.cycle_count

        def over() -> bool:
            more = any(self.expected.values()) or any(each.queue for each in self.sources)
            return not more and not self.events

        await self.run(over, limit=500 + 40 * len(self.events))
        took = self.cycle_count - start
        self._patient = False
        for _ in range(12):
            await self.cycle()
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
    """All targets in random order, in all moods, with errors, cleared at random; a reset."""
    for number, mood in enumerate(MOODS):
        bench = _LoaderBench(dut, mood, number)
        bench.clears = 0.05
        await bench.reset()
        for after_reset in (False, True):
            for _ in range(bench.env.scale(40, 300)):
                bench.any_load(errors=0.1)
            if after_reset:
                await bench.end(patient=mood == "steady")
            else:
                for _ in range(bench.rng.randint(20, 300)):
                    await bench.cycle()
                await bench.reset()
        bench.report(mood)


@cocotb.test()
async def sticky_bits(dut: object) -> None:
    """An error or a refused number at each place of a line, target by target; then a clear."""
    bench = _LoaderBench(dut)
    await bench.reset()
    for target in Target:
        for position in range(31, -1, -bench.env.scale(5, 1)):
            bench.load(target, 2, row=0, word=0)
            line, (content, _) = next(iter(bench.memory.lines.items()))
            numbers = np.frombuffer(content.to_bytes(64, "little"), "<u2").copy()
            numbers[position] = REFUSED[position % len(REFUSED)]
            changed = int.from_bytes(numbers.tobytes(), "little")
            bench.memory.lines[line] = changed, False
            width = bench.width(target)
            parts = LINE_BITS // width
            refused = target in (Target.BANK, Target.WEIGHTS)
            for part in range(parts):
                event, marks = bench.events[part]
                value = changed >> part * width & ((1 << width) - 1)
                if part == parts - 1:
                    marks = {**marks, "refused": refused}
                bench.events[part] = ((*event[:-1], value), marks)
            await bench.end()
            bench.expect(refused=int(refused), error=0)
            bench.clears = 1.0
            await bench.cycle()
            bench.clears = 0.0
            await bench.cycle()
            bench.expect(refused=0)
            bench.memory.lines.clear()
    bench.report("sticky bits")


@cocotb.test()
async def under_way(dut: object) -> None:
    """While memory is silent, as many requests as the queue holds are made, and no more."""
    bench = _LoaderBench(dut)
    await bench.reset()
    bench.memory.silent = True
    for _ in range(3 * REQUESTS):
        bench.any_load()
    for _ in range(6 * REQUESTS):
        await bench.cycle()
    if bench.asked != REQUESTS:
        raise MismatchError(f"{bench.asked} requests under way, not {REQUESTS}")
    bench.memory.silent = False
    await bench.end()
    bench.report("under way")


@cocotb.test()
async def counts(dut: object) -> None:
    """More requests than the count of what is done can tell apart."""
    bench = _LoaderBench(dut)
    await bench.reset()
    for _ in range(bench.env.scale(MODULO + 10, 3 * MODULO)):
        bench.load(Target.KEYS, 1, row=0, word=0)
    await bench.end()
    bench.report("counts")


@cocotb.test()
async def rate(dut: object) -> None:
    """A word in every cycle, from the first to the last, of each target and of all mixed."""
    measured = []
    for targets in (*((target,) for target in Target), tuple(Target)):
        bench = _LoaderBench(dut)
        await bench.reset()
        for _ in range(20):
            for target in targets:
                bench.load(target, bench.rng.randint(1, 4), row=0, word=0)
        await bench.end()
        took, words = bench.left[-1] - bench.left[0] + 1, len(bench.left)
        if took != words:
            raise MismatchError(f"{took} cycles for {words} words of {targets}")
        name = targets[0].name if len(targets) == 1 else "all"
        measured.append(f"{name}: {words} in {took}")
    bench.report("rate", "; ".join(measured))
