"""Bench of the epilogue: results and bank words through the slices, and back to the banks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import cocotb
import numpy as np
import torch

from hw.compute.layouts import results_layout
from hw.special.epilogue import Epilogue, epilogue_job_layout, pass_rows_layout
from hw.special.slice import Op
from model.datapath.special import (
    attention_output,
    exponentials,
    fixed_scores,
    integer_sum,
    residual_add,
    rms_norm,
    rope_table,
    rotate,
    silu_times_up,
)
from model.formats.bf16 import from_codes, to_codes
from model.formats.commands import BANK_WORD
from model.formats.special_tables import score_factor
from sim import words
from sim.chips import chip_of
from sim.environment import Environment
from sim.harness import MOODS, Bench, MismatchError
from sim.norms import constants
from sim.stimulus import bf16
from sim.words import Array

#: Bank words that the bench uses, in three regions of equal size.
REGION = 16
EPS = 1e-5


def _numbers(codes: Array) -> torch.Tensor:
    return from_codes(torch.from_numpy(codes.astype(np.int64)))


def _codes(numbers: torch.Tensor) -> Array:
    return to_codes(numbers).numpy().astype(np.uint16)


class _EpilogueBench(Bench):
    """The epilogue between results, banks and a front that reads them too."""

    def __init__(self, dut: object, env: Environment, seed: int, mood: str) -> None:
        self.config = chip_of(env.config)
        super().__init__(dut, seed, Epilogue(self.config))
        core = self.config.core
        gap, stall = MOODS[mood]
        self.mood = mood
        self.data = np.random.default_rng(seed)
        self.rows = (1 << core.t_m) - 1 if mood == "steady" else 1 | self.rng.getrandbits(core.t_m)
        shape = (core.t_m, self.config.bank_words, BANK_WORD)
        self.banks = bf16(self.data, shape, 118, 132)
        # Rows that take no part hold anything, Inf and NaN too, and raise no flag.
        dead = [row for row in range(core.t_m) if not self.rows >> row & 1]
        self.banks[dead] = self.data.integers(0, 1 << 16, (len(dead), *shape[1:]))
        #: What the banks hold when all that was sent has been done.
        self.model = self.banks.copy()
        self.jobs = self.source("jobs", gap=gap)
        self.results = self.source("results", gap=gap)
        self.weights = self.source("weights", gap=gap)
        self.pass_rows = self.source("passes", gap=gap)
        self.mask = self.rows
        self.winners = [self.sink(f"winners_{i}", stall=stall) for i in range(core.t_m)]
        self.expected_winners: list[deque[int]] = [deque() for _ in range(core.t_m)]
        for row, sink in enumerate(self.winners):
            sink.observers.append(self._winner(row))
        self.compared = 0
        self.go = 0
        self._shown: list[int] | None = None
        self.watchers.append(self._watch)
        self.width = 64
        self.put(
            rows=self.rows,
            clear=0,
            front_read=0,
            other_granted=0,
            data=None,
            factor=None,
            head_tiles=1,
            rope_write=0,
            rope_row=None,
            rope_data=None,
            mix=0,
            mix_taken=0,
            mix_ends=0,
            **constants(self.width, EPS),
        )

    def _winner(self, row: int) -> Any:
        def check(word: int) -> None:
            index = word & ((1 << 18) - 1)
            if index != (want := self.expected_winners[row].popleft()):
                raise MismatchError(f"row {row}: winner {index}, not {want}")
            self.compared += 1

        return check

    def job(self, op: Op, *, count: int, **fields: int) -> None:
        """Queues a job."""
        values = dict.fromkeys(
            ("source", "target", "tap", "ends", "columns", "block", "barrier"), 0
        )
        self.jobs.send(
            [
                words.pack(
                    epilogue_job_layout(self.config),
                    {**values, "op": int(op), "words": count, **fields},
                )
            ]
        )

    def tile(self, codes: Array, rows: int | None = None) -> None:
        """Queues the results of an output tile: codes (rows, 64), and who takes part in it."""
        core = self.config.core
        layout = results_layout(core)
        mask = self.rows if rows is None else rows
        rest = {"overflow": 0, "rows": mask, "context": 0, "fp32": 0}
        for column in range(0, 64, core.drain):
            part = codes[:, column : column + core.drain].astype(np.uint32)
            self.results.send(
                [
                    words.from_array(part)
                    | words.pack(layout, {**rest, "codes": _none(core), "column": column})
                ]
            )

    def _row(self, first: int, count: int) -> Array:
        live = np.array([self.rows >> row & 1 for row in range(len(self.model))], bool)
        found = np.where(live[:, None, None], self.model[:, first : first + count], 0)
        return found.reshape(len(self.model), -1)

    def _set(self, first: int, codes: Array, rows: int | None = None) -> None:
        mask = self.rows if rows is None else rows
        for row, each in enumerate(codes):
            if mask >> row & 1:
                words_of = each.reshape(-1, BANK_WORD)
                self.model[row, first : first + len(words_of)] = words_of

    # What may be asked for -----------------------------------------------------------------------

    def passes(self) -> None:
        """Results as they are, tile after tile."""
        for i in range(self.rng.randint(1, 3)):
            codes = bf16(self.data, (len(self.model), 64), 100, 140)
            self.job(Op.PASS, count=4, target=2 * REGION + 4 * i)
            self.tile(codes)
            self._set(2 * REGION + 4 * i, codes)

    def residual_and_norm(self) -> None:
        """A whole row of residual sums into the norm's first pass; then its second pass."""
        tiles = self.width // 64
        for i in range(tiles):
            codes = bf16(self.data, (len(self.model), 64), 118, 132)
            self.job(
                Op.RESIDUAL,
                count=4,
                source=4 * i,
                target=4 * i,
                tap=1,
                ends=int(i == tiles - 1),
                barrier=int(i == 0),
            )
            self.tile(codes)
            sums = residual_add(_numbers(self._row(4 * i, 4)), _numbers(codes), form="hardware")
            self._set(4 * i, _codes(sums))
        self._norm()

    def squares_and_norm(self) -> None:
        """Both passes from the banks."""
        self.job(Op.SQUARES, count=self.width // BANK_WORD, source=0, ends=1, barrier=1)
        self._norm()

    def norm_of_the_last_word(self) -> None:
        """A norm that begins with the word that was written last, and must not be read before."""
        codes = bf16(self.data, (len(self.model), 64), 118, 132)
        self.job(Op.PASS, count=4, target=2 * REGION)
        self.tile(codes)
        self._set(2 * REGION, codes)
        count = self.width // BANK_WORD
        self.job(Op.SQUARES, count=count, source=2 * REGION + 3, ends=1, barrier=1)
        self._norm(2 * REGION + 3)

    def _norm(self, source: int = 0) -> None:
        count = self.width // BANK_WORD
        weight = bf16(self.data, (self.width,), 120, 130)
        self.job(Op.NORM, count=count, source=source, target=REGION, ends=1, barrier=1)
        elements = self.config.core.special_elements
        self.weights.send(words.from_array(part) for part in weight.reshape(-1, elements))
        y = rms_norm(_numbers(self._row(source, count)), _numbers(weight), EPS, form="hardware")
        self._set(REGION, _codes(y))

    def silu(self) -> None:
        """Gates and ups alternate."""
        for i in range(self.rng.randint(1, 3)):
            gate, up = (bf16(self.data, (len(self.model), 64), 110, 132) for _ in range(2))
            self.job(Op.GATE, count=4)
            self.tile(gate)
            self.job(Op.UP, count=4, target=2 * REGION + 4 * i)
            self.tile(up)
            y = silu_times_up(_numbers(gate), _numbers(up), form="hardware")
            self._set(2 * REGION + 4 * i, _codes(y))

    def logits(self) -> None:
        """A row of logits whose last tile is short; all negative, so that padding would win."""
        tiles, short = self.rng.randint(1, 3), self.rng.choice((1, 31, 63, 64))
        row: list[Array] = []
        for i in range(tiles):
            columns = short if i == tiles - 1 else 64
            codes = (1 << 31) | self.data.integers(1 << 23, 255 << 23, (len(self.model), 64))
            codes[:, columns:] = 0
            self.job(Op.LOGITS, count=4, columns=columns, ends=int(i == tiles - 1))
            self.tile(codes)
            row.append(codes[:, :columns])
        for i, each in enumerate(np.concatenate(row, 1)):
            # All are negative: the largest has the smallest code. Of a dead row there is none.
            self.expected_winners[i].append(int(each.argmin()) if self.rows >> i & 1 else 0)

    def steps(self) -> Iterator[Any]:
        """All of them, in any order."""
        while True:
            yield self.rng.choice(
                (
                    self.passes,
                    self.residual_and_norm,
                    self.squares_and_norm,
                    self.norm_of_the_last_word,
                    self.silu,
                    self.logits,
                )
            )

    async def rope(self) -> None:
        """Heads of every row, turned in place by what belongs to the row's position."""
        core, rng = self.config.core, self.rng
        await self.run(lambda: not self.jobs.queue and bool(self.get("idle")), limit=20_000)
        head_tiles = rng.randint(1, self.config.head_tiles_max)
        width = 64 * head_tiles
        heads = rng.randint(1, 2)
        positions = [rng.randrange(512) for _ in range(core.t_m)]
        table = rope_table(512, width, 10000.0)
        cosines, sines = table.cosines[positions], table.sines[positions]
        self.put(head_tiles=head_tiles)
        elements = core.special_elements
        for row in range(core.t_m):
            pairs = torch.stack((cosines[row], sines[row]), -1).numpy().astype(np.uint16)
            for number, part in enumerate(pairs.reshape(-1, 2 * elements)):
                self.put(rope_write=1 << row, rope_row=number, rope_data=words.from_array(part))
                await self.cycle()
        self.put(rope_write=0, rope_row=None, rope_data=None)
        count = 4 * head_tiles
        for head in range(heads):
            at = head * count
            self.job(Op.ROPE, count=count, source=at, target=at, ends=1, barrier=int(head == 0))
            x = _numbers(self._row(at, count))
            self._set(at, _codes(rotate(x, cosines, sines, form="hardware")))

    # Attention -----------------------------------------------------------------------------------

    async def attention(self) -> None:
        """A pass: rows of neighbouring positions, tiles in both forms, sums at its end."""
        core, rng = self.config.core, self.rng
        head_tiles = rng.randint(1, self.config.head_tiles_max)
        width = 64 * head_tiles
        first = rng.choice((0, 60, 63, 64, rng.randint(0, 330)))
        group = rng.randint(1, 3)
        positions = [first + row // group for row in range(core.t_m)]
        rows = list(range(rng.randint(1, core.t_m)))
        self.mask = (1 << len(rows)) - 1
        factor = score_factor(width)
        self.put(
            head_tiles=head_tiles,
            factor={"integer": factor.integer, "exponent": factor.exponent},
        )
        layout = pass_rows_layout(self.config)
        values = {"start": first, "group": group, "rows": len(rows)}
        self.pass_rows.send([words.pack(layout, values)])
        self.job(Op.SETUP, count=1, barrier=1)
        tiles = max(positions[row] for row in rows) // 64 + 1
        shape = (core.t_m, tiles, 64)
        level = self.data.normal(0, 200, (core.t_m, tiles, 1))
        scores = (level + self.data.normal(0, 30, shape)).astype(np.float32)
        expected = {row: _Row(scores[row], positions[row], width) for row in rows}

        sent = 0
        for t in range(tiles):
            # Scores run ahead, by no more tiles than there is room for.
            while sent < min(tiles, t + 4):
                for own in (False, True):
                    mask = sum(
                        1 << row
                        for row in rows
                        if (positions[row] // 64 == sent if own else positions[row] // 64 > sent)
                    )
                    if mask:
                        self.job(Op.SCORES, count=4, block=sent)
                        self.tile(scores[:, sent].view(np.uint32), mask)
                sent += 1
            await self._mix(t, expected, head_tiles, ends=t == tiles - 1)
        sums = self.data.normal(0, 4, (core.t_m, width)).astype(np.float32)
        for i in range(head_tiles):
            self.job(Op.SUMS, count=4, target=2 * REGION + 4 * i, ends=int(i == head_tiles - 1))
            self.tile(sums[:, 64 * i : 64 * i + 64].view(np.uint32))
        outputs = np.zeros((core.t_m, width), np.uint16)
        for row in rows:
            total = torch.tensor([expected[row].total])
            numbers = attention_output(torch.from_numpy(sums[row : row + 1]), total)
            outputs[row] = _codes(numbers)[0]
        self._set(2 * REGION, outputs, self.mask)
        await self.run(lambda: not self.jobs.queue and bool(self.get("idle")), limit=20_000)

    async def _mix(self, t: int, expected: dict[int, _Row], head_tiles: int, *, ends: bool) -> None:
        """What the front does with a tile of probabilities: waits, reads, looks at the rises."""
        self.put(mix=1)
        await self.cycle()
        await self.run(lambda: bool(self.go), limit=20_000)
        place = self.config.staging + 4 * (t % 4)
        rises = self.get("rises")
        for row, bank in enumerate(self.banks):
            each = expected.get(row)
            if each is None or t >= len(each.probabilities):
                if rises[row]:
                    raise MismatchError(f"row {row} does not see tile {t}, and its R falls")
                continue
            if (bank[place : place + 4].reshape(-1) != each.probabilities[t]).any():
                raise MismatchError(f"row {row}: probabilities of tile {t} differ")
            if t and rises[row] != min(each.rises[t], 1023):
                raise MismatchError(f"row {row}: a rise of {rises[row]}, not {each.rises[t]}")
            self.compared += 64
        for i in range(head_tiles):
            self.put(mix_taken=1, mix_ends=int(ends))
            await self.cycle()
            self.put(mix_taken=0)
            if i < head_tiles - 1:
                await self.cycle()
        self.put(mix=0)

    # The banks -----------------------------------------------------------------------------------

    def _watch(self) -> None:
        if self.get("other_read") and self.get("other_granted"):
            word = self.get("other_word")
            self._shown = [words.from_array(bank[word]) for bank in self.banks]
        elif self.get("front_read"):
            self._shown = None
        self.go = self.get("go")
        enable = self.get("write_enable")
        staged = [
            enable >> row & 1 and place >= self.config.staging
            for row, place in enumerate(self.get("write_word"))
        ]
        if enable and not any(staged) and enable not in (self.rows, self.mask):
            raise MismatchError(f"rows {enable:#x} are written, not {self.rows:#x}")
        if enable:
            places, data = self.get("write_word"), self.get("write_data")
            for row, bank in enumerate(self.banks):
                if enable >> row & 1:
                    bank[places[row]] = words.to_array(data[row], "u2", (BANK_WORD,))

    async def cycle(self) -> None:
        """One clock period; the front reads now and then, and goes first."""
        busy = self.mood in ("gaps", "both")
        front = int(self.rng.random() < (0.5 if busy else 0.0))
        self.put(front_read=front, other_granted=int(not front), data=self._shown)
        await super().cycle()

    async def finish(self, limit: int) -> None:
        """Until all is done; then the banks hold what the model says."""
        await self.run(
            lambda: (
                not self.jobs.queue and not any(self.expected_winners) and bool(self.get("idle"))
            ),
            limit=limit,
        )
        used = slice(0, 3 * REGION)
        for row, (got, want) in enumerate(
            zip(self.banks[:, used], self.model[:, used], strict=True)
        ):
            if (got != want).any():
                where = np.argwhere(got != want)[0]
                raise MismatchError(
                    f"row {row} word {where[0]} element {where[1]}:"
                    f" {got[tuple(where)]:#06x}, not {want[tuple(where)]:#06x}"
                )
        self.compared += self.model.size


class _Row:
    """A row of attention by the golden functions.

    Attributes
    ----------
    probabilities : (64,) BF16 codes of each tile
    rises : of M, before each tile
    total : L at the end
    """

    def __init__(self, scores: Array, position: int, width: int) -> None:
        self.probabilities: list[Array] = []
        self.rises: list[int] = []
        self.total = 0
        maximum: int | None = None
        for t in range(position // 64 + 1):
            alive = torch.arange(64 * t, 64 * t + 64) <= position
            x = fixed_scores(torch.from_numpy(scores[t]), width).masked_fill(~alive, -(1 << 40))
            highest = int(x[alive].max()) >> 16
            before = highest if maximum is None else maximum
            maximum = max(before, highest)
            p = exponentials(x, torch.tensor(maximum)).masked_fill(~alive, 0.0)
            rise = maximum - before
            self.probabilities.append(_codes(p))
            self.rises.append(rise)
            self.total = (self.total >> min(rise, 63)) + int(integer_sum(p).sum())


def _none(core: Any) -> list[list[int]]:
    return [[0] * core.drain for _ in range(core.t_m)]


@cocotb.test()
async def random_steps(dut: object) -> None:
    """Steps in any order, in all moods; rows that take no part keep their words."""
    env = Environment.get()
    for number, mood in enumerate(MOODS):
        seed = env.seed + number
        bench = _EpilogueBench(dut, env, seed, mood)
        await bench.reset()
        # Of every kind at least one.
        for step in (bench.passes, bench.residual_and_norm, bench.squares_and_norm, bench.silu):
            step()
        bench.norm_of_the_last_word()
        bench.logits()
        for _, step in zip(range(env.scale(4, 40)), bench.steps(), strict=False):
            step()
        await bench.finish(200_000)
        if bench.get("status") != {"refused": 0, "overflow": 0}:
            raise MismatchError(f"status {bench.get('status')}")
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=seed)


@cocotb.test()
async def attention(dut: object) -> None:
    """Passes of attention, other work between them."""
    env = Environment.get()
    for number, mood in enumerate(MOODS):
        seed = env.seed + number
        bench = _EpilogueBench(dut, env, seed, mood)
        await bench.reset()
        for _ in range(env.scale(4, 25)):
            await bench.attention()
            if bench.rng.random() < 0.7:
                await bench.rope()
            if bench.rng.random() < 0.3:
                bench.residual_and_norm()
            await bench.finish(20_000)
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=seed)


@cocotb.test()
async def wide_rows(dut: object) -> None:
    """Norms of rows of several groups of 64."""
    env = Environment.get()
    bench = _EpilogueBench(dut, env, env.seed, "both")
    bench.width = 256
    bench.put(**constants(bench.width, EPS))
    await bench.reset()
    for _ in range(env.scale(2, 12)):
        bench.residual_and_norm()
        bench.squares_and_norm()
    await bench.finish(200_000)
    env.report("wide", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)
