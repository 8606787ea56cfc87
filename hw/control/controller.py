"""The controller: processor, window, and what lies between its ports and the parts."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.axi.bus import pass_on
from hw.axi.layouts import write_line_layout
from hw.chip_config import ChipConfig
from hw.control.assembler import WORD_BITS
from hw.control.ports import Error, Flag, Host, Idle, Push, fields_of
from hw.control.processor import PORT_BITS, Processor
from hw.control.program import program_of
from hw.control.register_rows import window_bus
from hw.control.window import RegisterWindow
from hw.control.works import Work, work_layout
from hw.issue.pieces import GATE_BITS
from hw.keys.layouts import keys_job_layout, line_request_layout
from hw.library import Unique, instantiate
from hw.memory.fifo import Fifo
from hw.special.epilogue import HEAD_TILES_BITS, PASSES_BITS
from hw.special.flow import Queue
from hw.special.layouts import FP32
from hw.special.scores import FACTOR
from hw.special.slice import INDEX_BITS
from hw.transfers.layouts import DONE_BITS, SCRATCH_BITS, SCRATCH_ROW_BITS, load_layout, move_layout
from model.formats.commands import LINE_BYTES

#: Works and moves that may wait.
WORKS = 4
MOVES = 8
#: Closed blocks whose places are known.
CLOSED = 4
#: Words of a line of text.
TEXT_WORDS = LINE_BYTES // 4

#: Sources of written lines, by the name that the arbiter's user gives them.
WRITERS = ("keys", "values", "closed", "text", "logits")


class Controller(Unique):
    """Runs commands: gives out works, loads and moves, and waits for them.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    s_axi, interrupt : of :class:`~hw.control.window.RegisterWindow`
    works, loads, moves, key_jobs : streams
    closed_requests, text_requests : streams of :func:`~hw.keys.layouts.line_request_layout`
        Where a closed block's lines go; where a line of text goes.
    text_lines : stream of :func:`~hw.axi.layouts.write_line_layout`
    rows, head_tiles, factor, inverse_width, eps, gates
        Of :class:`~hw.datapath.Datapath`.
    seen, winners, forget, logits, logits_line, logits_stride : of the data path
    scratch_* : of :class:`~hw.transfers.loader.Loader`
    loads_done, moves_done, passes_done : counts
    idle : bits by :class:`~hw.control.ports.Idle`, without what waits in here
    errors : bits by :class:`~hw.control.ports.Error`
    busy_cycle, memory_cycle, special_cycle, results_cycle : events that are counted
    stop, flush : nothing new is asked of memory; all parts are reset
    """

    module_name = "bsspec_controller"
    label = "control: controller"

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        core = config.core
        super().__init__(
            {
                "s_axi": In(window_bus()),
                "interrupt": Out(1),
                "works": Out(stream.Signature(work_layout(config))),
                "loads": Out(stream.Signature(load_layout(config))),
                "moves": Out(stream.Signature(move_layout(config))),
                "key_jobs": Out(stream.Signature(keys_job_layout(config))),
                "closed_requests": Out(stream.Signature(line_request_layout(config))),
                "text_requests": Out(stream.Signature(line_request_layout(config))),
                "text_lines": Out(stream.Signature(write_line_layout())),
                "rows": Out(core.t_m),
                "head_tiles": Out(HEAD_TILES_BITS),
                "factor": Out(FACTOR),
                "inverse_width": Out(FP32),
                "eps": Out(FP32),
                "gates": Out(GATE_BITS),
                "logits": Out(1),
                "logits_line": Out(fields_of(config)["logits_line"].width),
                "logits_stride": Out(fields_of(config)["logits_stride"].width),
                "seen": In(core.t_m),
                "winners": In(data.ArrayLayout(unsigned(INDEX_BITS), core.t_m)),
                "forget": Out(1),
                "scratch_write": In(1),
                "scratch_row": In(SCRATCH_ROW_BITS),
                "scratch_data": In(SCRATCH_BITS),
                "loads_done": In(DONE_BITS),
                "moves_done": In(DONE_BITS),
                "passes_done": In(PASSES_BITS),
                "idle": In(len(Idle)),
                "errors": In(len(Error)),
                "busy_cycle": In(1),
                "memory_cycle": In(1),
                "special_cycle": In(1),
                "results_cycle": In(1),
                "stop": Out(1),
                "flush": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        window = instantiate(m, "window", RegisterWindow, config)
        processor = instantiate(m, "processor", Processor, program_of(config))
        pass_on(m, window_bus(), window.s_axi, self.s_axi)
        m.d.comb += [
            self.interrupt.eq(window.interrupt),
            window.read.eq(processor.window_read),
            window.read_row.eq(processor.window_row),
            window.write.eq(processor.window_write),
            window.write_row.eq(processor.window_row),
            window.write_data.eq(processor.window_written),
            processor.window_data.eq(window.read_data),
            processor.scratch_write.eq(self.scratch_write),
            processor.scratch_row.eq(self.scratch_row),
            processor.scratch_data.eq(self.scratch_data),
        ]

        # Numbers that are kept.
        kept = {
            name: Signal(field.width, name=f"kept_{name}")
            for name, field in fields_of(config).items()
        }
        given = Signal()
        m.d.comb += given.eq(processor.out_valid & processor.out_ready)
        for name, field in fields_of(config).items():
            with m.If(given & (processor.out_port == field.number)):
                m.d.sync += kept[name].eq(processor.out_data)
        pushes = {push: Signal(name=f"pushes_{push.name.lower()}") for push in Push}
        m.d.comb += [
            signal.eq(processor.out_valid & (processor.out_port == push))
            for push, signal in pushes.items()
        ]

        waiting, ready = self._streams(m, kept, pushes)
        text_waits, text_ready = self._text(m, kept, pushes, processor.out_data)
        ready |= text_ready
        m.d.comb += processor.out_ready.eq(1)
        for push, signal in ready.items():
            with m.If(processor.out_port == push):
                m.d.comb += processor.out_ready.eq(signal)

        m.d.comb += [
            self.rows.eq(kept["step_rows"]),
            self.head_tiles.eq(kept["model_head_tiles"]),
            self.factor.as_value().eq(kept["factor"]),
            self.inverse_width.as_value().eq(kept["inverse_width"]),
            self.eps.as_value().eq(kept["eps"]),
            self.gates.eq(kept["gates"]),
            self.logits.eq(kept["logits"]),
            self.logits_line.eq(kept["logits_line"]),
            self.logits_stride.eq(kept["logits_stride"]),
            self.forget.eq(pushes[Push.FORGET]),
            self.stop.eq(kept["stop"]),
            self.flush.eq(pushes[Push.FLUSH]),
            window.ready.eq(kept["ready"]),
            window.stopped.eq(pushes[Push.STOPPED]),
            window.stopped_status.eq(processor.out_data),
            window.cleared.eq(pushes[Push.CLEARED]),
        ]

        # What the processor reads.
        idle = Signal(len(Idle))
        waits_for = {
            Idle.SETTLED: waiting["works"],
            Idle.MOVER: waiting["moves"],
            Idle.WRITES: waiting["closed"] | text_waits,
        }
        m.d.comb += [idle[each].eq(self.idle[each] & ~waits_for.get(each, 0)) for each in Idle]
        host = Signal(len(Host))
        m.d.comb += [
            host[Host.BUSY].eq(window.busy),
            host[Host.ABORT].eq(window.abort),
            host[Host.CLEAR_COUNTERS].eq(window.clear_counters),
        ]
        flags: dict[int, Any] = {
            Flag.IDLE: idle,
            Flag.LOADS: self.loads_done,
            Flag.MOVES: self.moves_done,
            Flag.PASSES: self.passes_done,
            Flag.ERRORS: self.errors,
            Flag.HOST: host,
            Flag.SEEN: self.seen,
        }
        events = {
            Flag.CYCLES: window.busy,
            Flag.ARRAY_BUSY: window.busy & self.busy_cycle,
            Flag.STALL_MEMORY: window.busy & self.memory_cycle,
            Flag.STALL_SPECIAL: window.busy & self.special_cycle,
            Flag.STALL_RESULTS: window.busy & self.results_cycle,
        }
        for flag, event in events.items():
            counter = Signal(WORD_BITS, name=f"count_{flag.name.lower()}")
            with m.If(pushes[Push.CLEAR]):
                m.d.sync += counter.eq(0)
            with m.Elif(event):
                m.d.sync += counter.eq(counter + 1)
            flags[flag] = counter
        with m.Switch(processor.in_port):
            for port, value in flags.items():
                with m.Case(port):
                    m.d.comb += processor.in_data.eq(value)
            with m.Default():
                row = processor.in_port[: (PORT_BITS - 2)]
                winners = [self.winners[i] for i in range(config.core.t_m)]
                m.d.comb += processor.in_data.eq(Array(winners)[row])
        return m

    def _streams(
        self, m: Module, kept: dict[str, Signal], pushes: dict[Push, Signal]
    ) -> tuple[dict[str, Any], dict[Push, Any]]:
        """Works, loads, moves and jobs of the transposer: what waits, who takes another one."""
        config = self.config
        flush = pushes[Push.FLUSH]
        works = instantiate(
            m, "works", Fifo, purpose="works", shape=work_layout(config), depth=WORKS, reset=flush
        )
        moves = instantiate(
            m, "moves", Fifo, purpose="moves", shape=move_layout(config), depth=MOVES, reset=flush
        )
        work = works.i.payload
        content = work.content
        is_matrix, is_pass = pushes[Push.MATRIX], pushes[Push.PASS]
        m.d.comb += [
            works.i.valid.eq(is_matrix | is_pass | pushes[Push.JOB]),
            work.kind.eq(Mux(is_matrix, Work.MATRIX, Mux(is_pass, Work.PASS, Work.JOB))),
        ]
        fixed = {"ends": 1, "barrier": 1, "tap": 0, "columns": 0, "block": 0}
        named = {"rows": "mask"}
        with m.If(is_matrix):
            for name, _ in content.matrix.shape():
                m.d.comb += content.matrix[name].eq(kept[named.get(name, name)])
        with m.Elif(is_pass):
            for name, _ in content.attention.shape():
                source = "line" if name == "keys" else name
                m.d.comb += content.attention[name].eq(kept[source])
        with m.Else():
            for name, _ in content.job.shape():
                m.d.comb += content.job[name].eq(fixed[name] if name in fixed else kept[name])

        m.d.comb += [
            self.loads.valid.eq(pushes[Push.LOAD]),
            moves.i.valid.eq(pushes[Push.MOVE]),
            self.key_jobs.valid.eq(pushes[Push.KEYS]),
        ]
        for sink, names in (
            (self.loads.payload, {"target": "load_target"}),
            (moves.i.payload, {}),
            (self.key_jobs.payload, {"tokens": "count"}),
        ):
            m.d.comb += [sink[name].eq(kept[names.get(name, name)]) for name, _ in sink.shape()]
        for source, sink in ((works.o, self.works), (moves.o, self.moves)):
            m.d.comb += [
                sink.valid.eq(source.valid),
                sink.payload.eq(source.payload),
                source.ready.eq(sink.ready),
            ]

        closed = Queue(m, "closed", line_request_layout(config), CLOSED)
        room = Signal()
        m.d.comb += [
            room.eq(closed.count != CLOSED),
            closed.push.eq(pushes[Push.CLOSED] & room),
            closed.entry.line.eq(kept["line"]),
            closed.entry.count.eq(kept["count"]),
            closed.pop.eq(self.closed_requests.valid & self.closed_requests.ready),
            self.closed_requests.valid.eq(closed.count != 0),
            self.closed_requests.payload.eq(closed.head),
        ]
        with m.If(flush):
            m.d.sync += closed.count.eq(0)
        waiting = {
            "works": ~works.empty,
            "moves": ~moves.empty,
            "closed": closed.count != 0,
        }
        ready = {
            Push.MATRIX: works.i.ready,
            Push.PASS: works.i.ready,
            Push.JOB: works.i.ready,
            Push.LOAD: self.loads.ready,
            Push.MOVE: moves.i.ready,
            Push.KEYS: self.key_jobs.ready,
            Push.CLOSED: room,
        }
        return waiting, ready

    def _text(
        self,
        m: Module,
        kept: dict[str, Signal],
        pushes: dict[Push, Signal],
        word: Signal,
    ) -> tuple[Signal, dict[Push, Any]]:
        """Lines that the processor writes, word by word: whether one waits, and when not."""
        content = Signal(8 * LINE_BYTES, reset_less=True)
        strobes = Signal(TEXT_WORDS, reset_less=True)
        line = Signal(kept["line"].shape(), reset_less=True)
        asks = Signal()
        gives = Signal()
        free = Signal()
        m.d.comb += [
            free.eq(~asks & ~gives),
            self.text_requests.valid.eq(asks),
            self.text_requests.payload.line.eq(line),
            self.text_requests.payload.count.eq(1),
            self.text_lines.valid.eq(gives),
            self.text_lines.payload.data.eq(content),
            self.text_lines.payload.strobe.eq(
                Cat(strobes[i].replicate(4) for i in range(TEXT_WORDS))
            ),
        ]
        with m.If(pushes[Push.TEXT_WORD] & free):
            m.d.sync += [
                content.eq(Cat(content[32:], word[:32])),
                strobes.eq(Cat(strobes[1:], word[32])),
            ]
        with m.If(pushes[Push.TEXT] & free):
            m.d.sync += [asks.eq(1), gives.eq(1), line.eq(kept["line"])]
        with m.If(asks & self.text_requests.ready):
            m.d.sync += asks.eq(0)
        with m.If(gives & self.text_lines.ready):
            m.d.sync += gives.eq(0)
        with m.If(pushes[Push.FLUSH]):
            m.d.sync += [asks.eq(0), gives.eq(0)]
        return ~free, {Push.TEXT_WORD: free, Push.TEXT: free}
