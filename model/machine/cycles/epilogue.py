"""The epilogue: jobs in order, and when their words are in the banks."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simpy import Environment

from model.machine.cycles.timing import Timing
from model.machine.cycles.waiting import Level, Pipe, Steps, until
from model.machine.cycles.works import PACKED, Job, Op

if TYPE_CHECKING:
    from model.machine.cycles.chip import Parts

FROM_RESULTS = (Op.PASS, Op.RESIDUAL, Op.GATE, Op.UP, Op.LOGITS, Op.SCORES, Op.SUMS)
FROM_WORDS = (Op.RESIDUAL, Op.NORM, Op.SQUARES, Op.ROPE)
EXCLUSIVE = (*PACKED, Op.SQUARES)
#: Cycles from a beat to its word in the bank, by operation (`hw/special/`).
LATENCY = {Op.PASS: 2, Op.RESIDUAL: 4, Op.UP: 6, Op.NORM: 5, Op.SUMS: 4, Op.ROPE: 5}
#: Cycles until the first bank word of a job is there.
WORD = 3
#: Cycles from the last beat of a norm's first pass to its first result, beside those that the
#: groups of its last 64 numbers take.
ROOT = 16
#: Cycles from the last beat of a tile of scores to its first probabilities.
PROBABILITIES = 7
#: Jobs whose words may be on their way; probabilities of so many tiles of scores.
UNDER_WAY = 4


@dataclass(frozen=True)
class Written:
    """A job's words: when the first one is in the bank, and each of the others after it."""

    job: Job
    first: int
    every: float

    def word(self, number: int) -> int:
        """When a word is there."""
        return self.first + round(number * self.every)

    @property
    def last(self) -> int:
        """When all are."""
        return self.word(self.job.words - 1)


class Epilogue:
    """Jobs in order.

    Args:
        env, timing: of the machine.
        parts: whose results it takes.

    Attributes:
        jobs: queue of them.
        passes: whose sums are in the banks.
        norms: jobs of norms that begin to take weights.
    """

    def __init__(self, env: Environment, timing: Timing, parts: Parts) -> None:
        self.env, self.timing, self.parts = env, timing, parts
        self.jobs: Pipe[Job] = Pipe(env, timing.pieces + 1, 2)
        self.passes = Level(env)
        self.winners = 0
        self._begun = Level(env)
        self._written: deque[Written] = deque()
        self._forgotten = 0
        self._kind: Op | None = None
        self._tap = False
        self._quiet = 0
        self._squares = 0
        self._free = 0
        self._blocks: dict[int, int] = {}
        self._staged = Level(env)
        self._restarts = 0
        env.process(self._run())

    @property
    def idle(self) -> bool:
        """Nothing waits, all words are in the banks."""
        return self.jobs.empty and self.env.now >= self._quiet

    # What others wait for ----------------------------------------------------------------------

    def when_written(self, needs: int, word: int) -> Steps[int]:
        """Waits until the job before number ``needs`` has begun; when a word may be read."""
        if not needs:
            return 0
        yield from self._begun.reaches(needs)
        job = self._written[needs - 1 - self._forgotten]
        place = word - job.job.target
        if not 0 <= place < job.job.words:
            place = 0 if place < 0 else job.job.words - 1
        time = job.word(place)
        if needs >= 2 and needs - 2 >= self._forgotten:
            time = max(time, self._written[needs - 2 - self._forgotten].last)
        return time

    def operation(self, needs: int) -> str:
        """Of a job, by its number."""
        return self._written[needs - 1 - self._forgotten].job.op.name.lower()

    def staged(self, block: int) -> Steps[None]:
        """Waits until the probabilities of a block are there."""
        while True:
            time = self._blocks.get(block + (self._restarts << 24))
            if time is not None:
                yield from until(self.env, time)
                return
            yield from self._staged.reaches(self._staged.value + 1)

    def restart(self) -> None:
        """The probabilities of a pass have been read."""
        self._blocks = {k: v for k, v in self._blocks.items() if k >> 24 > self._restarts}
        self._restarts += 1

    # Jobs --------------------------------------------------------------------------------------

    def _run(self) -> Steps[None]:
        setups = -1
        while True:
            job = yield from self.jobs.head()
            yield from until(self.env, self._free)
            yield from self._may_begin(job)
            begin = int(self.env.now)
            if job.op in EXCLUSIVE:
                self._kind, self._tap = job.op, job.tap
            if job.op is Op.SETUP:
                setups += 1
                self._free = begin + 1
            elif job.op in FROM_RESULTS:
                yield from self._results(job, setups)
            else:
                yield from self._words(job, begin)
            yield from until(self.env, self._free - 1)
            self.jobs.take()

    def _may_begin(self, job: Job) -> Steps[None]:
        same = job.op is self._kind and job.tap == self._tap
        if job.barrier or (job.op in EXCLUSIVE and not same):
            yield from until(self.env, self._quiet)
        elif job.op in EXCLUSIVE and len(self._written) >= UNDER_WAY:
            yield from until(self.env, self._written[-UNDER_WAY].last)

    def _results(self, job: Job, setups: int) -> Steps[None]:
        array, timing = self.parts.array, self.timing
        beats = timing.tile_beats // timing.fold
        time = first = 0
        for group in range(timing.fold):
            yield from array.grouped.reaches(array.freed.value + 1)
            time = max(int(self.env.now), array.groups[0], self._free)
            yield from until(self.env, time)
            time += beats
            first = first if group else time
            self._free = time
            array.groups.popleft()
            array.freed.rise()
        if job.op is Op.SCORES:
            staged = time + PROBABILITIES + timing.tile_beats
            if job.final:
                self._blocks[job.block + (setups << 24)] = staged
                self._staged.rise()
        elif job.op is Op.LOGITS:
            self.winners = time + 2
        elif job.op in PACKED:
            latency = LATENCY[job.op]
            every = (time - first) / max(1, timing.fold - 1) * timing.fold / job.words
            if timing.fold == 1:
                every = timing.word_beats
                first = time - timing.tile_beats + timing.word_beats
            self._write(job, Written(job, first + latency, every))
            if job.tap:
                self._squares = time + latency

    def _words(self, job: Job, begin: int) -> Steps[None]:
        timing = self.timing
        first = begin + WORD
        if job.op is Op.SQUARES:
            self._free = first + job.words * timing.word_beats
            self._squares = self._free
            return
        if job.op is Op.ROPE:
            pairs = job.words // 2
            self._free = first + pairs * (1 + timing.word_beats)
            every = (1 + timing.word_beats) / 2
            first += 1 + timing.word_beats + LATENCY[Op.ROPE]
        else:
            first = max(first, self._squares + ROOT + timing.tile_beats)
            weights = yield from self.parts.loader.weights(job.words // 2)
            first = max(first, weights)
            every = timing.word_beats
            self._free = first + job.words * timing.word_beats
            self.parts.loader.weights_taken(self._free)
            first += timing.word_beats + LATENCY[Op.NORM]
        self._write(job, Written(job, first, every))

    def _write(self, job: Job, written: Written) -> None:
        self._written.append(written)
        if len(self._written) > 4 * self.timing.pieces + UNDER_WAY:
            self._written.popleft()
            self._forgotten += 1
        self._quiet = max(self._quiet, written.last)
        self._begun.rise()
        if job.op is Op.SUMS and job.ends:
            self.passes.rise_at(written.last)
