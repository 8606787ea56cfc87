"""The data path: from memory through ring, array and slices to the banks."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.axi.bus import pass_on
from hw.axi.dma import ReadDma
from hw.axi.read import read_signature
from hw.chip_config import WORD_BITS, ChipConfig
from hw.control.matrix import MatrixWalker, matrix_layout
from hw.issue.engine import Engine, pieces_waiting
from hw.library import Unique, instantiate
from hw.memory.fifo import Fifo
from hw.special.epilogue import Epilogue, epilogue_job_layout


class Datapath(Unique):
    """Products of matrices in memory with the rows in the banks.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    matrices : stream of :func:`~hw.control.matrix.matrix_layout`
        Walked through as far ahead as the ring has room.
    rows : rows of the step
    load_enable, load_word, load_data, load_ready
        Writes a word of the banks of ``load_enable`` where nothing else is written.
    other_read, other_word, other_granted, data
        Reads a word of all banks where nobody else does.
    m0_axi, m1_axi, ... : read channels of the ports
    plane_read : a plane is read for the array in this cycle
    error, clear : a response was an error
    idle : nothing is on its way
    """

    module_name = "bsspec_datapath"
    label = "data path"

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        rows = config.core.t_m
        words = data.ArrayLayout(unsigned(WORD_BITS), rows)
        members: dict[str, Any] = {
            "matrices": In(stream.Signature(matrix_layout(config))),
            "rows": In(rows),
            "load_enable": In(rows),
            "load_word": In(config.word_bits),
            "load_data": In(words),
            "load_ready": Out(1),
            "other_read": In(1),
            "other_word": In(config.word_bits),
            "other_granted": Out(1),
            "data": Out(words),
            "plane_read": Out(1),
            "error": Out(1),
            "clear": In(1),
            "idle": Out(1),
        }
        for i in range(config.ports):
            members[f"m{i}_axi"] = Out(read_signature(config.memory))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        walker = instantiate(m, "walker", MatrixWalker, config)
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

        def joins(source: Any, sink: Any) -> None:
            m.d.comb += [
                sink.valid.eq(source.valid),
                sink.payload.eq(source.payload),
                source.ready.eq(sink.ready),
            ]

        joins(self.matrices, walker.matrices)
        joins(walker.pieces, engine.pieces)
        joins(walker.jobs, jobs.i)
        joins(jobs.o, epilogue.jobs)
        joins(engine.results, epilogue.results)

        # A request's tag is where its lines go, relative to their positions in the stream.
        fetch, request = walker.fetches, dma.requests
        place_bits = len(fetch.payload.place)
        asked = Signal(config.memory.index_bits)
        m.d.comb += [
            request.valid.eq(fetch.valid),
            fetch.ready.eq(request.ready),
            request.payload.line.eq(fetch.payload.line),
            request.payload.count.eq(fetch.payload.count),
            request.payload.tag.eq(
                Cat((fetch.payload.place - asked)[:place_bits], fetch.payload.exponents)
            ),
            dma.released.eq(engine.released),
            dma.clear.eq(self.clear),
            engine.frontier.eq(dma.frontier),
            self.error.eq(dma.error),
            self.plane_read.eq(engine.plane_read),
        ]
        with m.If(request.valid & request.ready):
            m.d.sync += asked.eq(asked + fetch.payload.count)
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

        writes = Signal()
        m.d.comb += [
            writes.eq(epilogue.write_enable.any()),
            self.load_ready.eq(~writes),
            engine.write_enable.eq(Mux(writes, epilogue.write_enable, self.load_enable)),
            engine.write_word.eq(
                Mux(
                    writes,
                    epilogue.write_word.as_value(),
                    Cat(self.load_word for _ in range(config.core.t_m)),
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
            epilogue.rows.eq(self.rows),
            epilogue.clear.eq(self.clear),
            engine.clear.eq(self.clear),
            engine.go.eq(epilogue.go),
            engine.rises.eq(epilogue.rises),
            epilogue.mix.eq(engine.mix),
            epilogue.mix_taken.eq(engine.mix_taken),
            epilogue.mix_ends.eq(engine.mix_ends),
            self.idle.eq(
                Cat(~self.matrices.valid, dma.idle, engine.idle, jobs.empty, epilogue.idle).all()
            ),
        ]
        return m
