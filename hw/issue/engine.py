"""The engine: weight ring, unified buffer and array, with what feeds one from the other."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.chip_config import LINE_BITS, PLANE_LINES, WORD_BITS, ChipConfig
from hw.compute.array import Array
from hw.compute.layouts import STATUS, results_layout, scales_layout
from hw.config import RISE_BITS
from hw.issue.front import TileFront
from hw.issue.pieces import GATE_BITS, jobs_bits, piece_layout, pieces_waiting, position_bits
from hw.issue.planes import PlaneReader
from hw.library import Unique, instantiate
from hw.memory.banks import UnifiedBuffer
from hw.memory.fifo import Fifo
from hw.memory.ring import WeightRing, ring_line_layout


class Engine(Unique):
    """Pieces and lines in, results out.

    A piece enters both readers' queues when its lines are asked for; the front reads its
    activations a tile ahead of its planes. Everything else about it comes out with the results.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    pieces : stream of :func:`~hw.issue.pieces.piece_layout`
    lines_0 .. lines_n : streams of :func:`~hw.memory.ring.ring_line_layout`, one a port
    frontier
        Position in the stream of lines up to which all have arrived; at most a ring of lines, those
        of exponents counted, beyond ``released``.
    freed, released : as in :class:`~hw.issue.planes.PlaneReader`
    plane_read : a plane is read for the array in this cycle
    open_* : the open keys' planes: read port, and whether they are complete
    mix, go, rises, mix_taken, mix_ends, written, writing, write_next, gates
        As in :class:`~hw.issue.front.TileFront`.
    scales : stream of :func:`~hw.compute.layouts.scales_layout`, for scaled tiles
    results : stream of :func:`~hw.compute.layouts.results_layout`
    other_*, front_read, data, write_* : as in :class:`~hw.memory.banks.UnifiedBuffer`
    status, clear : of the array
    waits_for_memory, waits_for_tile, waits_for_results
        Why the array takes no plane: there is none; :class:`~hw.compute.array.Array`.
    idle : no piece waits and nothing is in the array
    """

    module_name = "bsspec_engine"
    label = "engine"

    def __init__(self, config: ChipConfig) -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        self.config = config
        core = config.core
        words = data.ArrayLayout(unsigned(WORD_BITS), core.t_m)
        super().__init__(
            {
                "pieces": In(stream.Signature(piece_layout(config))),
                **{
                    f"lines_{i}": In(stream.Signature(ring_line_layout(config)))
                    for i in range(config.ports)
                },
                "frontier": In(position_bits(config)),
                "freed": Out((config.ring_rows - 1).bit_length() + 1),
                "released": Out(position_bits(config)),
                "plane_read": Out(1),
                "open_read": Out(1),
                "open_row": Out((config.ring_rows - 1).bit_length()),
                "open_plane": In(PLANE_LINES * LINE_BITS),
                "open_ready": In(1),
                "mix": Out(1),
                "go": In(1),
                "rises": In(data.ArrayLayout(unsigned(RISE_BITS), core.t_m)),
                "mix_taken": Out(1),
                "mix_ends": Out(1),
                "written": In(jobs_bits(config)),
                "writing": In(1),
                "write_next": In(config.word_bits),
                "gates": In(GATE_BITS),
                "scales": In(stream.Signature(scales_layout(core))),
                "results": Out(stream.Signature(results_layout(core))),
                "other_read": In(1),
                "other_word": In(config.word_bits),
                "other_granted": Out(1),
                "front_read": Out(1),
                "data": Out(words),
                "write_enable": In(core.t_m),
                "write_word": In(data.ArrayLayout(unsigned(config.word_bits), core.t_m)),
                "write_data": In(words),
                "waits_for_memory": Out(1),
                "waits_for_tile": Out(1),
                "waits_for_results": Out(1),
                "status": Out(STATUS),
                "clear": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        depth = pieces_waiting(config)
        shape = piece_layout(config)
        ahead = instantiate(m, "ahead", Fifo, purpose="pieces", shape=shape, depth=depth)
        behind = instantiate(m, "behind", Fifo, purpose="pieces", shape=shape, depth=depth)
        front = instantiate(m, "front", TileFront, config)
        planes = instantiate(m, "planes", PlaneReader, config)
        ring = instantiate(m, "ring", WeightRing, config)
        banks = instantiate(m, "banks", UnifiedBuffer, config)
        array = instantiate(m, "array", Array, config.core)

        def joins(source: object, sink: object) -> None:
            m.d.comb += [
                sink.valid.eq(source.valid),  # type: ignore[attr-defined]
                sink.payload.eq(source.payload),  # type: ignore[attr-defined]
                source.ready.eq(sink.ready),  # type: ignore[attr-defined]
            ]

        # Both queues take a piece in the same cycle.
        m.d.comb += [
            ahead.i.valid.eq(self.pieces.valid & behind.i.ready),
            behind.i.valid.eq(self.pieces.valid & ahead.i.ready),
            ahead.i.payload.eq(self.pieces.payload),
            behind.i.payload.eq(self.pieces.payload),
            self.pieces.ready.eq(ahead.i.ready & behind.i.ready),
        ]
        joins(ahead.o, front.pieces)
        joins(behind.o, planes.pieces)
        for i in range(config.ports):
            joins(getattr(self, f"lines_{i}"), getattr(ring, f"lines_{i}"))
        for name in ("tiles", "activations", "exponents"):
            joins(getattr(front, name), getattr(array, name))
        joins(planes.planes, array.planes)
        joins(self.scales, array.scales)
        joins(array.results, self.results)

        m.d.comb += [
            front.frontier.eq(self.frontier),
            planes.frontier.eq(self.frontier),
            self.freed.eq(planes.freed),
            self.released.eq(planes.released),
            self.plane_read.eq(planes.read),
            ring.plane_read.eq(planes.read & ~planes.opened),
            ring.plane_row.eq(planes.row),
            planes.plane.eq(ring.plane),
            self.open_read.eq(planes.read & planes.opened),
            self.open_row.eq(planes.row),
            planes.open_plane.eq(self.open_plane),
            planes.open_ready.eq(self.open_ready),
            ring.exponent_read.eq(front.exponent_read),
            ring.exponent_line.eq(front.exponent_line),
            front.exponent_data.eq(ring.exponents),
            banks.front_read.eq(front.bank_read),
            self.front_read.eq(front.bank_read),
            banks.front_word.eq(front.bank_word),
            front.bank_data.eq(banks.data),
            front.bank_other.eq(banks.other_granted),
            banks.other_read.eq(self.other_read),
            banks.other_word.eq(self.other_word),
            self.other_granted.eq(banks.other_granted),
            self.data.eq(banks.data),
            banks.write_enable.eq(self.write_enable),
            banks.write_word.eq(self.write_word),
            banks.write_data.eq(self.write_data),
            self.mix.eq(front.mix),
            front.go.eq(self.go),
            front.rises.eq(self.rises),
            front.written.eq(self.written),
            front.writing.eq(self.writing),
            front.write_next.eq(self.write_next),
            front.gates.eq(self.gates),
            self.mix_taken.eq(front.mix_taken),
            self.mix_ends.eq(front.mix_ends),
            self.waits_for_memory.eq(planes.waits),
            self.waits_for_tile.eq(array.waits_for_tile),
            self.waits_for_results.eq(array.waits_for_results),
            self.status.eq(array.status),
            array.clear.eq(self.clear),
        ]
        working = Signal()
        m.d.comb += [
            working.eq(Cat(self.pieces.valid, ~ahead.empty, ~behind.empty).any()),
            self.idle.eq(~working & array.idle),
        ]
        return m
