"""Bench of the control processor: every cycle of a random program beside an interpreter."""

from __future__ import annotations

import random
from collections import Counter

import cocotb

from hw.control.assembler import Op
from hw.control.processor import SCRATCH_WORDS, WINDOW_WORDS, Processor
from sim.environment import Environment
from sim.harness import MOODS, Bench, MismatchError
from sim.processor_model import Decoded, ProcessorModel
from sim.processor_programs import BEGIN, END, corner, self_test


class _ProcessorBench(Bench):
    """The processor in lockstep with the model: what it asks for, when, and when it goes on.

    The mood's gaps are cycles in which somebody else writes the scratch memory, its stalls those in
    which a port does not take its number.
    """

    def __init__(self, dut: object, env: Environment, mood: str, number: int) -> None:
        self.env = env
        self.seed = env.seed + number
        program = self_test(env.config.name)
        super().__init__(dut, self.seed, Processor(program))
        self.writes, self.stall = MOODS[mood]
        self.model = ProcessorModel(program)
        self.window = [self.rng.getrandbits(32) for _ in range(WINDOW_WORDS)]
        self.compared = 0
        self.ends = 0
        #: Numbers that ports took, how often something happened that must happen.
        self.given: list[tuple[int, int]] = []
        self.seen: Counter[str] = Counter()
        self._running = False
        self._loaded = False
        self._window_data: int | None = None
        self._idle()

    def _idle(self) -> None:
        self.put(
            window_data=self._window_data,
            scratch_write=0,
            scratch_row=None,
            scratch_data=None,
            out_ready=0,
            in_data=None,
        )

    async def reset(self, cycles: int = 2) -> None:
        """As that of every bench; the memories keep what they hold."""
        self._idle()
        self.model.reset()
        self._running = self._loaded = False
        await super().reset(cycles)

    async def fill(self) -> None:
        """Writes all of the scratch memory, while the program waits to begin."""
        await self.cycle()
        rows = list(range(SCRATCH_WORDS))
        self.rng.shuffle(rows)
        for row in rows:
            await self.cycle(write=(row, self.rng.getrandbits(32)), ready=False)

    def _write(self, what: Decoded) -> tuple[int, int] | None:
        """What somebody else writes into the scratch memory in this cycle, often where it hurts."""
        rng = self.rng
        scratch = what.in_scratch and what.op in (Op.LOAD, Op.STORE)
        if rng.random() >= (1.5 * self.writes if scratch else self.writes):
            return None
        row = rng.randrange(SCRATCH_WORDS)
        if scratch and rng.random() < 0.5:
            row = what.row
        if scratch and what.op is Op.LOAD and not self._loaded and row == what.row:
            row = (row + 1) % SCRATCH_WORDS
        return row, rng.getrandbits(32)

    async def cycle(
        self, write: tuple[int, int] | None = None, *, ready: bool | None = None
    ) -> None:
        """One clock period."""
        if not self._running:
            self._idle()
            await self.settle()
            self.expect(place=0, window_read=0, window_write=0, out_valid=0)
            await self.clock()
            self._running = True
            return
        what = self.model.now()
        rng = self.rng
        write = self._write(what) if write is None else write
        ready = rng.random() >= self.stall if ready is None else ready
        number = corner(rng, 48) if what.op is Op.IN else None
        self.put(
            window_data=self._window_data,
            scratch_write=int(write is not None),
            scratch_row=None if write is None else write[0],
            scratch_data=None if write is None else write[1],
            out_ready=int(ready),
            in_data=number,
        )
        await self.settle()
        loads, stores = what.op is Op.LOAD, what.op is Op.STORE
        reads = loads and not self._loaded
        self.expect(
            place=self.model.place,
            window_read=int(reads and not what.in_scratch),
            window_write=int(stores and not what.in_scratch),
            out_valid=int(what.op is Op.OUT),
        )
        if reads and not what.in_scratch:
            self.expect(window_row=what.row)
        if stores and not what.in_scratch:
            self.expect(window_row=what.row, window_written=what.stored % (1 << 32))
            self.window[what.row] = what.stored % (1 << 32)
        if what.op is Op.OUT:
            self.expect(out_port=what.port, out_data=what.stored)
        if what.op is Op.IN:
            self.expect(in_port=what.port)
        waits = (
            reads
            or (what.op is Op.OUT and not ready)
            or (stores and what.in_scratch and write is not None)
        )
        self._count(what, write, waits)
        await self.clock()
        self.compared += 1
        if reads and not what.in_scratch:
            self._window_data = self.window[what.row]
        self._loaded = reads
        if not waits:
            if loads and not what.in_scratch:
                assert self._window_data is not None
                number = self._window_data
            if what.op is Op.OUT:
                self.given.append((what.port, what.stored))
                self.ends += what.port == END
            self.model.step(number or 0)
        if write is not None:
            self.model.scratch[write[0]] = write[1]
        # The host writes too, which a word that was read does not see.
        if rng.random() < 0.1:
            self.window[rng.randrange(WINDOW_WORDS)] = rng.getrandbits(32)

    def _count(self, what: Decoded, write: tuple[int, int] | None, waits: bool) -> None:
        if what.op in (Op.LOAD, Op.STORE):
            kind = "scratch" if what.in_scratch else "window"
            self.seen[f"{what.op.name} {kind}"] += 1
            if what.in_scratch and write is not None:
                place = "the same row" if write[0] == what.row else "another row"
                half = " at its end" if what.op is Op.LOAD and not waits else ""
                self.seen[f"{what.op.name}{half} beside a write of {place}"] += 1
        if waits and what.op is Op.OUT:
            self.seen["OUT waits"] += 1

    async def passes(self, count: int) -> None:
        """Until the program has come to its end so many times more."""
        ends = self.ends + count
        await self.run(lambda: self.ends >= ends, limit=count * 100_000)

    def check_met(self) -> None:
        """That everything was met."""
        missing = [op.name for op in Op if not self.model.met[op]]
        for op in Op:
            if Op.IF_EQUAL <= op <= Op.IF_NOT_BELOW:
                missing += [f"{op.name} {go}" for go in (False, True) if not self.model.met[op, go]]
        wanted = [f"{op} {kind}" for op in ("LOAD", "STORE") for kind in ("window", "scratch")]
        if self.writes:
            wanted += [
                "LOAD beside a write of another row",
                "LOAD at its end beside a write of the same row",
                "LOAD at its end beside a write of another row",
                "STORE beside a write of the same row",
                "STORE beside a write of another row",
            ]
        if self.stall:
            wanted.append("OUT waits")
        missing += [each for each in wanted if not self.seen[each]]
        if missing:
            raise MismatchError(f"the program never met {', '.join(missing)}")

    def report(self, part: str, measured: str = "") -> None:
        """To the runner."""
        self.env.report(
            part,
            transactions=self.compared,
            cycles=self.cycle_count,
            seed=self.seed,
            measured=measured,
        )


