"""Plane control: counts planes, follows each through the pipeline, starts the accumulators."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.compute.layouts import reduce_layout, row_bits, tile_layout
from hw.config import GROUPS, P_MIN, TILE, Config
from hw.library import Unique


def job_layout(config: Config) -> data.StructLayout:
    """A column group on its way to the accumulators: its tile and its number."""
    return data.StructLayout({"tile": tile_layout(config), "column_group": row_bits(config.fold)})


class Sequencer(Unique):
    """From accepted planes to accumulator updates, in lockstep for all MPUs.

    A plane accepted in cycle c passes the reduction in c + 1 .. c + 4 and Horner's sum in c + 5.
    The last plane of a column group starts ``acc_rows`` accumulator cycles in c + 6. Nothing
    behind the acceptance ever stalls; a plane whose results would find no room in the result
    buffer is not accepted.

    Members
    -------
    next_tile, next_ready : the tile whose tables are ready to be loaded
    plane_valid, plane_ready, plane_sign : handshake of the plane stream; the plane is a sign plane
    start : the accepted plane is the first of ``next_tile``
    room : the result buffer has room for a column group
    reserve : room is taken for one
    reduce, follow : to the MPUs
    acc_* : to the accumulators; ``result`` marks rows that go to the result buffer,
        ``result_job`` says whose they are, ``result_slice`` which slice of the column group
    idle : no plane is on its way
    active : a tile is begun and more of its planes are to come
    refused : ``next_tile`` was started and asked for what the configuration does not have; its
        plane count was clamped to 5 .. p_max, its context to an existing one
    """

    module_name = "bsspec_sequencer"
    label = "control: sequencer"

    def __init__(self, config: Config) -> None:
        self.config = config
        acc_row = row_bits(config.contexts * config.tile_rows)
        super().__init__(
            {
                "next_tile": In(tile_layout(config)),
                "next_ready": In(1),
                "plane_valid": In(1),
                "plane_ready": Out(1),
                "plane_sign": Out(1),
                "start": Out(1),
                "room": In(1),
                "reserve": Out(1),
                "reduce": Out(reduce_layout(config)),
                "follow": Out(1),
                "acc_read": Out(1),
                "acc_read_row": Out(acc_row),
                "acc_write": Out(1),
                "acc_write_row": Out(acc_row),
                "acc_slice": Out(row_bits(config.acc_rows)),
                "result": Out(1),
                "result_job": Out(job_layout(config)),
                "idle": Out(1),
                "active": Out(1),
                "refused": Out(1),
                "context": Out(config.context_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config

        # What the configuration cannot do is clamped and flagged, so that nothing hangs.
        wanted = self.next_tile
        p = Signal(config.p_bits)
        context = Signal(config.context_bits)
        low, high = wanted.p < P_MIN, wanted.p > config.p_max
        beyond = wanted.context >= config.contexts
        m.d.comb += [p.eq(wanted.p), context.eq(wanted.context)]
        with m.If(low):
            m.d.comb += p.eq(P_MIN)
        with m.Elif(high):
            m.d.comb += p.eq(config.p_max)
        with m.If(beyond):
            m.d.comb += context.eq(0)
        m.d.comb += [self.refused.eq(self.start & (low | high | beyond)), self.context.eq(context)]

        # Acceptance. The tile in work is ``job``; its first plane is accepted from ``next_tile``.
        active = Signal()
        job = Signal(job_layout(config), reset_less=True)
        plane = Signal(config.p_bits)
        last_plane = Signal(config.p_bits, reset_less=True)
        group_ends = Signal()
        accepted = Signal()
        m.d.comb += [
            group_ends.eq(active & (plane == last_plane)),
            self.plane_ready.eq(self.next_ready),
            accepted.eq(self.plane_valid & self.plane_ready),
            self.plane_sign.eq(~active | (plane == 0)),
            # Not by way of ``accepted``: whether there is room does not matter to a first plane.
            self.start.eq(self.plane_valid & self.next_ready & ~active),
            self.reserve.eq(accepted & group_ends & job.tile.last),
            self.active.eq(active),
        ]
        with m.If(active):
            m.d.comb += self.plane_ready.eq(~group_ends | ~job.tile.last | self.room)
        with m.If(accepted):
            m.d.sync += plane.eq(plane + 1)
            with m.If(~active):
                m.d.sync += [
                    active.eq(1),
                    job.tile.eq(self.next_tile),
                    job.tile.p.eq(p),
                    job.tile.context.eq(context),
                    job.column_group.eq(0),
                    last_plane.eq(p - 1),
                ]
            with m.Elif(group_ends):
                m.d.sync += [plane.eq(0), job.column_group.eq(job.column_group + 1)]
                with m.If(job.column_group == config.fold - 1):
                    m.d.sync += active.eq(0)

        # The accepted plane's flags travel with it, a stage a cycle.
        flags_layout = data.StructLayout({"sign": 1, "last": 1, "new_tile": 1, "midpoint": 1})
        flags = [
            Signal(flags_layout, name=f"flags_{stage}", reset_less=True)
            for stage in range(GROUPS + 1)
        ]
        valid = [Signal(name=f"valid_{stage}") for stage in range(GROUPS + 1)]
        m.d.sync += [
            valid[0].eq(accepted),
            flags[0].sign.eq(self.plane_sign),
            flags[0].last.eq(group_ends),
            flags[0].new_tile.eq(self.start),
            flags[0].midpoint.eq(job.tile.midpoint),
        ]
        for stage in range(GROUPS):
            m.d.sync += [
                valid[stage + 1].eq(valid[stage]),
                flags[stage + 1].eq(flags[stage]),
            ]
        reduce, horner = GROUPS - 1, GROUPS
        m.d.comb += [
            self.reduce.sign.eq(valid[reduce] & flags[reduce].sign),
            self.reduce.new_tile.eq(valid[reduce] & flags[reduce].new_tile),
            self.reduce.end_truncate.eq(
                valid[reduce] & flags[reduce].last & ~flags[reduce].midpoint
            ),
            self.reduce.end_midpoint.eq(
                valid[reduce] & flags[reduce].last & flags[reduce].midpoint
            ),
            self.reduce.sum_valid.eq(valid[horner]),
            self.reduce.sum_first.eq(flags[horner].sign),
            self.reduce.sum_last.eq(flags[horner].last),
            self.reduce.sum_minus.eq(flags[horner].last & ~flags[horner].midpoint),
        ]

        # The job follows its last plane: ``job`` may be replaced one cycle after that was
        # accepted, ``following`` not before the next column group's last plane gets here.
        entering = Signal(row_bits(config.fold), reset_less=True)
        following = Signal(job_layout(config), reset_less=True)
        current = Signal(job_layout(config), reset_less=True)
        m.d.sync += entering.eq(job.column_group)
        m.d.comb += self.follow.eq(valid[0] & flags[0].last)
        with m.If(self.follow):
            m.d.sync += [following.eq(job), following.column_group.eq(entering)]

        arrives = Signal()
        updating = Signal()
        acc_slice = Signal(row_bits(config.acc_rows))
        last_slice = Signal()
        m.d.comb += [
            arrives.eq(valid[horner] & flags[horner].last),
            last_slice.eq(acc_slice == config.acc_rows - 1),
            self.acc_slice.eq(acc_slice),
            self.acc_write.eq(updating),
            self.result.eq(updating & current.tile.last),
            self.result_job.eq(current),
            self.idle.eq(~active & ~Cat(valid).any() & ~updating),
        ]
        with m.If(updating):
            m.d.sync += acc_slice.eq(acc_slice + 1)
            with m.If(last_slice):
                m.d.sync += [updating.eq(0), acc_slice.eq(0)]
        with m.If(arrives):
            m.d.sync += [updating.eq(1), acc_slice.eq(0), current.eq(following)]

        def row(of: data.View, number: object) -> object:
            base = of.column_group * config.acc_rows if config.fold > 1 else 0
            return of.tile.context * config.tile_rows + base + number

        m.d.comb += [
            self.acc_write_row.eq(row(current, acc_slice)),
            self.acc_read.eq(arrives | (updating & ~last_slice)),
            self.acc_read_row.eq(row(current, acc_slice + 1)),
        ]
        with m.If(arrives):
            m.d.comb += self.acc_read_row.eq(row(following, 0))
        assert config.tile_rows == config.fold * config.acc_rows
        assert config.lanes * config.fold == TILE
        return m
