"""Words from banks to banks and to memory: what stands between products and attention."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.axi.layouts import write_line_layout
from hw.chip_config import TILE_WORDS, WORD_BITS, ChipConfig
from hw.config import TILE
from hw.keys.layouts import LINE_WORDS, OPEN_PLANES, line_request_layout, value_job_layout
from hw.keys.values import RowWriter, ValueWriter
from hw.library import Unique, instantiate, part_of
from hw.special.flow import Queue
from hw.special.layouts import STATUS
from hw.special.quantizer import Quantizer
from hw.transfers.layouts import DONE_BITS, KIND_BITS, Kind, move_layout, row_bits

#: Words that were read and wait: one leaves, one is there, and one comes in every cycle.
WORDS = 3
#: Keys, and rows of values, that were begun and whose job was not taken. Two rows keep the value
#: writer busy: it turns one while the next one is quantised. Of keys there are never more: the
#: words of a key, two or more, wait here until its job is taken.
JOBS = 2


class Mover(Unique):
    """Moves in order, a bank word at a time.

    * GATHER: ``bank[j*group + h][staged + w] = bank[row + j][word + h*words + w]`` for all
      j < ``positions``, h < ``group``, w < ``words``.
    * SCATTER: the reverse, ``bank[row + j][word + h*words + w] = bank[j*group + h][staged + w]``.
    * KEYS: ``words`` words of bank ``row`` from ``word`` on to memory, as lines from ``line`` on.
    * VALUES: four words of it are quantised, for the value writer.

    The next move's words are read while the last one's are on their way: a move must not read what
    one before it writes unless that one is done. Nor may it write bank words, in whichever row,
    that it or a move behind it reads.

    Throughput: a word a cycle, from move to move too. KEYS take a cycle more, VALUES
    ``64 / special_elements`` cycles, and what :class:`~hw.keys.values.ValueWriter` takes. Latency:
    a word is written 2 cycles after it was read.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    moves : stream of :func:`~hw.transfers.layouts.move_layout`
        Taken with the read of its last word.
    read, read_word, granted, data
        Reads a word of all banks; where it is granted, ``data`` are there in the next cycle and are
        taken then.
    bank_write, bank_row, bank_word, bank_data, bank_ready
        A write of 256 bits happens where ``bank_write`` and ``bank_ready`` are 1, and is held until
        then.
    keys_requests : stream of :func:`~hw.keys.layouts.line_request_layout`
    keys_lines : stream of :func:`~hw.axi.layouts.write_line_layout`
    values_requests, values_lines : the same, of :class:`~hw.keys.values.ValueWriter`
    done
        Moves whose last word was written, or went to the row writer or the quantiser; modulo 256,
        a cycle later.
    status, clear : of the quantiser
    idle
        No move is here, none of its words; no row of values is kept, all lines have been taken.

    Raises
    ------
    TypeError
        If config is no ChipConfig.
    """

    module_name = "bsspec_mover"
    label = "mover"

    def __init__(self, config: ChipConfig) -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        self.config = config
        self.elements = config.core.special_elements
        members: dict[str, Any] = {
            "moves": In(stream.Signature(move_layout(config))),
            "read": Out(1),
            "read_word": Out(config.word_bits),
            "granted": In(1),
            "data": In(data.ArrayLayout(unsigned(WORD_BITS), config.core.t_m)),
            "bank_write": Out(1),
            "bank_row": Out(row_bits(config)),
            "bank_word": Out(config.word_bits),
            "bank_data": Out(WORD_BITS),
            "bank_ready": In(1),
            "done": Out(DONE_BITS),
            "status": Out(STATUS),
            "clear": In(1),
            "idle": Out(1),
        }
        for name in ("keys", "values"):
            members[f"{name}_requests"] = Out(stream.Signature(line_request_layout(config)))
            members[f"{name}_lines"] = Out(stream.Signature(write_line_layout()))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        move = self.moves.payload
        note_layout = data.StructLayout(
            {
                "kind": unsigned(KIND_BITS),
                "row": unsigned(row_bits(config)),
                "word": unsigned(config.word_bits),
                "ends": 1,
            }
        )
        keys = Queue(m, "keys", line_request_layout(config), JOBS)
        values = Queue(m, "values", value_job_layout(config), JOBS)
        words = Queue(
            m, "words", data.StructLayout({"data": WORD_BITS, "note": note_layout}), WORDS
        )

        # What is read next: position j, head h, word w.
        position = Signal(move.positions.shape())
        head = Signal(move.group.shape())
        word = Signal(move.words.shape())
        # h * words + w, and j * group + h.
        offset = Signal(config.word_bits)
        staged_row = Signal(row_bits(config))
        between = Signal()
        scatter = Signal()
        last_word = Signal()
        last_head = Signal()
        ends = Signal()
        m.d.comb += [
            scatter.eq(move.kind == Kind.SCATTER),
            between.eq(scatter | (move.kind == Kind.GATHER)),
            last_word.eq(word == Mux(move.kind == Kind.VALUES, TILE_WORDS, move.words) - 1),
            last_head.eq(last_word & (~between | (head == move.group - 1))),
            ends.eq(last_head & (~between | (position == move.positions - 1))),
        ]
        row = Signal(row_bits(config))
        place = Signal(config.word_bits)
        staged_place = Signal(config.word_bits)
        m.d.comb += [
            row.eq(move.row + position),
            place.eq(move.word + offset),
            staged_place.eq(move.staged + word),
        ]

        # A read is asked for where its word will find a place.
        begun = Signal()
        asked = Signal()
        may_begin = Signal()
        room = Signal()
        reads = Signal()
        m.d.comb += [
            may_begin.eq((move.kind != Kind.VALUES) | (values.count != JOBS)),
            room.eq(words.count + asked < WORDS),
            self.read.eq(self.moves.valid & room & (begun | may_begin)),
            self.read_word.eq(Mux(scatter, staged_place, place)),
            reads.eq(self.read & self.granted),
            self.moves.ready.eq(reads & ends),
            keys.push.eq(reads & ~begun & (move.kind == Kind.KEYS)),
            keys.entry.line.eq(move.line),
            keys.entry.count.eq(move.words >> (LINE_WORDS.bit_length() - 1)),
            values.push.eq(reads & ~begun & (move.kind == Kind.VALUES)),
            *(values.entry[name].eq(move[name]) for name in ("line", "token", "p_full", "last")),
        ]
        with m.If(reads):
            m.d.sync += [
                begun.eq(~ends),
                word.eq(Mux(last_word, 0, word + 1)),
                offset.eq(Mux(last_head, 0, offset + 1)),
                staged_row.eq(Mux(ends, 0, staged_row + last_word)),
            ]
            with m.If(last_word):
                m.d.sync += head.eq(Mux(last_head, 0, head + 1))
            with m.If(last_head):
                m.d.sync += position.eq(Mux(ends, 0, position + 1))

        # The word of a row, a cycle later.
        source_row = Signal(row_bits(config), reset_less=True)
        note = Signal(note_layout, reset_less=True)
        m.d.sync += asked.eq(reads)
        with m.If(reads):
            m.d.sync += [
                source_row.eq(Mux(scatter, staged_row, row)),
                note.kind.eq(move.kind),
                note.row.eq(Mux(scatter, row, staged_row)),
                note.word.eq(Mux(scatter, place, staged_place)),
                note.ends.eq(ends),
            ]
        m.d.comb += [
            words.push.eq(asked),
            words.entry.data.eq(Array(self.data[i] for i in range(config.core.t_m))[source_row]),
            words.entry.note.eq(note),
        ]

        self._leave(m, words, keys, values, asked)
        with m.If(words.pop & words.head.note.ends):
            m.d.sync += self.done.eq(self.done + 1)
        return m

    def _leave(self, m: Module, words: Queue, keys: Queue, values: Queue, asked: Signal) -> None:
        """Words to where they go: banks, row writer, quantiser."""
        config, elements = self.config, self.elements
        rows = instantiate(m, "rows", RowWriter, config)
        writer = instantiate(m, "writer", ValueWriter, config)
        quantizer = instantiate(
            m, "quantizer", Quantizer, elements=elements, p_full=OPEN_PLANES, longest=TILE
        )
        note = words.head.note
        there = Signal()
        m.d.comb += [
            there.eq(words.count != 0),
            self.bank_write.eq(there & ((note.kind == Kind.GATHER) | (note.kind == Kind.SCATTER))),
            self.bank_row.eq(note.row),
            self.bank_word.eq(note.word),
            self.bank_data.eq(words.head.data),
            rows.words.valid.eq(there & (note.kind == Kind.KEYS)),
            rows.words.payload.eq(words.head.data),
        ]

        # A word is some beats.
        beats = TILE // TILE_WORDS // elements
        beat = Signal(range(beats))
        taken = Signal()
        numbers = quantizer.numbers
        width = WORD_BITS // beats
        m.d.comb += [
            numbers.valid.eq(there & (note.kind == Kind.VALUES)),
            numbers.payload.values.as_value().eq(part_of(words.head.data, beat, width)),
            numbers.payload.live.eq(~0),
            numbers.payload.last.eq(note.ends & (beat == beats - 1)),
            taken.eq(numbers.valid & numbers.ready),
        ]
        with m.If(taken):
            m.d.sync += beat.eq(beat + 1)
        with m.Switch(note.kind):
            with m.Case(Kind.KEYS):
                m.d.comb += words.pop.eq(rows.words.valid & rows.words.ready)
            with m.Case(Kind.VALUES):
                m.d.comb += words.pop.eq(taken & (beat == beats - 1))
            with m.Default():
                m.d.comb += words.pop.eq(self.bank_write & self.bank_ready)

        m.d.comb += [
            rows.jobs.valid.eq(keys.count != 0),
            rows.jobs.payload.eq(keys.head),
            keys.pop.eq(rows.jobs.valid & rows.jobs.ready),
            writer.jobs.valid.eq(values.count != 0),
            writer.jobs.payload.eq(values.head),
            values.pop.eq(writer.jobs.valid & writer.jobs.ready),
            self.status.eq(quantizer.status),
            quantizer.clear.eq(self.clear),
            self.idle.eq(
                Cat(
                    # A move that was begun is either here or has words here.
                    ~self.moves.valid,
                    ~asked,
                    ~there,
                    keys.count == 0,
                    rows.idle,
                    # A row of values that is being quantised has its job here.
                    values.count == 0,
                    writer.idle,
                ).all()
            ),
        ]
        joins = [
            (quantizer.exponents, writer.exponents),
            (quantizer.members, writer.members),
            (rows.requests, self.keys_requests),
            (rows.lines, self.keys_lines),
            (writer.requests, self.values_requests),
            (writer.lines, self.values_lines),
        ]
        for source, sink in joins:
            m.d.comb += [
                sink.valid.eq(source.valid),
                sink.payload.eq(source.payload),
                source.ready.eq(sink.ready),
            ]
