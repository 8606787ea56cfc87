"""Programs of the control processor: expressions and blocks, compiled to its instructions.

A program is Python that builds instructions as it runs: ``if_`` and ``while_`` are blocks,
variables live in registers or in the scratch memory, expressions are trees of :class:`Expr`.
Numbers are unsigned and have :data:`WORD_BITS` bits.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from dataclasses import dataclass, field

#: Bits of a register.
WORD_BITS = 48
#: Bits of a constant in an instruction, of one in a branch, of the place of an instruction.
IMMEDIATE_BITS = 32
TARGET_BITS = 12
BRANCH_BITS = IMMEDIATE_BITS - TARGET_BITS
REGISTERS = 32
REGISTER_BITS = 5
OP_BITS = 5
#: Bits of an instruction: operation, target, two sources, whether the second one is a constant.
INSTRUCTION_BITS = OP_BITS + 3 * REGISTER_BITS + 1 + IMMEDIATE_BITS
#: Factors of MUL.
FACTOR_BITS = (32, 18)
#: Bits of a place in memory, and of the number of a port.
ADDRESS_BITS = 11
PORT_BITS = 8

#: Registers of expressions; of variables; the return address.
_TEMPORARIES = range(1, 12)
_VARIABLES = range(12, 31)
_LINK = 31


class Op(enum.IntEnum):
    """Operations. A and the second register are sources; B is that register or the constant.

    Register 0 is 0, whatever is written to it.
    """

    #: target = A + B, and so on, modulo 2**48.
    ADD = 0
    SUB = 1
    AND = 2
    OR = 3
    #: By the low 6 bits of B.
    SHL = 4
    SHR = 5
    #: Of the low bits of both: :data:`FACTOR_BITS`.
    MUL = 6
    MIN = 7
    #: target = memory[A + constant]; memory[A + constant] = second register. The low bits of a sum
    #: say which word, or which port: :data:`ADDRESS_BITS`, :data:`PORT_BITS`.
    LOAD = 8
    STORE = 9
    #: target = port[A + constant]; port[constant] = second register.
    IN = 10
    OUT = 11
    #: Go to the low bits of the constant if A ? B; the constant B is its upper bits.
    IF_EQUAL = 12
    IF_DIFFERENT = 13
    IF_BELOW = 14
    IF_NOT_BELOW = 15
    #: target = place of the next instruction, go to the constant; go to A.
    CALL = 16
    RETURN = 17


_BRANCHES = (Op.IF_EQUAL, Op.IF_DIFFERENT, Op.IF_BELOW, Op.IF_NOT_BELOW)
#: Bits of a constant, where not all of them would count.
_CONSTANT_BITS = {
    Op.SHL: (WORD_BITS - 1).bit_length(),
    Op.SHR: (WORD_BITS - 1).bit_length(),
    Op.MUL: FACTOR_BITS[1],
    Op.LOAD: ADDRESS_BITS,
    Op.STORE: ADDRESS_BITS,
    Op.IN: PORT_BITS,
    Op.OUT: PORT_BITS,
}


class Label:
    """A place in the program; its name is for messages."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.place: int | None = None


@dataclass
class Instruction:
    """One instruction; ``label`` is added to the constant when all places are known."""

    op: Op
    target: int = 0
    a: int = 0
    b: int = 0
    constant: int | None = None
    label: Label | None = None

    def word(self) -> int:
        """As the processor reads it."""
        constant = self.constant or 0
        bits = _CONSTANT_BITS.get(self.op, IMMEDIATE_BITS)
        if not 0 <= constant < 1 << bits:
            raise ValueError(
                f"a constant of {self.op.name} must have {bits} bits, not {constant:#x}"
            )
        if self.label is not None:
            if self.label.place is None:
                raise ValueError(f"a label {self.label.name!r} has no place")
            if self.label.place >> TARGET_BITS:
                raise ValueError(f"a label {self.label.name!r} is behind the last instruction")
            constant |= self.label.place
        uses = self.constant is not None
        word = int(self.op)
        at = OP_BITS
        for value in (self.target, self.a, self.b):
            word |= value << at
            at += REGISTER_BITS
        return word | uses << at | constant << at + 1


