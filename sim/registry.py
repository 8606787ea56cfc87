"""The benches: what each one builds, and in which configurations it runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from hw.axi.config import STREAM_ID
from hw.axi.dma import ReadDma
from hw.axi.ports import MemoryPorts
from hw.axi.read import LineReader, ReadPort
from hw.axi.splitter import Splitter
from hw.axi.write import LineWriter
from hw.chip import Chip
from hw.compute.accumulator import Accumulators, RunningExponent
from hw.compute.aligner import Aligner, AlignerBank
from hw.compute.array import Array
from hw.compute.column import Column
from hw.compute.converter import Converter
from hw.compute.drain import Drain
from hw.compute.feed import Feed
from hw.compute.lane import BsRacLane, PlaneDecoder, SignDecoder
from hw.compute.lut import LutBank
from hw.compute.mpu import Mpu
from hw.compute.results import ResultControl
from hw.compute.sequencer import Sequencer
from hw.compute.subarray import Subarray
from hw.config import PRESETS, Config
from hw.control.matrix import MatrixWalker
from hw.control.processor import Processor
from hw.control.window import RegisterWindow
from hw.datapath import Datapath
from hw.issue.engine import Engine
from hw.keys.transposer import KeyTransposer
from hw.keys.values import RowWriter, ValueWriter
from hw.library import Unique
from hw.special.argmax import Argmax
from hw.special.epilogue import Epilogue
from hw.special.norm import InverseRoot, RmsNorm
from hw.special.output import AttentionOutput
from hw.special.quantizer import Quantizer
from hw.special.residual import Residual
from hw.special.rope import Rope
from hw.special.scores import Scores
from hw.special.silu import Silu
from hw.special.softmax import Probabilities
from hw.special.squares import SquareSum
from hw.special.tables import SegmentTable
from hw.transfers.arbiter import WriteArbiter
from hw.transfers.loader import Loader
from hw.transfers.mover import Mover
from sim.axi import memory_of
from sim.chips import chip_of
from sim.processor_programs import self_test

TINY, SMALL, PAPER = (PRESETS[name] for name in ("tiny", "small", "paper"))
#: Two rows of ``paper``: fold 1, where every cycle of the pipeline is in use.
SLICE = dataclasses.replace(PAPER, name="slice", t_m=2)
#: A core without attention: nine planes, one context.
NINE = dataclasses.replace(TINY, name="nine", p_max=9, contexts=1, max_k=4096)
#: Other widths everywhere: pairs in a table, odd guard bits, a long drain.
ODD = Config(
    name="odd",
    t_m=3,
    subarrays=2,
    fanout=8,
    mu=2,
    p_max=12,
    align_guard_bits=5,
    acc_guard_bits=3,
    max_k=640,
    contexts=5,
    acc_columns=8,
    drain=1,
    result_tiles=3,
    special_elements=4,
)
#: The narrowest core there is: no guard bits, accumulators narrower than an FP32 significand.
BARE = dataclasses.replace(
    NINE,
    name="bare",
    t_m=1,
    max_k=64,
    align_guard_bits=0,
    acc_guard_bits=0,
    special_elements=1,
)
#: Configurations of the benches by name, presets included.
CONFIGS = {config.name: config for config in (*PRESETS.values(), SLICE, NINE, ODD, BARE)}

#: For components that a wide fold-1 core uses in another way.
WIDE = (TINY, NINE, ODD, BARE, SLICE)
#: For a slice of the special function unit: 2, 4, 1 and 8 elements a cycle.
SPECIAL = (TINY, ODD, BARE, PAPER)
#: For memory ports: 1 x 64, 2 x 128, 1 x 512, 4 x 256 and 8 x 512 bits.
PORTS = (TINY, ODD, SMALL, SLICE, PAPER)
#: What the quantizers are for: 64 channels of a value row or 64 tokens of a channel of keys; all
#: channels of an open key.
VALUES = {"p_full": 9, "longest": 64}
OPEN_KEYS = {"p_full": 16, "longest": 128}
#: Longest row of a norm in the benches.
NORM_LONGEST = 16384


@dataclass(frozen=True)
class BenchSpec:
    """One bench.

    Attributes
    ----------
    name : str
        Also the module ``sim.benches.<name>``.
    make : callable
        The component for a configuration.
    quick, full : tuple of Config
        Configurations of ``make test`` and of ``make sim``.
    icarus : tuple of Config
        Configurations that Icarus Verilog runs as well, watching for X.
    hierarchical : tuple of str
        Modules that Verilator compiles once and links many times.
    flat_waves : bool
        Whether a run with waves does without, since they do not show the inside of such modules.
    board : bool
        Whether it runs on a board (:mod:`sim.rtl_device`).
    what : str
        A line for the list of benches.
    """

    name: str
    make: Callable[[Config], Unique]
    what: str
    quick: tuple[Config, ...] = (TINY,)
    full: tuple[Config, ...] = (TINY, NINE, ODD, BARE)
    icarus: tuple[Config, ...] = (TINY,)
    hierarchical: tuple[str, ...] = ()
    flat_waves: bool = True
    module: str | None = None
    board: bool = False

    @property
    def test_module(self) -> str:
        """The cocotb module."""
        return f"sim.benches.{self.module or self.name}"

    def blocks(self, simulator: str, *, waves: bool) -> tuple[str, ...]:
        """The hierarchical modules of a build."""
        if simulator != "verilator" or (waves and self.flat_waves):
            return ()
        return self.hierarchical


BENCHES = {
    spec.name: spec
    for spec in (
        BenchSpec("aligner", Aligner, "exponent folding and alignment of one activation"),
        BenchSpec("aligner_bank", AlignerBank, "a tile's activations, tile exponent, alignment"),
        BenchSpec("lut_bank", LutBank, "LUT generators and the table registers"),
        BenchSpec("sign_decoder", SignDecoder, "weight bits to a look-up, exhaustively"),
        BenchSpec(
            "plane_decoder", PlaneDecoder, "sign latch, decoding, skew over the groups", full=WIDE
        ),
        BenchSpec("lane", BsRacLane, "BS-RAC lane: every look-up of random tables"),
        BenchSpec("column", Column, "one column: reduction and sum over the planes"),
        BenchSpec("subarray", Subarray, "all columns of a subarray", full=WIDE),
        BenchSpec("running_exponent", RunningExponent, "R, shift amounts, contexts"),
        BenchSpec(
            "accumulators", Accumulators, "shifts and sums, all rows and contexts", full=WIDE
        ),
        BenchSpec("converter", Converter, "integers to BF16 and FP32"),
        BenchSpec("drain", Drain, "result buffer, order of columns, scales", full=WIDE),
        BenchSpec("mpu", Mpu, "one row under hand-made control", full=WIDE),
        BenchSpec("feed", lambda _: Feed(), "pace of fill, align and load", full=(TINY,)),
        BenchSpec("sequencer", Sequencer, "planes through the pipeline, cycle by cycle", full=WIDE),
        BenchSpec(
            "result_control", ResultControl, "room, order and hand-over of results", full=WIDE
        ),
        BenchSpec(
            "exp2_table",
            lambda _: SegmentTable(function="exp2"),
            "2^f in linear segments, every index",
            full=(TINY,),
            module="segment_table",
        ),
        BenchSpec(
            "reciprocal_table",
            lambda _: SegmentTable(function="recip"),
            "1 / (1 + f) in linear segments, every index",
            full=(TINY,),
            module="segment_table",
        ),
        BenchSpec(
            "rsqrt_table",
            lambda _: SegmentTable(function="rsqrt"),
            "reciprocal square root in linear segments, every index",
            full=(TINY,),
            module="segment_table",
        ),
        BenchSpec(
            "scores",
            lambda config: Scores(elements=config.special_elements),
            "scores to fixed-point exponents: every exponent, clamps, moods, status",
            full=SPECIAL,
        ),
        BenchSpec(
            "probabilities",
            lambda config: Probabilities(elements=config.special_elements),
            "running maximum, exponentials and their sum: moods, masks, rises",
            full=SPECIAL,
        ),
        BenchSpec(
            "attention_output",
            lambda config: AttentionOutput(elements=config.special_elements),
            "sums of P.V over L: every index of the reciprocal, rows, moods, status",
            full=SPECIAL,
        ),
        BenchSpec(
            "silu",
            lambda config: Silu(elements=config.special_elements),
            "SiLU times up: every gate, moods, status",
            full=SPECIAL,
        ),
        BenchSpec(
            "residual",
            lambda config: Residual(elements=config.special_elements),
            "residual sum: every distance of exponents, moods, status",
            full=SPECIAL,
        ),
        BenchSpec(
            "rope",
            lambda config: Rope(elements=config.special_elements),
            "RoPE: every distance of exponents, corner factors, moods, status",
            full=SPECIAL,
        ),
        BenchSpec(
            "argmax",
            lambda config: Argmax(elements=config.special_elements),
            "argmax of logits: ties, padded columns, long rows, moods, status",
            full=SPECIAL,
        ),
        BenchSpec(
            "square_sum",
            lambda config: SquareSum(elements=config.special_elements, longest=NORM_LONGEST),
            "sum of squares under a running exponent: every distance, moods, status",
            full=SPECIAL,
        ),
        BenchSpec(
            "inverse_root",
            lambda _: InverseRoot(longest=NORM_LONGEST),
            "scalar steps of RMSNorm: ties of each rounding, every index, moods",
            full=(TINY,),
        ),
        BenchSpec(
            "rms_norm",
            lambda config: RmsNorm(elements=config.special_elements, longest=NORM_LONGEST),
            "RMSNorm of whole rows: heads to long rows, moods, status",
            full=SPECIAL,
        ),
        BenchSpec(
            "value_quantizer",
            lambda config: Quantizer(elements=config.special_elements, **VALUES),
            "BF16 to BFP9, groups of 64: every distance, moods, status",
            full=SPECIAL,
            module="quantizer",
        ),
        BenchSpec(
            "open_key_quantizer",
            lambda config: Quantizer(elements=config.special_elements, **OPEN_KEYS),
            "BF16 to BFP16, groups of a head: every distance, moods, status",
            full=SPECIAL,
            module="quantizer",
        ),
        BenchSpec(
            "axi_splitter",
            lambda config: Splitter(memory_of(config)),
            "requests to bursts: every start in a page, the longest request, moods",
            full=(TINY, ODD, SMALL),
        ),
        BenchSpec(
            "axi_read",
            lambda config: ReadPort(memory_of(config), axi_id=STREAM_ID, reserve=False),
            "one port's read channels: moods, errors, stop, rate",
            quick=(TINY, SMALL),
            full=(TINY, ODD, SMALL, SLICE),
        ),
        BenchSpec(
            "axi_read_dma",
            lambda config: ReadDma(memory_of(config)),
            "stream over all ports: positions, frontier, ring space, errors, stop, rate",
            quick=(TINY, ODD),
            full=PORTS,
        ),
        BenchSpec(
            "axi_line_reader",
            lambda config: LineReader(memory_of(config)),
            "small reads in order: moods, errors, a client that rests, stop, rate",
            full=(TINY, ODD, SMALL, PAPER),
        ),
        BenchSpec(
            "axi_write",
            lambda config: LineWriter(memory_of(config)),
            "strobes, guards, fences, errors, a client that rests, stop, rate",
            quick=(TINY, SMALL),
            full=(TINY, ODD, SMALL, SLICE),
        ),
        BenchSpec(
            "axi_protocol",
            lambda config: MemoryPorts(memory_of(config)),
            "all masters on all ports: two memories of different make, shares of port 0",
            full=PORTS,
        ),
        BenchSpec(
            "array",
            Array,
            "the whole core: streams, moods, cycle counts, reset, refused input",
            full=(TINY, NINE, ODD, BARE, SMALL, SLICE),
            hierarchical=("bsspec_mpu",),
        ),
        BenchSpec(
            "engine",
            lambda config: Engine(chip_of(config)),
            "weight ring, unified buffer, readers, array: blocks, moods, ports that meet",
            full=(TINY, SMALL, SLICE),
            hierarchical=("bsspec_mpu",),
        ),
        BenchSpec(
            "epilogue",
            lambda config: Epilogue(chip_of(config)),
            "slices in lockstep: residual, norm, SiLU, argmax, from results and banks to banks",
            full=(TINY, SMALL, SLICE),
            hierarchical=("bsspec_slice",),
        ),
        BenchSpec(
            "key_transposer",
            lambda config: KeyTransposer(chip_of(config)),
            "BF16 keys to open and closed blocks: every count and distance, moods, rate",
            full=(TINY, SMALL, SLICE),
        ),
        BenchSpec(
            "value_writer",
            lambda config: ValueWriter(chip_of(config)),
            "rows of values into their tiles: every place and p_full, merged and alone, moods",
            full=(TINY, SMALL, SLICE),
        ),
        BenchSpec(
            "row_writer",
            lambda config: RowWriter(chip_of(config)),
            "BF16 rows from bank words to lines: moods, rate",
            full=(TINY,),
        ),
        BenchSpec(
            "matrix_walker",
            lambda config: MatrixWalker(chip_of(config)),
            "fetches, pieces and jobs of matrices of every shape",
            full=(TINY, SMALL, PAPER),
        ),
        BenchSpec(
            "register_window",
            lambda config: RegisterWindow(chip_of(config)),
            "the host's registers: both sides at once, every offset, every refusal, moods",
            full=(TINY, SMALL, PAPER),
        ),
        BenchSpec(
            "processor",
            lambda config: Processor(self_test(config.name)),
            "the control processor: random programs cycle by cycle, ports that wait, resets",
            full=(TINY, SMALL, PAPER),
        ),
        BenchSpec(
            "datapath",
            lambda config: Datapath(chip_of(config)),
            "products from a memory image to the banks, and how busy the array is",
            # The chip's bench has all of it in its short form.
            quick=(),
            full=(TINY, SMALL, SLICE),
            icarus=(),
            hierarchical=("bsspec_mpu", "bsspec_slice"),
        ),
        BenchSpec(
            "loader",
            lambda config: Loader(chip_of(config)),
            "lines of memory to scratch, banks, slices, transposer: moods, errors, rate",
            full=(TINY, SMALL, SLICE),
        ),
        BenchSpec(
            "mover",
            lambda config: Mover(chip_of(config)),
            "words from banks to banks and to memory: every kind of move, moods, rate",
            full=(TINY, SMALL, SLICE),
        ),
        BenchSpec(
            "write_arbiter",
            lambda config: WriteArbiter(chip_of(config), sources=3),
            "several sources of written lines on one writer: turns, moods, rate",
            full=(TINY, SMALL),
        ),
        BenchSpec(
            "chip_registers",
            lambda config: Chip(chip_of(config)),
            "the whole chip on a board: every register, jobs that stop at once, resets",
            full=(TINY,),
            icarus=(),
            board=True,
        ),
        BenchSpec(
            "chip",
            lambda config: Chip(chip_of(config)),
            "the whole chip beside the functional simulator: decoding, block ends, any memory",
            full=(TINY, SMALL),
            icarus=(),
            hierarchical=("bsspec_mpu", "bsspec_slice"),
            board=True,
        ),
        BenchSpec(
            "chip_trouble",
            lambda config: Chip(chip_of(config)),
            "the whole chip in trouble: memory errors, aborts, resets, commands with wrong bits",
            full=(TINY, SMALL),
            icarus=(),
            hierarchical=("bsspec_mpu", "bsspec_slice"),
            board=True,
        ),
        BenchSpec(
            "cycles",
            lambda config: Chip(chip_of(config)),
            "the cycle model beside the whole chip: decode, draft and verify steps",
            full=(TINY, SMALL, PAPER),
            icarus=(),
            hierarchical=("bsspec_mpu", "bsspec_slice"),
            board=True,
        ),
        BenchSpec(
            "rates",
            lambda config: Chip(chip_of(config)),
            "a long linear layer on the whole chip: memory's rate used, latency hidden",
            full=(TINY, SMALL, PAPER),
            icarus=(),
            hierarchical=("bsspec_mpu", "bsspec_slice"),
            board=True,
        ),
        BenchSpec(
            "paper",
            Array,
            "smoke run of the paper's 32 MPUs",
            quick=(),
            full=(PAPER,),
            icarus=(),
            hierarchical=("bsspec_column", "bsspec_mpu"),
            flat_waves=False,
            module="smoke",
        ),
    )
}