@cocotb.test()
async def moods(dut: object) -> None:
    """The whole program, in all moods: each cycle's requests, all registers again and again."""
    env = Environment.get()
    for number, mood in enumerate(MOODS):
        bench = _ProcessorBench(dut, env, mood, number)
        await bench.reset()
        await bench.fill()
        await bench.passes(env.scale(1, 4))
        bench.check_met()
        steps = sum(bench.model.met[op] for op in Op)
        measured = f"{steps} instructions in {bench.compared} cycles" if mood == "steady" else ""
        bench.report(mood, measured)


@cocotb.test()
async def resets(dut: object) -> None:
    """A reset at any point begins anew, and leaves the scratch memory as it is."""
    env = Environment.get()
    bench = _ProcessorBench(dut, env, "both", len(MOODS))
    await bench.reset()
    await bench.fill()
    rng = random.Random(bench.seed)
    points: Counter[Op] = Counter()
    for number in range(env.scale(40, 200)):
        for _ in range(rng.randint(1, 60 if number % 4 else 600)):
            await bench.cycle()
        if number % 3 == 0:
            # In the second cycle of a load.
            await bench.run(lambda: bench._loaded, limit=10_000)
        points[bench.model.now().op] += 1
        await bench.reset(rng.choice((1, 1, 2, 3)))
    # A reset in front of the first instruction, which waits.
    await bench.reset(1)
    await bench.reset(1)
    for _ in range(20):
        await bench.cycle(ready=False)
    if bench.model.place or not points[Op.LOAD]:
        raise MismatchError("the program does not wait to begin, or no load was cut off")
    await bench.passes(1)
    if not bench.given or BEGIN not in {port for port, _ in bench.given}:
        raise MismatchError("the program did not begin")
    bench.report("resets")
