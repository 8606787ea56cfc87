"""Programs of the control processor: expressions and blocks, compiled to its instructions.

A program is Python that builds instructions as it runs: ``if_`` and ``while_`` are blocks,
variables live in registers or in the scratch memory, expressions are trees of :class:`Expr`.
Numbers are unsigned and have :data:`WORD_BITS` bits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from hw.control.expressions import (
    Binary,
    Condition,
    Constant,
    Expr,
    Port,
    Register,
    Word,
    expr,
)
from hw.control.instructions import (
    ADDRESS_BITS,
    BRANCH_BITS,
    BRANCHES,
    FACTOR_BITS,
    IMMEDIATE_BITS,
    INSTRUCTION_BITS,
    OP_BITS,
    PORT_BITS,
    REGISTER_BITS,
    REGISTERS,
    TARGET_BITS,
    WORD_BITS,
    Instruction,
    Label,
    Op,
)

#: All that a program is written with is found here.
__all__ = [
    "ADDRESS_BITS",
    "BRANCH_BITS",
    "FACTOR_BITS",
    "IMMEDIATE_BITS",
    "INSTRUCTION_BITS",
    "OP_BITS",
    "PORT_BITS",
    "REGISTERS",
    "REGISTER_BITS",
    "TARGET_BITS",
    "WORD_BITS",
    "Binary",
    "Condition",
    "Constant",
    "Expr",
    "Instruction",
    "Label",
    "Op",
    "Port",
    "Program",
    "Register",
    "Word",
    "expr",
]

#: Registers of expressions; of variables; the return address.
_TEMPORARIES = range(1, 12)
_VARIABLES = range(12, 31)
_LINK = 31


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
            shift = TARGET_BITS if each.op in BRANCHES else 0
            constant = "" if each.constant is None else f" #{each.constant >> shift:#x}"
            label = "" if each.label is None else f" ->{each.label.place}"
            lines.append(
                f"{place:5} {each.op.name:14} r{each.target} r{each.a} r{each.b}{constant}{label}"
            )
        return "\n".join(lines)
