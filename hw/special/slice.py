"""A slice of the special function unit: what one row's numbers pass between array and bank."""

from __future__ import annotations

import enum
from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.chip_config import STAGED_TILES, TILE_WORDS, WORD_BITS
from hw.config import COLUMN_BITS, RISE_BITS, TILE
from hw.library import Unique, instantiate, packed
from hw.memory.ram import Ram
from hw.special.argmax import Argmax
from hw.special.layouts import BF16, FP32, STATUS, check_elements
from hw.special.norm import RmsNorm
from hw.special.output import AttentionOutput
from hw.special.residual import Residual
from hw.special.rope import Rope
from hw.special.scores import FACTOR, Scores
from hw.special.silu import Silu
from hw.special.softmax import Probabilities
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
    #: FP32 scores, that become probabilities.
    SCORES = 7
    #: FP32 sums of P.V, divided by the sum of probabilities.
    SUMS = 8
    #: Bank words in pairs, low and high channels of a head: RoPE.
    ROPE = 9
    #: Nothing: rows of the next pass of attention take their positions.
    SETUP = 10


OP_BITS = 4
#: Those whose results are packed into bank words.
PACKED = (Op.PASS, Op.RESIDUAL, Op.UP, Op.NORM, Op.SUMS, Op.ROPE)
#: Tiles of the widest head.
HEAD_TILES_MAX = 2
#: Width of a position: the sum of probabilities has room for as many tokens.
POSITION_BITS = 20


def beat_control_layout(elements: int) -> data.StructLayout:
    """What all slices are told with a beat.

    ``op``; ``part`` of the bank word; ``last`` beat of a row of a norm, its first pass included, of
    logits, of sums or of a head; ``hold``: the word waits for the one of its high channels;
    ``live``: columns that exist; ``weights`` of the norm; for scores ``block``
    and ``column`` of the beat's first token, and ``tile_last`` for a tile's last beat.
    """
    parts = BANK_WORD // elements
    return data.StructLayout(
        {
            "op": unsigned(OP_BITS),
            "part": unsigned(max(1, (parts - 1).bit_length())),
            "last": 1,
            "hold": 1,
            "live": unsigned(elements),
            "weights": data.ArrayLayout(BF16, elements),
            "block": unsigned(POSITION_BITS - COLUMN_BITS),
            "column": unsigned(COLUMN_BITS),
            "tile_last": 1,
        }
    )


def rope_rows(elements: int) -> int:
    """Rows of cosines and sines of the widest head there may be."""
    return HEAD_TILES_MAX * TILE // 2 // elements


