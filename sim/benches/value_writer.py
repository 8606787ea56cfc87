"""Bench of the value writer: rows alone and merged, every place in a tile, every p_full."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

import cocotb
import numpy as np

from hw.keys.values import ValueWriter
from model.formats.bfp import Bfp, quantize
from model.formats.constants import PLANE_BYTES, TILE_EXPONENT_BYTES
from model.formats.tiles import put_rows
from sim.beats import BeatBench, beats, bf16_numbers
from sim.chips import chip_of
from sim.environment import Environment
from sim.harness import MOODS, MismatchError
from sim.keys import LINE_BYTES, TILE, numbers
from sim.words import Array

#: Rows of a tile that share lines.
LINE_ROWS = 8


@dataclass
class _Row:
    line: int
    token: int
    last: bool
    codes: Array


def _made(rows: list[_Row], p_full: int) -> Bfp:
    codes = np.stack([row.codes for row in rows])
    return quantize(bf16_numbers(codes), group=TILE, p_full=p_full)


class _ValuesBench(BeatBench):
    def __init__(self, dut: object, mood: str = "steady", number: int = 0) -> None:
        env = Environment.get()
        self.env = env
        self.chip = chip_of(env.config)
        self.data = np.random.default_rng(env.seed + number)
        super().__init__(dut, env, ValueWriter(self.chip), mood, env.seed + number)
        #: Lines that were written, and those that would have been without merging.
        self.written = self.alone = 0

    def rows(self, rows: list[_Row], p_full: int) -> None:
        """Queues rows, the last of them marked so, and the writes that must come of them."""
        for row in rows:
            job = {"line": row.line, "token": row.token, "p_full": p_full, "last": row.last}
            self.feed("jobs", [job])
            wide = _made([row], 16)
            members = [
                {"sign": sign, "magnitude": magnitude}
                for sign, magnitude in zip(
                    wide.signs[0].tolist(), wide.magnitudes[0].tolist(), strict=True
                )
            ]
            self.feed("exponents", wide.exponents[0].tolist())
            self.feed("members", beats(members, self.chip.core.special_elements))
        # Rows of the same lines that follow each other, up to one that is last.
        number = 0
        keys = []
        for row in rows:
            keys.append((row.line, row.token // LINE_ROWS, number))
            number += row.last
        for (line, eighth, _), members_of in groupby(
            zip(keys, rows, strict=True), key=lambda each: each[0]
        ):
            group = [row for _, row in members_of]
            self._wants(line, eighth, group, p_full)
            self.alone += len(group) * (1 + p_full)
            self.written += 1 + p_full

    def _wants(self, line: int, eighth: int, group: list[_Row], p_full: int) -> None:
        tile = np.zeros(TILE_EXPONENT_BYTES + PLANE_BYTES * p_full, np.uint8)
        written = np.zeros_like(tile)
        for row in group:
            put_rows(tile, row.token, _made([row], p_full))
            written[row.token] = 1
            written[TILE_EXPONENT_BYTES:].reshape(p_full, TILE, -1)[:, row.token] = 1
        for number in (0, *(1 + eighth + LINE_ROWS * plane for plane in range(p_full))):
            part = slice(LINE_BYTES * number, LINE_BYTES * (number + 1))
            strobe = np.packbits(written[part], bitorder="little").tobytes()
            self.want("requests", [{"line": line + number, "count": 1}])
            content = int.from_bytes(tile[part].tobytes(), "little")
            self.want("lines", [{"data": content, "strobe": int.from_bytes(strobe, "little")}])
        if written.sum() != len(group) * (1 + 8 * p_full) and len({r.token for r in group}) == len(
            group
        ):
            raise MismatchError("the bench's own writes do not add up")

    def run_of(self, count: int, *, first: int, last: bool = True) -> list[_Row]:
        """Neighbouring positions of a sequence; they go on in the next tile."""
        line = self.rng.randrange(1 << 30)
        rows = []
        for position in range(first, first + count):
            tile, token = divmod(position, TILE)
            codes = numbers(self.data, (1, TILE), refused=False)[0]
            rows.append(
                _Row(line + 129 * tile, token, last and position == first + count - 1, codes)
            )
        return rows

    async def end(self, **more: Any) -> None:
        """Until everything came."""
        await self.finish(**more)
        if not self.get("idle"):
            raise MismatchError("a row is left")

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
async def random_rows(dut: object) -> None:
    """Runs of rows anywhere, marked at their end or not, in all moods; a reset on the way."""
    for number, mood in enumerate(MOODS):
        bench = _ValuesBench(dut, mood, number)
        await bench.reset()
        for after_reset in (False, True):
            p_full = bench.rng.choice((9, 16, bench.rng.randint(9, 16)))
            rows: list[_Row] = []
            for _ in range(bench.env.scale(4, 30)):
                count = bench.rng.choice((1, 2, 5, 8, bench.rng.randint(1, 20)))
                first = bench.rng.randrange(TILE)
                rows += bench.run_of(count, first=first, last=bench.rng.random() < 0.5)
            rows[-1].last = True
            bench.rows(rows, p_full)
            if after_reset:
                await bench.end(patient=mood == "steady")
            else:
                for _ in range(bench.rng.randint(20, 300)):
                    await bench.cycle()
                await bench.reset()
                bench.clear_streams()
        bench.report(mood)


@cocotb.test()
async def every_place(dut: object) -> None:
    """Every row of a tile alone, and every p_full; the same row twice, and a row before another."""
    bench = _ValuesBench(dut)
    await bench.reset()
    for token in range(0, TILE, bench.env.scale(5, 1)):
        bench.rows(bench.run_of(1, first=token), 9)
    await bench.end()
    for p_full in range(9, 17):
        rows = bench.run_of(LINE_ROWS, first=8 * bench.rng.randrange(8))
        rows[0], rows[1] = rows[1], rows[0]
        rows[2].token = rows[0].token
        bench.rows(rows, p_full)
        await bench.end()
    bench.report("places")


@cocotb.test()
async def a_row_waits(dut: object) -> None:
    """Without a last row and a next one nothing is written; a row elsewhere drives it out."""
    bench = _ValuesBench(dut)
    await bench.reset()
    rows = bench.run_of(3, first=2, last=False) + bench.run_of(1, first=2)
    bench.rows(rows, 9)
    late = bench.into["jobs"].queue.pop()
    for _ in range(6 * (TILE + 20)):
        await bench.cycle()
    if bench.out["lines"].count or bench.get("idle"):
        raise MismatchError("a row that could still be merged was written")
    bench.into["jobs"].send([late])
    await bench.end()
    bench.report("waits")


@cocotb.test()
async def rate(dut: object) -> None:
    """Merged rows of verifications at every offset: cycles a row, and the writes that are saved."""
    bench = _ValuesBench(dut)
    await bench.reset()
    bench.rows(bench.run_of(1, first=3), 11)
    came: list[int] = []
    left: list[int] = []
    bench.into["members"].observers.append(lambda _: came.append(bench.cycle_count))
    bench.out["lines"].observers.append(lambda _: left.append(bench.cycle_count))
    await bench.end()
    if left != list(range(came[-1] + 13, came[-1] + 13 + 12)):
        raise MismatchError(
            f"lines left in cycles {left[0]} to {left[-1]}, not from {came[-1] + 13}"
        )
    bench.written = bench.alone = 0
    count = 0
    for first in range(0, TILE, bench.env.scale(8, 1)):
        bench.rows(bench.run_of(5, first=first), 9)
        count += 5
    took = await bench.finish()
    beats_a_row = TILE // bench.chip.core.special_elements
    # The last row of a run may have to wait until the lines of those before have left.
    if took > (limit := count * (beats_a_row + 9) + bench.written + 20):
        raise MismatchError(f"{took} cycles, more than {limit}")
    saved = f"{count} rows in {took} cycles, {bench.written} writes instead of {bench.alone}"
    bench.report("rate", saved)
