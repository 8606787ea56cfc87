"""A program for the control processor's bench: random instructions with everything they can do."""

from __future__ import annotations

import random
from functools import cache

from hw.control.assembler import (
    BRANCH_BITS,
    IMMEDIATE_BITS,
    REGISTERS,
    TARGET_BITS,
    Constant,
    Label,
    Op,
    Port,
    Program,
    Register,
)

#: Ports: the program waits to begin, and has come to its end.
BEGIN, END = 250, 251
#: The register that the dump returns by; all others are in its dump.
_DUMP_LINK = 31
_ALU = (Op.ADD, Op.SUB, Op.AND, Op.OR, Op.SHL, Op.SHR, Op.MUL, Op.MIN)
_BRANCHES = (Op.IF_EQUAL, Op.IF_DIFFERENT, Op.IF_BELOW, Op.IF_NOT_BELOW)


def corner(rng: random.Random, bits: int) -> int:
    """A number of so many bits, often one at which something changes."""
    top = (1 << bits) - 1
    edge = 1 << rng.choice([n for n in (5, 6, 10, 12, 17, 18, 31, 32, bits - 1) if n < bits])
    return rng.choice(
        (0, 1, 2, 3, top, edge, edge - 1, rng.getrandbits(bits), rng.getrandbits(bits) >> 9)
    )


