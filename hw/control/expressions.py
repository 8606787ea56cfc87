"""Numbers that a program of the control processor computes: trees of expressions, conditions."""

from __future__ import annotations

from dataclasses import dataclass

from hw.control.instructions import Op


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
