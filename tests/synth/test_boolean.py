"""Liberty's Boolean functions against Python's own operators, over all inputs."""

from itertools import product

import pytest

from synth.boolean import truth_table
from synth.errors import SynthError

FUNCTIONS = {
    "!(a & b)": lambda a, b, c: not (a and b),
    "a*b+c": lambda a, b, c: (a and b) or c,
    "a b + c": lambda a, b, c: (a and b) or c,
    "(a+b)'c": lambda a, b, c: not (a or b) and c,
    "a ^ b ^ c": lambda a, b, c: a ^ b ^ c,
    "!a' ^ (b | !c)": lambda a, b, c: a ^ (b or not c),
    "a ^ b * c": lambda a, b, c: a ^ (b and c),
    "a + b ^ c": lambda a, b, c: a or (b ^ c),
    "1 * a + 0": lambda a, b, c: a,
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_truth_table(function):
    expected = 0
    for c, b, a in product((False, True), repeat=3):
        index = a + 2 * b + 4 * c
        expected |= bool(FUNCTIONS[function](a, b, c)) << index
    assert truth_table(function, "abc") == expected


@pytest.mark.parametrize("function", ["a &", "a b)", "(a", "a & d", "a # b", ""])
def test_refused(function):
    with pytest.raises(SynthError, match="Boolean function"):
        truth_table(function, "abc")
