"""A subarray: ``fanout`` columns that read the same tables with their own weight bits."""

from __future__ import annotations

from amaranth.hdl import Module, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.compute.column import Column
from hw.compute.layouts import looks_layout, reduce_layout, tables_layout
from hw.config import Config
from hw.library import Unique, instantiate


class Subarray(Unique):
    """16 tables x 32 lanes in the ``paper`` preset; see :class:`Column` for the timing."""

    module_name = "bsspec_subarray"
    label = "subarray"

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "looks": In(looks_layout(config, config.fanout)),
                "tables": In(tables_layout(config)),
                "control": In(reduce_layout(config)),
                "offset": In(signed(config.parity_bits + 1)),
                "half_sums": Out(data.ArrayLayout(signed(config.half_sum_bits), config.fanout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for i in range(self.config.fanout):
            column = instantiate(m, f"column_{i}", Column, self.config)
            m.d.comb += [
                column.looks[0].eq(self.looks[i]),
                column.tables.eq(self.tables),
                column.control.eq(self.control),
                column.offset.eq(self.offset),
                self.half_sums[i].eq(column.half_sum),
            ]
        return m