class Expr:
    """A number that is computed when it is needed."""

    def __add__(self, other: Expr | int) -> Expr:
        return Binary(Op.ADD, self, expr(other))

    def __sub__(self, other: Expr | int) -> Expr:
        return Binary(Op.SUB, self, expr(other))

    def __and__(self, other: Expr | int) -> Expr:
        return Binary(Op.AND, self, expr(other))

    def __or__(self, other: Expr | int) -> Expr:
        return Binary(Op.OR, self, expr(other))

    def __lshift__(self, other: Expr | int) -> Expr:
        return Binary(Op.SHL, self, expr(other))

    def __rshift__(self, other: Expr | int) -> Expr:
        return Binary(Op.SHR, self, expr(other))

    def __mul__(self, other: Expr | int) -> Expr:
        return Binary(Op.MUL, self, expr(other))

    def least(self, other: Expr | int) -> Expr:
        """The smaller one of both."""
        return Binary(Op.MIN, self, expr(other))

    def is_(self, other: Expr | int) -> Condition:
        """Equal."""
        return Condition(Op.IF_EQUAL, self, expr(other))

    def is_not(self, other: Expr | int) -> Condition:
        """Different."""
        return Condition(Op.IF_DIFFERENT, self, expr(other))

    def __lt__(self, other: Expr | int) -> Condition:
        return Condition(Op.IF_BELOW, self, expr(other))

    def __ge__(self, other: Expr | int) -> Condition:
        return Condition(Op.IF_NOT_BELOW, self, expr(other))

    def __gt__(self, other: Expr | int) -> Condition:
        return Condition(Op.IF_BELOW, expr(other), self)

    def __le__(self, other: Expr | int) -> Condition:
        return Condition(Op.IF_NOT_BELOW, expr(other), self)


@dataclass
class Constant(Expr):
    """A number that is known."""

    value: int


@dataclass
class Binary(Expr):
    """Of two numbers."""

    op: Op
    a: Expr
    b: Expr


@dataclass
class Register(Expr):
    """A variable in a register."""

    number: int


@dataclass
class Word(Expr):
    """A word of memory: ``place + offset``."""

    place: Expr
    offset: int = 0

    def __getitem__(self, index: Expr | int) -> Word:
        """The word behind it by so many."""
        if isinstance(index, int):
            return Word(self.place, self.offset + index)
        if isinstance(self.place, Constant):
            return Word(index, self.offset + self.place.value)
        return Word(self.place + index, self.offset)


@dataclass
class Port(Expr):
    """What a port says now."""

    number: int
    index: Expr | None = None


@dataclass
class Condition:
    """A comparison."""

    op: Op
    a: Expr
    b: Expr

    def __bool__(self) -> bool:
        raise TypeError("a condition is not known before the program runs: if_ or while_ take it")

    def opposite(self) -> Condition:
        """Holds where this one does not."""
        return Condition(Op(self.op ^ 1), self.a, self.b)


def expr(value: Expr | int) -> Expr:
    """A number as an expression."""
    return Constant(value) if isinstance(value, int) else value


