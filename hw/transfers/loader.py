"""Lines of memory to where they are needed: scratch, banks, slices, key transposer."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.axi.layouts import read_line_layout, request_layout
from hw.chip_config import LINE_BITS, WORD_BITS, ChipConfig
from hw.library import Unique, part_of
from hw.special.flow import Queue, sticky
from hw.special.layouts import BF16
from hw.special.slice import rope_row_bits
from hw.transfers.layouts import (
    DONE_BITS,
    SCRATCH_BITS,
    SCRATCH_ROW_BITS,
    Target,
    load_layout,
    place_bits,
    row_bits,
)

#: Requests whose lines have not all been written.
REQUESTS = 8
#: Bits of a pair of a cosine and a sine.
PAIR_BITS = 32
#: What a line may raise.
_RAISED = data.StructLayout({"error": 1, "refused": 1})


class Loader(Unique):
    """Requests in order, each some lines of memory to one target.

    A line stays at the input while its words go out, the lowest first. What comes with an error is
    written like everything else.

    Throughput: a word a cycle, from line to line and from request to request too. Latency: a
    request passes in the cycle in which it comes, a word goes out in the cycle in which its line is
    there.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    requests : stream of :func:`~hw.transfers.layouts.load_layout`
    read_requests : stream of :func:`~hw.axi.layouts.request_layout`, tag 0
    read_lines : stream of :func:`~hw.axi.layouts.read_line_layout`
        Those of the requests, in order, with a ``last`` one each.
    scratch_write, scratch_row, scratch_data
        SCRATCH: 16 words of 32 bits a line, from ``word`` on.
    bank_write, bank_row, bank_word, bank_data, bank_ready
        BANK: two words of 256 bits a line for the bank of ``row``, from ``word`` on. A write
        happens where ``bank_write`` and ``bank_ready`` are 1, and is held until then.
    weights : stream of ``special_elements`` BF16 numbers
        WEIGHTS: ``32 / special_elements`` a line.
    rope_write, rope_row, rope_data
        ROPE: ``16 / special_elements`` rows of ``special_elements`` pairs a line, from 0 on, for
        the slice of ``row`` (one-hot).
    rows : stream of 512 bits
        KEYS: the lines themselves.
    done
        Requests whose last word has been written or taken, modulo 256, a cycle later.
    error, refused, clear
        Sticky, from the cycle after the last word of a line on: the line came with an error; a
        number of a line for BANK or WEIGHTS is Inf or NaN.
    idle : no request is under way

    Raises
    ------
    TypeError
        If config is no ChipConfig.
    """

    module_name = "bsspec_loader"
    label = "loader"

    def __init__(self, config: ChipConfig) -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        self.config = config
        self.elements = config.core.special_elements
        super().__init__(
            {
                "requests": In(stream.Signature(load_layout(config))),
                "read_requests": Out(stream.Signature(request_layout(config.memory))),
                "read_lines": In(stream.Signature(read_line_layout(config.memory))),
                "scratch_write": Out(1),
                "scratch_row": Out(SCRATCH_ROW_BITS),
                "scratch_data": Out(SCRATCH_BITS),
                "bank_write": Out(1),
                "bank_row": Out(row_bits(config)),
                "bank_word": Out(config.word_bits),
                "bank_data": Out(WORD_BITS),
                "bank_ready": In(1),
                "weights": Out(stream.Signature(data.ArrayLayout(BF16, self.elements))),
                "rope_write": Out(config.core.t_m),
                "rope_row": Out(rope_row_bits(self.elements)),
                "rope_data": Out(PAIR_BITS * self.elements),
                "rows": Out(stream.Signature(unsigned(LINE_BITS))),
                "done": Out(DONE_BITS),
                "error": Out(1),
                "refused": Out(1),
                "clear": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        request, line = self.requests.payload, self.read_lines.payload

        kept = {name: load_layout(config)[name].shape for name in ("target", "row", "word")}
        work = Queue(m, "work", data.StructLayout(kept), REQUESTS)
        load = work.head
        room = Signal()
        m.d.comb += [
            room.eq(work.count != REQUESTS),
            self.read_requests.valid.eq(self.requests.valid & room),
            self.read_requests.payload.line.eq(request.line),
            self.read_requests.payload.count.eq(request.count),
            self.requests.ready.eq(self.read_requests.ready & room),
            work.push.eq(self.requests.valid & self.requests.ready),
            *(work.entry[name].eq(request[name]) for name in kept),
            self.idle.eq(work.count == 0),
        ]

        # Words of the request that have gone out. A line has a power of two of them, so the low
        # bits say which one of the line comes next.
        number = Signal(place_bits(config))
        place = Signal(place_bits(config))
        shown = Signal()
        accepted = Signal()
        moves = Signal()
        last_word = Signal()
        ends = Signal()
        m.d.comb += [
            shown.eq(self.read_lines.valid & (work.count != 0)),
            place.eq(load.word + number),
            moves.eq(shown & accepted),
            self.read_lines.ready.eq(moves & last_word),
            ends.eq(moves & last_word & line.last),
            work.pop.eq(ends),
        ]
        with m.If(moves):
            m.d.sync += number.eq(Mux(ends, 0, number + 1))
        with m.If(ends):
            m.d.sync += self.done.eq(self.done + 1)

        here = {target: Signal(name=f"to_{target.name.lower()}") for target in Target}
        sizes: dict[Target, tuple[int, Value | int]] = {
            Target.SCRATCH: (SCRATCH_BITS, 1),
            Target.BANK: (WORD_BITS, self.bank_ready),
            Target.WEIGHTS: (BF16.size * self.elements, self.weights.ready),
            Target.ROPE: (PAIR_BITS * self.elements, 1),
            Target.KEYS: (LINE_BITS, self.rows.ready),
        }
        outputs: dict[Target, Any] = {
            Target.SCRATCH: self.scratch_data,
            Target.BANK: self.bank_data,
            Target.WEIGHTS: self.weights.payload,
            Target.ROPE: self.rope_data,
            Target.KEYS: self.rows.payload,
        }
        for target, (width, ready) in sizes.items():
            bits = (LINE_BITS // width - 1).bit_length()
            m.d.comb += [
                here[target].eq(shown & (load.target == target)),
                Value.cast(outputs[target]).eq(
                    part_of(line.data, number[:bits], width) if bits else line.data
                ),
            ]
            with m.If(load.target == target):
                m.d.comb += [accepted.eq(ready), last_word.eq(number[:bits].all() if bits else 1)]
        m.d.comb += [
            self.scratch_write.eq(here[Target.SCRATCH]),
            self.scratch_row.eq(place),
            self.bank_write.eq(here[Target.BANK]),
            self.bank_row.eq(load.row),
            self.bank_word.eq(place),
            self.weights.valid.eq(here[Target.WEIGHTS]),
            self.rope_write.eq(
                Cat(here[Target.ROPE] & (load.row == i) for i in range(config.core.t_m))
            ),
            self.rope_row.eq(number),
            self.rows.valid.eq(here[Target.KEYS]),
        ]

        raised = Signal(_RAISED)
        refused = Cat(_is_refused(line.data[i : i + 16]) for i in range(0, LINE_BITS, 16)).any()
        sticky(
            m,
            raised,
            self.clear,
            error=moves & last_word & line.error,
            refused=moves & last_word & (here[Target.BANK] | here[Target.WEIGHTS]) & refused,
        )
        m.d.comb += [self.error.eq(raised.error), self.refused.eq(raised.refused)]
        return m


def _is_refused(number: Value) -> Value:
    """Whether the bits of a BF16 number are an Inf or NaN."""
    return number[7:15].all()
