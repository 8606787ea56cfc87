"""The chip: controller, data path, transfers, and the memory ports."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from hw.axi.arbiter import ReadArbiter
from hw.axi.bus import Axi, pass_on
from hw.axi.read import LineReader, read_signature
from hw.axi.write import LineWriter, write_signature
from hw.chip_config import ChipConfig
from hw.control.controller import WRITERS, Controller
from hw.control.ports import Error, Idle
from hw.control.register_rows import window_bus
from hw.datapath import Datapath
from hw.library import Unique, instantiate
from hw.transfers.arbiter import WriteArbiter
from hw.transfers.loader import Loader
from hw.transfers.mover import Mover

#: Settings of the controller that the data path takes as they are.
_SETTINGS = (
    "gates",
    "rows",
    "head_tiles",
    "factor",
    "inverse_width",
    "eps",
    "forget",
    "logits",
    "logits_line",
    "logits_stride",
)


class Chip(Unique):
    """What a host drives: registers and an interrupt here, memory there.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    s_axi : AXI4-Lite
        Registers (:mod:`model.formats.registers`).
    interrupt : high while a pending interrupt is enabled
    m0_axi : AXI4
        Commands, activations, results, and a share of the matrices, keys and values.
    m1_axi, m2_axi, ... : AXI4, read channels
        The rest of matrices, keys and values.

    Raises
    ------
    TypeError
        If config is no ChipConfig.
    """

    module_name = "bsspec_chip"
    label = "chip"

    def __init__(self, config: ChipConfig) -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        self.config = config
        reads = read_signature(config.memory)
        bus = Axi(port_bits=config.port_bits, address_bits=config.address_bits)
        super().__init__(
            {
                "s_axi": In(window_bus()),
                "interrupt": Out(1),
                **{f"m{i}_axi": Out(reads if i else bus) for i in range(config.ports)},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, memory = self.config, self.config.memory
        control = instantiate(m, "controller", Controller, config)

        # After a fault everything but registers and program begins anew.
        def part(name: str, component: type[Unique], *args: Any, **more: Any) -> Any:
            return instantiate(m, name, component, *args, reset=control.flush, **more)

        datapath = part("datapath", Datapath, config)
        loader = part("loader", Loader, config)
        mover = part("mover", Mover, config)
        writes = part("writes", WriteArbiter, config, sources=len(WRITERS))
        reader = part("reader", LineReader, memory)
        writer = part("writer", LineWriter, memory)
        reads = part("reads", ReadArbiter, memory)

        pass_on(m, window_bus(), control.s_axi, self.s_axi)
        m.d.comb += self.interrupt.eq(control.interrupt)
        pass_on(m, read_signature(memory), reads.stream_axi, datapath.m0_axi)
        pass_on(m, read_signature(memory), reads.reader_axi, reader.axi)
        pass_on(m, read_signature(memory), self.m0_axi, reads.axi)
        pass_on(m, write_signature(memory), self.m0_axi, writer.axi)
        for i in range(1, config.ports):
            name = f"m{i}_axi"
            pass_on(m, read_signature(memory), getattr(self, name), getattr(datapath, name))

        def joins(source: Any, sink: Any) -> None:
            m.d.comb += [
                sink.valid.eq(source.valid),
                sink.payload.eq(source.payload),
                source.ready.eq(sink.ready),
            ]

        joins(control.works, datapath.works)
        joins(control.key_jobs, datapath.key_jobs)
        joins(control.loads, loader.requests)
        joins(control.moves, mover.moves)
        joins(loader.read_requests, reader.requests)
        joins(reader.lines, loader.read_lines)
        joins(loader.weights, datapath.weights)
        joins(loader.rows, datapath.key_rows)
        written = {
            "keys": (mover.keys_requests, mover.keys_lines),
            "values": (mover.values_requests, mover.values_lines),
            "closed": (control.closed_requests, datapath.key_lines),
            "text": (control.text_requests, control.text_lines),
            "logits": (datapath.logits_requests, datapath.logits_lines),
        }
        asks = []
        for i, name in enumerate(WRITERS):
            requests, lines = written[name]
            joins(requests, getattr(writes, f"requests_{i}"))
            joins(lines, getattr(writes, f"lines_{i}"))
            asks.append(requests.valid)
        joins(writes.requests, writer.requests)
        joins(writes.lines, writer.lines)

        m.d.comb += [getattr(datapath, name).eq(getattr(control, name)) for name in _SETTINGS]
        for sink in (datapath, reader, writer):
            m.d.comb += sink.stop.eq(control.stop)
        # What is sticky is forgotten with the reset after a fault.
        for sink in (datapath, loader, mover, writer):
            m.d.comb += sink.clear.eq(0)
        m.d.comb += [
            control.seen.eq(datapath.seen),
            control.winners.eq(datapath.winners),
            control.scratch_write.eq(loader.scratch_write),
            control.scratch_row.eq(loader.scratch_row),
            control.scratch_data.eq(loader.scratch_data),
            control.loads_done.eq(loader.done),
            control.moves_done.eq(mover.done),
            control.passes_done.eq(datapath.passes_written),
            control.busy_cycle.eq(datapath.plane_read),
            control.memory_cycle.eq(datapath.waits_for_memory),
            control.special_cycle.eq(datapath.waits_for_tile),
            control.results_cycle.eq(datapath.waits_for_results),
            datapath.rope_write.eq(loader.rope_write),
            datapath.rope_row.eq(loader.rope_row),
            datapath.rope_data.eq(loader.rope_data),
        ]
        self._banks(m, datapath, loader, mover)
        idle = {
            Idle.SETTLED: datapath.settled,
            Idle.LOADER: loader.idle,
            Idle.MOVER: mover.idle,
            Idle.WRITES: writes.idle & ~Cat(asks).any() & ~writer.busy,
            Idle.KEYS: datapath.keys_idle,
            Idle.MEMORY: datapath.memory_idle & reader.idle & writer.idle,
        }
        errors = {
            Error.READ: datapath.error | loader.error,
            Error.WRITE: writer.error,
            Error.NUMBER: datapath.refused | loader.refused | mover.status.refused,
        }
        m.d.comb += [
            control.idle.eq(Cat(idle[each] for each in Idle)),
            control.errors.eq(Cat(errors[each] for each in Error)),
        ]
        return m

    def _banks(self, m: Module, datapath: Any, loader: Any, mover: Any) -> None:
        """The port for words from elsewhere: the loader first, then the mover."""
        rows = self.config.core.t_m
        first, second = loader.bank_write, mover.bank_write
        row = Signal.like(Mux(first, loader.bank_row, mover.bank_row), name="bank_row")
        content = Signal.like(Mux(first, loader.bank_data, mover.bank_data), name="bank_data")
        m.d.comb += [
            row.eq(Mux(first, loader.bank_row, mover.bank_row)),
            content.eq(Mux(first, loader.bank_data, mover.bank_data)),
            datapath.load_enable.eq(Cat((first | second) & (row == i) for i in range(rows))),
            datapath.load_word.eq(Mux(first, loader.bank_word, mover.bank_word)),
            datapath.load_data.eq(Cat(content for _ in range(rows))),
            loader.bank_ready.eq(datapath.load_ready),
            mover.bank_ready.eq(datapath.load_ready & ~first),
            datapath.other_read.eq(mover.read),
            datapath.other_word.eq(mover.read_word),
            mover.granted.eq(datapath.other_granted),
            mover.data.eq(datapath.data),
        ]
