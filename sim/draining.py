"""Drains under test: rows in, control of their way out, and the codes that must come."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch

from hw.config import Config
from model.datapath.primitives import round_result
from model.formats.floats import float_format


@dataclass
class Row:
    """A row of the result buffer, and what its columns become.

    Attributes
    ----------
    number : int
        Which row.
    p, fp32 : int
    scales : list of int
        Result exponents of its columns.
    codes, overflow : list of int
        By the model, one a column.
    """

    number: int
    p: int
    fp32: int
    scales: list[int]
    codes: list[int]
    overflow: list[int]


def make_row(
    config: Config,
    number: int,
    accumulators: torch.Tensor,
    running: int,
    *,
    p: int,
    fp32: int,
    scales: list[int],
) -> Row:
    """A row with what the model makes of it, from its accumulators and running exponent."""
    codes, overflow = round_result(
        accumulators,
        torch.tensor(running),
        p=p,
        g=config.align_guard_bits,
        f=config.acc_guard_bits,
        fmt=float_format("fp32" if fp32 else "bf16"),
        column_exponents=torch.tensor(scales),
    )
    return Row(number, p, fp32, scales, codes.tolist(), [int(flag) for flag in overflow])


@dataclass
class _Slice:
    codes: list[int]
    overflow: int
    fp32: int


class Drainer:
    """Reads rows in the order in which they were stored, slice by slice, with stalls.

    A row stored in one cycle may be read in the next; it leaves ``drain`` columns an ``advance``;
    three advances later their codes are there until the next.
    """

    def __init__(self, config: Config, rng: random.Random, stall: float) -> None:
        self.config = config
        self.rng = rng
        self.stall = stall
        self.stored: deque[Row] = deque()
        self.compared = 0
        self._loaded: Row | None = None
        self._part = 0
        self._stages: list[_Slice | None] = [None, None, None]
        self._advance = self._take = self._read = False

    @property
    def busy(self) -> bool:
        """Whether a row is on its way."""
        return bool(self.stored or self._loaded or any(self._stages))

    def decide(self) -> dict[str, Any]:
        """Inputs of this cycle: read, row, slice, p, scales, advance, format of the last stage."""
        drain = self.config.drain
        self._advance = self.rng.random() >= self.stall
        self._take = self._advance and self._loaded is not None
        finished = self._take and self._part == self.config.acc_columns // drain - 1
        free = self._loaded is None or finished
        self._read = bool(self.stored) and free and self.rng.random() >= self.stall
        row = self._loaded if self._take else None
        last = self._stages[1] if self._advance else None
        columns = slice(self._part * drain, (self._part + 1) * drain)
        return {
            "advance": int(self._advance),
            "read": int(self._read),
            "read_row": self.stored[0].number if self._read else None,
            "slice": self._part if row else None,
            "p": row.p if row else None,
            "scales": row.scales[columns] if row else None,
            "fp32": last.fp32 if last else None,
        }

    def expected(self) -> tuple[list[int], int] | None:
        """Codes and overflow that are there in this cycle; None if nothing is."""
        shown = self._stages[2]
        return (shown.codes, shown.overflow) if shown else None

    def clock(self) -> None:
        """The end of the cycle."""
        drain = self.config.drain
        if self._advance:
            self.compared += drain * (self._stages[2] is not None)
            entering = None
            if self._take and self._loaded is not None:
                columns = slice(self._part * drain, (self._part + 1) * drain)
                entering = _Slice(
                    self._loaded.codes[columns],
                    int(any(self._loaded.overflow[columns])),
                    self._loaded.fp32,
                )
                self._part += 1
                if self._part * drain == self.config.acc_columns:
                    self._loaded, self._part = None, 0
            self._stages = [entering, *self._stages[:2]]
        if self._read:
            self._loaded = self.stored.popleft()
