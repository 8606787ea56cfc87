"""The job: commands one after the other, lists of a step, and what happens at its end."""

from __future__ import annotations

import functools

from hw.chip_config import ChipConfig
from hw.control.assembler import Constant, Label, Port, Word
from hw.control.ports import Flag, Host, Idle, Push
from hw.control.processor import SCRATCH_WORDS, WINDOW_WORDS
from hw.control.program.attention import attention_functions
from hw.control.program.control import control_functions
from hw.control.program.rounds import round_functions
from hw.control.program.state import Control
from hw.control.program.step import step_functions
from model.formats.commands import (
    COMMAND_BYTES,
    COMMAND_WORDS,
    STEP_OPCODES,
    Opcode,
    Region,
    Status,
    reserved_bits,
)
from model.formats.registers import PLANES

#: Commands that stand outside of lists.
JOB_OPCODES = (
    Opcode.MODEL,
    Opcode.SEQUENCE,
    Opcode.ROWS,
    Opcode.CALL,
    Opcode.COMMIT,
    Opcode.ROUND,
)


def _start(c: Control) -> None:
    p = c.p
    with c.each(c.i, WINDOW_WORDS + SCRATCH_WORDS):
        p.set(Word(c.i, 0), 0)
    for register in (c.loads, c.moves, c.gate):
        p.set(register, 0)
    c.put(ready=1)


def _idle(c: Control) -> None:
    """Waits for the host."""
    p = c.p
    with p.while_((Port(Flag.HOST) & (1 << Host.BUSY)).is_(0)):
        with p.if_((Port(Flag.HOST) & (1 << Host.CLEAR_COUNTERS)).is_not(0)):
            for where in (*c.traffic.values(), *c.events.values()):
                p.set(where, 0)
            with c.each(c.i, PLANES + 1):
                p.set(c.tiles_by_p[c.i], 0)
            c.push(Push.CLEAR)
            c.store_counters()
            c.push(Push.CLEARED)
            again = Label()
            p.place(again)
            p.jump_if((Port(Flag.HOST) & (1 << Host.CLEAR_COUNTERS)).is_not(0), again)


def _fetch(c: Control) -> None:
    """Functions around a command: into a buffer, and what must hold for all of them."""
    p = c.p
    with p.function("fetch"):
        # The command of ``line`` to where ``cmd`` says.
        p.call("abort")
        p.call("check")
        p.set(c.window("COMMAND_INDEX"), c.line)
        c.need_region(Region.COMMANDS, c.line + 1)
        c.load_line(Region.COMMANDS, c.line, c.cmd)
        c.wait_loads()
        p.call("decode")
    with p.function("decode", leaf=True):
        c.count("READ_COMMANDS", COMMAND_BYTES)
        p.set(c.opcode, Word(c.cmd) & 0xFF)
        known = Label()
        for opcode in Opcode:
            label = Label()
            p.jump_if(c.opcode.is_not(int(opcode)), label)
            bits = reserved_bits(opcode)
            p.set(c.a, Word(c.cmd, 0) & bits[0])
            for i in range(1, COMMAND_WORDS):
                if bits[i]:
                    word = Word(c.cmd, i)
                    p.set(c.a, c.a | (word if bits[i] == 0xFFFF_FFFF else word & bits[i]))
            c.need(c.a.is_(0), Status.RESERVED_BITS)
            if opcode in STEP_OPCODES and opcode != Opcode.FENCE:
                c.need(c.nested.is_not(0), Status.NESTED_LIST)
            elif opcode != Opcode.FENCE:
                c.need(c.nested.is_(0), Status.NESTED_LIST)
            if opcode not in (Opcode.HALT, Opcode.MODEL, Opcode.FENCE):
                c.need(c.has_model.is_not(0), Status.NO_MODEL)
            p.jump(known)
            p.place(label)
        p.jump(c.faults[Status.UNKNOWN_COMMAND])
        p.place(known)


