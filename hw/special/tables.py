"""Functions in linear segments: the tables of ``model/formats/special_tables.py`` in logic."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Signal
from amaranth.lib.wiring import In, Out

from hw.library import Unique
from model.formats import special_tables

#: The tables by name.
TABLES = {
    "exp2": special_tables.exp2_table,
    "recip": special_tables.reciprocal_table,
    "rsqrt": special_tables.rsqrt_table,
}


class SegmentTable(Unique):
    """A function of an index, a chord a segment; combinational.

    ``value = base[segment] +- ((slope[segment] * step) >> step_bits)``. All values have the same
    number of bits and a leading one, which is not stored.

    Parameters
    ----------
    function : str
        ``exp2``: 2^f, value 1.16. ``recip``: 1 / (1 + f), value 0.17. ``rsqrt``:
        ((1 + f) 2^odd)^-1/2 of the index (odd, f), value 0.17.

    Members
    -------
    index -> value
        16 bits (``rsqrt``: 17), 17 bits.

    Raises
    ------
    ValueError
        If there is no table of this name.
    """

    sequential = False

    def __init__(self, *, function: str) -> None:
        if function not in TABLES:
            raise ValueError(f"function must be one of {', '.join(TABLES)}, not {function!r}")
        self.table = TABLES[function]()
        self.module_name = f"bsspec_table_{function}"
        self.label = f"table: {function}"
        super().__init__(
            {"index": In(self.table.index_bits), "value": Out(self.table.base_bits + 1)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        table = self.table
        base = Signal(table.base_bits)
        slope = Signal(table.slope_bits)
        with m.Switch(self.index[table.step_bits :]):
            for segment, pair in enumerate(zip(table.bases, table.slopes, strict=True)):
                with m.Case(segment):
                    m.d.comb += [base.eq(pair[0]), slope.eq(pair[1])]
        step = self.index[: table.step_bits]
        product = Signal(table.slope_bits + table.step_bits)
        change = product[table.step_bits :]
        leading = Const(1 << table.base_bits, table.base_bits + 1)
        m.d.comb += [
            product.eq(slope * step),
            self.value.eq(
                (leading | base) - change if table.falling else (leading | base) + change
            ),
        ]
        return m
