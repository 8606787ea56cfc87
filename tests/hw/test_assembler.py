"""The assembler: what programs do on the interpreter, and what it refuses."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from hw.control.assembler import (
    BRANCH_BITS,
    INSTRUCTION_BITS,
    WORD_BITS,
    Condition,
    Constant,
    Expr,
    Label,
    Op,
    Port,
    Program,
    Register,
    Word,
    expr,
)
from hw.control.processor import SCRATCH_WORDS, WINDOW_WORDS
from sim.processor_model import run

MASK = (1 << WORD_BITS) - 1
#: The port that a program's results go to, and the one that ends it.
RESULT, END = 7, 255


def _program() -> Program:
    p = Program()
    p.use_scratch(WINDOW_WORDS, SCRATCH_WORDS)
    return p


def _given(p: Program, **what: dict[int, int]) -> list[int]:
    """What a program gives to the port ``RESULT``."""
    p.out(END)
    given, _ = run(p.assemble(), end=END, **what)  # type: ignore[arg-type]
    assert {port for port, _ in given} <= {RESULT}
    return [number for _, number in given]


# Words --------------------------------------------------------------------------------------------


def test_an_instruction_is_one_word() -> None:
    p = Program()
    p.emit(Op.RETURN, target=1, a=2, b=3, constant=0x89AB_CDEF)
    p.emit(Op.ADD, target=31, a=30, b=29)
    first, second = p.assemble()
    assert first == 17 | 1 << 5 | 2 << 10 | 3 << 15 | 1 << 20 | 0x89AB_CDEF << 21
    assert second == 31 << 5 | 30 << 10 | 29 << 15
    assert first < 1 << INSTRUCTION_BITS == 1 << 53


def test_a_label_is_below_the_constant() -> None:
    p = Program()
    label = Label()
    p.jump_if(Register(12).is_(3), label)
    p.place(label)
    assert p.assemble()[0] >> 21 == 3 << 12 | 1


def test_opposites_are_neighbours() -> None:
    one = Constant(1)
    pairs = ((one.is_(2), one.is_not(2)), (one < expr(2), one >= expr(2)))
    for a, b in pairs:
        assert a.opposite() == b
        assert b.opposite() == a


# Expressions --------------------------------------------------------------------------------------


_OPERATIONS: dict[str, tuple[Callable[[Expr, Expr], Expr], Callable[[int, int], int]]] = {
    "+": (lambda a, b: a + b, lambda a, b: a + b),
    "-": (lambda a, b: a - b, lambda a, b: a - b),
    "&": (lambda a, b: a & b, lambda a, b: a & b),
    "|": (lambda a, b: a | b, lambda a, b: a | b),
    "<<": (lambda a, b: a << (b & 63), lambda a, b: a << (b & 63)),
    ">>": (lambda a, b: a >> (b & 63), lambda a, b: a >> (b & 63)),
    "*": (
        lambda a, b: a * (b & 0x3_FFFF),
        lambda a, b: (a & 0xFFFF_FFFF) * (b & 0x3_FFFF),
    ),
    "least": (lambda a, b: a.least(b), min),
}


def _leaf(rng: random.Random, p: Program, window: dict[int, int]) -> tuple[Expr, int]:
    """A number: constant, variable, word of memory, port, each with what it is."""
    kind = rng.randrange(5)
    value = rng.choice((0, 1, rng.getrandbits(32), rng.getrandbits(8)))
    if kind == 0:
        return Constant(value), value
    if kind == 1:
        variable = p.words()
        p.set(variable, value)
        return variable, value
    if kind == 2:
        table = p.words(5)
        place = rng.randrange(5)
        p.set(table[place], value)
        # The index is a number of the program, beside a fixed part.
        fixed = rng.randint(0, place)
        return table[Constant(place - fixed) + 0][fixed], value
    if kind == 3:
        row = rng.randrange(WINDOW_WORDS)
        value = window.setdefault(row, value)
        return Word(Constant(row)), value
    index = rng.randrange(16)
    return Port(100, Constant(index) + 0), index * index


def _tree(rng: random.Random, p: Program, window: dict[int, int], depth: int) -> tuple[Expr, int]:
    if depth == 0 or rng.random() < 0.1:
        return _leaf(rng, p, window)
    build, evaluate = _OPERATIONS[rng.choice(list(_OPERATIONS))]
    a, a_value = _tree(rng, p, window, depth - 1)
    b, b_value = _tree(rng, p, window, depth - 1)
    return build(a, b), evaluate(a_value, b_value) & MASK


@pytest.mark.parametrize("seed", range(40))
def test_expressions_are_computed(seed: int) -> None:
    rng = random.Random(seed)
    p = _program()
    window: dict[int, int] = {}
    wanted = []
    variable = p.register()
    for _ in range(10):
        tree, value = _tree(rng, p, window, rng.randint(0, 4))
        if rng.random() < 0.5:
            p.out(RESULT, tree)
        else:
            # A variable's own register may be in the tree.
            p.set(variable, 5)
            p.set(variable, tree + variable)
            p.out(RESULT, variable)
            value = (value + 5) & MASK
        wanted.append(value)
        assert sorted(p._free) == list(range(1, 12)), "a register was not given back"
    inputs = {100 + i: i * i for i in range(16)}
    assert _given(p, window=window, inputs=inputs) == wanted


def test_a_variable_may_stand_on_both_sides() -> None:
    p = _program()
    x, y = p.register(), p.register()
    p.set(x, 3)
    p.set(y, x)
    p.set(x, (x << 4) + (x - y) + x.least(2))
    p.set(y, y)
    p.out(RESULT, x)
    p.out(RESULT, y)
    assert _given(p) == [3 * 16 + 2, 3]


def test_a_stored_word_is_computed_before_its_place() -> None:
    p = _program()
    table = p.words(4)
    i = p.register()
    for place in range(4):
        p.set(table[place], 10 * place)
    p.set(i, 2)
    p.set(table[i], table[i - 1] + table[i][1])
    p.set(table[i + 1], 0)
    for place in range(4):
        p.out(RESULT, table[place])
    assert _given(p) == [0, 10, 40, 0]


def test_words_are_indexed_from_any_place() -> None:
    p = _program()
    base = p.register()
    window = {100 + n: n for n in range(8)}
    p.set(base, 100)
    there = Word(base)
    p.out(RESULT, there)
    p.out(RESULT, there[3])
    p.out(RESULT, there[1][1])
    p.out(RESULT, there[Constant(4)])
    p.out(RESULT, there[Constant(4)][2])
    p.out(RESULT, Word(Constant(100))[base - 95][1])
    p.out(RESULT, Word(Constant(98), 2)[base - 93])
    p.out(RESULT, Word(Constant(0))[base][Constant(1)][1])
    assert _given(p, window=window) == [0, 3, 2, 4, 6, 6, 7, 2]


def test_an_index_into_a_table_costs_no_sum() -> None:
    p = _program()
    p.words(3)
    table, i = p.words(2), p.register()
    p.set(i, table[i])
    (load,) = p.code
    assert (load.op, load.target, load.a) == (Op.LOAD, i.number, i.number)
    assert load.constant == WINDOW_WORDS + 3


def test_words_of_the_window_have_32_bits() -> None:
    p = _program()
    window: dict[int, int] = {}
    x, there, kept = p.register(), Word(Constant(9)), p.words()
    p.set(x, (Constant(0x1234) << 32) | 7)
    p.set(there, x)
    p.set(kept, x)
    p.out(RESULT, there)
    p.out(RESULT, kept)
    assert _given(p, window=window) == [7, 0x1234_0000_0007]
    assert window == {9: 7}


# Blocks -------------------------------------------------------------------------------------------


_CONDITIONS: dict[str, tuple[Callable[[Expr, Expr | int], Condition], Callable[..., bool]]] = {
    "is": (lambda a, b: a.is_(b), lambda a, b: a == b),
    "is_not": (lambda a, b: a.is_not(b), lambda a, b: a != b),
    "<": (lambda a, b: a < b, lambda a, b: a < b),
    ">=": (lambda a, b: a >= b, lambda a, b: a >= b),
    ">": (lambda a, b: a > b, lambda a, b: a > b),
    "<=": (lambda a, b: a <= b, lambda a, b: a <= b),
}
#: Around the largest constant that is part of a branch, and beyond.
_COMPARED = (0, 1, 2, (1 << BRANCH_BITS) - 1, 1 << BRANCH_BITS, (1 << BRANCH_BITS) + 1, 1 << 31)


@pytest.mark.parametrize("name", _CONDITIONS)
@pytest.mark.parametrize("constant", [False, True])
def test_conditions(name: str, constant: bool) -> None:
    build, evaluate = _CONDITIONS[name]
    p = _program()
    x, y = p.register(), p.register()
    wanted = []
    for a in _COMPARED:
        for b in _COMPARED:
            p.set(x, a)
            p.set(y, b)
            with p.if_(build(x, b if constant else y)):
                p.out(RESULT, a)
                wanted += [a] if evaluate(a, b) else []
            with p.if_else(build(x, b if constant else y)) as otherwise:
                p.out(RESULT, 1)
                with otherwise:
                    p.out(RESULT, 2)
            wanted.append(1 if evaluate(a, b) else 2)
            end = Label()
            p.jump_if(build(x, b if constant else y), end)
            p.out(RESULT, 3)
            wanted += [] if evaluate(a, b) else [3]
            p.place(end)
    assert _given(p) == wanted


def test_a_condition_compares_all_bits() -> None:
    p = _program()
    x = p.register()
    p.set(x, Constant(1) << 47)
    with p.if_(x > 0xFFFF_FFFF, x.is_not(0), x >= (Constant(1) << 47)):
        p.out(RESULT, 1)
    with p.if_(x.is_(0)):
        p.out(RESULT, 2)
    assert _given(p) == [1]


def test_all_conditions_of_an_if_must_hold() -> None:
    p = _program()
    wanted = []
    x, y = p.register(), p.register()
    for a in range(2):
        for b in range(2):
            p.set(x, a)
            p.set(y, b)
            with p.if_(x.is_(1), y.is_(1)):
                p.out(RESULT, 10 * a + b)
                wanted += [11] if a and b else []
    assert _given(p) == wanted == [11]


def test_if_else_nests() -> None:
    p = _program()
    x = p.register()
    for value in range(4):
        p.set(x, value)
        with p.if_else(x < 2) as otherwise:
            with p.if_else(x.is_(0)) as other:
                p.out(RESULT, 0)
                with other:
                    p.out(RESULT, 1)
            with otherwise, p.if_else(x.is_(2)) as other:
                p.out(RESULT, 2)
                with other:
                    p.out(RESULT, 3)
        p.out(RESULT, 9)
    assert _given(p) == [0, 9, 1, 9, 2, 9, 3, 9]


def test_if_else_needs_both_sides() -> None:
    p = _program()
    with (
        pytest.raises(ValueError, match="if_else needs its other side"),
        p.if_else(p.register().is_(0)),
    ):
        pass


def test_loops_run_as_long_as_all_conditions_hold() -> None:
    p = _program()
    i, j = p.register(), p.register()
    p.set(i, 0)
    p.set(j, 10)
    with p.while_(i < 5, j > 7):
        p.out(RESULT, (i << 8) | j)
        p.set(i, i + 1)
        p.set(j, j - 1)
    with p.while_(i < 3):
        p.out(RESULT, 99)
    assert _given(p) == [0 << 8 | 10, 1 << 8 | 9, 2 << 8 | 8]


def test_leave_leaves_the_innermost_loop() -> None:
    p = _program()
    i, j = p.register(), p.register()
    p.set(i, 0)
    with p.while_(i < 4):
        p.set(j, 0)
        with p.while_(j < 100):
            p.leave(j.is_(i), i < 3)
            p.leave(j > 4)
            p.set(j, j + 1)
        p.out(RESULT, (i << 8) | j)
        p.set(i, i + 1)
        p.leave(i.is_(4))
    p.out(RESULT, i)
    assert _given(p) == [0, 1 << 8 | 1, 2 << 8 | 2, 3 << 8 | 5, 4]


def test_leave_without_conditions() -> None:
    p = _program()
    with p.while_():
        p.out(RESULT, 1)
        p.leave()
    assert _given(p) == [1]


# Functions ----------------------------------------------------------------------------------------


def test_functions_call_each_other() -> None:
    p = _program()
    begin = Label()
    n, result = p.register(), p.register()
    p.jump(begin)
    with p.function("add_squares"):
        p.set(result, 0)
        with p.while_(n.is_not(0)):
            p.call("add_square")
            p.set(n, n - 1)
    with p.function("add_square"):
        p.call("add")
        p.call("nothing")
    with p.function("add", leaf=True):
        p.set(result, result + n * n)
    with p.function("nothing", leaf=True):
        pass
    p.place(begin)
    for count in (0, 1, 4):
        p.set(n, count)
        p.call("add_squares")
        p.out(RESULT, result)
    assert _given(p) == [0, 1, 30]


def test_a_leaf_calls_nobody() -> None:
    p = _program()
    with pytest.raises(ValueError, match="a leaf calls 'other'"), p.function("one", leaf=True):
        p.call("other")
    p = _program()
    with p.function("one", leaf=True):
        pass
    p.call("one")


def test_a_function_is_there_once() -> None:
    p = _program()
    with p.function("one"):
        pass
    with pytest.raises(ValueError, match="there are two functions 'one'"), p.function("one"):
        pass


def test_a_function_that_is_called_exists() -> None:
    p = _program()
    p.call("nobody")
    with pytest.raises(ValueError, match="a label 'nobody' has no place"):
        p.assemble()
