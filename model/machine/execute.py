"""Runs commands: the control commands themselves, and the lists of a step by `Operations`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from model.formats.commands import Opcode, Region, Status
from model.formats.registers import REGISTERS
from model.lm.precision import Precision
from model.machine.checks import (
    check_commit,
    check_list,
    check_model,
    check_rows,
    check_sequence,
    decode,
    need,
    precision_of,
)
from model.machine.encode import Segment
from model.machine.memory import Memory
from model.machine.operations import Operations
from model.machine.rounds import run_rounds, words
from model.machine.shape import MachineShape
from model.machine.state import Sequence, State
from model.machine.weights import Weights

Fields = Mapping[str, int]


class Machine:
    """The chip without its registers: runs commands.

    Args:
        shape: its sizes.
        size: bytes of memory.

    Attributes:
        state, memory, weights: what it has.
        plt: words of the lookup table.
        trace_next: entry behind the last one that was written.
        events: counts by the names of `EVENTS`.
        line: line of the command in work.
    """

    def __init__(self, shape: MachineShape, size: int) -> None:
        self.state = State(shape)
        self.memory = Memory(size)
        self.weights = Weights(self.memory)
        self.operations = Operations(self.state, self.memory, self.weights)
        self.plt = [0] * REGISTERS["PLT"].entries
        self.trace_next = 0
        self.events: Counter[str] = Counter()
        self.line = 0

    def job(self, line: int) -> Iterator[None]:
        """Runs a job; yields before each command. Fault where a command cannot work."""
        while True:
            self.line = line
            yield
            opcode, fields = self._fetch(line, nested=False)
            if opcode == Opcode.HALT:
                return
            yield from self._control(opcode, fields)
            line += 1

    def _fetch(self, line: int, *, nested: bool) -> tuple[Opcode, dict[str, int]]:
        self.memory.check(Region.COMMANDS, line, 1)
        command = self.memory.read("READ_COMMANDS", Region.COMMANDS, line, 1)
        return decode(command.tobytes(), nested=nested, state=self.state)

    def run_list(self, fields: Fields) -> Iterator[None]:
        """Runs the list of a CALL or ROUND on the rows."""
        caller = self.line
        for line in range(fields["list"], fields["list"] + fields["count"]):
            self.line = line
            yield
            self.operations.run(*self._fetch(line, nested=True))
        self.line = caller

    def token_at(self, sequence: int, position: int) -> int:
        """A token of TOKENS; Fault where it is none of the vocabulary."""
        return self._tokens(sequence, position, 1)[0]

    def _tokens(self, sequence: int, position: int, count: int) -> list[int]:
        model = self.state.the_model
        first, last = position // 16, (position + count - 1) // 16
        line = sequence * model.capacity // 16 + first
        found = self.memory.read("READ_TOKENS", Region.TOKENS, line, last - first + 1)
        tokens = found.view("<u4")[position % 16 :][:count].tolist()
        for token in tokens:
            need(token < model.vocabulary, Status.TOKEN, f"token {token}")
        return [int(token) for token in tokens]

    def put_tokens(self, sequence: int, position: int, tokens: list[int]) -> None:
        """Writes tokens to TOKENS."""
        place = 4 * (sequence * self.state.the_model.capacity + position)
        self.memory.write("WRITE_TOKENS", Region.TOKENS, place, words(tokens))

    def _control(self, opcode: Opcode, fields: Fields) -> Iterator[None]:
        state = self.state
        if opcode == Opcode.MODEL:
            check_model(fields, state)
            state.set_model(fields)
        elif opcode == Opcode.SEQUENCE:
            check_sequence(fields, state, self.memory)
            state.sequences[fields["sequence"]] = Sequence(
                length=fields["length"],
                limit=fields["limit"],
                count=fields["length"] + fields["live"],
                live=bool(fields["live"]),
            )
        elif opcode == Opcode.ROWS:
            self._rows(fields)
        elif opcode == Opcode.CALL:
            need(bool(state.segments), Status.ROWS, "no rows")
            check_list(fields, self.memory)
            yield from self.run_list(fields)
        elif opcode == Opcode.COMMIT:
            self._commit(fields)
        elif opcode == Opcode.ROUND:
            yield from run_rounds(self, fields)

    def _rows(self, fields: Fields) -> None:
        state = self.state
        check_rows(fields, state, self.memory)
        named = [
            Segment(fields[f"sequence_{i}"], fields[f"start_{i}"], fields[f"count_{i}"])
            for i in range(fields["segments"])
        ]
        tokens = [t for s in named for t in self._tokens(s.sequence, s.start, s.rows)]
        if fields["append"]:
            named, tokens = [*state.segments, *named], [*state.tokens, *tokens]
        state.set_rows(named, tokens)
        p_full = state.the_model.p_full
        state.precision = Precision.full(p_full)
        if fields["precision"]:
            state.precision = precision_of(fields["precision"], p_full)[0]

    def _commit(self, fields: Fields) -> None:
        state = self.state
        check_commit(fields, state)
        for segment, row in zip(state.segments, state.last_rows(), strict=True):
            sequence, length = state.sequences[segment.sequence], segment.start + segment.rows
            sequence.length = sequence.count = length
            sequence.live = sequence.end = sequence.limited = False
            token = state.argmax[row]
            if fields["append"] and token is not None:
                self.put_tokens(segment.sequence, length, [token])
                sequence.count = length + 1
