"""Columns under test: planes skewed over the groups of tables, control a stage a cycle.

Where ``c`` is the cycle in which the array would accept a plane: group g of its look-ups and tables
in c + 1 + g, control of the last reduction stage in c + 4, of the Horner stage in c + 5, and from
c + 6 on the sums of the column group whose last plane it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hw.compute.layouts import look_layout, table_layout
from hw.config import GROUPS, TILE, Config
from hw.library import Unique
from model.datapath.primitives import signed_weights, tile_sums
from sim import lookups
from sim.harness import MOODS, Bench
from sim.stimulus import aligned_rows
from sim.words import Array


@dataclass
class Plane:
    """One plane of a column group on its way.

    Attributes
    ----------
    looks : int
        Word of all look-ups.
    sign, last, new_tile, midpoint : bool
        Sign plane; last plane of the column group; first plane of the tile; reconstruction.
    context, group : int
        Accumulator context and column group.
    """

    looks: int
    sign: bool
    last: bool
    new_tile: bool
    midpoint: bool
    context: int
    group: int


@dataclass
class _Plane(Plane):
    """With the tables, how many of them are odd, and the column group's sums by the model.

    The sums come without their lowest bit.
    """

    tables: int
    odd: int
    half_sums: list[int]


def reduce_control(reduce: Plane | None, horner: Plane | None) -> dict[str, int | None]:
    """Control of the last reduction stage and of the Horner stage, from the planes in them."""
    return {
        "sign": int(reduce.sign) if reduce else 0,
        "new_tile": int(reduce.new_tile) if reduce else 0,
        "end_truncate": int(reduce.last and not reduce.midpoint) if reduce else 0,
        "end_midpoint": int(reduce.last and reduce.midpoint) if reduce else 0,
        "sum_valid": int(horner is not None),
        "sum_first": int(horner.sign) if horner else None,
        "sum_last": int(horner.last) if horner else None,
        "sum_minus": int(horner.last and not horner.midpoint) if horner else None,
    }


class Updates:
    """Accumulator updates: the rows of a column group one after the other, once it is summed.

    Its last plane ``arrives`` in the cycle in which it is in the Horner stage.

    Attributes
    ----------
    current : Plane or None
        The last plane of the column group whose rows are being updated.
    part : int
        Which of its rows.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.current: Any = None
        self.part = 0

    def control(self, arriving: Plane | None) -> dict[str, int | None]:
        """Reads and writes of this cycle."""
        read_row = write_row = None
        if self.current is not None:
            write_row = self._base(self.current) + self.part
            read_row = write_row + 1 if self.part < self.config.acc_rows - 1 else None
        if arriving is not None and arriving.last:
            read_row = self._base(arriving)
        return {
            "acc_read": int(read_row is not None),
            "acc_read_row": read_row,
            "acc_write": int(write_row is not None),
            "acc_write_row": write_row,
            "acc_slice": None if write_row is None else self.part,
        }

    def clock(self, arriving: Plane | None) -> None:
        """The end of the cycle."""
        self.part += 1
        if self.part == self.config.acc_rows:
            self.current = None
        if arriving is not None and arriving.last:
            self.current, self.part = arriving, 0

    def _base(self, plane: Plane) -> int:
        return plane.context * self.config.tile_rows + plane.group * self.config.acc_rows


def looks_at(history: deque[Any], masks: list[int]) -> tuple[int, int]:
    """Look-ups of the four groups in a cycle, and which bits of them there are.

    ``history`` has the planes of the last cycles, newest first; ``masks`` the bits of each group.
    """
    word = known = 0
    for plane, mask in zip(history, masks, strict=False):
        if plane is not None:
            word, known = word | plane.looks & mask, known | mask
    return word, known


def weights(rng: np.random.Generator, aligned: Array, columns: int, p: int) -> tuple[Array, Array]:
    """Signs and magnitudes, (64, columns): random, or such that sums get as large as they can."""
    top = (1 << (p - 1)) - 1
    signs = rng.integers(0, 2, (TILE, columns))
    magnitudes = rng.integers(0, top + 1, (TILE, columns))
    for column in range(columns):
        kind = rng.integers(0, 8)
        if kind == 0:
            magnitudes[:, column] = rng.choice([0, top])
        elif kind in (1, 2):
            # All products of one sign, and so the largest sum of these activations.
            signs[:, column] = (aligned < 0) ^ (kind == 2)
            magnitudes[:, column] = rng.choice([0, top, top])
        elif kind == 3:
            signs[1::2, column] = signs[::2, column]
            magnitudes[1::2, column] = magnitudes[::2, column]
    return signs, magnitudes


