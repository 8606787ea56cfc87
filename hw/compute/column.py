"""One output column: its BS-RAC lanes, one adder tree, and the sum over the planes of a tile."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib.wiring import In, Out

from hw.compute.lane import BsRacLane
from hw.compute.layouts import looks_layout, reduce_layout, tables_layout
from hw.config import GROUPS, Config
from hw.library import Unique, instantiate


def _adder_tree(m: Module, name: str, values: list[Any], carries: list[Any]) -> Any:
    """Sum of ``values``, with a carry on each of the ``len(values) - 1`` adders."""
    spare = iter(carries)
    level = 0
    while len(values) > 1:
        sums = []
        for i in range(0, len(values), 2):
            total = Signal(signed(len(values[i]) + 1), name=f"{name}_{level}_{i // 2}")
            m.d.comb += total.eq(values[i] + values[i + 1] + next(spare))
            sums.append(total)
        values = sums
        level += 1
    return values[0]


class Column(Unique):
    """Look-ups of one column in all tables of an MPU, reduced and summed over the planes.

    The reduction is a chain of four stages, one for each group of tables; a plane passes stage g
    in cycle c + 1 + g, where c is the cycle in which the array accepted it. The chain sums halved
    entries; what the halves lost is the same for every column, and comes back as ``offset``:

    With PAR odd tables, P_s and P_b the chain's sums on the sign plane and on magnitude plane b,
    and P magnitude planes, contract section 6 becomes ::

        truncate  I = 2 (2**P Q + sum_b 2**b P_b - Q),                   Q = P_s + PAR
        midpoint  I = 2 (2**P Q + sum_b 2**b P_b - ceil(PAR / 2)) + PAR % 2

    so the last stage adds PAR to the sign plane, and to the last plane ``-Q`` or
    ``-ceil(PAR / 2)``. The sum over the planes is Horner's: double and add.

    Members
    -------
    looks, tables
        Look-ups of this column (skewed over the groups) and the tables.
    control, offset
        Control of the last stage and of the Horner stage; ``offset`` is what the last stage adds.
    half_sum
        ``floor(I / 2)`` of the last tile (or column group) that ended, registered: it is there
        from cycle c + 6 after its last plane was accepted, until the next one's.
    """

    module_name = "bsspec_column"
    label = "column: reduction and plane sum"

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "looks": In(looks_layout(config, 1)),
                "tables": In(tables_layout(config)),
                "control": In(reduce_layout(config)),
                "offset": In(signed(config.parity_bits + 1)),
                "half_sum": Out(signed(config.half_sum_bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        control = self.control

        sign_sum = Signal(signed(config.sign_sum_bits), reset_less=True)
        # -Q is ~Q + 1: the one rides on the carry input of the Horner adder, a cycle later.
        inverted = ~sign_sum & control.end_truncate.replicate(config.sign_sum_bits).as_signed()
        injected = Signal(signed(config.sign_sum_bits))
        m.d.comb += injected.eq(self.offset | inverted)

        chain = None
        spare = None
        for group in range(GROUPS):
            values, carries = [], []
            for i in range(config.luts_per_group):
                lut = group * config.luts_per_group + i
                lane = instantiate(m, f"lane_{lut}", BsRacLane, config)
                m.d.comb += [
                    lane.table.eq(self.tables[lut]),
                    lane.look.eq(self.looks[0][lut]),
                ]
                values.append(lane.value)
                carries.append(lane.carry)
            total = _adder_tree(m, f"group_{group}", values, carries)
            stage = Signal(
                signed(config.partial_bits(group)), name=f"chain_{group}", reset_less=True
            )
            if chain is None:
                # Group 0 has one carry more than adders: it waits for the extra adder of the
                # last stage.
                m.d.sync += stage.eq(total)
                spare = carries[-1]
            else:
                if group == GROUPS - 1:
                    late = Signal(signed(config.partial_bits(group)))
                    m.d.comb += late.eq(chain + injected + spare)
                    chain = late
                m.d.sync += stage.eq(total + chain + carries[-1])
            if group < GROUPS - 1:
                held = Signal(name=f"spare_carry_{group}", reset_less=True)
                m.d.sync += held.eq(spare)
                spare = held
            chain = stage

        with m.If(control.sum_valid & control.sum_first):
            m.d.sync += sign_sum.eq(chain)
        plane_sum = Signal(signed(config.half_sum_bits), reset_less=True)
        doubled = Mux(control.sum_first, 0, plane_sum << 1)
        next_sum = Signal(signed(config.half_sum_bits))
        m.d.comb += next_sum.eq(doubled + chain + control.sum_minus)
        with m.If(control.sum_valid):
            m.d.sync += plane_sum.eq(next_sum)
        half_sum = Signal(signed(config.half_sum_bits), reset_less=True)
        with m.If(control.sum_valid & control.sum_last):
            m.d.sync += half_sum.eq(next_sum)
        m.d.comb += self.half_sum.eq(half_sum)
        return m
