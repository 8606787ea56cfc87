"""MPU: one row of activations against the broadcast planes."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.compute.accumulator import Accumulators, RunningExponent, decision_layout
from hw.compute.aligner import AlignerBank
from hw.compute.drain import Drain
from hw.compute.layouts import (
    BF16,
    exponents_layout,
    looks_layout,
    mpu_control_layout,
    scales_layout,
)
from hw.compute.lut import LutBank
from hw.compute.subarray import Subarray
from hw.config import RISE_BITS, Config
from hw.library import Unique, instantiate


class Mpu(Unique):
    """One row: aligner, tables, subarrays, accumulators and converters.

    All MPUs of an array run in lockstep under one broadcast ``control``; tables and partial sums
    are private. See ``docs/architecture.md`` for the pipeline, cycle by cycle.

    Members
    -------
    control, looks, shared_exponents, scales : broadcast
    row_enable, activations, rise : of this row; ``rise`` is looked at as a tile is decided
    codes, overflow : results of this row
    refused : Inf or NaN in a group that is being filled
    """

    module_name = "bsspec_mpu"
    label = "MPU"

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "control": In(mpu_control_layout(config)),
                "looks": In(looks_layout(config, config.lanes)),
                "shared_exponents": In(exponents_layout(config)),
                "scales": In(scales_layout(config)),
                "row_enable": In(1),
                "rise": In(RISE_BITS),
                "activations": In(data.ArrayLayout(BF16, config.group_k)),
                "codes": Out(data.ArrayLayout(unsigned(32), config.drain)),
                "overflow": Out(1),
                "refused": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        control = self.control

        bank = instantiate(m, "aligners", AlignerBank, config)
        tables = instantiate(m, "tables", LutBank, config)
        m.d.comb += [
            bank.fill.eq(control.fill),
            bank.fill_group.eq(control.fill_group),
            bank.row_enable.eq(self.row_enable),
            bank.activations.eq(self.activations),
            bank.shared_exponents.eq(self.shared_exponents),
            bank.align.eq(control.align),
            bank.align_group.eq(control.align_group),
            self.refused.eq(bank.refused),
            tables.aligned.eq(bank.aligned),
            tables.load.eq(control.load),
        ]

        # Odd tables of the tile. All groups hold the tile's tables while its first sign plane is
        # in the last stage; group 0 may be renewed before the tile's last plane gets there.
        odd = Signal(config.parity_bits)
        odd_kept = Signal(config.parity_bits, reset_less=True)
        odd_now = Signal(config.parity_bits)
        m.d.comb += [
            odd_now.eq(sum(tables.tables[i].odd for i in range(config.luts))),
            odd.eq(Mux(control.reduce.new_tile, odd_now, odd_kept)),
        ]
        with m.If(control.reduce.new_tile):
            m.d.sync += odd_kept.eq(odd_now)
        offset = Signal(signed(config.parity_bits + 1))
        with m.If(control.reduce.sign):
            m.d.comb += offset.eq(odd)
        with m.Elif(control.reduce.end_midpoint):
            m.d.comb += offset.eq(-((odd + 1) >> 1))
        odd_sum = Signal(reset_less=True)
        m.d.sync += odd_sum.eq(control.reduce.end_midpoint & odd[0])

        half_sums = Signal(data.ArrayLayout(signed(config.half_sum_bits), config.lanes))
        for i in range(config.subarrays):
            subarray = instantiate(m, f"subarray_{i}", Subarray, config)
            m.d.comb += [
                subarray.tables.eq(tables.tables),
                subarray.control.eq(control.reduce),
                subarray.offset.eq(offset),
            ]
            for j in range(config.fanout):
                lane = i * config.fanout + j
                m.d.comb += [
                    subarray.looks[j].eq(self.looks[lane]),
                    half_sums[lane].eq(subarray.half_sums[j]),
                ]

        # The decision of a tile follows its sums: once as the last plane of a column group enters
        # the reduction (the next tile may be decided a cycle later), once as the sums are kept.
        running = instantiate(m, "running_exponent", RunningExponent, config)
        following = Signal(decision_layout(config), reset_less=True)
        decision = Signal(decision_layout(config), reset_less=True)
        odd_result = Signal(reset_less=True)
        m.d.comb += [
            running.decide.eq(control.decide),
            running.first.eq(control.decide_first),
            running.context.eq(control.decide_context),
            running.tile_exponent.eq(bank.tile_exponent),
            running.rise.eq(self.rise),
        ]
        with m.If(control.follow):
            m.d.sync += following.eq(running.decision)
        with m.If(control.reduce.sum_valid & control.reduce.sum_last):
            m.d.sync += [decision.eq(following), odd_result.eq(odd_sum)]

        accumulators = instantiate(m, "accumulators", Accumulators, config)
        drain = instantiate(m, "drain", Drain, config)
        m.d.comb += [
            accumulators.read.eq(control.acc_read),
            accumulators.read_row.eq(control.acc_read_row),
            accumulators.write.eq(control.acc_write),
            accumulators.write_row.eq(control.acc_write_row),
            accumulators.slice.eq(control.acc_slice),
            accumulators.half_sums.eq(half_sums),
            accumulators.odd.eq(odd_result),
            accumulators.decision.eq(decision),
            drain.write.eq(control.result_write),
            drain.write_row.eq(control.result_write_row),
            drain.accumulators.eq(accumulators.updated),
            drain.exponent.eq(decision.exponent),
            drain.read.eq(control.result_read),
            drain.read_row.eq(control.result_read_row),
            drain.slice.eq(control.result_slice),
            drain.p.eq(control.result_p),
            drain.scales.eq(self.scales),
            drain.advance.eq(control.advance),
            drain.fp32.eq(control.result_fp32),
            self.codes.eq(drain.codes),
            self.overflow.eq(drain.overflow),
        ]
        return m
