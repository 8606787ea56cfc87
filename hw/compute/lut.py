"""Look-up tables of signed activation sums (contract section 6).

Only half a table is kept, because ``T(-v) = -T(v)``: entry i holds the sum in which activation 0
counts plus. All sums of one table have the same parity, that of the plain sum, so an entry holds
``floor(T / 2)`` and the lost bit is kept once a table (``odd``).
"""

from __future__ import annotations

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.compute.layouts import table_layout, tables_layout
from hw.config import GROUPS, Config
from hw.library import Unique, instantiate


class LutGenerator(Unique):
    """All entries of one half table from ``mu`` aligned activations; combinational.

    Sums are shared: for mu = 4, two sums and two differences of pairs, then eight sums of those.
    """

    module_name = "bsspec_lut_generator"
    label = "LUT generator"
    sequential = False

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "aligned": In(data.ArrayLayout(signed(config.aligned_bits), config.mu)),
                "table": Out(table_layout(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        mu = self.config.mu

        def pair(i: int) -> tuple[Signal, Signal]:
            width = self.config.aligned_bits + 1
            plus = Signal(signed(width), name=f"plus_{i}")
            minus = Signal(signed(width), name=f"minus_{i}")
            m.d.comb += [
                plus.eq(self.aligned[i] + self.aligned[i + 1]),
                minus.eq(self.aligned[i] - self.aligned[i + 1]),
            ]
            return plus, minus

        low_plus, low_minus = pair(0)
        m.d.comb += self.table.odd.eq(low_plus[0])
        if mu == 2:
            m.d.comb += [
                self.table.entries[1].eq(low_plus >> 1),
                self.table.entries[0].eq(low_minus >> 1),
            ]
            return m
        high_plus, high_minus = pair(2)
        m.d.comb += self.table.odd.eq(low_plus[0] ^ high_plus[0])
        for index in range(self.config.entries):
            same_1, same_2, same_3 = ((index >> i) & 1 for i in range(3))
            low = low_plus if same_1 else low_minus
            high = high_plus if same_2 == same_3 else high_minus
            total = Signal(signed(self.config.aligned_bits + 2), name=f"total_{index}")
            m.d.comb += [
                total.eq(low + high if same_2 else low - high),
                self.table.entries[index].eq(total >> 1),
            ]
        return m


class LutBank(Unique):
    """The tables of an MPU: one group of generators, registers for all tables.

    ``load[g]`` writes the tables of group g from ``aligned`` at the end of the cycle. There is one
    copy of each table: group g serves a plane g cycles after group 0 does, so the four groups are
    renewed one after the other between two planes of the same stream.
    """

    module_name = "bsspec_lut_bank"
    label = "LUT registers"

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "aligned": In(data.ArrayLayout(signed(config.aligned_bits), config.group_k)),
                "load": In(GROUPS),
                "tables": Out(tables_layout(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        tables = Signal(tables_layout(config), reset_less=True)
        m.d.comb += self.tables.eq(tables)
        for i in range(config.luts_per_group):
            generator = instantiate(m, f"generator_{i}", LutGenerator, config)
            for j in range(config.mu):
                m.d.comb += generator.aligned[j].eq(self.aligned[i * config.mu + j])
            for group in range(GROUPS):
                with m.If(self.load[group]):
                    m.d.sync += tables[group * config.luts_per_group + i].eq(generator.table)
        return m
