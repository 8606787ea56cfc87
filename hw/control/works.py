"""Works in order: products, passes of attention, and jobs on bank words between them."""

from __future__ import annotations

import enum
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.chip_config import ChipConfig
from hw.control.attention import AttentionWalker, pass_layout
from hw.control.matrix import MatrixWalker, fetch_layout, matrix_layout
from hw.issue.pieces import jobs_bits, piece_layout
from hw.library import Unique, instantiate
from hw.special.epilogue import epilogue_job_layout, pass_rows_layout
from hw.special.slice import PACKED


class Work(enum.IntEnum):
    """What a work is."""

    MATRIX = 0
    PASS = 1
    JOB = 2


def work_layout(config: ChipConfig) -> data.StructLayout:
    """``kind`` (:class:`Work`), and what it says in ``content``."""
    return data.StructLayout(
        {
            "kind": unsigned(2),
            "content": data.UnionLayout(
                {
                    "matrix": matrix_layout(config),
                    "attention": pass_layout(config),
                    "job": epilogue_job_layout(config),
                }
            ),
        }
    )


class Works(Unique):
    """Gives each work to its walker, and their streams to whoever takes them.

    A piece needs the jobs of all works before its own: those that write bank words are counted
    here as they leave, and by the epilogue as they are written.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    works : stream of :func:`work_layout`
    fetches, pieces, jobs, rows : of the walkers
    sent : count of jobs that write bank words, modulo its range
    """

    module_name = "bsspec_works"
    label = "control: works"

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        super().__init__(
            {
                "works": In(stream.Signature(work_layout(config))),
                "rows": Out(stream.Signature(pass_rows_layout(config))),
                "fetches": Out(stream.Signature(fetch_layout(config))),
                "pieces": Out(stream.Signature(piece_layout(config))),
                "jobs": Out(stream.Signature(epilogue_job_layout(config))),
                "sent": Out(jobs_bits(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        matrices = instantiate(m, "matrices", MatrixWalker, config)
        attention = instantiate(m, "attention", AttentionWalker, config)
        work = self.works.payload
        is_pass = Signal()
        is_job = Signal()
        m.d.comb += [
            is_pass.eq(work.kind == Work.PASS),
            is_job.eq(work.kind == Work.JOB),
            matrices.matrices.payload.eq(work.content.matrix),
            matrices.matrices.valid.eq(self.works.valid & ~is_pass & ~is_job),
            attention.passes.payload.eq(work.content.attention),
            attention.passes.valid.eq(self.works.valid & is_pass),
            self.works.ready.eq(
                Mux(
                    is_job,
                    self.jobs.ready,
                    Mux(is_pass, attention.passes.ready, matrices.matrices.ready),
                )
            ),
        ]

        def joins(source: Any, sink: Any) -> None:
            m.d.comb += [
                sink.valid.eq(source.valid),
                sink.payload.eq(source.payload),
                source.ready.eq(sink.ready),
            ]

        joins(attention.rows, self.rows)
        for name in ("fetches", "pieces"):
            sink = getattr(self, name)
            with m.If(is_pass):
                joins(getattr(attention, name), sink)
            with m.Else():
                joins(getattr(matrices, name), sink)
        with m.If(is_job):
            m.d.comb += [
                self.jobs.valid.eq(self.works.valid),
                self.jobs.payload.eq(work.content.job),
            ]
        with m.Elif(is_pass):
            joins(attention.jobs, self.jobs)
        with m.Else():
            joins(matrices.jobs, self.jobs)

        # All that was sent before the work's first piece, which comes two cycles behind its begin.
        needs = Signal(jobs_bits(config))
        begun = Signal()
        counted = Signal()
        m.d.comb += [
            counted.eq(
                self.jobs.valid
                & self.jobs.ready
                & Cat(self.jobs.payload.op == op for op in PACKED).any()
            ),
        ]
        m.d.sync += [self.sent.eq(self.sent + counted), begun.eq(self.works.valid)]
        with m.If(self.works.ready):
            m.d.sync += begun.eq(0)
        with m.If(~begun):
            m.d.sync += needs.eq(self.sent + counted)
        m.d.comb += self.pieces.payload.needs.eq(needs)
        return m
