"""A slice of the special function unit: what one row's numbers pass between array and bank."""

from __future__ import annotations

import enum
from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.chip_config import WORD_BITS
from hw.config import TILE
from hw.library import Unique, instantiate, packed
from hw.memory.ram import Ram
from hw.special.argmax import Argmax
from hw.special.layouts import BF16, FP32, STATUS, check_elements
from hw.special.norm import RmsNorm
from hw.special.residual import Residual
from hw.special.silu import Silu
from model.formats.commands import BANK_WORD

#: Longest row of a norm.
LONGEST = 1 << 15
#: Width of a token.
INDEX_BITS = 18


class Op(enum.IntEnum):
    """What becomes of a beat."""

    #: Results as they are.
    PASS = 0
    #: Results plus the bank word.
    RESIDUAL = 1
    #: Results wait for those of the next tile.
    GATE = 2
    #: SiLU of what waited, times the results.
    UP = 3
    #: Second pass of RMSNorm: the bank word with its weights.
    NORM = 4
    #: First pass of RMSNorm: the bank word.
    SQUARES = 5
    #: FP32 results, whose largest is kept.
    LOGITS = 6


OP_BITS = 3


def beat_control_layout(elements: int) -> data.StructLayout:
    """What all slices are told with a beat.

    ``op``; ``part`` of the bank word; ``last`` beat of a row of a norm, its first pass included, or
    of logits; ``live``: columns that exist; ``weights`` of the norm.
    """
    parts = BANK_WORD // elements
    return data.StructLayout(
        {
            "op": unsigned(OP_BITS),
            "part": unsigned(max(1, (parts - 1).bit_length())),
            "last": 1,
            "live": unsigned(elements),
            "weights": data.ArrayLayout(BF16, elements),
        }
    )


