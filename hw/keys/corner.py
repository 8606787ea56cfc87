"""The corner turner: numbers of eight tokens in, bits of eight tokens out."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.keys.layouts import BYTE_TOKENS, PAIR, PAIRS, width
from hw.library import Unique

assert PAIRS == BYTE_TOKENS, "the square has as many pairs of planes as tokens"


class CornerTurner(Unique):
    """A square of registers, 8 tokens by 8 pairs of planes, that moves down or to the right.

    Eight moves take in the numbers of eight tokens and give out the eight that came before, turned:
    a move takes all pairs of planes of a token and gives one pair of planes of all tokens, the
    last pair first. Then the direction changes, so no second square is needed. A line's 32
    channels a move; latency 8 moves.

    Members
    -------
    move, down
        ``down`` stays for eight moves, then changes.
    number : the token's pairs of planes, the first pair first
    tokens : a pair of planes of the tokens before, the first token first
    """

    module_name = "bsspec_corner_turner"
    label = "keys: corner turner"

    def __init__(self) -> None:
        super().__init__(
            {
                "move": In(1),
                "down": In(1),
                "number": In(data.ArrayLayout(PAIR, PAIRS)),
                "tokens": Out(data.ArrayLayout(PAIR, BYTE_TOKENS)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = width(PAIR)
        last = PAIRS - 1
        cells = [
            [Signal(bits, name=f"cell_{row}_{column}", reset_less=True) for column in range(PAIRS)]
            for row in range(PAIRS)
        ]
        number = [self.number[i].as_value() for i in range(PAIRS)]
        with m.If(self.move):
            for row in range(PAIRS):
                for column in range(PAIRS):
                    above = cells[row - 1][column] if row else number[column]
                    left = cells[row][column - 1] if column else number[row]
                    m.d.sync += cells[row][column].eq(Mux(self.down, above, left))
        # What came first has moved farthest.
        for i in range(BYTE_TOKENS):
            leaving = Mux(self.down, cells[last][last - i], cells[last - i][last])
            m.d.comb += self.tokens[i].as_value().eq(leaving)
        return m