def _list(c: Control) -> None:
    """Runs the list from line ``i`` on, ``j`` commands. The next one comes while one is in work."""
    p = c.p
    end, next_line, caller, buffer = p.words(), p.words(), p.words(), c.following
    with p.function("list"):
        p.set(caller, c.line)
        p.set(c.line, c.i)
        p.set(end, c.i + c.j)
        p.set(c.nested, 1)
        p.set(buffer, c.buffers_at)
        c.load_line(Region.COMMANDS, c.line, buffer)
        p.set(c.ahead, c.loads)
        with p.while_(c.line < end):
            p.call("abort")
            p.call("check")
            p.set(c.window("COMMAND_INDEX"), c.line)
            p.set(c.cmd, buffer)
            c.wait_count(Flag.LOADS, c.ahead)
            p.set(buffer, Constant(2 * c.buffers_at + COMMAND_WORDS) - c.cmd)
            p.set(next_line, c.line + 1)
            # Behind the last command nothing is asked for: the buffer then holds none.
            p.set(Word(buffer), int(Opcode.HALT))
            with p.if_(next_line < end):
                c.load_line(Region.COMMANDS, next_line, buffer)
                p.set(c.ahead, c.loads)
            p.call("decode")
            _dispatch(c, tuple(sorted(STEP_OPCODES)))
            p.set(c.line, next_line)
        p.set(c.nested, 0)
        p.set(c.line, caller)
        p.set(c.cmd, c.buffers_at)
        p.call("drain")


def _dispatch(c: Control, opcodes: tuple[Opcode, ...]) -> None:
    p = c.p
    done = Label()
    for opcode in opcodes:
        label = Label()
        p.jump_if(c.opcode.is_not(int(opcode)), label)
        p.call(opcode.name)
        p.jump(done)
        p.place(label)
    p.place(done)


def _job(c: Control) -> None:
    p = c.p
    idle = Label()
    p.place(idle)
    _idle(c)
    c.load_base()
    p.set(c.nested, 0)
    p.set(c.line, c.window("FIRST_COMMAND"))
    again, stop = Label(), Label()
    p.place(again)
    p.set(c.cmd, c.buffers_at)
    p.call("fetch")
    p.jump_if(c.opcode.is_(int(Opcode.HALT)), stop)
    # A command of a job may run a list, which needs the buffers: it is kept elsewhere.
    p.call("keep")
    _dispatch(c, (*JOB_OPCODES, Opcode.FENCE))
    p.set(c.line, c.line + 1)
    p.jump(again)
    p.place(stop)
    p.call("drain")
    p.set(c.status, int(Status.OK))
    _end(c)
    p.jump(idle)

    for status, label in c.faults.items():
        p.place(label)
        p.set(c.status, int(status))
        p.jump(c.faulted)
    p.place(c.faulted)
    # Nothing new is asked of memory, what is on the buses ends; then all parts are as after a
    # reset.
    c.put(stop=1)
    c.wait(Idle.MEMORY)
    c.push(Push.FLUSH)
    c.put(stop=0, gates=0)
    for register in (c.loads, c.moves, c.gate):
        p.set(register, 0)
    for word in (c.tapped, c.passes, c.scattered, c.passes_base, c.eps_now, c.inverse_now):
        p.set(word, 0)
    _end(c)
    p.jump(idle)


def _end(c: Control) -> None:
    c.store_counters()
    c.push(Push.STOPPED, c.status)
    p = c.p
    again = Label()
    p.place(again)
    p.jump_if((Port(Flag.HOST) & (1 << Host.BUSY)).is_not(0), again)


@functools.cache
def program_of(config: ChipConfig) -> tuple[int, ...]:
    """The program for a chip."""
    return build(config).p.assemble()


def build(config: ChipConfig) -> Control:
    """The same, with its listing."""
    c = Control(config)
    p = c.p
    begin = Label()
    p.jump(begin)
    c.functions()
    _fetch(c)
    control_functions(c)
    step_functions(c)
    attention_functions(c)
    round_functions(c)
    kept = p.words(COMMAND_WORDS)
    with p.function("keep", leaf=True):
        with c.each(c.i, COMMAND_WORDS):
            p.set(kept[c.i], Word(c.cmd)[c.i])
        p.set(c.cmd, kept.place)
    _list(c)
    p.place(begin)
    _start(c)
    _job(c)
    return c
