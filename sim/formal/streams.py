"""The stream rule at the ports of every component, and at those of what it instantiates.

What was offered stays, unchanged, until it is taken: for each stream and AXI channel of which the
component is the source, given that those that it takes keep the rule too. Modules inside that have
streams of their own are taken out, since the rule is proven of each of them; the others stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from amaranth.lib.wiring import Component

from hw.axi.arbiter import ReadArbiter
from hw.axi.dma import ReadDma
from hw.axi.read import LineReader
from hw.axi.splitter import Splitter
from hw.chip import Chip
from hw.chip_config import CHIPS
from hw.compute.array import Array
from hw.control.attention import AttentionWalker
from hw.control.controller import Controller
from hw.control.matrix import MatrixWalker
from hw.control.processor import Processor
from hw.control.program import program_of
from hw.control.window import RegisterWindow
from hw.control.works import Works
from hw.datapath import Datapath
from hw.issue.engine import Engine
from hw.issue.front import TileFront
from hw.issue.planes import PlaneReader
from hw.keys.closer import KeyCloser
from hw.keys.scales import KeyScales
from hw.keys.transposer import KeyTransposer
from hw.keys.values import RowWriter, ValueWriter
from hw.memory.fifo import Fifo
from hw.special.argmax import Argmax
from hw.special.epilogue import Epilogue
from hw.special.norm import InverseRoot, NormLanes, RmsNorm
from hw.special.output import AttentionOutput, OutputLanes
from hw.special.quantizer import Quantizer
from hw.special.residual import Residual
from hw.special.rope import Rope
from hw.special.scores import Scores
from hw.special.silu import Silu
from hw.special.slice import Slice
from hw.special.softmax import Probabilities
from hw.special.squares import SquareSum
from hw.transfers.arbiter import WriteArbiter
from hw.transfers.loader import Loader
from hw.transfers.logits import LogitsWriter
from hw.transfers.mover import Mover
from sim.formal.bench import Bench
from sim.formal.credits import PORTS
from sim.formal.rules import RULES

CHIP = CHIPS["tiny"]


@dataclass(frozen=True, kw_only=True)
class Streams:
    """The stream rule of a component.

    Attributes
    ----------
    make : Callable
        Makes the component.
    keep : tuple of str or None
        Modules that stay inside; None: those without a stream.
    out : tuple of str
        Of those without a stream, what is taken out.
    free : dict
        Streams to which the rule does not apply, and why: neither assumed nor proven.
    depth : int
        Most cycles of the induction.
    bounded : int
        Cycles after reset, where there is no induction; 0 if there is.
    whole : bool
        All modules stay, and the proof may look into them.
    deep : bool
        It offers nothing in as many cycles as are searched for what breaks a copy: of that copy
        the induction must stay open instead.
    """

    make: Callable[[], Component]
    keep: tuple[str, ...] | None = None
    out: tuple[str, ...] = ()
    free: Mapping[str, str] = field(default_factory=dict)
    depth: int = 12
    bounded: int = 0
    whole: bool = False
    deep: bool = False

    def build(self, *, deaf: bool = False) -> Bench:
        """The bench; ``deaf``: of a copy that takes no notice of ``ready``."""
        dut = self.make()
        inside = () if self.whole else (self.keep, self.out)
        bench = Bench(dut, *inside, deaf=deaf)
        rule = RULES.get(type(dut).__name__)
        forgets = rule(bench) if rule else None
        bench.streams(free=self.free, forgets=forgets)
        return bench


def _one(component: Any, **more: Any) -> Callable[[], Component]:
    return lambda: component(elements=1, **more)


def _on(component: Any, config: Any = CHIP, **more: Any) -> Callable[[], Component]:
    return lambda: component(config, **more)


_STOPPED = "falls with stop; the splitter looks at it only when it takes it"

_SHOWN = dict.fromkeys(
    ("tiles", "activations", "exponents"),
    "the word is read again if another reader of the banks comes between",
)
_TOGETHER = "beats of a head are offered to slices and writer only when both take them"

#: By names of components.
STREAMS: dict[str, Streams] = {
    "register_window": Streams(make=_on(RegisterWindow), keep=()),
    "controller": Streams(make=_on(Controller), keep=()),
    "matrix_walker": Streams(make=_on(MatrixWalker)),
    "attention_walker": Streams(make=_on(AttentionWalker)),
    "processor": Streams(
        make=lambda: Processor(program_of(CHIP)), out=("bsspec_rom_program", "bsspec_mem_scratch")
    ),
    "works": Streams(make=_on(Works), whole=True),
    "fifo": Streams(make=lambda: Fifo(purpose="proof", shape=8, depth=5)),
    "axi_splitter": Streams(make=_on(Splitter, PORTS), free={"requests": _STOPPED}),
    "read_dma": Streams(make=_on(ReadDma, PORTS), free={"splitter_requests": _STOPPED}),
    "line_reader": Streams(make=_on(LineReader, PORTS), free={"splitter_requests": _STOPPED}),
    "read_arbiter": Streams(make=_on(ReadArbiter, PORTS)),
    "tile_front": Streams(
        make=_on(TileFront),
        free={"tiles": "taken with the last of the tile's activations, and shown only with them"},
    ),
    "plane_reader": Streams(make=_on(PlaneReader)),
    "array": Streams(
        make=_on(Array, CHIP.core),
        out=("bsspec_mpu", "bsspec_plane_decoder"),
        free=_SHOWN,
        depth=1,
        deep=True,
    ),
    "engine": Streams(
        make=_on(Engine), keep=(), free={f"array_{name}": why for name, why in _SHOWN.items()}
    ),
    "residual": Streams(make=_one(Residual)),
    "silu": Streams(make=_one(Silu)),
    "square_sum": Streams(make=_one(SquareSum, longest=128)),
    "inverse_root": Streams(make=lambda: InverseRoot(longest=128)),
    "norm_lanes": Streams(make=_one(NormLanes)),
    "rms_norm": Streams(make=_one(RmsNorm, longest=128)),
    "argmax": Streams(make=_one(Argmax, index_bits=8)),
    "scores": Streams(make=_one(Scores)),
    "attention_output": Streams(make=_one(AttentionOutput)),
    "output_lanes": Streams(make=_one(OutputLanes)),
    "rope": Streams(make=_one(Rope)),
    "probabilities": Streams(make=_one(Probabilities)),
    "slice": Streams(make=_one(Slice)),
    "epilogue": Streams(make=_on(Epilogue), free={"results": _TOGETHER}),
    "key_scales": Streams(make=_on(KeyScales)),
    "key_closer": Streams(make=_on(KeyCloser)),
    "key_transposer": Streams(
        make=_on(KeyTransposer), out=("bsspec_key_planes", "bsspec_key_maker")
    ),
    "logits_writer": Streams(make=_on(LogitsWriter), free={"results": _TOGETHER}),
    "loader": Streams(make=_on(Loader)),
    "row_writer": Streams(make=_on(RowWriter)),
    "value_writer": Streams(make=_on(ValueWriter), depth=1, deep=True),
    "quantizer": Streams(make=_one(Quantizer, longest=64, p_full=16)),
    "write_arbiter": Streams(make=_on(WriteArbiter, sources=3)),
    "mover": Streams(make=_on(Mover), keep=("bsspec_row_writer",), bounded=16),
    "chip": Streams(make=_on(Chip), keep=("bsspec_read_arbiter",), bounded=6),
    "datapath": Streams(
        make=_on(Datapath),
        free=dict.fromkeys(("logits_results", "epilogue_results"), _TOGETHER),
    ),
}
