"""Arithmetic that more than one component builds."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal, Value


def conditional_negate(m: Module, name: str, value: Value, negate: Value) -> Value:
    """``-value`` where ``negate``, else ``value``, with one bit more.

    Every bit above the lowest 1 flips: an exclusive or and an and-or a bit, two thirds of an
    inverter row with an incrementer behind it.

    Parameters
    ----------
    m : Module
    name : str
        Prefix of the signals made.
    value : unsigned value of w bits
    negate : one bit

    Returns
    -------
    w + 1 bits, two's complement; the top bit is 1 for a negative result, 0 for zero.
    """
    width = len(value)
    flips = Signal(width + 1, name=f"{name}_flips")
    flip: Value = Const(0, 1)
    for i in range(width):
        m.d.comb += flips[i].eq(flip)
        flip = flips[i] | (value[i] & negate)
    m.d.comb += flips[width].eq(flip)
    return Cat(value, Const(0, 1)) ^ flips
