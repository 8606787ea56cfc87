"""What the units of a slice have in common: numbers, beats, status.

A **beat** is what a stream carries in one cycle: ``elements`` values with a ``live`` bit each, and
marks. A row whose length is no multiple of ``elements`` ends with a beat that is partly dead; a
token above the row's position is dead too. A dead element may hold anything: it raises no flag
and gives zeros.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import unsigned
from amaranth.lib import data

from hw.compute.layouts import BF16

__all__ = ["BF16", "FP32", "STATUS", "beat_layout", "check_elements"]

#: An FP32 number.
FP32 = data.StructLayout({"mantissa": 23, "exponent": 8, "sign": 1})

#: Sticky status of a unit: an Inf or NaN among its live operands, which counts as zero; a finite
#: result that became Inf.
STATUS = data.StructLayout({"refused": 1, "overflow": 1})

#: Elements a cycle that a slice may have.
ELEMENTS = (1, 2, 4, 8)


def check_elements(elements: int) -> int:
    """``elements``, checked.

    Raises
    ------
    TypeError
        If it is no integer.
    ValueError
        If it is none of 1, 2, 4 and 8.
    """
    if not isinstance(elements, int) or isinstance(elements, bool):
        raise TypeError(f"elements must be an integer, not {elements!r}")
    if elements not in ELEMENTS:
        raise ValueError(f"elements must be 1, 2, 4 or 8, not {elements!r}")
    return elements


def beat_layout(shape: Any, elements: int, *marks: str) -> data.StructLayout:
    """A beat: ``values`` of a shape, ``live``, and one bit for each of ``marks``."""
    return data.StructLayout(
        {
            "values": data.ArrayLayout(shape, elements),
            "live": unsigned(elements),
            **dict.fromkeys(marks, 1),
        }
    )
