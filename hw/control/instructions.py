"""Instructions of the control processor: what they do, and as words of its program."""

from __future__ import annotations

import enum
from dataclasses import dataclass

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


#: Those with a place to go to below the constant.
BRANCHES = (Op.IF_EQUAL, Op.IF_DIFFERENT, Op.IF_BELOW, Op.IF_NOT_BELOW)
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
