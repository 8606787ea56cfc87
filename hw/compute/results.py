"""Result control: room in the result buffers, order of conversion, hand-over."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.compute.layouts import row_bits
from hw.compute.sequencer import job_layout
from hw.config import COLUMN_BITS, Config
from hw.library import Unique, instantiate
from hw.memory.ram import Ram


def note_layout(config: Config) -> data.StructLayout:
    """What is noted beside a row of the result buffers."""
    return data.StructLayout(
        {
            "rows": config.t_m,
            "context": config.context_bits,
            "column": COLUMN_BITS,
            "p": config.p_bits,
            "fp32": 1,
            "scaled": 1,
        }
    )


class ResultControl(Unique):
    """Paces the drains of all MPUs, in lockstep.

    Room is counted in buffer rows, reserved when the last plane of a column group is accepted and
    given back when a row is read. A row is read into the memory's output register, leaves it in
    ``acc_columns / drain`` cycles, and passes three stages of conversion. A stall of ``o_ready``
    holds the conversion; a missing scale holds the row and lets what is behind it go on.

    Members
    -------
    reserve, room : a column group's worth of rows
    write, job, slice, write_row : a row is written in this cycle
    read, read_row, read_slice, p, fp32, advance : to the drains
    scale_valid, scale_ready, scaled : handshake of the result exponents, for scaled tiles
    o_valid, o_ready, rows, context, column, o_fp32 : the results on their way out
    idle : nothing is buffered or being converted
    """

    module_name = "bsspec_result_control"
    label = "control: results"

    def __init__(self, config: Config) -> None:
        self.config = config
        buffer_row = row_bits(config.result_rows)
        super().__init__(
            {
                "reserve": In(1),
                "room": Out(1),
                "write": In(1),
                "job": In(job_layout(config)),
                "slice": In(row_bits(config.acc_rows)),
                "write_row": Out(buffer_row),
                "read": Out(1),
                "read_row": Out(buffer_row),
                "read_slice": Out(row_bits(config.acc_columns // config.drain)),
                "p": Out(config.p_bits),
                "fp32": Out(1),
                "advance": Out(1),
                "scaled": Out(1),
                "scale_valid": In(1),
                "scale_ready": Out(1),
                "o_valid": Out(1),
                "o_ready": In(1),
                "rows": Out(config.t_m),
                "context": Out(config.context_bits),
                "column": Out(COLUMN_BITS),
                "o_fp32": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        depth = config.result_rows
        slices = config.acc_columns // config.drain

        free = Signal(range(depth + 1), init=depth)
        stored = Signal(range(depth + 1))
        m.d.comb += self.room.eq(free >= config.acc_rows)
        m.d.sync += [
            free.eq(free + self.read - Mux(self.reserve, config.acc_rows, 0)),
            stored.eq(stored + self.write - self.read),
        ]

        write_row = Signal(range(depth))
        read_row = Signal(range(depth))
        m.d.comb += [self.write_row.eq(write_row), self.read_row.eq(read_row)]
        for enable, row in ((self.write, write_row), (self.read, read_row)):
            with m.If(enable):
                m.d.sync += row.eq(Mux(row == depth - 1, 0, row + 1))

        layout = note_layout(config)
        ram = instantiate(m, "ram", Ram, purpose="result_notes", width=layout.size, depth=depth)
        note_in = Signal(layout)
        tile = self.job.tile
        column = self.slice * config.acc_columns
        if config.fold > 1:
            column = column + self.job.column_group * config.lanes
        m.d.comb += [
            note_in.rows.eq(tile.rows),
            note_in.context.eq(tile.context),
            note_in.column.eq(column),
            note_in.p.eq(tile.p),
            note_in.fp32.eq(tile.fp32),
            note_in.scaled.eq(tile.scaled),
            ram.write_enable.eq(self.write),
            ram.write_row.eq(write_row),
            ram.write_data.eq(note_in),
            ram.read_enable.eq(self.read),
            ram.read_row.eq(read_row),
        ]
        note = data.View(layout, ram.read_data)

        # The row in the memories' output registers leaves slice by slice.
        loaded = Signal()
        part = Signal(row_bits(slices))
        taken = Signal()
        finished = Signal()
        m.d.comb += [
            self.scaled.eq(note.scaled),
            self.scale_ready.eq(loaded & note.scaled & self.advance),
            taken.eq(loaded & self.advance & (~note.scaled | self.scale_valid)),
            finished.eq(taken & (part == slices - 1)),
            self.read.eq((stored != 0) & (~loaded | finished)),
            self.read_slice.eq(part),
            self.p.eq(note.p),
        ]
        with m.If(taken):
            m.d.sync += part.eq(Mux(finished, 0, part + 1))
        with m.If(self.read):
            m.d.sync += loaded.eq(1)
        with m.Elif(finished):
            m.d.sync += loaded.eq(0)

        # Three stages of conversion, moved together.
        out_layout = data.StructLayout(
            {
                "rows": config.t_m,
                "context": config.context_bits,
                "column": COLUMN_BITS,
                "fp32": 1,
            }
        )
        valid = [Signal(name=f"valid_{i}") for i in (1, 2, 3)]
        stages = [Signal(out_layout, name=f"stage_{i}", reset_less=True) for i in (1, 2, 3)]
        m.d.comb += [
            self.o_valid.eq(valid[2]),
            self.advance.eq(~valid[2] | self.o_ready),
            self.fp32.eq(stages[1].fp32),
            self.rows.eq(stages[2].rows),
            self.context.eq(stages[2].context),
            self.column.eq(stages[2].column),
            self.o_fp32.eq(stages[2].fp32),
            self.idle.eq((free == depth) & ~loaded & ~valid[0] & ~valid[1] & ~valid[2]),
        ]
        with m.If(self.advance):
            m.d.sync += [
                valid[0].eq(taken),
                stages[0].rows.eq(note.rows),
                stages[0].context.eq(note.context),
                stages[0].column.eq(note.column + part * config.drain),
                stages[0].fp32.eq(note.fp32),
                valid[1].eq(valid[0]),
                stages[1].eq(stages[0]),
                valid[2].eq(valid[1]),
                stages[2].eq(stages[1]),
            ]
        return m
