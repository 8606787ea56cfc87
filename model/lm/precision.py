"""Precisions of a pass: how many bits of the stored weights and of the KV cache it loads.

A precision is written `W6KV7`: 6 bits of each weight and 7 of each cached key and value, both
read as truncated. `W6mKV7m` reads both as midpoints (contract section 4); either `m` may stand
alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from model.formats.bfp import is_midpoint
from model.formats.checks import check_p

_PATTERN = re.compile(r"W(\d+)(m?)KV(\d+)(m?)")


class Load(NamedTuple):
    """A partial load.

    Attributes:
        p: bits of a number, its sign included.
        midpoint: it stands for the middle of its interval, not for the lower end.
    """

    p: int
    midpoint: bool = False

    @property
    def reconstruct(self) -> str:
        """The name of the reconstruction, as `model.formats.bfp` takes it."""
        return "midpoint" if self.midpoint else "truncate"

    def exact(self, p_full: int) -> Load:
        """The same load with one name for one thing: nothing is a midpoint at p = p_full.

        Raises:
            TypeError, ValueError: p is not an int in 2..p_full.
        """
        check_p(self.p, p_full)
        return Load(self.p, is_midpoint(self.reconstruct, self.p, p_full))


@dataclass(frozen=True)
class Precision:
    """What a pass loads.

    Attributes:
        w: of each weight.
        kv: of each key in a closed block, and of each value.
    """

    w: Load
    kv: Load

    @staticmethod
    def full(p_full: int = 9) -> Precision:
        """The target's precision: every bit."""
        return Precision(Load(p_full), Load(p_full))

    @staticmethod
    def parse(text: str) -> Precision:
        """The precision written as `W6KV7`, `W6mKV7m`, `W6mKV7` or `W6KV7m`.

        Raises:
            TypeError: not a string.
            ValueError: written otherwise.
        """
        if not isinstance(text, str):
            raise TypeError(f"a precision must be a string such as 'W6KV7', not {text!r}")
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise ValueError(f"a precision must be written as W6KV7 or W6mKV7m, not {text!r}")
        p_w, m_w, p_kv, m_kv = match.groups()
        return Precision(Load(int(p_w), bool(m_w)), Load(int(p_kv), bool(m_kv)))

    @staticmethod
    def of(p_w: int, p_kv: int, reconstruct: str = "truncate") -> Precision:
        """W{p_w}KV{p_kv} with one reconstruction for both."""
        midpoint = reconstruct == "midpoint"
        return Precision(Load(p_w, midpoint), Load(p_kv, midpoint))

    def exact(self, p_full: int) -> Precision:
        """The same precision, checked against p_full; no midpoint at p = p_full."""
        return Precision(self.w.exact(p_full), self.kv.exact(p_full))

    def __str__(self) -> str:
        marks = ["m" if load.midpoint else "" for load in (self.w, self.kv)]
        return f"W{self.w.p}{marks[0]}KV{self.kv.p}{marks[1]}"


def grid(
    p_w: range = range(5, 10), p_kv: range = range(5, 10), reconstruct: str = "truncate"
) -> list[Precision]:
    """All pairs of the two ranges, by falling p_w, then falling p_kv (as the paper's Table III)."""
    return [Precision.of(w, kv, reconstruct) for w in reversed(p_w) for kv in reversed(p_kv)]
