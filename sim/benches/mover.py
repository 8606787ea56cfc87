"""Bench of the mover: every kind of move, between banks and to memory, ports that others hold."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import groupby

import cocotb
import numpy as np

from hw.transfers.layouts import Kind
from hw.transfers.mover import Mover
from model.formats.bfp import quantize
from model.formats.constants import PLANE_BYTES, TILE_EXPONENT_BYTES
from model.formats.tiles import put_rows
from sim.beats import BeatBench, bf16_numbers
from sim.chips import chip_of
from sim.environment import Environment
from sim.harness import MOODS, MismatchError
from sim.keys import LINE_BYTES, TILE, numbers
from sim.words import Array

WORD = 16
WORD_BITS = 16 * WORD
ALL_BYTES = (1 << LINE_BYTES) - 1
MODULO = 256
#: Rows of a tile that share lines.
LINE_ROWS = 8


@dataclass
class _Move:
    """A move, and how much must have left when all of it has."""

    fields: dict[str, int]
    reads: int
    ends: dict[str, int] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        return Kind(self.fields["kind"])


class _MoverBench(BeatBench):
    """Moves read the lower half of the banks and write the upper one, which nobody reads."""

    def __init__(self, dut: object, mood: str = "steady", number: int = 0) -> None:
        env = Environment.get()
        self.env = env
        self.chip = chip_of(env.config)
        self.rows = self.chip.core.t_m
        self.half = self.chip.bank_words // 2
        self.data = np.random.default_rng(env.seed + number)
        super().__init__(dut, env, Mover(self.chip), mood, env.seed + number)
        for name in ("keys", "values"):
            self.want(f"{name}_requests", [])
            self.want(f"{name}_lines", [])
        self.feed("moves", [])
        self.into["moves"].observers.append(self._taken)
        self.banks = np.zeros((self.rows, self.chip.bank_words, WORD), np.int64)
        self.fill()
        self.moves: list[_Move] = []
        self.expected_reads: deque[int] = deque()
        self.expected_writes: deque[tuple[int, int, int]] = deque()
        self.count = dict.fromkeys(("reads", "writes", *self.out), 0)
        self.wanted = dict(self.count)
        self.read_cycles: list[int] = []
        self.write_cycles: list[int] = []
        self.taken_moves = 0
        self.shares = 0.0 if self.stall == 0 else 0.05
        #: Streams out that take nothing.
        self.closed: set[str] = set()
        self._others = 0
        self._free = self._bank_ready = False
        self._answer: int | None = None
        self._held: tuple[int, ...] | None = None
        self._patient = False
        self.put(granted=0, bank_ready=0, data=None)
        self.watchers.append(self._look)

    def fill(self, *, refused: bool = False) -> None:
        """New numbers in the half that is read."""
        shape = (self.rows * self.half // 4, 4 * WORD)
        self.banks[:, : self.half] = numbers(self.data, shape, refused=refused).reshape(
            self.rows, self.half, WORD
        )

    def at(self, row: int, place: int) -> int:
        """A bank word, packed."""
        return int.from_bytes(self.banks[row, place].astype("<u2").tobytes(), "little")

    # What must happen -------------------------------------------------------------------------

    def _places(self, words: int, *, upper: bool) -> int:
        last = self.half - words
        place = self.rng.choice((0, last, self.rng.randint(0, last)))
        return place + (self.half if upper else 0)

    def _add(self, move: _Move) -> None:
        self.feed("moves", [move.fields])
        self.wanted["reads"] += move.reads
        self.moves.append(move)
        move.ends = dict(self.wanted)

    def between(self, kind: Kind, **more: int) -> None:
        """GATHER or SCATTER of any rows."""
        rng = self.rng
        group = rng.randint(1, self.rows)
        positions = rng.randint(1, self.rows // group)
        words = rng.randint(1, 4 * self.chip.head_tiles_max)
        fields = {"positions": positions, "group": group, "words": words, **more}
        positions, group, words = (fields[name] for name in ("positions", "group", "words"))
        row = fields.setdefault("row", rng.randint(0, self.rows - positions))
        gather = kind == Kind.GATHER
        word = self._places(group * words, upper=not gather)
        staged = self._places(words, upper=gather)
        for j in range(positions):
            for h in range(group):
                for w in range(words):
                    far = j * group + h, staged + w
                    near = row + j, word + h * words + w
                    source, target = (near, far) if gather else (far, near)
                    self.expected_reads.append(source[1])
                    self.expected_writes.append((*target, self.at(*source)))
                    self.wanted["writes"] += 1
        fields |= {"kind": kind, "word": word, "staged": staged}
        noise = {"line": rng.getrandbits(20), "token": rng.getrandbits(6), "p_full": 9}
        self._add(_Move({**fields, **noise}, positions * group * words))

    def _noise(self) -> dict[str, int]:
        """Fields that mean nothing to moves of one row."""
        rng = self.rng
        return {
            "staged": rng.randrange(self.chip.bank_words),
            "positions": rng.randint(0, self.rows),
            "group": rng.randint(0, self.rows),
            "last": rng.getrandbits(1),
        }

    def key(self, **more: int) -> None:
        """A key's words to memory."""
        rng = self.rng
        fields = {"words": 2 * rng.randint(1, 2 * self.chip.head_tiles_max), **more}
        words = fields["words"]
        row, word = rng.randrange(self.rows), self._places(words, upper=False)
        line = rng.getrandbits(30)
        self.want("keys_requests", [{"line": line, "count": words // 2}])
        for i in range(0, words, 2):
            content = self.at(row, word + i) | self.at(row, word + i + 1) << WORD_BITS
            self.want("keys_lines", [{"data": content, "strobe": ALL_BYTES}])
        self.expected_reads.extend(range(word, word + words))
        self.wanted["keys_requests"] += 1
        self.wanted["keys_lines"] += words // 2
        fields |= {"kind": Kind.KEYS, "row": row, "word": word, "line": line}
        self._add(_Move({**self._noise(), **fields}, words))

    def values(self, count: int, *, p_full: int, last: bool = True) -> None:
        """VALUES of neighbouring positions of a sequence, which go on in the next tile."""
        rng = self.rng
        line, first = rng.getrandbits(30), rng.randrange(TILE)
        rows = []
        for position in range(first, first + count):
            tile, token = divmod(position, TILE)
            row, word = rng.randrange(self.rows), self._places(4, upper=False)
            codes = self.banks[row, word : word + 4].reshape(-1)
            rows.append((line + 129 * tile, token, codes))
            ends = last and position == first + count - 1
            fields = {"kind": Kind.VALUES, "row": row, "word": word, "line": line + 129 * tile}
            fields |= {"words": rng.randint(0, 4), "token": token, "p_full": p_full}
            self.expected_reads.extend(range(word, word + 4))
            self._add(_Move({**self._noise(), **fields, "last": ends}, 4))
        for (tile_line, eighth), group in groupby(rows, lambda each: (each[0], each[1] // 8)):
            self._lines(tile_line, eighth, [each[1:] for each in group], p_full)

    def _lines(self, line: int, eighth: int, rows: list[tuple[int, Array]], p_full: int) -> None:
        """The lines of rows that are written together."""
        tile = np.zeros(TILE_EXPONENT_BYTES + PLANE_BYTES * p_full, np.uint8)
        written = np.zeros_like(tile)
        for token, codes in rows:
            made = quantize(bf16_numbers(codes[None]), group=TILE, p_full=p_full)
            put_rows(tile, token, made)
            written[token] = 1
            written[TILE_EXPONENT_BYTES:].reshape(p_full, TILE, -1)[:, token] = 1
        for number in (0, *(1 + eighth + LINE_ROWS * plane for plane in range(p_full))):
            part = slice(LINE_BYTES * number, LINE_BYTES * (number + 1))
            strobe = np.packbits(written[part], bitorder="little").tobytes()
            content = int.from_bytes(tile[part].tobytes(), "little")
            self.want("values_requests", [{"line": line + number, "count": 1}])
            self.want(
                "values_lines", [{"data": content, "strobe": int.from_bytes(strobe, "little")}]
            )
            self.wanted["values_requests"] += 1
            self.wanted["values_lines"] += 1

    def any_move(self) -> None:
        """One of any kind, or some rows of values."""
        kind = self.rng.choice(list(Kind))
        if kind == Kind.KEYS:
            self.key()
        elif kind == Kind.VALUES:
            p_full = self.rng.choice((9, 16, self.rng.randint(9, 16)))
            self.values(self.rng.choice((1, 2, self.rng.randint(1, 12))), p_full=p_full)
        else:
            self.between(kind)

    # What happens -----------------------------------------------------------------------------

    def _taken(self, _: int) -> None:
        self.taken_moves += 1

    async def cycle(self) -> None:
        """One clock period; the bank ports' side of it too."""
        rng = self.rng
        # Others hold the read port for a cycle, and for many.
        if self._others:
            self._others -= 1
        elif rng.random() < self.shares:
            self._others = rng.randint(10, 100)
        self._free = not self._others and rng.random() >= self.stall
        self._bank_ready = rng.random() >= self.stall
        if self._patient:
            self._free &= bool(self.bit(self.port("read")))
            self._bank_ready &= bool(self.bit(self.port("bank_write")))
        for sink in self.sinks:
            sink.blocked = sink.name in self.closed
            sink.blocked |= self._patient and not self.bit(sink.valid)
        banks = None
        if self._answer is not None:
            banks = [self.at(row, self._answer) for row in range(self.rows)]
        self.put(granted=int(self._free), bank_ready=int(self._bank_ready), data=banks)
        await super().cycle()

    def _look(self) -> None:
        done, idle = self.get("done"), self.get("idle")
        self._check_done(done)
        begun = self._begun()
        if idle and begun and any(self.count[n] < end for n, end in begun.ends.items()):
            raise MismatchError(f"idle in cycle {self.cycle_count} before all has left")

        self._answer = None
        if self.get("read") and self._free:
            if not self.expected_reads:
                raise MismatchError("a read that nothing accounts for")
            place = self.get("read_word")
            if place != (want := self.expected_reads.popleft()):
                raise MismatchError(f"word {place} is read, not {want}")
            self._answer = place
            self.count["reads"] += 1
            self.read_cycles.append(self.cycle_count)
        if self.get("bank_write"):
            write = self.get("bank_row"), self.get("bank_word"), self.get("bank_data")
            if self._held not in (None, write):
                raise MismatchError("a write to a bank changed before it happened")
            self._held = None if self._bank_ready else write
            if self._bank_ready:
                self._written(write)
        elif self._held is not None:
            raise MismatchError("a write to a bank fell before it happened")
        for name in self.out:
            self.count[name] = self.wanted[name] - len(self.expected[name])

    def _written(self, write: tuple[int, int, int]) -> None:
        if not self.expected_writes:
            raise MismatchError("a write to a bank that nothing accounts for")
        if write != (want := self.expected_writes.popleft()):
            raise MismatchError(f"write of row {write[0]}, word {write[1]}: {write}, not {want}")
        self.count["writes"] += 1
        self.write_cycles.append(self.cycle_count)
        self.compared += 1

    def _begun(self) -> _Move | None:
        """The last move whose first word has been read."""
        begun = None
        for move in self.moves:
            if self.count["reads"] <= move.ends["reads"] - move.reads:
                break
            begun = move
        return begun

    def _check_done(self, done: int) -> None:
        """Between what has surely left, a move behind it too, and what can have left."""
        least = most = 0
        for number, move in enumerate(self.moves, 1):
            if self.count["reads"] < move.ends["reads"]:
                break
            name = {Kind.KEYS: "keys_lines", Kind.VALUES: ""}.get(move.kind, "writes")
            if name:
                if self.count[name] < move.ends[name]:
                    break
                least = number
            most = number
        if (done - least) % MODULO > most - least:
            raise MismatchError(f"done is {done}, not {least} to {most}, cycle {self.cycle_count}")

    async def reset(self, cycles: int = 2) -> None:
        """As that of every bench; forgets what is under way."""
        await super().reset(cycles)
        self.clear_streams()
        self.moves.clear()
        self.expected_reads.clear()
        self.expected_writes.clear()
        self.count = dict.fromkeys(self.count, 0)
        self.wanted = dict(self.count)
        self._answer = self._held = None
        self._others = 0

    async def end(self, *, patient: bool = False) -> int:
        """Until everything came, and some cycles more; the cycles until then."""
        self._patient = patient
        start = self.cycle_count

        def over() -> bool:
            more = any(self.expected.values()) or any(each.queue for each in self.sources)
            return not (more or self.expected_writes or self.expected_reads)

        left = sum(map(len, self.expected.values())) + len(self.expected_reads)
        await self.run(over, limit=1000 + 60 * left)
        took = self.cycle_count - start
        self._patient = False
        for _ in range(12):
            await self.cycle()
        self.expect(idle=1, done=len(self.moves) % MODULO)
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
    """All kinds in random order, in all moods, with ports that others hold; a reset on the way."""
    for number, mood in enumerate(MOODS):
        bench = _MoverBench(dut, mood, number)
        await bench.reset()
        for after_reset in (False, True):
            for _ in range(bench.env.scale(20, 80)):
                bench.any_move()
            if after_reset:
                await bench.end(patient=mood == "steady")
            else:
                for _ in range(bench.rng.randint(20, 300)):
                    await bench.cycle()
                await bench.reset()
                bench.fill()
        await bench.expect_status()
        bench.report(mood)


@cocotb.test()
async def one_kind(dut: object) -> None:
    """Many moves of one kind behind each other, so that each queue fills up."""
    for number, kind in enumerate(Kind):
        bench = _MoverBench(dut, "both", number)
        await bench.reset()
        for _ in range(bench.env.scale(12, 60)):
            if kind == Kind.KEYS:
                bench.key()
            elif kind == Kind.VALUES:
                bench.values(bench.rng.randint(1, 3), p_full=bench.rng.randint(9, 16))
            else:
                bench.between(kind)
        await bench.end()
        bench.report(kind.name)


@cocotb.test()
async def every_shape(dut: object) -> None:
    """All positions and groups that fit, of heads of one word to the widest."""
    bench = _MoverBench(dut)
    await bench.reset()
    widest = 4 * bench.chip.head_tiles_max
    for group in range(1, bench.rows + 1):
        for positions in range(1, bench.rows // group + 1):
            for words in {1, widest, bench.rng.randint(1, widest)}:
                for kind in (Kind.GATHER, Kind.SCATTER):
                    bench.between(kind, group=group, positions=positions, words=words)
        await bench.end()
    bench.report("shapes")


@cocotb.test()
async def a_row_waits(dut: object) -> None:
    """A row of values that could still be merged is kept, and the mover is not idle."""
    bench = _MoverBench(dut)
    await bench.reset()
    bench.values(1, p_full=9, last=False)
    for _ in range(300):
        await bench.cycle()
    bench.expect(idle=0, done=1)
    if bench.out["values_lines"].count:
        raise MismatchError("a row that could still be merged was written")
    bench.values(1, p_full=9)
    await bench.end()
    bench.report("waits")


@cocotb.test()
async def requests_wait(dut: object) -> None:
    """Requests of keys and values that nobody takes: the mover is not idle, nothing is lost."""
    for name in ("keys", "values"):
        for count in (1, 8):
            bench = _MoverBench(dut)
            await bench.reset()
            bench.closed = {f"{name}_requests"}
            for _ in range(count):
                if name == "keys":
                    bench.key(words=2)
                else:
                    bench.values(1, p_full=9)
            for _ in range(count * 100):
                await bench.cycle()
            bench.expect(idle=0)
            bench.closed = set()
            await bench.end()
    bench.report("requests wait")


@cocotb.test()
async def status(dut: object) -> None:
    """Inf and NaN among values are refused, elsewhere they are moved."""
    bench = _MoverBench(dut)
    await bench.reset()
    bench.banks[:, : bench.half] = 0x7F80
    bench.between(Kind.GATHER)
    bench.key()
    await bench.end()
    await bench.expect_status()
    bench.values(1, p_full=9)
    await bench.end()
    await bench.expect_status(refused=True)
    bench.report("status")


@cocotb.test()
async def counts(dut: object) -> None:
    """More moves than the count of what is done can tell apart."""
    bench = _MoverBench(dut)
    await bench.reset()
    for _ in range(MODULO + 10):
        bench.between(Kind.GATHER, group=1, positions=1, words=1)
    await bench.end()
    bench.report("counts")


@cocotb.test()
async def rate(dut: object) -> None:
    """A word in every cycle from move to move; a key takes a cycle more, and rows of values."""
    measured = []
    for kind in (Kind.GATHER, Kind.SCATTER):
        bench = _MoverBench(dut)
        await bench.reset()
        for _ in range(30):
            bench.between(kind)
        await bench.end()
        words = bench.wanted["writes"]
        took = bench.write_cycles[-1] - bench.read_cycles[0] + 1
        if took != words + 2:
            raise MismatchError(f"{took} cycles for {words} words, not 2 more")
        measured.append(f"{kind.name}: {words} words in {took} cycles")
    bench = _MoverBench(dut)
    await bench.reset()
    for _ in range(30):
        bench.key()
    took = await bench.end()
    words = bench.wanted["reads"]
    if took > words + 30 + 4:
        raise MismatchError(f"{took} cycles for {words} words of 30 keys")
    measured.append(f"KEYS: {words} words of 30 in {took} cycles")
    bench = _MoverBench(dut)
    await bench.reset()
    for _ in range(6):
        bench.values(5, p_full=9)
    took = await bench.end()
    beats = TILE // bench.chip.core.special_elements
    # Rows of a run may have to wait until lines of those before have left.
    if took > (limit := 30 * (beats + 9) + bench.wanted["values_lines"] + 30):
        raise MismatchError(f"{took} cycles for 30 rows of values, more than {limit}")
    measured.append(f"VALUES: 30 in {took} cycles")
    bench.report("rate", "; ".join(measured))