def rope_row_bits(elements: int) -> int:
    """Width of the number of one of them."""
    return (rope_rows(elements) - 1).bit_length()


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
    factor
        C of the scores (:class:`~hw.special.scores.ScoreLane`).
    takes
        Offered scores or sums are this row's. A row sees each tile up to its own block once; its
        sums are those of a pass that it takes part in.
    position
        Of this row; held during a pass of attention.
    staged_valid, staged, staged_word, staged_ready
        A bank word of probabilities, and its place among what is staged: tile modulo 4, word.
    tiles_staged
        Tiles of probabilities that are in the bank since ``restart``.
    rise_tile -> rise
        What R falls by before the P.V of a tile (modulo 4), saturated.
    restart
        A pass of attention begins.
    rope_write, rope_row, rope_data
        Cosines and sines of the row's position, ``elements`` pairs a row of their memory.
    leaving_valid, leaving
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
                "factor": In(FACTOR),
                "takes": In(1),
                "position": In(POSITION_BITS),
                "staged_valid": Out(1),
                "staged": Out(WORD_BITS),
                "staged_word": Out((STAGED_TILES * TILE_WORDS - 1).bit_length()),
                "staged_ready": In(1),
                "tiles_staged": Out(POSITION_BITS - COLUMN_BITS + 1),
                "rise_tile": In((STAGED_TILES - 1).bit_length()),
                "rise": Out(RISE_BITS),
                "restart": In(1),
                "rope_write": In(1),
                "rope_row": In(rope_row_bits(elements)),
                "rope_data": In(32 * elements),
                "leaving_valid": Out(1),
                "leaving": Out(WORD_BITS),
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
        scores = instantiate(m, "scores", Scores, elements=elements)
        output = instantiate(m, "output", AttentionOutput, elements=elements)
        is_op = {op: Signal(name=f"is_{op.name.lower()}") for op in Op}
        m.d.comb += [signal.eq(control.op == op) for op, signal in is_op.items()]

        # The part of the bank word.
        width = 16 * elements
        word = [self.word[i : i + width] for i in range(0, WORD_BITS, width)]
        x = packed(data.ArrayLayout(BF16, elements), name="x")
        m.d.comb += x.eq(Array(word)[control.part] if len(word) > 1 else word[0])

        gate, gates_ready = self._gates(m, is_op)
        rope, rope_ready = self._rope(m, x, is_op)

        # Where beats go.
        ready: dict[Op, Value] = {
            Op.RESIDUAL: residual.operands.ready,
            Op.UP: silu.operands.ready & gates_ready,
            Op.NORM: norm.operands.ready,
            Op.SQUARES: norm.numbers.ready,
            Op.LOGITS: argmax.logits.ready,
            Op.SCORES: ~self.takes | scores.operands.ready,
            Op.SUMS: ~self.takes | output.sums.ready,
            Op.ROPE: control.hold | (rope.operands.ready & rope_ready),
        }
        m.d.comb += self.ready.eq(Cat(~is_op[op] | allowed for op, allowed in ready.items()).all())
        inputs = {
            Op.RESIDUAL: residual.operands,
            Op.UP: silu.operands,
            Op.NORM: norm.operands,
            Op.LOGITS: argmax.logits,
            Op.SUMS: output.sums,
        }
        for op, into in inputs.items():
            mine = self.takes if op == Op.SUMS else 1
            m.d.comb += [
                into.valid.eq(self.enters & is_op[op] & mine),
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
                output.sums.payload.values[i].as_value().eq(self.codes[i]),
            ]
        probabilities = self._attention(m, scores, self.enters & is_op[Op.SCORES] & self.takes)
        m.d.comb += [
            output.totals.valid.eq(probabilities.totals.valid),
            output.totals.payload.eq(probabilities.totals.payload),
            probabilities.totals.ready.eq(output.totals.ready),
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
            output.outputs.ready.eq(1),
            rope.results.ready.eq(1),
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
                (output.outputs.valid, output.outputs.payload.values.as_value()),
                (rope.results.valid, Cat(pair.low for pair in rope.results.payload.values)),
            ],
            high=(rope.results.valid, Cat(pair.high for pair in rope.results.payload.values)),
            starts=self.enters
            & Cat(is_op[op] for op in PACKED).any()
            & (self.takes | ~is_op[Op.SUMS])
            & ~(control.hold & is_op[Op.ROPE]),
        )

        m.d.comb += [
            self.winners.valid.eq(argmax.winners.valid),
            self.winners.payload.eq(argmax.winners.payload),
            argmax.winners.ready.eq(self.winners.ready),
        ]
        units: list[Any] = [residual, silu, norm, argmax, scores, output, rope]
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
        writes = Signal()
        reads = Signal()
        taken = Signal()
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

    def _rope(self, m: Module, x: data.View, is_op: dict[Op, Signal]) -> tuple[Any, Value]:
        """Pairs of channels: those of the held word and of the offered one, with their factors."""
        elements, control = self.elements, self.control
        unit = instantiate(m, "rope", Rope, elements=elements)
        ram = instantiate(
            m, "factors", Ram, purpose="rope", width=32 * elements, depth=rope_rows(elements)
        )
        row = Signal(rope_row_bits(elements))
        next_row = Signal.like(row)
        fresh = Signal()
        reads = Signal()
        taken = Signal()
        m.d.comb += [
            taken.eq(self.enters & is_op[Op.ROPE] & ~control.hold),
            # All heads have the same factors.
            next_row.eq(Mux(control.last, 0, row + 1)),
            reads.eq(self.offered & is_op[Op.ROPE] & (~fresh | taken)),
            ram.write_enable.eq(self.rope_write),
            ram.write_row.eq(self.rope_row),
            ram.write_data.eq(self.rope_data),
            ram.read_enable.eq(reads),
            ram.read_row.eq(Mux(taken, next_row, row)),
        ]
        with m.If(taken):
            m.d.sync += row.eq(next_row)
        with m.If(reads):
            # Behind a head the factors may be written anew.
            m.d.sync += fresh.eq(~(taken & control.last))
        held = Signal(WORD_BITS, reset_less=True)
        width = 16 * elements
        parts = [held[i : i + width] for i in range(0, WORD_BITS, width)]
        low = packed(data.ArrayLayout(BF16, elements), name="held_part")
        m.d.comb += low.eq(Array(parts)[control.part] if len(parts) > 1 else parts[0])
        with m.If(self.enters & is_op[Op.ROPE] & control.hold):
            m.d.sync += held.eq(self.word)
        factors = data.View(data.ArrayLayout(unsigned(32), elements), ram.read_data)
        operands = unit.operands
        m.d.comb += [
            operands.valid.eq(taken),
            operands.payload.live.eq(control.live),
            operands.payload.last.eq(control.last),
        ]
        for i in range(elements):
            pair = operands.payload.values[i]
            m.d.comb += [
                pair.low.eq(low[i]),
                pair.high.eq(x[i]),
                pair.cosine.eq(factors[i][:16].as_signed()),
                pair.sine.eq(factors[i][16:].as_signed()),
            ]
        return unit, fresh

    def _attention(self, m: Module, scores: Any, taken: Value) -> Any:
        """Scores that are taken become probabilities in the bank, rises, and a sum."""
        elements, control = self.elements, self.control
        unit = instantiate(m, "probabilities", Probabilities, elements=elements)
        own_block = self.position[COLUMN_BITS:]
        is_own = Signal()
        m.d.comb += is_own.eq(control.block == own_block)
        into = scores.operands
        m.d.comb += [
            scores.factor.eq(self.factor),
            into.valid.eq(taken),
            into.payload.tile_last.eq(control.tile_last),
            into.payload.last.eq(control.tile_last & is_own),
            unit.exponents.valid.eq(scores.results.valid),
            unit.exponents.payload.eq(scores.results.payload),
            scores.results.ready.eq(unit.exponents.ready),
        ]
        for i in range(elements):
            seen = control.column + i <= self.position[:COLUMN_BITS]
            m.d.comb += [
                into.payload.live[i].eq(~is_own | seen),
                into.payload.values[i].as_value().eq(self.codes[i]),
            ]

        # Rises wait beside the probabilities of their tile.
        rises = Array(
            Signal(RISE_BITS, name=f"rise_{i}", reset_less=True) for i in range(STAGED_TILES)
        )
        rise_tile = Signal(range(STAGED_TILES))
        new = unit.rises.payload
        m.d.comb += [unit.rises.ready.eq(1), self.rise.eq(rises[self.rise_tile])]
        with m.If(unit.rises.valid):
            most = (1 << RISE_BITS) - 1
            m.d.sync += [
                rises[rise_tile].eq(Mux(new.rise > most, most, new.rise)),
                rise_tile.eq(rise_tile + 1),
            ]

        # Probabilities are packed apart from the rest: rows see different tiles.
        beats = unit.probabilities
        parts = BANK_WORD // elements
        width = 16 * elements
        part = Signal(range(max(2, parts)))
        word = Signal(WORD_BITS, reset_less=True)
        place = Signal.like(self.staged_word)
        full = Signal()
        leaves = Signal()
        m.d.comb += [
            leaves.eq(full & self.staged_ready),
            beats.ready.eq(~full | self.staged_ready),
            self.staged_valid.eq(full),
            self.staged.eq(word),
            self.staged_word.eq(place),
        ]
        with m.If(leaves):
            m.d.sync += [full.eq(0), place.eq(place + 1)]
            with m.If(place[: (TILE_WORDS - 1).bit_length()].all()):
                m.d.sync += self.tiles_staged.eq(self.tiles_staged + 1)
        with m.If(beats.valid & beats.ready):
            m.d.sync += [
                word.eq(Cat(word[width:], beats.payload.values.as_value())),
                part.eq(Mux(part == parts - 1, 0, part + 1)),
                full.eq(part == parts - 1),
            ]
        with m.If(self.restart):
            m.d.sync += [self.tiles_staged.eq(0), place.eq(0), rise_tile.eq(0)]
        return unit

    def _pack(
        self,
        m: Module,
        sources: list[tuple[Value, Value]],
        *,
        high: tuple[Value, Value],
        starts: Value,
    ) -> None:
        """Beats of one source at a time into bank words.

        Where the beats of ``high`` come too, they fill a word of their own, which leaves a cycle
        later.
        """
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
        pairs = Signal()
        second = Signal()
        high_word = Signal(WORD_BITS, reset_less=True)
        kept = Signal(WORD_BITS, reset_less=True)
        m.d.comb += [
            self.leaving_valid.eq(valid | second),
            self.leaving.eq(Mux(second, kept, word)),
        ]
        m.d.sync += [second.eq(valid & pairs), kept.eq(high_word)]
        with m.If(comes):
            m.d.sync += [pairs.eq(high[0]), high_word.eq(Cat(high_word[width:], high[1]))]
        m.d.sync += valid.eq(comes & (part == parts - 1))
        with m.If(comes):
            m.d.sync += [
                word.eq(Cat(word[width:], beat)),
                part.eq(Mux(part == parts - 1, 0, part + 1)),
            ]
        # Beats between their entry and the packer.
        under_way = Signal(range(64))
        m.d.sync += under_way.eq(under_way + starts - comes)
        m.d.comb += self.idle.eq((under_way == 0) & ~valid & ~second)
