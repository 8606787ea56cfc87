"""From kept BF16 rows to planes: lanes, corner turner, and where its bytes go."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.chip_config import ChipConfig
from hw.config import TILE
from hw.keys.corner import CornerTurner
from hw.keys.layouts import (
    BYTE_TOKENS,
    BYTES,
    KEY_LINE,
    LINE_CHANNELS,
    OPEN_PLANES,
    PAIRS,
    TILE_LINES,
    keys_job_layout,
)
from hw.keys.planes import PLACES, planes_row_bits
from hw.keys.rows import LINE_EXPONENTS, key_lines, key_tokens
from hw.library import Unique, instantiate
from hw.special.quantizer import QuantizerLane

#: Steps from a line's read to the corner turner: the memory, and the lane.
STEPS = 2


def turn_layout(config: ChipConfig) -> data.StructLayout:
    """What goes with a move of the corner turner.

    Of the token that enters: ``token`` of the block, ``live`` or it is not there, ``line`` of it.
    Of the eight before it: ``write``, and where to, as in :class:`~hw.keys.planes.KeyPlanes`.
    ``final``: the planes are complete.
    """
    return data.StructLayout(
        {
            "token": unsigned((TILE - 1).bit_length()),
            "live": 1,
            "line": unsigned((TILE_LINES * config.head_tiles_max - 1).bit_length()),
            "write": 1,
            "row": unsigned(planes_row_bits(config)),
            "upper": 1,
            "place": unsigned((PLACES - 1).bit_length()),
            "ends": 1,
            "final": 1,
        }
    )


class KeyMaker(Unique):
    """Eight tokens of a line at a time: read, quantised, turned, written as bytes of planes.

    Groups of eight tokens ascend, within one the lines of a token. An open block's group begins
    when its tokens have arrived, a closed one's first when all have. Throughput: a line a cycle.
    Latency: the last byte is written 18 cycles after the last line was read.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    job, makes
        :func:`~hw.keys.layouts.keys_job_layout`, held; whether its planes may be made.
    made : they are complete after this cycle
    arrived, freed, read, read_line, read_token, numbers, exponent, channels
        As in :class:`~hw.keys.rows.KeyRows`.
    write, row, upper, place, ends, even, odd
        As in :class:`~hw.keys.planes.KeyPlanes`.
    scale, scale_token, scale_exponent
        The exponent of a token of an open block.
    """

    module_name = "bsspec_key_maker"
    label = "keys: planes from rows"

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        self.line_bits = (key_lines(config) - 1).bit_length()
        self.token_bits = (key_tokens(config) - 1).bit_length()
        self.row_lines = TILE_LINES * config.head_tiles_max
        super().__init__(
            {
                "job": In(keys_job_layout(config)),
                "makes": In(1),
                "made": Out(1),
                "arrived": In(self.token_bits + 1),
                "freed": Out(self.line_bits + 1),
                "read": Out(1),
                "read_line": Out(self.line_bits),
                "read_token": Out(self.token_bits),
                "numbers": In(KEY_LINE),
                "exponent": In(8),
                "channels": In(data.ArrayLayout(LINE_EXPONENTS, self.row_lines)),
                "write": Out(1),
                "row": Out(planes_row_bits(config)),
                "upper": Out(1),
                "place": Out((PLACES - 1).bit_length()),
                "ends": Out(1),
                "even": Out(BYTES),
                "odd": Out(BYTES),
                "scale": Out(1),
                "scale_token": Out((TILE - 1).bit_length()),
                "scale_exponent": Out(8),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        moves, turn = self._issue(m)
        layout = turn_layout(self.config)
        moving = [Signal(name=f"moving_{i}") for i in range(1, STEPS + 1)]
        turns = [Signal(layout, name=f"turn_{i}", reset_less=True) for i in range(1, STEPS + 1)]
        for before, after in zip([moves, *moving], moving, strict=False):
            m.d.sync += after.eq(before)
        for before, after in zip([turn, *turns], turns, strict=False):
            m.d.sync += after.eq(before)

        # The exponent: of the token, or of each channel.
        entering, leaving = turns
        m.d.comb += [
            self.scale.eq(moving[0] & entering.live & (entering.line == 0) & ~self.job.close),
            self.scale_token.eq(entering.token),
            self.scale_exponent.eq(self.exponent),
        ]
        channels = Signal(LINE_EXPONENTS)
        m.d.comb += channels.eq(Array(self.channels)[entering.line])

        turner = instantiate(m, "turner", CornerTurner)
        down = Signal()
        count = Signal(range(BYTE_TOKENS))
        with m.If(moving[1]):
            m.d.sync += count.eq(count + 1)
            with m.If(count == BYTE_TOKENS - 1):
                m.d.sync += down.eq(~down)
        for i in range(LINE_CHANNELS):
            lane = instantiate(m, f"lane_{i}", QuantizerLane, p_full=OPEN_PLANES)
            # A lane's bits in the order of planes; tokens that are not there are zeros.
            bits = Cat(lane.member.magnitude, lane.member.sign)
            member = Signal(OPEN_PLANES, name=f"member_{i}")
            m.d.comb += [
                lane.advance.eq(moving[0]),
                lane.number.eq(self.numbers[i]),
                lane.exponent.eq(Mux(self.job.close, channels[i], self.exponent)),
                member.eq(Cat(reversed(list(bits))) & leaving.live.replicate(OPEN_PLANES)),
                *(turner.number[q][i].eq(member[2 * q : 2 * q + 2]) for q in range(PAIRS)),
                self.even[i].eq(Cat(turner.tokens[t][i][0] for t in range(BYTE_TOKENS))),
                self.odd[i].eq(Cat(turner.tokens[t][i][1] for t in range(BYTE_TOKENS))),
            ]
        m.d.comb += [
            turner.move.eq(moving[1]),
            turner.down.eq(down),
            self.write.eq(moving[1] & leaving.write),
            *(getattr(self, name).eq(leaving[name]) for name in ("row", "upper", "place", "ends")),
            self.made.eq(moving[1] & leaving.final),
        ]
        return m

    def _issue(self, m: Module) -> tuple[Value, data.View]:
        """Which line is read next, and what its move of the corner turner does."""
        job = self.job
        step = Signal(range(BYTE_TOKENS))
        line = Signal(range(self.row_lines))
        group = Signal(range(PLACES))
        # Positions of the next line, of the group's first line and first token.
        address = Signal(self.line_bits + 1)
        base = Signal(self.line_bits + 1)
        token = Signal(self.token_bits + 1)
        freed = Signal(self.line_bits + 1)
        empties = Signal()
        waits = Signal()

        tokens_left = Signal(TILE.bit_length())
        present = Signal(range(BYTE_TOKENS + 1))
        needed = Signal(TILE.bit_length())
        here = Signal(self.token_bits + 1)
        lines = Signal(range(self.row_lines + 1))
        last_group = Signal()
        last_line = Signal()
        last_step = Signal()
        live = Signal()
        moves = Signal()
        reads = Signal()
        following = Signal(self.line_bits + 1)
        m.d.comb += [
            lines.eq(job.head_tiles << 1),
            tokens_left.eq(job.tokens - (group << 3)),
            last_group.eq(tokens_left <= BYTE_TOKENS),
            present.eq(Mux(last_group, tokens_left, BYTE_TOKENS)),
            needed.eq(Mux(job.close, tokens_left, present)),
            here.eq(self.arrived - token),
            last_line.eq(line == lines - 1),
            last_step.eq(step == BYTE_TOKENS - 1),
            live.eq((step < present) & ~empties),
            moves.eq(self.makes & ~waits & (empties | (here >= needed))),
            reads.eq(moves & live),
            following.eq(address + 1),
            self.read.eq(reads),
            self.read_line.eq(address[: self.line_bits]),
            self.read_token.eq((token + step)[: self.token_bits]),
            self.freed.eq(freed),
        ]
        # Where the eight tokens before go.
        layout = turn_layout(self.config)
        turn = Signal(layout)
        before = Signal(layout)
        m.d.comb += [
            turn.eq(before),
            turn.token.eq(Cat(step, group)),
            turn.live.eq(live),
            turn.line.eq(line),
            turn.final.eq(empties & last_step),
        ]
        with m.If(moves):
            m.d.sync += [
                step.eq(step + 1),
                # Pairs of planes leave from the last one on.
                before.row.eq(before.row - lines),
            ]
            with m.If(~empties):
                m.d.sync += address.eq(address + lines)
            with m.If(reads & last_line):
                m.d.sync += freed.eq(following)
            with m.If(last_step):
                m.d.sync += [
                    before.write.eq(~empties),
                    before.row.eq(line[1:] + (job.head_tiles << 4) - lines),
                    before.upper.eq(line[0]),
                    before.place.eq(group),
                    before.ends.eq(last_group),
                ]
                with m.If(empties):
                    m.d.sync += [empties.eq(0), waits.eq(1)]
                with m.Else():
                    m.d.sync += [line.eq(line + 1), address.eq(base + line + 1)]
                    with m.If(last_line):
                        first = Mux(reads, following, freed)
                        m.d.sync += [
                            line.eq(0),
                            base.eq(first),
                            address.eq(first),
                            token.eq(token + present),
                            group.eq(group + 1),
                        ]
                        with m.If(last_group):
                            m.d.sync += [group.eq(0), empties.eq(1)]
        with m.If(self.made):
            m.d.sync += waits.eq(0)
        return moves, turn
