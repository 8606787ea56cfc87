"""The control processor: a word of a fixed program a cycle."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from hw.control.assembler import (
    ADDRESS_BITS,
    FACTOR_BITS,
    IMMEDIATE_BITS,
    INSTRUCTION_BITS,
    OP_BITS,
    REGISTER_BITS,
    REGISTERS,
    TARGET_BITS,
    WORD_BITS,
    Op,
)
from hw.control.assembler import PORT_BITS as PORT_BITS
from hw.library import Unique, instantiate
from hw.memory.ram import Ram
from hw.memory.rom import Rom

#: Words of the window of registers, and of the scratch memory behind it.
WINDOW_WORDS = 1024
SCRATCH_WORDS = 1024
assert WINDOW_WORDS + SCRATCH_WORDS == 1 << ADDRESS_BITS


class Processor(Unique):
    """Runs a program that never ends, an instruction a cycle.

    A load takes two cycles; an instruction that gives a number to a port waits until the port takes
    it, one that stores into the scratch memory until nobody else writes there. Memory is the window
    (words of 32 bits), then the scratch memory. Registers and scratch memory begin with anything.
    The first instruction is in work in the second cycle after a reset.

    Parameters
    ----------
    program : tuple of int
        Its instructions (:mod:`hw.control.assembler`).

    Members
    -------
    window_read, window_write, window_row, window_data, window_written
        Port of the registers: ``window_data`` is there in the cycle behind a read, and held.
    scratch_write, scratch_row, scratch_data
        Somebody else writes the scratch memory; goes first. Not the word that the program reads in
        the same cycle.
    out_valid, out_port, out_data, out_ready
        A number for a port; taken where both are 1.
    in_port, in_data
        The number of a port, in the same cycle.
    place : of the instruction in work, for traces

    Raises
    ------
    ValueError
        If the program is empty or too long, or a word of it does not fit.
    """

    module_name = "bsspec_processor"
    label = "control: processor"

    def __init__(self, program: tuple[int, ...]) -> None:
        if not 0 < len(program) <= 1 << TARGET_BITS:
            raise ValueError(f"program must be 1 to {1 << TARGET_BITS} words, not {len(program)}")
        if any(not 0 <= word < 1 << INSTRUCTION_BITS for word in program):
            raise ValueError(f"program must be words of {INSTRUCTION_BITS} bits")
        self.program = program
        super().__init__(
            {
                "window_read": Out(1),
                "window_write": Out(1),
                "window_row": Out((WINDOW_WORDS - 1).bit_length()),
                "window_data": In(32),
                "window_written": Out(32),
                "scratch_write": In(1),
                "scratch_row": In((SCRATCH_WORDS - 1).bit_length()),
                "scratch_data": In(32),
                "out_valid": Out(1),
                "out_port": Out(PORT_BITS),
                "out_data": Out(WORD_BITS),
                "out_ready": In(1),
                "in_port": Out(PORT_BITS),
                "in_data": In(WORD_BITS),
                "place": Out(TARGET_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rom = instantiate(
            m, "rom", Rom, purpose="program", width=INSTRUCTION_BITS, content=self.program
        )
        scratch = instantiate(
            m, "scratch", Ram, purpose="scratch", width=WORD_BITS, depth=SCRATCH_WORDS
        )
        registers = Array(
            Signal(WORD_BITS, name=f"register_{i}", reset_less=True) for i in range(REGISTERS)
        )

        # The instruction is at the memory's output; its successor is read as it ends.
        running = Signal()
        place = Signal(TARGET_BITS)
        following = Signal(TARGET_BITS)
        ends = Signal()
        word = rom.read_data
        fields = [
            word[OP_BITS + i * REGISTER_BITS : OP_BITS + (i + 1) * REGISTER_BITS] for i in range(3)
        ]
        op = word[:OP_BITS]
        uses = word[OP_BITS + 3 * REGISTER_BITS]
        constant = Signal(IMMEDIATE_BITS)
        is_op = {each: Signal(name=f"is_{each.name.lower()}") for each in Op}
        m.d.comb += [signal.eq(op == each) for each, signal in is_op.items()]
        branches = Cat(
            is_op[each] for each in (Op.IF_EQUAL, Op.IF_DIFFERENT, Op.IF_BELOW, Op.IF_NOT_BELOW)
        ).any()
        a = Signal(WORD_BITS)
        second = Signal(WORD_BITS)
        b = Signal(WORD_BITS)
        m.d.comb += [
            constant.eq(word[-IMMEDIATE_BITS:]),
            a.eq(Mux(fields[1] == 0, 0, registers[fields[1]])),
            second.eq(Mux(fields[2] == 0, 0, registers[fields[2]])),
            b.eq(Mux(uses, Mux(branches, constant >> TARGET_BITS, constant), second)),
        ]

        # Memory: bit 10 of an address says which.
        address = Signal(ADDRESS_BITS)
        in_scratch = address[-1]
        loaded = Signal()
        load_waits = Signal()
        store_waits = Signal()
        m.d.comb += [
            address.eq(a + constant),
            load_waits.eq(is_op[Op.LOAD] & ~loaded),
            self.window_read.eq(running & load_waits & ~in_scratch),
            self.window_row.eq(address),
            self.window_write.eq(running & is_op[Op.STORE] & ~in_scratch),
            self.window_written.eq(second),
            scratch.read_enable.eq(running & load_waits & in_scratch),
            scratch.read_row.eq(address),
            store_waits.eq(is_op[Op.STORE] & in_scratch & self.scratch_write),
            scratch.write_enable.eq(self.scratch_write | (running & is_op[Op.STORE] & in_scratch)),
            scratch.write_row.eq(Mux(self.scratch_write, self.scratch_row, address)),
            scratch.write_data.eq(Mux(self.scratch_write, self.scratch_data, second)),
        ]
        m.d.sync += loaded.eq(running & load_waits)

        # Ports.
        m.d.comb += [
            self.out_valid.eq(running & is_op[Op.OUT]),
            self.out_port.eq(constant),
            self.out_data.eq(second),
            self.in_port.eq(a + constant),
        ]

        # Results.
        result = Signal(WORD_BITS)
        writes = Signal()
        with m.Switch(op):
            for each, value in {
                Op.ADD: a + b,
                Op.SUB: a - b,
                Op.AND: a & b,
                Op.OR: a | b,
                Op.SHL: a << b[:6],
                Op.SHR: a >> b[:6],
                Op.MUL: a[: FACTOR_BITS[0]] * b[: FACTOR_BITS[1]],
                Op.MIN: Mux(a < b, a, b),
                Op.LOAD: Mux(in_scratch, scratch.read_data, self.window_data),
                Op.IN: self.in_data,
                Op.CALL: place + 1,
            }.items():
                with m.Case(each):
                    m.d.comb += [result.eq(value), writes.eq(1)]
        jumps = Signal()
        m.d.comb += [
            jumps.eq(
                Mux(
                    is_op[Op.IF_EQUAL] | is_op[Op.IF_DIFFERENT],
                    (a == b) ^ is_op[Op.IF_DIFFERENT],
                    (a < b) ^ is_op[Op.IF_NOT_BELOW],
                )
            ),
            following.eq(place + 1),
            ends.eq(running & ~load_waits & ~store_waits & (~is_op[Op.OUT] | self.out_ready)),
            self.place.eq(place),
            rom.read_enable.eq(ends | ~running),
            rom.read_row.eq(Mux(running, following, 0)),
        ]
        with m.If(is_op[Op.CALL] | (branches & jumps)):
            m.d.comb += following.eq(constant)
        with m.Elif(is_op[Op.RETURN]):
            m.d.comb += following.eq(a)
        m.d.sync += running.eq(1)
        with m.If(ends):
            m.d.sync += place.eq(following)
            with m.If(writes):
                m.d.sync += registers[fields[0]].eq(result)
        return m
