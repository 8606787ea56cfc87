"""The control processor by its instructions, one after the other, without a clock.

Written from what :mod:`hw.control.assembler` says about them, to stand beside the hardware and to
run programs in tests. Whoever runs it stands for the window of registers and for the ports.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass

from hw.control.assembler import Op

_WORD = (1 << 48) - 1
_WINDOW_WORDS = 1024


def _bits(word: int, first: int, count: int) -> int:
    return word >> first & (1 << count) - 1


@functools.cache
def fields_of(word: int) -> tuple[Op, int, int, int, bool, int]:
    """Operation, registers, whether the constant is used, and the constant."""
    target, first, second = (_bits(word, 5 + 5 * i, 5) for i in range(3))
    return (
        Op(_bits(word, 0, 5)),
        target,
        first,
        second,
        bool(_bits(word, 20, 1)),
        _bits(word, 21, 32),
    )


@dataclass(frozen=True)
class Decoded:
    """An instruction with its numbers.

    Attributes
    ----------
    op : Op
    target, first, second : numbers of registers
    a, stored, b
        What the first and the second register hold; the second operand: ``stored`` or the constant.
    constant : 32 bits
    goes : where a branch goes
    """

    op: Op
    target: int
    first: int
    second: int
    a: int
    stored: int
    b: int
    constant: int
    goes: int

    @property
    def address(self) -> int:
        """The word of memory that a load or a store is about; 1024 and up: scratch."""
        return (self.a + self.constant) % 2048

    @property
    def row(self) -> int:
        """The row of window or scratch memory."""
        return self.address % _WINDOW_WORDS

    @property
    def in_scratch(self) -> bool:
        """Whether it is a word of the scratch memory."""
        return self.address >= _WINDOW_WORDS

    @property
    def port(self) -> int:
        """The port that is read or given a number."""
        base = self.a if self.op is Op.IN else 0
        return (base + self.constant) % 256


class ProcessorModel:
    """Registers, scratch memory and the place of the next instruction.

    Parameters
    ----------
    program : tuple of int

    Attributes
    ----------
    registers : list of int or None
        32 words of 48 bits; None where nothing was written since the start.
    scratch : dict
        Words of the scratch memory by row, as far as they were written.
    place : int
    met : Counter
        How often each operation was done; branches by ``(op, whether it went)``.
    """

    def __init__(self, program: tuple[int, ...]) -> None:
        self.program = program
        self.scratch: dict[int, int] = {}
        self.met: Counter[Op | tuple[Op, bool]] = Counter()
        self.reset()

    def reset(self) -> None:
        """Begins anew; the scratch memory keeps what it holds."""
        self.registers: list[int | None] = [0] + [None] * 31
        self.place = 0

    def _register(self, number: int) -> int:
        value = self.registers[number]
        if value is None:
            raise ValueError(f"place {self.place} reads register {number} before it is written")
        return value

    def now(self) -> Decoded:
        """The next instruction.

        Raises
        ------
        ValueError
            If it reads a register that nothing was written to.
        """
        op, target, first, second, uses, constant = fields_of(self.program[self.place])
        branch = Op.IF_EQUAL <= op <= Op.IF_NOT_BELOW
        reads_a = op not in (Op.OUT, Op.CALL)
        reads_second = op in (Op.STORE, Op.OUT) or (
            not uses and op not in (Op.LOAD, Op.IN, Op.CALL, Op.RETURN)
        )
        a = self._register(first) if reads_a else 0
        stored = self._register(second) if reads_second else 0
        b = (constant >> 12 if branch else constant) if uses else stored
        return Decoded(
            op, target, first, second, a, stored, b, constant, constant % 4096 if branch else 0
        )

    def step(self, number: int = 0) -> None:
        """Does the next instruction; ``number`` is what the window or the port says."""
        what = self.now()
        op, a, b = what.op, what.a, what.b
        following = self.place + 1
        result: int | None = None
        if op is Op.ADD:
            result = a + b
        elif op is Op.SUB:
            result = a - b
        elif op is Op.AND:
            result = a & b
        elif op is Op.OR:
            result = a | b
        elif op is Op.SHL:
            result = a << b % 64
        elif op is Op.SHR:
            result = a >> b % 64
        elif op is Op.MUL:
            result = (a % (1 << 32)) * (b % (1 << 18))
        elif op is Op.MIN:
            result = min(a, b)
        elif op is Op.LOAD:
            result = self.scratch[what.row] if what.in_scratch else number
        elif op is Op.IN:
            result = number
        elif op is Op.STORE and what.in_scratch:
            self.scratch[what.row] = what.stored
        elif op is Op.CALL:
            result, following = self.place + 1, what.constant % 4096
        elif op is Op.RETURN:
            following = a % 4096
        if Op.IF_EQUAL <= op <= Op.IF_NOT_BELOW:
            goes = {
                Op.IF_EQUAL: a == b,
                Op.IF_DIFFERENT: a != b,
                Op.IF_BELOW: a < b,
                Op.IF_NOT_BELOW: a >= b,
            }[op]
            if goes:
                following = what.goes
            self.met[op, goes] += 1
        self.met[op] += 1
        if result is not None and what.target:
            self.registers[what.target] = result & _WORD
        self.place = following


def run(
    program: tuple[int, ...],
    *,
    inputs: dict[int, int] | None = None,
    window: dict[int, int] | None = None,
    end: int = 255,
    limit: int = 1_000_000,
) -> tuple[list[tuple[int, int]], ProcessorModel]:
    """Runs a program until it gives a number to the port ``end``.

    Parameters
    ----------
    program : tuple of int
    inputs : what ports say, 0 where nothing is said
    window : words of the window; stores into it change it

    Returns
    -------
    given : list of (port, number)
        Without the last one.
    model : ProcessorModel
        As it stands then.

    Raises
    ------
    RuntimeError
        If there is no end after ``limit`` instructions.
    """
    model = ProcessorModel(program)
    given: list[tuple[int, int]] = []
    window = {} if window is None else window
    for _ in range(limit):
        what = model.now()
        number = 0
        if what.op is Op.OUT:
            if what.port == end:
                return given, model
            given.append((what.port, what.stored))
        elif what.op is Op.IN:
            number = (inputs or {}).get(what.port, 0)
        elif what.op is Op.LOAD and not what.in_scratch:
            number = window[what.row]
        elif what.op is Op.STORE and not what.in_scratch:
            window[what.row] = what.stored % (1 << 32)
        model.step(number)
    raise RuntimeError(f"no end after {limit} instructions")
