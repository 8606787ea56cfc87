"""Results of one MPU: from accumulated rows through a buffer to converted numbers."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, signed, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.compute.converter import Converter
from hw.compute.layouts import RESULT_EXPONENT_BITS, row_bits, scales_layout
from hw.config import RUNNING_BIAS, RUNNING_BITS, Config
from hw.library import Unique, instantiate
from hw.memory.ram import Ram


class Drain(Unique):
    """Result buffer and ``drain`` converters of one MPU.

    Rows of ``acc_columns`` accumulators with their running exponent are written as an output tile
    ends. A row read in cycle c is there from c + 1 on; each cycle of ``advance`` takes ``drain``
    of its columns (``slice``) into the converters.

    Members
    -------
    write, write_row, accumulators, exponent : a row in
    read, read_row, slice, p, scales, advance, fp32 : control, see :class:`Converter`
    codes, overflow : ``drain`` results, three ``advance`` cycles later
    """

    module_name = "bsspec_drain"
    label = "result buffer and converters"

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "write": In(1),
                "write_row": In(row_bits(config.result_rows)),
                "accumulators": In(data.ArrayLayout(signed(config.acc_width), config.acc_columns)),
                "exponent": In(RUNNING_BITS),
                "read": In(1),
                "read_row": In(row_bits(config.result_rows)),
                "slice": In(row_bits(config.acc_columns // config.drain)),
                "p": In(config.p_bits),
                "scales": In(scales_layout(config)),
                "advance": In(1),
                "fp32": In(1),
                "codes": Out(data.ArrayLayout(unsigned(32), config.drain)),
                "overflow": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        row_layout = data.StructLayout(
            {
                "accumulators": data.ArrayLayout(signed(config.acc_width), config.acc_columns),
                "exponent": RUNNING_BITS,
            }
        )
        ram = instantiate(
            m, "ram", Ram, purpose="results", width=row_layout.size, depth=config.result_rows
        )
        row_in = Signal(row_layout)
        m.d.comb += [
            row_in.accumulators.eq(self.accumulators),
            row_in.exponent.eq(self.exponent),
            ram.write_enable.eq(self.write),
            ram.write_row.eq(self.write_row),
            ram.write_data.eq(row_in),
            ram.read_enable.eq(self.read),
            ram.read_row.eq(self.read_row),
        ]
        row = data.View(row_layout, ram.read_data)
        slice_layout = data.ArrayLayout(signed(config.acc_width), config.drain)
        chosen = Signal(slice_layout)
        with m.Switch(self.slice):
            for i in range(config.acc_columns // config.drain):
                with m.Case(i):
                    m.d.comb += chosen.eq(
                        row.accumulators.as_value().word_select(i, slice_layout.size)
                    )
        base = Signal(signed(RESULT_EXPONENT_BITS))
        m.d.comb += base.eq(row.exponent - RUNNING_BIAS - self.p)
        overflow = Signal(config.drain)
        for i in range(config.drain):
            converter = instantiate(m, f"converter_{i}", Converter, config)
            m.d.comb += [
                converter.advance.eq(self.advance),
                converter.acc.eq(chosen[i]),
                converter.exponent.eq(base + self.scales[i]),
                converter.fp32.eq(self.fp32),
                self.codes[i].eq(converter.code),
                overflow[i].eq(converter.overflow),
            ]
        m.d.comb += self.overflow.eq(overflow.any())
        return m
