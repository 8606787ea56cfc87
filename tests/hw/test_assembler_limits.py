"""The assembler: what it refuses, its listing, and the program of the processor's bench."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hw.control.assembler import (
    ADDRESS_BITS,
    INSTRUCTION_BITS,
    PORT_BITS,
    Constant,
    Expr,
    Label,
    Op,
    Port,
    Program,
    Word,
)
from hw.control.processor import SCRATCH_WORDS, WINDOW_WORDS, Processor
from hw.library import Library
from hw.memory.rom import Rom
from sim.processor_model import run
from sim.processor_programs import self_test

# A unit that refuses its program is never elaborated.
pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")

RESULT, END = 7, 255


def _program() -> Program:
    p = Program()
    p.use_scratch(WINDOW_WORDS, SCRATCH_WORDS)
    return p


def test_there_is_a_loop_to_leave() -> None:
    p = _program()
    with pytest.raises(ValueError, match="no loop to leave"):
        p.leave()
    with p.while_():
        pass
    with pytest.raises(ValueError, match="no loop to leave"):
        p.leave()


def test_registers_of_variables_come_to_an_end() -> None:
    p = Program()
    numbers = [p.register().number for _ in range(19)]
    assert len(set(numbers)) == 19
    with pytest.raises(ValueError, match="no register is left"):
        p.register()


def test_scratch_memory_comes_to_an_end() -> None:
    p = Program()
    with pytest.raises(ValueError, match="no 1 words left"):
        p.words()
    p.use_scratch(2000, 10)
    assert p.words(6).place == Constant(2000)
    with pytest.raises(ValueError, match="no 5 words left"):
        p.words(5)
    assert p.words(4).place == Constant(2006)


def _balanced(depth: int) -> Expr:
    """A tree that needs ``depth + 1`` registers at a time."""
    if depth == 0:
        return Port(1)
    return _balanced(depth - 1) + _balanced(depth - 1)


def test_a_tree_may_use_all_registers() -> None:
    p = _program()
    p.out(RESULT, _balanced(10))
    p.out(END)
    given, _ = run(p.assemble(), inputs={1: 3}, end=END)
    assert given == [(RESULT, 3 << 10)]


def test_a_deeper_tree_is_refused() -> None:
    p = _program()
    with pytest.raises(ValueError, match="an expression is too deep"):
        p.out(RESULT, _balanced(11))


def test_a_chain_needs_one_register() -> None:
    p = _program()
    chain: Expr = Port(1)
    for _ in range(60):
        chain = (chain + 1) | 1
    p.out(RESULT, chain)
    assert {each.target for each in p.code} <= {0, 11}


@pytest.mark.parametrize("value", [1 << 32, -1, 1 << 47])
def test_constants_fit_into_an_instruction(value: int) -> None:
    for build in (
        lambda p, x: p.set(x, value),
        lambda p, x: p.set(x, x + value),
        lambda p, x: p.jump_if(x.is_(value), Label()),
    ):
        p = _program()
        build(p, p.register())
        with pytest.raises(ValueError, match="a constant of ADD must have 32 bits, not "):
            p.assemble()


@pytest.mark.parametrize(
    ("bits", "build"),
    [
        (6, lambda p, x, value: p.set(x, x << value)),
        (6, lambda p, x, value: p.set(x, x >> value)),
        (18, lambda p, x, value: p.set(x, x * value)),
        (ADDRESS_BITS, lambda p, x, value: p.set(x, Word(x, value))),
        (ADDRESS_BITS, lambda p, x, value: p.set(Word(Constant(value)), x)),
        (PORT_BITS, lambda p, x, value: p.out(value, x)),
        (PORT_BITS, lambda p, x, value: p.set(x, Port(value, x))),
    ],
)
def test_constants_fit_into_what_counts(bits: int, build: Callable[..., None]) -> None:
    top = 1 << bits
    for value, fits in ((top - 1, True), (top, False), (-1, False)):
        p = _program()
        build(p, p.register(), value)
        if fits:
            p.assemble()
        else:
            with pytest.raises(ValueError, match=f"must have {bits} bits, not {value:#x}"):
                p.assemble()


def test_a_program_has_4096_instructions() -> None:
    p = Program()
    for _ in range(4096):
        p.emit(Op.ADD)
    assert len(p.assemble()) == 4096
    p.emit(Op.ADD)
    with pytest.raises(ValueError, match="4096 instructions at most"):
        p.assemble()


def test_a_branch_goes_to_an_instruction() -> None:
    p = Program()
    end = Label("end")
    p.jump(end)
    for _ in range(4095):
        p.emit(Op.ADD)
    p.place(end)
    with pytest.raises(ValueError, match="a label 'end' is behind the last instruction"):
        p.assemble()


def test_a_condition_is_no_truth() -> None:
    x = Program().register()
    with pytest.raises(TypeError, match="not known before the program runs"):
        bool(x < 3)
    with pytest.raises(TypeError, match="not known before the program runs"):
        0 < x < 3  # type: ignore[operator]  # noqa: B015


def test_an_expression_is_a_number() -> None:
    with pytest.raises(TypeError, match="an expression must be a number, not 'three'"):
        Program().out(RESULT, "three")  # type: ignore[arg-type]


# Listing ------------------------------------------------------------------------------------------


def test_listing() -> None:
    p = _program()
    x = p.register()
    with p.function("twice", leaf=True):
        p.set(x, x + x)
    p.set(x, 0x1234)
    p.call("twice")
    with p.if_(x > 5, x.is_(9)):
        p.out(RESULT, p.words())
    assert p.listing().splitlines() == [
        "twice:",
        "    0 ADD            r12 r12 r12",
        "    1 RETURN         r0 r31 r0",
        "    2 ADD            r12 r0 r0 #0x1234",
        "    3 CALL           r31 r0 r0 #0x0 ->0",
        "    4 ADD            r11 r0 r0 #0x5",
        "    5 IF_NOT_BELOW   r0 r11 r12 ->9",
        "    6 IF_DIFFERENT   r0 r12 r0 #0x9 ->9",
        "    7 LOAD           r11 r0 r0 #0x400",
        "    8 OUT            r0 r0 r11 #0x7",
    ]


# The bench's program ------------------------------------------------------------------------------


def test_the_self_test_fills_the_memory_and_is_always_the_same() -> None:
    program = self_test("tiny")
    assert len(program) == 4096
    assert self_test.__wrapped__("tiny") == program
    assert self_test("small") != program
    assert {word & 31 for word in program} == set(Op)


@pytest.mark.parametrize("count", [0, 4097])
def test_a_processor_has_a_program(count: int) -> None:
    with pytest.raises(ValueError, match=f"program must be 1 to 4096 words, not {count}"):
        Processor((0,) * count)


@pytest.mark.parametrize("word", [-1, 1 << INSTRUCTION_BITS])
def test_words_of_a_program_fit(word: int) -> None:
    with pytest.raises(ValueError, match=f"program must be words of {INSTRUCTION_BITS} bits"):
        Processor((0, word))
    with pytest.raises(ValueError, match="content must be words of 4 bits"):
        Rom(purpose="test", width=4, content=(3, word))


def test_a_processor_keeps_its_program() -> None:
    library = Library()
    library.add(Processor(self_test("tiny")))
    assert library.modules["bsspec_rom_program"].content == self_test("tiny")  # type: ignore[attr-defined]