def tile_planes(
    config: Config, rng: np.random.Generator, columns: int, groups: int
) -> Iterator[_Plane]:
    """All planes of one random tile of ``groups`` column groups."""
    (aligned,) = aligned_rows(config, rng, 1, TILE)
    full = lookups.tables(config, aligned)
    tables = lookups.tables_word(config, full)
    odd = int((full[:, 0] & 1).sum())
    p = int(rng.choice([5, 5, 6, 9, config.p_max, int(rng.integers(5, config.p_max + 1))]))
    midpoint = bool(rng.integers(0, 2))
    for group in range(groups):
        signs, magnitudes = weights(rng, aligned, columns, p)
        c = signed_weights(torch.from_numpy(signs), torch.from_numpy(magnitudes), midpoint)
        sums = tile_sums(torch.from_numpy(aligned).double().unsqueeze(0), c.double())
        half_sums = [int(total) >> 1 for total in sums[0]]
        for number, subtracted in enumerate(lookups.subtracts(signs, magnitudes, p)):
            yield _Plane(
                lookups.looks_word(config, subtracted),
                sign=number == 0,
                last=number == p - 1,
                new_tile=group == number == 0,
                midpoint=midpoint,
                context=0,
                group=group,
                tables=tables,
                odd=odd,
                half_sums=half_sums,
            )


class ReductionBench(Bench):
    """A column or a subarray, and the planes of the last six cycles.

    Parameters
    ----------
    output : str
        Port with the sums.
    """

    def __init__(
        self, dut: object, config: Config, seed: int, component: Unique, output: str
    ) -> None:
        super().__init__(dut, seed, component)
        self.output = output
        lanes = len(self.port("looks")) // (config.luts * look_layout(config).size)
        self.look_masks = lookups.group_masks(config, look_layout(config).size, lanes)
        self.table_masks = lookups.group_masks(config, table_layout(config).size, 1)
        self.compared = 0
        self.idle()

    def idle(self) -> None:
        """Nothing on its way, no sum known."""
        self.history: deque[_Plane | None] = deque([None] * (GROUPS + 2), GROUPS + 2)
        self.sums: list[int] | None = None

    async def show(self, plane: _Plane | None) -> None:
        """A cycle in which ``plane`` is accepted."""
        tables = known = 0
        for past, mask in zip(self.history, self.table_masks, strict=False):
            if past is not None:
                tables, known = tables | past.tables & mask, known | mask
        self.write(self.port("tables"), tables, known)
        self.write(self.port("looks"), *looks_at(self.history, self.look_masks))
        *_, reduce, horner, ended = self.history
        offset = 0
        if reduce is not None and reduce.sign:
            offset = reduce.odd
        elif reduce is not None and reduce.last and reduce.midpoint:
            offset = -((reduce.odd + 1) // 2)
        self.put(control=reduce_control(reduce, horner), offset=offset)
        if ended is not None and ended.last:
            self.sums = ended.half_sums
            self.compared += len(self.sums)
        await self.settle()
        sums = self.sums
        self.expect(**{self.output: sums[0] if sums and self.output == "half_sum" else sums})
        await self.clock()
        self.history.appendleft(plane)

    async def random_tiles(self, config: Config, columns: int, tiles: int, mood: str) -> None:
        """Random tiles, here and there a reset in the middle; sums hold until the next ones."""
        rng = np.random.default_rng(self.rng.getrandbits(32))
        gap, _ = MOODS[mood]
        for _ in range(tiles):
            cut = self.rng.randrange(40) if self.rng.random() < 0.05 else None
            planes = tile_planes(config, rng, columns, self.rng.randint(1, min(config.fold, 3)))
            for number, plane in enumerate(planes):
                while self.rng.random() < gap:
                    await self.show(None)
                if number == cut:
                    self.idle()
                    await self.reset()
                    break
                await self.show(plane)
        for _ in range(GROUPS + 4):
            await self.show(None)
