"""BF16 keys on the chip: lines as they come, until the exponents over them are known."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.chip_config import LINE_BITS, ChipConfig
from hw.config import TILE
from hw.keys.layouts import KEY_LINE, LINE_CHANNELS, TILE_LINES, keys_job_layout
from hw.library import Unique, instantiate
from hw.memory.ram import Ram
from hw.special.floats import Unpack
from hw.special.flow import sticky
from hw.special.layouts import STATUS

#: Exponents of a line's channels.
LINE_EXPONENTS = data.ArrayLayout(unsigned(8), LINE_CHANNELS)


def key_lines(config: ChipConfig) -> int:
    """Lines that are kept: all of a block of the widest head, a power of two."""
    return 1 << (TILE * TILE_LINES * config.head_tiles_max - 1).bit_length()


def key_tokens(config: ChipConfig) -> int:
    """Most tokens among them."""
    return key_lines(config) // TILE_LINES


def _largest(values: list[Value], count: int) -> list[Value]:
    """Maxima of neighbours, pair by pair, until ``count`` are left."""
    while len(values) > count:
        pairs = zip(values[::2], values[1::2], strict=True)
        values = [Mux(a > b, a, b) for a, b in pairs]
    return values


class KeyRows(Unique):
    """A ring of lines of BF16 keys, with the exponents of its tokens and of its channels.

    An open key needs the exponent over all channels of its token before its first bit is known,
    a closed one that over all tokens of its channel. Rows are read from memory once, so they are
    kept here meanwhile. The ring takes the lines of the next job behind those of this one.
    Throughput: a line a cycle. Latency: a token counts as arrived 3 cycles after its last line.

    Positions of lines and tokens count on from job to job, modulo twice what the ring holds.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    jobs : stream of :func:`~hw.keys.layouts.keys_job_layout`
    lines : stream of 512 bits, ``2 head_tiles`` a token
    arrived : position behind the last token that is here, with its exponent
    freed : position of the first line that is still needed
    read, read_line, read_token -> numbers, exponent
        A line, and the exponent of its token; latency 1.
    channels
        ``[line of a token]``: exponents over the tokens of a job that closes, complete when all
        of them have arrived.
    channels_free : a job that closes needs them no longer
    idle : no job is being read
    status, clear
    """

    module_name = "bsspec_key_rows"
    label = "keys: rows"

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        self.line_bits = (key_lines(config) - 1).bit_length()
        self.token_bits = (key_tokens(config) - 1).bit_length()
        self.row_lines = TILE_LINES * config.head_tiles_max
        super().__init__(
            {
                "jobs": In(stream.Signature(keys_job_layout(config))),
                "lines": In(stream.Signature(unsigned(LINE_BITS))),
                "arrived": Out(self.token_bits + 1),
                "freed": In(self.line_bits + 1),
                "read": In(1),
                "read_line": In(self.line_bits),
                "read_token": In(self.token_bits),
                "numbers": Out(KEY_LINE),
                "exponent": Out(8),
                "channels": Out(data.ArrayLayout(LINE_EXPONENTS, self.row_lines)),
                "channels_free": In(1),
                "idle": Out(1),
                "status": Out(STATUS),
                "clear": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # The job, and where in it.
        active = Signal()
        job = Signal(keys_job_layout(self.config), reset_less=True)
        line = Signal(range(self.row_lines))
        token = Signal(range(TILE))
        position = Signal(self.line_bits + 1)
        channels_taken = Signal()
        last_line = Signal()
        last_token = Signal()
        taken = Signal()
        m.d.comb += [
            self.jobs.ready.eq(~active & ~(self.jobs.payload.close & channels_taken)),
            last_line.eq(line == (job.head_tiles << 1) - 1),
            last_token.eq(token == job.tokens - 1),
            self.lines.ready.eq(
                active & ((position - self.freed)[: self.line_bits + 1] != 1 << self.line_bits)
            ),
            taken.eq(self.lines.valid & self.lines.ready),
            self.idle.eq(~active),
        ]
        with m.If(self.channels_free):
            m.d.sync += channels_taken.eq(0)
        with m.If(self.jobs.valid & self.jobs.ready):
            m.d.sync += [active.eq(1), job.eq(self.jobs.payload)]
            with m.If(self.jobs.payload.close):
                m.d.sync += channels_taken.eq(1)
        with m.If(taken):
            m.d.sync += [position.eq(position + 1), line.eq(line + 1)]
            with m.If(last_line):
                m.d.sync += [line.eq(0), token.eq(token + 1)]
                with m.If(last_token):
                    m.d.sync += [token.eq(0), active.eq(0)]

        kept = instantiate(
            m, "kept", Ram, purpose="key_rows", width=LINE_BITS, depth=1 << self.line_bits
        )
        m.d.comb += [
            kept.write_enable.eq(taken),
            kept.write_row.eq(position[: self.line_bits]),
            kept.write_data.eq(self.lines.payload),
            kept.read_enable.eq(self.read),
            kept.read_row.eq(self.read_line),
            self.numbers.as_value().eq(kept.read_data),
        ]
        self._exponents(m, job, taken, last_line, line == 0, token == 0)
        return m

    def _exponents(
        self, m: Module, job: data.View, taken: Value, last_line: Value, first: Value, begins: Value
    ) -> None:
        """Largest exponents of tokens and channels, in three steps behind the lines."""
        numbers = data.View(KEY_LINE, self.lines.payload)
        refused = Signal(LINE_CHANNELS)
        candidates: list[Value] = []
        for i in range(LINE_CHANNELS):
            number = instantiate(m, f"number_{i}", Unpack, mantissa_bits=7, normal=False)
            candidate = Signal(8, name=f"candidate_{i}")
            m.d.comb += [
                number.number.eq(numbers[i]),
                refused[i].eq(number.refused),
                candidate.eq(Mux(number.significand.any(), number.exponent[:8], 0)),
            ]
            candidates.append(candidate)
        sticky(m, self.status, self.clear, refused=taken & refused.any())

        stage = [Signal(name=f"stage_{i}") for i in (1, 2)]
        marks = [Signal(2, name=f"marks_{i}", reset_less=True) for i in (1, 2)]
        widest = [
            Signal(data.ArrayLayout(unsigned(8), count), name=f"largest_{i}", reset_less=True)
            for i, count in ((1, 8), (2, 2))
        ]
        closing = Signal(reset_less=True)
        starts = Signal(reset_less=True)
        seen = Signal(LINE_EXPONENTS, reset_less=True)
        m.d.sync += [
            stage[0].eq(taken),
            stage[1].eq(stage[0]),
            marks[0][0].eq(first),
            marks[0][1].eq(last_line),
            marks[1].eq(marks[0]),
            closing.eq(job.close),
            starts.eq(begins),
            *(seen[i].eq(each) for i, each in enumerate(candidates)),
            *(widest[0][i].eq(each) for i, each in enumerate(_largest(candidates, 8))),
            *(
                widest[1][i].eq(each)
                for i, each in enumerate(_largest([widest[0][i] for i in range(8)], 2))
            ),
        ]
        # Tokens.
        running = Signal(8, reset_less=True)
        line_top = Signal(8)
        top = Signal(8)
        m.d.comb += [
            line_top.eq(_largest([widest[1][0], widest[1][1]], 1)[0]),
            top.eq(Mux(~marks[1][0] & (running > line_top), running, line_top)),
        ]
        with m.If(stage[1]):
            m.d.sync += running.eq(top)
        complete = Signal()
        exponents = instantiate(
            m, "exponents", Ram, purpose="key_exponents", width=8, depth=1 << self.token_bits
        )
        m.d.comb += [
            complete.eq(stage[1] & marks[1][1]),
            exponents.write_enable.eq(complete),
            exponents.write_row.eq(self.arrived[: self.token_bits]),
            exponents.write_data.eq(top),
            exponents.read_enable.eq(self.read),
            exponents.read_row.eq(self.read_token),
            self.exponent.eq(exponents.read_data),
        ]
        arrived = Signal(self.token_bits + 1)
        m.d.comb += self.arrived.eq(arrived)
        with m.If(complete):
            m.d.sync += arrived.eq(arrived + 1)

        # Channels: the exponents of a token's lines go round, as many as it has lines.
        rounds = [
            Signal(LINE_EXPONENTS, name=f"channels_{i}", reset_less=True)
            for i in range(self.row_lines)
        ]
        following = Signal(LINE_EXPONENTS)
        for i in range(LINE_CHANNELS):
            keeps = ~starts & (rounds[0][i] > seen[i])
            m.d.comb += following[i].eq(Mux(keeps, rounds[0][i], seen[i]))
        end = Signal(range(self.row_lines), reset_less=True)
        m.d.sync += end.eq((job.head_tiles << 1) - 1)
        with m.If(stage[0] & closing):
            for i, each in enumerate(rounds):
                if i + 1 < self.row_lines:
                    m.d.sync += each.eq(
                        Array([rounds[i + 1].as_value(), following.as_value()])[end == i]
                    )
                else:
                    m.d.sync += each.eq(following)
        for i, each in enumerate(rounds):
            m.d.comb += self.channels[i].eq(each)
