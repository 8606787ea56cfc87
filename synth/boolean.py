"""Boolean functions as Liberty writes them, and the truth tables behind them.

A truth table is an integer of 2**n bits: bit i is the output where input j has bit j of i.
"""

import re
from collections.abc import Sequence

from synth.errors import SynthError

_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_\[\]]*|[01!'&*+|^()])")


def _tokens(text: str) -> list[str]:
    tokens, position, stripped = [], 0, text.rstrip()
    while position < len(stripped):
        hit = _TOKEN.match(stripped, position)
        if hit is None:
            raise SynthError(f"a Boolean function that cannot be read: {text!r}")
        tokens.append(hit.group(1))
        position = hit.end()
    return tokens


class _Parser:
    """Recursive descent; from weakest to strongest: + |, ^, * & or nothing, ! and '."""

    def __init__(self, text: str, inputs: Sequence[str]):
        self.text, self.tokens, self.position = text, _tokens(text), 0
        self.mask = (1 << (1 << len(inputs))) - 1
        self.columns = {
            name: sum(1 << i for i in range(1 << len(inputs)) if i >> j & 1)
            for j, name in enumerate(inputs)
        }

    def peek(self) -> str | None:
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def take(self) -> str:
        token = self.peek()
        if token is None:
            raise SynthError(f"a Boolean function that ends too soon: {self.text!r}")
        self.position += 1
        return token

    def parse(self) -> int:
        value = self.either()
        if self.peek() is not None:
            raise SynthError(f"a Boolean function with {self.peek()!r} too much: {self.text!r}")
        return value

    def either(self) -> int:
        value = self.differ()
        while self.peek() in ("+", "|"):
            self.take()
            value |= self.differ()
        return value

    def differ(self) -> int:
        value = self.both()
        while self.peek() == "^":
            self.take()
            value ^= self.both()
        return value

    def both(self) -> int:
        value = self.one()
        while True:
            token = self.peek()
            if token in ("*", "&"):
                self.take()
            elif token is None or token in ("+", "|", "^", ")"):
                return value
            value &= self.one()

    def one(self) -> int:
        token = self.take()
        if token == "!":
            value = self.mask ^ self.one()
        elif token == "(":
            value = self.either()
            if self.take() != ")":
                raise SynthError(f"a Boolean function with an open bracket: {self.text!r}")
        elif token in ("0", "1"):
            value = self.mask if token == "1" else 0
        elif token in self.columns:
            value = self.columns[token]
        else:
            raise SynthError(f"a Boolean function of an unknown pin {token!r}: {self.text!r}")
        while self.peek() == "'":
            self.take()
            value ^= self.mask
        return value


def truth_table(function: str, inputs: Sequence[str]) -> int:
    """The truth table of `function` over `inputs`, in their order."""
    return _Parser(function, inputs).parse()
