"""The data path: from memory through ring, array and slices to the banks."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.axi.bus import pass_on
from hw.axi.dma import ReadDma
from hw.axi.layouts import write_line_layout
from hw.axi.read import read_signature
from hw.chip_config import LINE_BITS, PLANE_LINES, WORD_BITS, ChipConfig
from hw.control.works import Works, work_layout
from hw.issue.engine import Engine
from hw.issue.pieces import GATE_BITS, pieces_waiting
from hw.keys.layouts import keys_job_layout, line_address_bits, line_request_layout
from hw.keys.transposer import KeyTransposer
from hw.library import Unique, instantiate
from hw.memory.fifo import Fifo
from hw.special.epilogue import HEAD_TILES_BITS, PASSES_BITS, Epilogue, epilogue_job_layout
from hw.special.layouts import BF16, FP32, STATUS
from hw.special.scores import FACTOR
from hw.special.slice import INDEX_BITS, Op, rope_row_bits
from hw.transfers.logits import LogitsWriter

#: Streams that pass from the outside to a part as they are, by member: (part, its member).
_INTO = {
    "works": ("works", "works"),
    "weights": ("epilogue", "weights"),
    "key_jobs": ("keys", "jobs"),
    "key_rows": ("keys", "rows"),
}


class Datapath(Unique):
    """Products and attention of the rows in the banks, with matrices, keys and values in memory.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    works : stream of :func:`~hw.control.works.work_layout`
        Walked through as far ahead as the ring has room.
    weights : stream of beats of BF16, of norms
    key_jobs, key_rows, key_lines
        Of :class:`~hw.keys.transposer.KeyTransposer`; the lines are those of closed blocks.
    gates : gates that are open (:class:`~hw.issue.front.TileFront`)
    rows : rows of the step
    head_tiles, factor, inverse_width, eps, rope_*
        Of :class:`~hw.special.epilogue.Epilogue`. Changed only while ``settled``.
    passes_written : as there
    seen, winners, forget
        Rows whose largest logit is known since ``forget``, and its index.
    logits, logits_line, logits_stride, logits_requests, logits_lines
        Logits are written too, see :class:`~hw.transfers.logits.LogitsWriter`. Changed only while
        ``settled``; each head begins anew after ``forget``.
    load_enable, load_word, load_data, load_ready
        Writes a word of the banks of ``load_enable`` where nothing else is written.
    other_read, other_word, other_granted, data
        Reads a word of all banks where nobody else does.
    m0_axi, m1_axi, ... : read channels of the ports
    plane_read : a plane is read for the array in this cycle
    waits_for_memory, waits_for_tile, waits_for_results : of :class:`~hw.issue.engine.Engine`
    settled : all works have come to their ends, all words are in the banks
    keys_idle : no keys are on their way, closed blocks included
    error, refused, overflow, clear
        Sticky: a response was an error; an Inf or NaN was met; a result became Inf.
    stop : nothing new is asked of memory
    memory_idle : nothing of what was asked is outstanding
    idle : nothing is on its way
    """

    module_name = "bsspec_datapath"
    label = "data path"

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        core = config.core
        rows = core.t_m
        words = data.ArrayLayout(unsigned(WORD_BITS), rows)
        members: dict[str, Any] = {
            "works": In(stream.Signature(work_layout(config))),
            "weights": In(stream.Signature(data.ArrayLayout(BF16, core.special_elements))),
            "key_jobs": In(stream.Signature(keys_job_layout(config))),
            "key_rows": In(stream.Signature(unsigned(LINE_BITS))),
            "key_lines": Out(stream.Signature(write_line_layout())),
            "gates": In(GATE_BITS),
            "rows": In(rows),
            "head_tiles": In(HEAD_TILES_BITS),
            "factor": In(FACTOR),
            "inverse_width": In(FP32),
            "eps": In(FP32),
            "rope_write": In(rows),
            "rope_row": In(rope_row_bits(core.special_elements)),
            "rope_data": In(32 * core.special_elements),
            "passes_written": Out(PASSES_BITS),
            "seen": Out(rows),
            "winners": Out(data.ArrayLayout(unsigned(INDEX_BITS), rows)),
            "forget": In(1),
            "logits": In(1),
            "logits_line": In(line_address_bits(config)),
            "logits_stride": In(line_address_bits(config)),
            "logits_requests": Out(stream.Signature(line_request_layout(config))),
            "logits_lines": Out(stream.Signature(write_line_layout())),
            "load_enable": In(rows),
            "load_word": In(config.word_bits),
            "load_data": In(words),
            "load_ready": Out(1),
            "other_read": In(1),
            "other_word": In(config.word_bits),
            "other_granted": Out(1),
            "data": Out(words),
            "plane_read": Out(1),
            "waits_for_memory": Out(1),
            "waits_for_tile": Out(1),
            "waits_for_results": Out(1),
            "settled": Out(1),
            "keys_idle": Out(1),
            "error": Out(1),
            "refused": Out(1),
            "overflow": Out(1),
            "clear": In(1),
            "stop": In(1),
            "memory_idle": Out(1),
            "idle": Out(1),
        }
        for i in range(config.ports):
            members[f"m{i}_axi"] = Out(read_signature(config.memory))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        works = instantiate(m, "works", Works, config)
        jobs = instantiate(
            m,
            "jobs",
            Fifo,
            purpose="jobs",
            shape=epilogue_job_layout(config),
            depth=pieces_waiting(config),
        )
        dma = instantiate(m, "dma", ReadDma, config.memory)
        engine = instantiate(m, "engine", Engine, config)
        epilogue = instantiate(m, "epilogue", Epilogue, config)
        keys = instantiate(m, "keys", KeyTransposer, config)
        logits = instantiate(m, "logits", LogitsWriter, config)
        parts = {"works": works, "epilogue": epilogue, "keys": keys}

        def joins(source: Any, sink: Any) -> None:
            m.d.comb += [
                sink.valid.eq(source.valid),
                sink.payload.eq(source.payload),
                source.ready.eq(sink.ready),
            ]

        for name, (part, member) in _INTO.items():
            joins(getattr(self, name), getattr(parts[part], member))
        joins(works.pieces, engine.pieces)
        joins(works.rows, epilogue.passes)
        joins(works.jobs, jobs.i)
        joins(jobs.o, epilogue.jobs)
        self._results(m, engine, jobs, epilogue, logits)
        joins(keys.scales, engine.scales)
        joins(keys.closed, self.key_lines)
        joins(logits.requests, self.logits_requests)
        joins(logits.lines, self.logits_lines)

        self._fetch(m, works, dma, engine)
        self._banks(m, engine, epilogue)
        m.d.comb += [
            dma.clear.eq(self.clear),
            dma.stop.eq(self.stop),
            self.error.eq(dma.error),
            self.plane_read.eq(engine.plane_read),
            self.waits_for_memory.eq(engine.waits_for_memory),
            self.waits_for_tile.eq(engine.waits_for_tile),
            self.waits_for_results.eq(engine.waits_for_results),
            keys.open_read.eq(engine.open_read),
            keys.open_row.eq(engine.open_row),
            engine.open_plane.eq(keys.open_plane),
            engine.open_ready.eq(keys.open_ready),
            keys.clear.eq(self.clear),
            epilogue.rows.eq(self.rows),
            epilogue.head_tiles.eq(self.head_tiles),
            epilogue.factor.eq(self.factor),
            epilogue.inverse_width.eq(self.inverse_width),
            epilogue.eps.eq(self.eps),
            epilogue.rope_write.eq(self.rope_write),
            epilogue.rope_row.eq(self.rope_row),
            epilogue.rope_data.eq(self.rope_data),
            epilogue.clear.eq(self.clear),
            engine.clear.eq(self.clear),
            engine.gates.eq(self.gates),
            engine.written.eq(epilogue.written),
            engine.writing.eq(epilogue.writing),
            engine.write_next.eq(epilogue.write_next),
            engine.go.eq(epilogue.go),
            engine.rises.eq(epilogue.rises),
            epilogue.mix.eq(engine.mix),
            epilogue.mix_taken.eq(engine.mix_taken),
            epilogue.mix_ends.eq(engine.mix_ends),
            self.passes_written.eq(epilogue.passes_written),
        ]
        self._winners(m, epilogue)

        flags = Signal(STATUS)
        m.d.comb += [
            flags.eq(epilogue.status),
            self.refused.eq(
                flags.refused
                | engine.status.refused_activation
                | engine.status.refused_exponent
                | engine.status.refused_tile
                | keys.status.refused
            ),
            self.overflow.eq(flags.overflow | engine.status.overflow),
            self.settled.eq(
                Cat(
                    ~self.works.valid,
                    engine.idle,
                    jobs.empty,
                    epilogue.idle,
                    logits.idle,
                    works.sent == epilogue.written,
                ).all()
            ),
            self.keys_idle.eq(keys.idle),
            self.memory_idle.eq(dma.idle),
            self.idle.eq(self.settled & dma.idle & keys.idle),
        ]
        return m

    def _results(self, m: Module, engine: Any, jobs: Any, epilogue: Any, logits: Any) -> None:
        """Results to the slices; those of a head to memory too, where that is asked for: then both
        take a beat in the same cycle."""
        both = Signal()
        m.d.comb += [
            both.eq(self.logits & jobs.o.valid & (jobs.o.payload.op == Op.LOGITS)),
            epilogue.results.payload.eq(engine.results.payload),
            logits.results.payload.eq(engine.results.payload),
            epilogue.results.valid.eq(engine.results.valid & (~both | logits.results.ready)),
            engine.results.ready.eq(epilogue.results.ready),
            logits.results.valid.eq(both & engine.results.valid & epilogue.results.ready),
            logits.line.eq(self.logits_line),
            logits.stride.eq(self.logits_stride),
            logits.restart.eq(self.forget),
        ]

    def _fetch(self, m: Module, works: Any, dma: Any, engine: Any) -> None:
        """Requests for lines; a request's tag is where its lines go, relative to their positions
        in the stream."""
        config = self.config
        place_bits = (PLANE_LINES * config.ring_rows - 1).bit_length()
        fetch, request = works.fetches, dma.requests
        asked = Signal(config.memory.index_bits)
        exponents = Signal(place_bits)
        planes = Signal(place_bits)
        m.d.comb += [
            request.valid.eq(fetch.valid),
            fetch.ready.eq(request.ready),
            request.payload.line.eq(fetch.payload.line),
            request.payload.count.eq(fetch.payload.count),
            request.payload.tag.eq(
                Cat(
                    (Mux(fetch.payload.exponents, exponents, planes) - asked)[:place_bits],
                    fetch.payload.exponents,
                )
            ),
            dma.released.eq(engine.released),
            engine.frontier.eq(dma.frontier),
        ]
        with m.If(request.valid & request.ready):
            m.d.sync += asked.eq(asked + fetch.payload.count)
            with m.If(fetch.payload.exponents):
                m.d.sync += exponents.eq(exponents + fetch.payload.count)
            with m.Else():
                m.d.sync += planes.eq(planes + fetch.payload.count)
        for i in range(config.ports):
            source, sink = getattr(dma, f"lines_{i}"), getattr(engine, f"lines_{i}")
            tag = source.payload.tag
            m.d.comb += [
                sink.valid.eq(source.valid),
                source.ready.eq(sink.ready),
                sink.payload.data.eq(source.payload.data),
                sink.payload.place.eq(tag[:place_bits] + source.payload.index),
                sink.payload.exponents.eq(tag[-1]),
            ]
            outer, inner = getattr(self, f"m{i}_axi"), getattr(dma, f"m{i}_axi")
            pass_on(m, read_signature(config.memory), outer, inner)

    def _banks(self, m: Module, engine: Any, epilogue: Any) -> None:
        """Ports of the banks: the front first, then the slices, then everybody else."""
        rows = self.config.core.t_m
        writes = Signal()
        m.d.comb += [
            writes.eq(epilogue.write_enable.any()),
            self.load_ready.eq(~writes),
            engine.write_enable.eq(Mux(writes, epilogue.write_enable, self.load_enable)),
            engine.write_word.eq(
                Mux(
                    writes,
                    epilogue.write_word.as_value(),
                    Cat(self.load_word for _ in range(rows)),
                )
            ),
            engine.write_data.eq(
                Mux(writes, epilogue.write_data.as_value(), self.load_data.as_value())
            ),
            engine.other_read.eq(epilogue.other_read | self.other_read),
            engine.other_word.eq(Mux(epilogue.other_read, epilogue.other_word, self.other_word)),
            epilogue.other_granted.eq(epilogue.other_read & engine.other_granted),
            self.other_granted.eq(self.other_read & ~epilogue.other_read & engine.other_granted),
            epilogue.front_read.eq(engine.front_read | self.other_granted),
            epilogue.data.eq(engine.data),
            self.data.eq(engine.data),
        ]

    def _winners(self, m: Module, epilogue: Any) -> None:
        for row in range(self.config.core.t_m):
            winner = getattr(epilogue, f"winners_{row}")
            m.d.comb += winner.ready.eq(1)
            with m.If(winner.valid):
                m.d.sync += [
                    self.seen[row].eq(1),
                    self.winners[row].eq(winner.payload.index),
                ]
        with m.If(self.forget):
            m.d.sync += self.seen.eq(0)
