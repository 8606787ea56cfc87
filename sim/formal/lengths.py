"""The length of the KV cache: the program's own instructions, run for all that can come.

A round is run by itself, without the commands of a step: instead of each step the rows that it
would have computed are looked at, and answered. What must come out is written down here in three
lines, after ``docs/chip.md``. Complete over what one sequence can meet: every number of drafted
tokens that the chip has rows for, every way to accept them, every place of an end-of-text id,
every distance to the limit at which it counts; and drawn at random for several sequences.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hw.chip_config import CHIPS, ChipConfig
from hw.control.assembler import Op
from hw.control.ports import Flag, Host, Idle, Push
from hw.control.processor import SCRATCH_WORDS, WINDOW_WORDS
from hw.control.program.main import build
from hw.control.register_rows import row_of
from model.formats.commands import LINE_BYTES, Opcode, Region, pack
from model.formats.plt_layout import FIELDS
from model.formats.plt_layout import pack as pack_entry
from model.formats.registers import pack as pack_register
from sim.formal.engine import Outcome
from sim.processor_model import ProcessorModel

#: Capacity of the cache in the cases: two blocks of keys.
CAPACITY = 128
#: Lengths at which something changes: lines of tokens, blocks of keys, the beginning.
LENGTHS = (0, 15, 62, 63, 64)
#: Where a function goes back to: no place of the program.
BACK = (1 << 12) - 1
END_ID = 7
SEED = 1
#: Cases with several sequences.
DRAWN = 400


@dataclass
class Sequence:
    """A sequence in a round.

    Attributes
    ----------
    length, limit : tokens
    accepts : drafted tokens that the target agrees with, at most
    ends : which of the new tokens is an end-of-text id; a big number: none
    """

    length: int
    limit: int
    accepts: int
    ends: int


class Broken(Exception):
    """What does not hold, by its name."""


def need(holds: bool, name: str) -> None:
    """Raises :class:`Broken` if it does not hold."""
    if not holds:
        raise Broken(name)


class Machine:
    """The program with a window, a memory of tokens and ports of its own.

    Parameters
    ----------
    config : ChipConfig
    """

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        self.c = build(config)
        self.names = {name: place for place, name in self.c.p.names.items()}
        self.model = ProcessorModel(self.c.p.assemble())

    def prepare(self) -> None:
        """As after MODEL: no sequence, no rows, all sizes large."""
        c = self.c
        self.model.reset()
        self.model.registers = [0] * 32
        self.model.scratch = dict.fromkeys(range(SCRATCH_WORDS), 0)
        self.window = {row_of("SIZE", i): 1 << 20 for i in range(len(Region))}
        for i in range(self.config.sequences):
            self.window |= {row_of(name, i): 0 for name in ("LENGTH", "COUNT", "STATE")}
        self.tokens: dict[int, int] = {}
        self.numbers: dict[int, int] = {}
        self.text: list[tuple[int, bool]] = []
        self.loads = 0
        self.set(c.has_model, 1)
        self.set(c.model["capacity"], CAPACITY)
        self.set(c.model["vocabulary"], 1 << 20)
        self.set(c.model["p_full"], 8)

    @staticmethod
    def _row(word: object) -> int:
        return word.place.value + word.offset - WINDOW_WORDS  # type: ignore[attr-defined]

    def set(self, word: object, value: int, index: int = 0) -> None:
        """A word of the scratch memory."""
        self.model.scratch[self._row(word) + index] = value

    def get(self, word: object, index: int = 0) -> int:
        """The same, read."""
        return self.model.scratch[self._row(word) + index]

    def register(self, name: str, entry: int = 0) -> int:
        """A register of the window."""
        return self.window[row_of(name, entry)]

    def run(self, opcode: Opcode, values: dict[str, int]) -> Iterator[None]:
        """Runs a command; yields where it would run the commands of a step."""
        model, c = self.model, self.c
        words = pack(opcode, values)
        for i in range(0, len(words), 4):
            model.scratch[i // 4] = int.from_bytes(words[i : i + 4], "little")
        model.registers[c.cmd.number] = WINDOW_WORDS
        model.registers[31] = BACK
        model.place = self.names[opcode.name]
        faults = {label.place for label in c.faults.values()}
        for _ in range(100_000):
            if model.place == BACK:
                return
            need(model.place not in faults, "no_fault")
            if model.place == self.names["list"]:
                yield
                model.place = model.registers[31] or 0
                continue
            what = model.now()
            number = 0
            if what.op is Op.IN:
                number = self._says(what.port)
            elif what.op is Op.LOAD and not what.in_scratch:
                number = self.window[what.row]
            elif what.op is Op.STORE and not what.in_scratch:
                self.window[what.row] = what.stored % (1 << 32)
            elif what.op is Op.OUT:
                self._given(what.port, what.stored)
            model.step(number)
        need(False, "it_ends")

    def _says(self, port: int) -> int:
        if port == Flag.IDLE:
            return (1 << len(Idle)) - 1
        if port == Flag.HOST:
            return 1 << Host.BUSY
        return self.loads if port == Flag.LOADS else 0

    def _given(self, port: int, value: int) -> None:
        words = LINE_BYTES // 4
        if port == Push.LOAD:
            first = self.numbers[self.c.ports["line"].number] * words
            row = self.numbers[self.c.ports["word"].number]
            for i in range(words):
                self.model.scratch[row + i] = self.tokens.get(first + i, 0)
            self.loads = (self.loads + 1) % 256
        elif port == Push.TEXT_WORD:
            self.text.append((value % (1 << 32), bool(value >> 32)))
        elif port == Push.TEXT:
            first = self.numbers[self.c.ports["line"].number] * words
            need(len(self.text) == words, "lines_are_whole")
            for i, (token, written) in enumerate(self.text):
                if written:
                    self.tokens[first + i] = token
            self.text = []
        else:
            self.numbers[port] = value


def round_of(machine: Machine, sequences: dict[int, Sequence], gamma: int) -> None:
    """A round of some sequences, against what must come of it.

    The target's token of position ``i`` is ``1000 + i``, and a draft's is another one where it is
    not accepted; a sequence's end-of-text id is ``END_ID``.
    """
    machine.prepare()
    c, rows = machine.c, machine.config.core.t_m
    for number, one in sequences.items():
        machine.window[row_of("LENGTH", number)] = one.length
        machine.window[row_of("COUNT", number)] = one.length + 1
        machine.window[row_of("STATE", number)] = pack_register("STATE", live=1)
        machine.set(c.limit, one.limit, number)
        machine.tokens[number * CAPACITY + one.length] = 999
    before = dict(machine.tokens)
    entry = pack_entry(dict.fromkeys(FIELDS, 0) | {"valid": 1, "p_w": 5, "p_kv": 5, "gamma": gamma})
    command = {"count": 1, "precision": entry, "rounds": 1, "end_ids": 1, "end_id_0": END_ID}
    most = min(gamma, rows // len(sequences) - 1)
    gammas = {number: min(most, one.limit - one.length - 2) for number, one in sequences.items()}

    def says(number: int, position: int, *, draft: bool) -> int:
        """The token behind a position."""
        one = sequences[number]
        new = position - one.length
        if draft and new >= one.accepts:
            return 5000 + position
        return END_ID if new == one.ends else 1000 + position

    steps = 0
    for _ in machine.run(Opcode.ROUND, command):
        verify = steps == max(gammas.values())
        there = [
            (machine.get(c.segment_sequence, i), machine.get(c.segment_start, i), count)
            for i in range(machine.get(c.segments))
            for count in [machine.get(c.segment_rows, i)]
        ]
        if verify:
            expected = [(n, one.length, gammas[n] + 1) for n, one in sequences.items()]
        else:
            expected = [
                (n, one.length + steps, 1) for n, one in sequences.items() if gammas[n] > steps
            ]
        need(all(start >= sequences[n].length for n, start, _ in there), "committed_stays")
        need(all(start + count < sequences[n].limit for n, start, count in there), "within_limit")
        need(sum(count for *_, count in there) <= rows, "rows_fit")
        need(there == expected, "rows_are_those_of_the_round")
        at = 0
        for number, start, count in there:
            for position in range(start, start + count):
                new = position - sequences[number].length
                token = says(number, position - 1, draft=True) if new else 999
                need(machine.get(c.tokens, at) == token, "rows_have_the_drafted_tokens")
                answer = says(number, position, draft=not verify)
                machine.set(c.argmax, answer | 1 << 32, at)
                at += 1
        steps += 1
    need(steps == max(gammas.values()) + 1, "steps_of_the_round")
    for number, one in sequences.items():
        accepted = min(one.accepts, gammas[number])
        ended = one.ends <= accepted
        count = one.length + (one.ends if ended else accepted) + 2
        state = {"end": 1} if ended else {"limit": 1} if count >= one.limit else {"live": 1}
        need(machine.register("LENGTH", number) == one.length + accepted + 1, "length")
        need(machine.register("COUNT", number) == count, "count")
        need(machine.register("STATE", number) == pack_register("STATE", **state), "state")
        need("live" not in state or one.length + accepted + 2 < one.limit, "live_has_room")
        for new in range(accepted + 1):
            place = number * CAPACITY + one.length + 1 + new
            before[place] = says(number, one.length + new, draft=False)
    need(machine.tokens == before, "tokens_written")


def cases_of_one(rows: int) -> Iterator[tuple[Sequence, int]]:
    """A sequence and gamma: complete, as far as something changes."""
    for gamma, length in itertools.product(range(rows), LENGTHS):
        for room in range(gamma + 2):
            drafted = min(gamma, room)
            for accepts, ends in itertools.product(range(drafted + 1), range(drafted + 2)):
                if length + room + 2 <= CAPACITY:
                    yield Sequence(length, length + room + 2, accepts, ends), gamma


def drawn(config: ChipConfig, rng: random.Random) -> tuple[dict[int, Sequence], int]:
    """Several sequences and gamma."""
    count = rng.randint(1, config.sequences)
    sequences = {}
    for number in sorted(rng.sample(range(config.sequences), count)):
        length = rng.randrange(CAPACITY - 1)
        limit = rng.randint(length + 2, min(CAPACITY, length + 12))
        sequences[number] = Sequence(length, limit, rng.randint(0, 9), rng.choice((99, 0, 1, 3)))
    return sequences, rng.randint(0, 15)


def commits(machine: Machine) -> Iterator[tuple[int, int, bool]]:
    """COMMIT for every start and number of rows, with and without a token behind them."""
    rows = machine.config.core.t_m
    for start, count, append in itertools.product(range(CAPACITY), range(1, rows + 1), (0, 1)):
        if start + count + append <= CAPACITY:
            yield start, count, bool(append)


def commit(machine: Machine, start: int, count: int, append: bool) -> None:
    """COMMIT against what must come of it."""
    machine.prepare()
    c, number = machine.c, machine.config.sequences - 1
    machine.set(c.segments, 1)
    machine.set(c.segment_sequence, number)
    machine.set(c.segment_start, start)
    machine.set(c.segment_rows, count)
    machine.set(c.argmax, 1234 | 1 << 32, count - 1)
    for _ in machine.run(Opcode.COMMIT, {"append": int(append)}):
        need(False, "no_step")
    end = start + count
    need(machine.register("LENGTH", number) == end, "length")
    need(machine.register("COUNT", number) == end + append, "count")
    need(machine.register("STATE", number) == 0, "state")
    token = {number * CAPACITY + end: 1234} if append else {}
    need(machine.tokens == token, "tokens_written")


class LengthProof:
    """The lengths of the KV cache in the program for a preset.

    Attributes
    ----------
    name : str
    quick : bool
        Part of the quick form.
    """

    deaf = None
    deep = False
    quick = False
    name = "kv_lengths"

    def run(self, folder: Path, *, hunt: int = 0, deaf: bool = False) -> Outcome:
        """Runs all cases, or up to the first that breaks something."""
        started = time.monotonic()
        machine = Machine(CHIPS["small"])
        rng = random.Random(SEED)
        failing: list[str] = []
        cases = 0
        try:
            for one, gamma in cases_of_one(machine.config.core.t_m):
                cases += 1
                round_of(machine, {cases % machine.config.sequences: one}, gamma)
            for _ in range(DRAWN):
                cases += 1
                round_of(machine, *drawn(machine.config, rng))
            for start, count, append in commits(machine):
                cases += 1
                commit(machine, start, count, append)
        except Broken as broken:
            failing = [str(broken)]
        names = {
            *("no_fault", "it_ends", "lines_are_whole", "committed_stays", "within_limit"),
            *("rows_fit", "rows_are_those_of_the_round", "rows_have_the_drafted_tokens"),
            *("steps_of_the_round", "length", "count", "state", "live_has_room"),
            *("tokens_written", "no_step"),
        }
        return Outcome(
            self.name,
            f"lengths of the KV cache: {cases} cases, each one run",
            len(names),
            0,
            0,
            "fails" if failing else "proven",
            failing,
            seconds=time.monotonic() - started,
        )