class Slice(Unique):
    """One row's share of what lies between two products.

    All slices run in lockstep: a beat is offered to all, and enters them together once each is
    ready. What leaves is packed into bank words, in order; the bank always takes them.

    Throughput: a beat a cycle. Latency from a beat to its word: that of its unit, and 1. Only beats
    of one ``op`` of those that are packed may be on their way at a time.

    Parameters
    ----------
    elements : int
        Elements of a beat: 1, 2, 4 or 8.

    Members
    -------
    offered, ready, enters
        A beat is there; it may enter this slice; it enters all slices.
    control : :func:`beat_control_layout`
    tap
        Residual sums enter the first pass of a norm as they leave. Held while beats are on their
        way.
    codes
        Results of the array: FP32 codes, or BF16 codes in the low half.
    word
        The bank word that the beat is a part of.
    inverse_width, eps
        Constants of the norm (:class:`~hw.special.norm.RmsNorm`).
    packed_valid, packed
        A bank word leaves.
    winners : stream
        One a row of logits (:class:`~hw.special.argmax.Argmax`).
    status, clear
        Of all units.
    idle
        No beat is on its way to the packer.
    """

    module_name = "bsspec_slice"
    label = "slice"

    def __init__(self, *, elements: int) -> None:
        self.elements = check_elements(elements)
        winner = data.StructLayout({"index": unsigned(INDEX_BITS), "none": 1})
        super().__init__(
            {
                "offered": In(1),
                "ready": Out(1),
                "enters": In(1),
                "control": In(beat_control_layout(elements)),
                "tap": In(1),
                "codes": In(data.ArrayLayout(unsigned(32), elements)),
                "word": In(WORD_BITS),
                "inverse_width": In(FP32),
                "eps": In(FP32),
                "packed_valid": Out(1),
                "packed": Out(WORD_BITS),
                "winners": Out(stream.Signature(winner)),
                "status": Out(STATUS),
                "clear": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        elements, control = self.elements, self.control
        residual = instantiate(m, "residual", Residual, elements=elements)
        silu = instantiate(m, "silu", Silu, elements=elements)
        norm = instantiate(m, "norm", RmsNorm, elements=elements, longest=LONGEST)
        argmax = instantiate(m, "argmax", Argmax, elements=elements, index_bits=INDEX_BITS)
        is_op = {op: Signal(name=f"is_{op.name.lower()}") for op in Op}
        m.d.comb += [signal.eq(control.op == op) for op, signal in is_op.items()]

        # The part of the bank word.
        width = 16 * elements
        word = [self.word[i : i + width] for i in range(0, WORD_BITS, width)]
        x = packed(data.ArrayLayout(BF16, elements), name="x")
        m.d.comb += x.eq(Array(word)[control.part] if len(word) > 1 else word[0])

        gate, gates_ready = self._gates(m, is_op)

        # Where beats go.
        ready: dict[Op, Value] = {
            Op.RESIDUAL: residual.operands.ready,
            Op.UP: silu.operands.ready & gates_ready,
            Op.NORM: norm.operands.ready,
            Op.SQUARES: norm.numbers.ready,
            Op.LOGITS: argmax.logits.ready,
        }
        m.d.comb += self.ready.eq(Cat(~is_op[op] | allowed for op, allowed in ready.items()).all())
        inputs = {
            Op.RESIDUAL: residual.operands,
            Op.UP: silu.operands,
            Op.NORM: norm.operands,
            Op.LOGITS: argmax.logits,
        }
        for op, into in inputs.items():
            m.d.comb += [
                into.valid.eq(self.enters & is_op[op]),
                into.payload.live.eq(control.live),
                into.payload.last.eq(control.last),
            ]
        for i in range(elements):
            y = self.codes[i][:16]
            m.d.comb += [
                residual.operands.payload.values[i].x.eq(x[i]),
                residual.operands.payload.values[i].y.as_value().eq(y),
                silu.operands.payload.values[i].gate.eq(gate[i]),
                silu.operands.payload.values[i].up.as_value().eq(y),
                norm.operands.payload.values[i].x.eq(x[i]),
                norm.operands.payload.values[i].weight.eq(control.weights[i]),
                argmax.logits.payload.values[i].as_value().eq(self.codes[i]),
            ]

        # The first pass of a norm: bank words, or residual sums as they leave.
        sums = residual.results
        m.d.comb += [
            sums.ready.eq(~self.tap | norm.numbers.ready),
            norm.numbers.valid.eq(Mux(self.tap, sums.valid, self.enters & is_op[Op.SQUARES])),
            norm.numbers.payload.live.eq(Mux(self.tap, sums.payload.live, control.live)),
            norm.numbers.payload.last.eq(Mux(self.tap, sums.payload.last, control.last)),
            norm.inverse_width.eq(self.inverse_width),
            norm.eps.eq(self.eps),
            silu.results.ready.eq(1),
            norm.results.ready.eq(1),
        ]
        for i in range(elements):
            m.d.comb += (
                norm.numbers.payload.values[i]
                .as_value()
                .eq(Mux(self.tap, sums.payload.values[i].as_value(), x[i].as_value()))
            )

        results = Cat(self.codes[i][:16] for i in range(elements))
        passes = Signal()
        m.d.comb += passes.eq(self.enters & is_op[Op.PASS])
        self._pack(
            m,
            [
                (passes, results),
                (sums.valid & sums.ready, sums.payload.values.as_value()),
                (silu.results.valid, silu.results.payload.values.as_value()),
                (norm.results.valid, norm.results.payload.values.as_value()),
            ],
            starts=self.enters
            & (is_op[Op.PASS] | is_op[Op.RESIDUAL] | is_op[Op.UP] | is_op[Op.NORM]),
        )

        m.d.comb += [
            self.winners.valid.eq(argmax.winners.valid),
            self.winners.payload.eq(argmax.winners.payload),
            argmax.winners.ready.eq(self.winners.ready),
        ]
        units: list[Any] = [residual, silu, norm, argmax]
        raised: Value = Value.cast(0)
        for unit in units:
            m.d.comb += unit.clear.eq(self.clear)
            raised = raised | unit.status.as_value()
        m.d.comb += self.status.eq(raised)
        return m

    def _gates(self, m: Module, is_op: dict[Op, Signal]) -> tuple[data.View, Value]:
        """The gates that belong to the offered beat, a tile of which waits in a memory."""
        elements = self.elements
        rows = TILE // elements
        width = 16 * elements
        ram = instantiate(m, "gates", Ram, purpose="gates", width=width, depth=rows)
        row = Signal(range(rows))
        fresh = Signal()  # The gates of ``row`` are at the memory's output.
        writes, reads, taken = Signal(), Signal(), Signal()
        m.d.comb += [
            writes.eq(self.enters & is_op[Op.GATE]),
            taken.eq(self.enters & is_op[Op.UP]),
            # The first gates are read as an up beat is offered, the next ones as one enters.
            reads.eq(self.offered & is_op[Op.UP] & (~fresh | taken)),
            ram.write_enable.eq(writes),
            ram.write_row.eq(row),
            ram.write_data.eq(Cat(self.codes[i][:16] for i in range(elements))),
            ram.read_enable.eq(reads),
            ram.read_row.eq(row + taken),
        ]
        with m.If(writes | taken):
            m.d.sync += row.eq(row + 1)
        with m.If(reads):
            # Behind a tile's last gates nothing is read: the next tile overwrites them.
            m.d.sync += fresh.eq(~(taken & (row == rows - 1)))
        return data.View(data.ArrayLayout(BF16, elements), ram.read_data), fresh

    def _pack(self, m: Module, sources: list[tuple[Value, Value]], *, starts: Value) -> None:
        """Beats of one source at a time into bank words."""
        parts = BANK_WORD // self.elements
        width = 16 * self.elements
        comes = Signal()
        beat = Signal(width)
        chosen: Value = Value.cast(0)
        for valid, value in sources:
            chosen = chosen | Mux(valid, value, 0)
        m.d.comb += [comes.eq(Cat(valid for valid, _ in sources).any()), beat.eq(chosen)]
        part = Signal(range(max(2, parts)))
        word = Signal(WORD_BITS, reset_less=True)
        valid = Signal()
        m.d.comb += [self.packed_valid.eq(valid), self.packed.eq(word)]
        m.d.sync += valid.eq(comes & (part == parts - 1))
        with m.If(comes):
            m.d.sync += [
                word.eq(Cat(word[width:], beat)),
                part.eq(Mux(part == parts - 1, 0, part + 1)),
            ]
        # Beats between their entry and the packer.
        under_way = Signal(range(64))
        m.d.sync += under_way.eq(under_way + starts - comes)
        m.d.comb += self.idle.eq((under_way == 0) & ~valid)