@dataclass
class Program:
    """A program in the making.

    Attributes
    ----------
    code : its instructions
    names : what stands where, for listings
    """

    code: list[Instruction] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    _functions: dict[str, Label] = field(default_factory=dict)
    _registers: int = 0
    _scratch: int = 0
    _limit: int = 0
    _free: list[int] = field(default_factory=lambda: list(_TEMPORARIES))
    _breaks: list[Label] = field(default_factory=list)
    _in_leaf: bool = False

    # Places of numbers ---------------------------------------------------------------------------

    def use_scratch(self, first: int, count: int) -> None:
        """Memory that variables may take."""
        self._scratch, self._limit = first, first + count

    def register(self) -> Register:
        """A variable in a register."""
        if self._registers == len(_VARIABLES):
            raise ValueError("no register is left")
        self._registers += 1
        return Register(_VARIABLES[self._registers - 1])

    def words(self, count: int = 1) -> Word:
        """A variable in memory, or a table of them."""
        if self._scratch + count > self._limit:
            raise ValueError(f"the scratch memory has no {count} words left")
        self._scratch += count
        return Word(Constant(self._scratch - count))

    # Instructions --------------------------------------------------------------------------------

    def emit(self, op: Op, **fields: int | Label | None) -> None:
        """Appends an instruction."""
        self.code.append(Instruction(op, **fields))  # type: ignore[arg-type]

    def assemble(self) -> tuple[int, ...]:
        """All words of the program."""
        if len(self.code) > 1 << TARGET_BITS:
            raise ValueError(f"a program must have {1 << TARGET_BITS} instructions at most")
        return tuple(each.word() for each in self.code)

    def _take(self) -> int:
        if not self._free:
            raise ValueError("an expression is too deep")
        return self._free.pop()

    def _give(self, register: int) -> None:
        if register in _TEMPORARIES:
            self._free.append(register)

    def _address(self, word: Word) -> tuple[int, int]:
        """Register and constant of a place."""
        if isinstance(word.place, Constant):
            return 0, word.place.value + word.offset
        return self._value(word.place), word.offset

    def _value(self, value: Expr, into: int | None = None) -> int:
        """Computes an expression into a register; of a variable its own, unless told otherwise."""
        if isinstance(value, Register) and into is None:
            return value.number
        if isinstance(value, Constant) and value.value == 0 and into is None:
            return 0
        if isinstance(value, Binary):
            a = self._value(value.a)
            if isinstance(value.b, Constant):
                self._give(a)
                target = self._take() if into is None else into
                self.emit(value.op, target=target, a=a, constant=value.b.value)
                return target
            b = self._value(value.b)
            self._give(a)
            self._give(b)
            target = self._take() if into is None else into
            self.emit(value.op, target=target, a=a, b=b)
            return target
        if isinstance(value, Word):
            a, constant = self._address(value)
            self._give(a)
            target = self._take() if into is None else into
            self.emit(Op.LOAD, target=target, a=a, constant=constant)
            return target
        if isinstance(value, Port):
            a = 0 if value.index is None else self._value(value.index)
            self._give(a)
            target = self._take() if into is None else into
            self.emit(Op.IN, target=target, a=a, constant=value.number)
            return target
        target = self._take() if into is None else into
        if isinstance(value, Constant):
            self.emit(Op.ADD, target=target, constant=value.value)
        elif isinstance(value, Register):
            self.emit(Op.ADD, target=target, a=value.number, constant=0)
        else:
            raise TypeError(f"an expression must be a number, not {value!r}")
        return target

    # Statements ----------------------------------------------------------------------------------

    def set(self, target: Register | Word, value: Expr | int) -> None:
        """Computes a number into a variable."""
        value = expr(value)
        if isinstance(target, Register):
            self._value(value, target.number)
            return
        source = self._value(value)
        a, constant = self._address(target)
        self.emit(Op.STORE, a=a, b=source, constant=constant)
        self._give(a)
        self._give(source)

    def out(self, port: int, value: Expr | int = 0) -> None:
        """Gives a number to a port."""
        source = self._value(expr(value))
        self.emit(Op.OUT, b=source, constant=port)
        self._give(source)

    def _branch(self, condition: Condition, label: Label) -> None:
        a = self._value(condition.a)
        if isinstance(condition.b, Constant) and 0 <= condition.b.value < 1 << BRANCH_BITS:
            constant = condition.b.value << TARGET_BITS
            self.emit(condition.op, a=a, constant=constant, label=label)
        else:
            b = self._value(condition.b)
            self.emit(condition.op, a=a, b=b, label=label)
            self._give(b)
        self._give(a)

    def jump(self, label: Label) -> None:
        """Goes to a place."""
        self.emit(Op.CALL, label=label, constant=0)

    def place(self, label: Label) -> None:
        """Here it is."""
        label.place = len(self.code)

    def jump_if(self, condition: Condition, label: Label) -> None:
        """Goes to a place where the condition holds."""
        self._branch(condition, label)

    @contextlib.contextmanager
    def if_(self, *conditions: Condition) -> Iterator[None]:
        """What is done where all of them hold."""
        end = Label()
        for condition in conditions:
            self._branch(condition.opposite(), end)
        yield
        self.place(end)

    @contextlib.contextmanager
    def if_else(self, condition: Condition) -> Iterator[contextlib.AbstractContextManager[None]]:
        """What is done where it holds; in it, last, ``with`` what it gives: what else."""
        other, end = Label(), Label()
        self._branch(condition.opposite(), other)

        @contextlib.contextmanager
        def otherwise() -> Iterator[None]:
            self.jump(end)
            self.place(other)
            yield

        yield otherwise()
        if other.place is None:
            raise ValueError("if_else needs its other side")
        self.place(end)

    @contextlib.contextmanager
    def while_(self, *conditions: Condition) -> Iterator[None]:
        """As long as all of them hold."""
        start, end = Label(), Label()
        self.place(start)
        for condition in conditions:
            self._branch(condition.opposite(), end)
        self._breaks.append(end)
        yield
        self._breaks.pop()
        self.jump(start)
        self.place(end)

    def leave(self, *conditions: Condition) -> None:
        """Leaves the innermost loop where all conditions hold."""
        if not self._breaks:
            raise ValueError("there is no loop to leave")
        with self.if_(*conditions):
            self.jump(self._breaks[-1])

    @contextlib.contextmanager
    def function(self, name: str, *, leaf: bool = False) -> Iterator[None]:
        """A function without arguments. Only a ``leaf`` calls none; none calls itself."""
        label = self._functions.setdefault(name, Label(name))
        if label.place is not None:
            raise ValueError(f"there are two functions {name!r}")
        self.place(label)
        self.names[len(self.code)] = name
        kept = None if leaf else self.words()
        if kept is not None:
            self.set(kept, Register(_LINK))
        self._in_leaf = leaf
        yield
        self._in_leaf = False
        if kept is not None:
            self.set(Register(_LINK), kept)
        self.emit(Op.RETURN, a=_LINK)

    def call(self, name: str) -> None:
        """Calls a function, which may come later."""
        if self._in_leaf:
            raise ValueError(f"a leaf calls {name!r}")
        label = self._functions.setdefault(name, Label(name))
        self.emit(Op.CALL, target=_LINK, label=label, constant=0)

    def listing(self) -> str:
        """The program, an instruction a line."""
        lines = []
        for place, each in enumerate(self.code):
            if place in self.names:
                lines.append(f"{self.names[place]}:")
            shift = TARGET_BITS if each.op in _BRANCHES else 0
            constant = "" if each.constant is None else f" #{each.constant >> shift:#x}"
            label = "" if each.label is None else f" ->{each.label.place}"
            lines.append(
                f"{place:5} {each.op.name:14} r{each.target} r{each.a} r{each.b}{constant}{label}"
            )
        return "\n".join(lines)