class _Maker:
    """Blocks of random instructions, each followed by a dump of all registers."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.p = Program()

    def _target(self, kept: frozenset[int]) -> int:
        return self.rng.choice([n for n in range(REGISTERS) if n not in kept])

    def _any(self) -> int:
        return self.rng.randrange(REGISTERS)

    def straight(self, kept: frozenset[int] = frozenset()) -> None:
        """An instruction that goes on with the next one and leaves some registers alone."""
        rng, p = self.rng, self.p
        target = self._target(kept)
        kind = rng.random()
        if kind < 0.5:
            op = rng.choice(_ALU)
            if rng.random() < 0.4:
                p.emit(op, target=target, a=self._any(), b=self._any())
            else:
                bits = {Op.SHL: 6, Op.SHR: 6, Op.MUL: 18}.get(op, IMMEDIATE_BITS)
                constant = rng.choice((corner(rng, bits), rng.getrandbits(bits)))
                # The second register is not looked at.
                p.emit(op, target=target, a=self._any(), b=self._any(), constant=constant)
        elif kind < 0.62:
            constant = rng.getrandbits(11)
            p.emit(Op.LOAD, target=target, a=self._address(), b=self._any(), constant=constant)
        elif kind < 0.76:
            constant = rng.getrandbits(11)
            p.emit(Op.STORE, target=target, a=self._address(), b=self._any(), constant=constant)
        elif kind < 0.88:
            p.emit(Op.IN, target=target, a=self._address(), constant=rng.getrandbits(8))
        elif kind < 0.94:
            p.emit(Op.OUT, target=target, b=self._any(), constant=rng.randrange(BEGIN))
        else:
            # A small number: what is equal to another one now and then, and a near address.
            p.emit(Op.AND, target=target, a=self._any(), constant=rng.choice((1, 3, 0x3F)))

    def _address(self) -> int:
        return self.rng.choice((0, self._any()))

    def branch(self, label: Label) -> None:
        """A branch of any kind."""
        rng = self.rng
        op = rng.choice(_BRANCHES)
        if rng.random() < 0.5:
            # Where registers are compared, equality is mostly that of one with itself.
            a = self._any()
            b = rng.choice((a, self._any(), self._any()))
            self.p.emit(op, a=a, b=b, label=label)
        else:
            constant = rng.choice((0, 1, 3, corner(rng, BRANCH_BITS)))
            self.p.emit(
                op, a=self._any(), b=self._any(), constant=constant << TARGET_BITS, label=label
            )

    def block(self, kept: frozenset[int] = frozenset(), length: int = 12) -> None:
        """Instructions with branches over some of the others."""
        rng = self.rng
        ends: list[tuple[int, Label]] = []
        for number in range(length):
            for when, label in list(ends):
                if when <= number:
                    self.p.place(label)
                    ends.remove((when, label))
            if rng.random() < 0.25:
                label = Label()
                self.branch(label)
                ends.append((number + rng.randint(1, 5), label))
            else:
                self.straight(kept)
        for _, label in ends:
            self.p.place(label)

    def loop(self, kept: frozenset[int], length: int) -> None:
        """A loop whose counter nothing else changes."""
        counter = self._target(kept | {0})
        inner = kept | {counter}
        self.p.emit(Op.ADD, target=counter, constant=self.rng.randint(1, 4))
        start = Label()
        self.p.place(start)
        self.block(inner, length)
        self.p.emit(Op.SUB, target=counter, a=counter, constant=1)
        self.p.emit(Op.IF_DIFFERENT, a=counter, constant=0, label=start)

    def function(
        self, link: int, kept: frozenset[int], calls: list[tuple[Label, int]]
    ) -> tuple[Label, int]:
        """A function that returns by ``link`` and calls others, all of which keep some registers.

        Its label and ``link``.
        """
        label = Label()
        self.p.place(label)
        self.block(kept, 6)
        for other, register in calls:
            self.call(other, register)
            self.block(kept, 3)
        self.p.emit(Op.RETURN, a=link, b=self._any(), constant=self.rng.getrandbits(32))
        return label, link

    def call(self, label: Label, link: int) -> None:
        """A call that returns by any register."""
        self.p.emit(Op.CALL, target=link, a=self._any(), b=self._any(), label=label, constant=0)

    def dump(self, label: Label) -> None:
        """All registers."""
        self.p.emit(Op.OUT, b=_DUMP_LINK, constant=_DUMP_LINK)
        self.call(label, _DUMP_LINK)

    def compiled(self) -> None:
        """Expressions and nested loops, by way of the compiler."""
        p, rng = self.p, self.rng
        x, y = Register(12), Register(13)
        p.set(x, Constant(rng.randint(2, 5)))
        p.set(y, Constant(0))
        with p.while_(x.is_not(0)):
            p.set(x, x - 1)
            p.set(y, ((y + Port(rng.randrange(BEGIN), x)) & 0xFFFF_FFFF) * (x + 3))
            p.leave(y.is_(1), x >= 1)
            with p.if_else(y > x) as otherwise:
                p.out(rng.randrange(BEGIN), y.least(x << 7))
                with otherwise:
                    p.out(rng.randrange(BEGIN), (x | y) >> 1)


@cache
def self_test(name: str, length: int = 1 << TARGET_BITS) -> tuple[int, ...]:
    """A program for a name, always the same; it fills all of the memory and begins again.

    It waits at port ``BEGIN``, since it may read any word of window and scratch memory after that,
    and gives a number to port ``END`` as it begins again.
    """
    make = _Maker(int.from_bytes(name.encode(), "little"))
    p, rng = make.p, make.rng
    p.out(BEGIN)
    for number in range(1, REGISTERS):
        p.emit(Op.IN, target=number, constant=number)
    main, dump = Label(), Label()
    p.jump(main)
    p.place(dump)
    for number in range(REGISTERS - 1):
        p.emit(Op.OUT, b=number, constant=number)
    p.emit(Op.RETURN, a=_DUMP_LINK)
    functions: list[tuple[Label, int]] = []
    links = rng.sample(range(1, REGISTERS), 6)
    for link in links:
        calls = rng.sample(functions, min(2, len(functions)))
        functions.append(make.function(link, frozenset(links), calls))
    p.place(main)
    nothing: frozenset[int] = frozenset()
    while len(p.code) < length - 100:
        kind = rng.randrange(5)
        if kind == 0:
            make.loop(nothing, rng.randint(1, 12))
        elif kind == 1:
            make.call(*rng.choice(functions))
        elif kind == 2:
            make.compiled()
        else:
            make.block(nothing, rng.randint(5, 30))
        # A jump to a place that a register names.
        if rng.random() < 0.2:
            over = Label()
            register = make._target(frozenset({0}))
            p.emit(Op.ADD, target=register, constant=0, label=over)
            p.emit(Op.RETURN, a=register)
            make.straight()
            p.place(over)
        make.dump(dump)
    while len(p.code) < length - 2:
        make.straight()
    p.out(END)
    # The last place of the memory: the next one does not exist.
    start = Label()
    start.place = 0
    p.emit(Op.CALL, target=rng.randint(1, 30), label=start, constant=0)
    return p.assemble()
