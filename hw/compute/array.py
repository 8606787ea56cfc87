"""The array: ``t_m`` MPUs on one broadcast of bit planes. This is the compute core."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hw.compute.feed import Feed
from hw.compute.lane import PlaneDecoder
from hw.compute.layouts import (
    STATUS,
    activations_layout,
    exponents_layout,
    mpu_control_layout,
    plane_layout,
    results_layout,
    scales_layout,
    tile_layout,
    tiles_layout,
)
from hw.compute.mpu import Mpu
from hw.compute.results import ResultControl
from hw.compute.sequencer import Sequencer
from hw.config import Config
from hw.library import Unique, instantiate


class Array(Unique):
    """The compute core: tiles of 64 x 64 against ``t_m`` rows of activations.

    Throughput: a tile of p planes takes ``p * fold`` cycles, tiles of any p, mode and context
    follow each other without a bubble; an output tile of K tiles takes
    ``max(K * p * fold, 64 / drain)`` cycles. The first results of an output tile can be taken 11
    cycles after its last plane was accepted (fold 1).

    Nothing hangs on bad input: Inf, NaN and shared exponents of 255 count as zeros, plane counts
    and contexts outside the configuration are clamped, and each raises its bit of ``status``.

    Parameters
    ----------
    config : Config

    Members
    -------
    tiles : stream of :func:`~hw.compute.layouts.tiles_layout`
        One word a tile. Taken with the tile's last group of activations.
    activations : stream of :func:`~hw.compute.layouts.activations_layout`
        Four groups a tile, reduction indices ascending.
    exponents : stream of :func:`~hw.compute.layouts.exponents_layout`
        Four groups a tile, in lockstep with ``activations``.
    planes : stream of :func:`~hw.compute.layouts.plane_layout`
        ``p * fold`` beats a tile.
    scales : stream of :func:`~hw.compute.layouts.scales_layout`
        ``64 / drain`` beats for each last tile that is ``scaled``, columns ascending.
    results : stream of :func:`~hw.compute.layouts.results_layout`
        ``64 / drain`` beats for each last tile, columns ascending.
    status : sticky bits of :data:`~hw.compute.layouts.STATUS`
    clear : clears ``status``
    idle : nothing is on its way: no tile begun, no result waiting
    waits_for_tile, waits_for_results
        A plane is offered, and not taken: its tile's activations are not there; results have no
        room.
    """

    module_name = "bsspec_array"
    label = "array"

    def __init__(self, config: Config) -> None:
        if not isinstance(config, Config):
            raise TypeError(f"config must be a Config, not {config!r}")
        self.config = config
        super().__init__(
            {
                "tiles": In(stream.Signature(tiles_layout(config))),
                "activations": In(stream.Signature(activations_layout(config))),
                "exponents": In(stream.Signature(exponents_layout(config))),
                "planes": In(stream.Signature(plane_layout(config))),
                "scales": In(stream.Signature(scales_layout(config))),
                "results": Out(stream.Signature(results_layout(config))),
                "status": Out(STATUS),
                "clear": In(1),
                "idle": Out(1),
                "waits_for_tile": Out(1),
                "waits_for_results": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        feed = instantiate(m, "feed", Feed)
        sequencer = instantiate(m, "sequencer", Sequencer, config)
        results = instantiate(m, "result_control", ResultControl, config)
        decoder = instantiate(m, "plane_decoder", PlaneDecoder, config)

        # Filling joins three streams; the tile's word is taken with its last group and waits
        # until the tile's first plane. Its place is free again before the next tile is complete.
        next_tile = Signal(tile_layout(config), reset_less=True)
        next_rises = Signal(self.tiles.payload.rises.shape(), reset_less=True)
        waiting = Signal()
        offered = Signal()
        m.d.comb += [
            offered.eq(self.tiles.valid & self.activations.valid & self.exponents.valid),
            feed.offered.eq(offered),
            feed.hold.eq(waiting & ~sequencer.start),
            self.activations.ready.eq(feed.fill),
            self.exponents.ready.eq(feed.fill),
            self.tiles.ready.eq(feed.fill & feed.fill_last),
        ]
        with m.If(self.tiles.ready):
            m.d.sync += [
                getattr(next_tile, name).eq(self.tiles.payload[name])
                for name, _ in tile_layout(config)
            ]
            m.d.sync += [next_rises.eq(self.tiles.payload.rises), waiting.eq(1)]
        with m.Elif(sequencer.start):
            m.d.sync += waiting.eq(0)

        # A shared exponent of 255 would mean Inf or NaN: refused, and the group counts as zeros.
        exponents = Signal.like(self.exponents.payload)
        refused_exponents = Signal(config.group_k)
        for i in range(config.group_k):
            exponent = self.exponents.payload[i]
            m.d.comb += [
                refused_exponents[i].eq(exponent.all()),
                exponents[i].eq(Mux(exponent.all(), 0, exponent)),
            ]

        m.d.comb += [
            sequencer.next_tile.eq(next_tile),
            sequencer.next_ready.eq(feed.ready),
            sequencer.plane_valid.eq(self.planes.valid),
            self.planes.ready.eq(sequencer.plane_ready),
            feed.start.eq(sequencer.start),
            decoder.valid.eq(self.planes.valid & self.planes.ready),
            decoder.sign_plane.eq(sequencer.plane_sign),
            decoder.plane.eq(self.planes.payload),
            sequencer.room.eq(results.room),
            results.reserve.eq(sequencer.reserve),
            results.write.eq(sequencer.result),
            results.job.eq(sequencer.result_job),
            results.slice.eq(sequencer.acc_slice),
            results.scale_valid.eq(self.scales.valid),
            self.scales.ready.eq(results.scale_ready),
            self.results.valid.eq(results.o_valid),
            results.o_ready.eq(self.results.ready),
        ]

        control = Signal(mpu_control_layout(config))
        m.d.comb += [
            control.fill.eq(feed.fill),
            control.fill_group.eq(feed.fill_group),
            control.align.eq(feed.align),
            control.align_group.eq(feed.align_group),
            control.load.eq(feed.load),
            control.decide.eq(sequencer.start),
            control.decide_first.eq(next_tile.first),
            control.decide_context.eq(sequencer.context),
            control.follow.eq(sequencer.follow),
            control.reduce.eq(sequencer.reduce),
            control.acc_read.eq(sequencer.acc_read),
            control.acc_read_row.eq(sequencer.acc_read_row),
            control.acc_write.eq(sequencer.acc_write),
            control.acc_write_row.eq(sequencer.acc_write_row),
            control.acc_slice.eq(sequencer.acc_slice),
            control.result_write.eq(sequencer.result),
            control.result_write_row.eq(results.write_row),
            control.result_read.eq(results.read),
            control.result_read_row.eq(results.read_row),
            control.result_slice.eq(results.read_slice),
            control.result_p.eq(results.p),
            control.result_fp32.eq(results.fp32),
            control.advance.eq(results.advance),
        ]
        scales = Signal.like(self.scales.payload)
        m.d.comb += scales.eq(Mux(results.scaled, self.scales.payload, 0))

        payload = self.results.payload
        refused_activations = Signal(config.t_m)
        for row in range(config.t_m):
            mpu = instantiate(m, f"mpu_{row}", Mpu, config)
            m.d.comb += [
                mpu.control.eq(control),
                mpu.looks.eq(decoder.looks),
                mpu.shared_exponents.eq(exponents),
                mpu.scales.eq(scales),
                mpu.rise.eq(next_rises[row]),
                mpu.row_enable.eq(self.tiles.payload.rows[row]),
                mpu.activations.eq(self.activations.payload[row]),
                payload.codes[row].eq(mpu.codes),
                payload.overflow[row].eq(mpu.overflow),
                refused_activations[row].eq(mpu.refused),
            ]
        m.d.comb += [
            payload.rows.eq(results.rows),
            payload.context.eq(results.context),
            payload.column.eq(results.column),
            payload.fp32.eq(results.o_fp32),
        ]

        status = Signal(STATUS)
        raised = Signal(STATUS)
        m.d.comb += [
            raised.overflow.eq(
                self.results.valid & self.results.ready & (payload.overflow & payload.rows).any()
            ),
            raised.refused_activation.eq(refused_activations.any()),
            raised.refused_exponent.eq(
                feed.fill & refused_exponents.any() & self.tiles.payload.rows.any()
            ),
            raised.refused_tile.eq(sequencer.refused),
            self.status.eq(status),
        ]
        kept = Signal(STATUS)
        m.d.comb += kept.eq(Mux(self.clear, 0, status))
        m.d.sync += status.eq(kept.as_value() | raised.as_value())

        filling = Signal()
        m.d.comb += filling.eq(Cat(feed.fill_group != 0, feed.ready, waiting).any())
        waits = self.planes.valid & ~self.planes.ready
        m.d.comb += [
            self.idle.eq(~filling & sequencer.idle & results.idle),
            self.waits_for_tile.eq(waits & ~sequencer.active),
            self.waits_for_results.eq(waits & sequencer.active),
        ]
        return m
