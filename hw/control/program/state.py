"""What the program keeps, and what all of its parts use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hw.chip_config import ChipConfig
from hw.control.assembler import Condition, Constant, Expr, Label, Port, Program, Register, Word
from hw.control.ports import Error, Flag, Host, Idle, Push, fields_of
from hw.control.processor import SCRATCH_WORDS, WINDOW_WORDS
from hw.control.register_rows import row_of
from hw.transfers.layouts import Target
from model.formats.commands import (
    COMMAND_WORDS,
    FIELDS,
    LINE_BYTES,
    SEGMENTS,
    Field,
    Opcode,
    Region,
    Status,
)
from model.formats.plt_layout import ENTRIES
from model.formats.registers import EVENTS, PLANES, TRAFFIC

#: Fields of MODEL that are kept.
MODEL_FIELDS = tuple(FIELDS[Opcode.MODEL])
#: Tokens of a line.
LINE_TOKENS = LINE_BYTES // 4


class Control:
    """Variables, and blocks of instructions that many commands begin or end with.

    Parameters
    ----------
    config : ChipConfig
    """

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        self.p = p = Program()
        self.ports = fields_of(config)
        rows, sequences = config.core.t_m, config.sequences
        # Two commands: the one in work and its successor. Loads write to scratch memory by row.
        p.use_scratch(WINDOW_WORDS, SCRATCH_WORDS)
        self.buffers_at = WINDOW_WORDS
        p.words(2 * COMMAND_WORDS)
        self.lines = p.words(LINE_TOKENS)
        #: Address of the command in work; its line, as in COMMANDS.
        self.cmd, self.line = p.register(), p.register()
        #: Loads and moves that were asked for, modulo 256; gates that were given out.
        self.loads, self.moves, self.gate = p.register(), p.register(), p.register()
        self.opcode = p.register()
        #: For whoever needs them; functions say which they change.
        self.i, self.j, self.k = p.register(), p.register(), p.register()
        self.a, self.b, self.c, self.d = (p.register() for _ in range(4))
        self.e, self.f, self.g, self.h = (p.register() for _ in range(4))
        self.status = p.register()

        self.nested = p.words()
        #: Address of the successor of the command in work; loads up to which it is there.
        self.following, self.ahead = p.words(), p.words()
        self.model = {name: p.words() for name in MODEL_FIELDS}
        self.has_model = p.words()
        #: FP32 of 1 / d and 1 / d_h; lines of a tile; positions of a pass; tiles of a row of heads.
        self.inverse_width, self.inverse_head = p.words(), p.words()
        self.tile_lines, self.pass_positions = p.words(), p.words()
        self.heads_tiles, self.heads = p.words(), p.words()
        self.vocabulary_tiles = p.words()
        #: Constants of norms that the slices have now.
        self.eps_now, self.inverse_now = p.words(), p.words()

        self.segments, self.rows = p.words(), p.words()
        # Room for those that a ROWS names before they are taken.
        self.segment_sequence, self.segment_start, self.segment_rows = (
            p.words(rows + SEGMENTS) for _ in range(3)
        )
        self.tokens, self.argmax = p.words(2 * rows), p.words(rows)
        #: An argmax has bit 32; without it the row has none.
        self.argmax_at = self.argmax.place.value  # type: ignore[attr-defined]
        self.p_w, self.p_kv, self.midpoint_w, self.midpoint_kv = (p.words() for _ in range(4))
        self.limit, self.pending, self.gammas, self.place = (p.words(sequences) for _ in range(4))

        #: The next residual sums enter a norm.
        self.tapped = p.words()
        #: Passes of attention: asked for, and whose results are where they belong; of the last two
        #: row, head and positions.
        self.passes, self.scattered, self.passes_base = p.words(), p.words(), p.words()
        self.pass_row, self.pass_word, self.pass_count = p.words(2), p.words(2), p.words(2)

        self.base = p.words(len(Region))
        self.traffic = {name: p.words() for name in TRAFFIC}
        self.events = {name: p.words() for name in EVENTS}
        #: Tiles of weights, by the planes that were read.
        self.tiles_by_p = p.words(PLANES + 1)
        self.faults: dict[Status, Label] = {
            status: Label() for status in Status if status != Status.OK
        }
        self.faulted = Label()

    # Numbers -------------------------------------------------------------------------------------

    def window(self, name: str, entry: Expr | int = 0) -> Word:
        """A register of 32 bits in the window."""
        return Word(Constant(row_of(name)))[entry]

    def field_at(self, opcode: Opcode, name: str, command: Expr) -> Expr:
        """A field of a command somewhere."""
        field: Field = FIELDS[opcode][name]
        value: Expr = Word(command, field.word)
        if field.low:
            value = value >> field.low
        if field.low + field.width < 32:
            value = value & field.top
        return value

    def field(self, opcode: Opcode, name: str) -> Expr:
        """A field of the command in work."""
        return self.field_at(opcode, name, self.cmd)

    # Ports ---------------------------------------------------------------------------------------

    def put(self, **values: Expr | int) -> None:
        """Numbers for the next work, load or move."""
        for name, value in values.items():
            self.p.out(self.ports[name].number, value)

    def push(self, what: Push, value: Expr | int = 0) -> None:
        """Does something with the numbers."""
        self.p.out(int(what), value)

    def load(self, **values: Expr | int) -> None:
        """Lines from memory."""
        self.put(**values)
        self.push(Push.LOAD)
        self.p.set(self.loads, (self.loads + 1) & 0xFF)

    def move(self, **values: Expr | int) -> None:
        """Bank words."""
        self.put(**values)
        self.push(Push.MOVE)
        self.p.set(self.moves, (self.moves + 1) & 0xFF)

    def count(self, name: str, value: Expr | int) -> None:
        """Adds to a counter."""
        where = self.traffic.get(name) or self.events[name]
        self.p.set(where, where + value)

    # Waiting -------------------------------------------------------------------------------------

    def wait(self, *idle: Idle) -> None:
        """Until all of them are."""
        mask = sum(1 << each for each in idle)
        p = self.p
        again = Label()
        p.place(again)
        p.jump_if((Port(Flag.IDLE) & mask).is_not(mask), again)

    def wait_count(self, flag: Flag, count: Expr) -> None:
        """Until a count modulo 256 has come that far."""
        p = self.p
        again = Label()
        p.place(again)
        p.jump_if(((Port(flag) - count) & 0xFF) >= 0x80, again)

    def wait_loads(self) -> None:
        """Until all that was to be loaded is there."""
        self.wait_count(Flag.LOADS, self.loads)

    def wait_moves(self) -> None:
        """Until all moves are done."""
        self.wait_count(Flag.MOVES, self.moves)

    # Checks --------------------------------------------------------------------------------------

    def need(self, condition: Condition, status: Status) -> None:
        """Fault unless the condition holds."""
        self.p.jump_if(condition.opposite(), self.faults[status])

    def need_region(self, region: Region, end: Expr) -> None:
        """Fault unless lines up to ``end`` lie in the region."""
        self.need(end <= self.window("SIZE", int(region)), Status.REGION)

    def need_span(self, end: Expr) -> None:
        """Fault unless bank words up to ``end`` are there for a model."""
        self.need(end <= self.config.staging, Status.BANK)

    @contextmanager
    def each(self, index: Register, count: Expr | int) -> Iterator[None]:
        """For ``index`` from 0 on."""
        p = self.p
        p.set(index, 0)
        with p.while_(index < count):
            yield
            p.set(index, index + 1)

    # What all commands share ---------------------------------------------------------------------

    def functions(self) -> None:
        """Functions that are called from everywhere."""
        p = self.p
        with p.function("check", leaf=True):
            # Errors that the parts have found; what was begun ends, and the job stops.
            p.set(self.status, Port(Flag.ERRORS))
            with p.if_(self.status.is_not(0)):
                for error, status in (
                    (Error.READ, Status.READ),
                    (Error.WRITE, Status.WRITE),
                    (Error.NUMBER, Status.NUMBER),
                ):
                    p.jump_if((self.status & (1 << error)).is_not(0), self.faults[status])
        with p.function("drain"):
            # Until nothing is on its way.
            p.call("finish_attention")
            self.wait(Idle.SETTLED, Idle.LOADER, Idle.MOVER, Idle.WRITES, Idle.KEYS)
            p.call("check")
        with p.function("abort", leaf=True):
            p.jump_if((Port(Flag.HOST) & (1 << Host.ABORT)).is_not(0), self.faults[Status.ABORTED])

    def store_counters(self) -> None:
        """Counters into the window. Changes a, b, i."""
        p = self.p
        named = {**self.traffic, **{name: self.events[name] for name in EVENTS}}
        hardware = {
            "CYCLES": Flag.CYCLES,
            "ARRAY_BUSY": Flag.ARRAY_BUSY,
            "STALL_MEMORY": Flag.STALL_MEMORY,
            "STALL_SPECIAL": Flag.STALL_SPECIAL,
            "STALL_RESULTS": Flag.STALL_RESULTS,
        }
        for name, where in named.items():
            p.set(self.a, Port(hardware[name]) if name in hardware else where)
            p.set(self.window(name, 0), self.a)
            p.set(self.window(name, 1), self.a >> 32)
        # A plane is read with all precisions that have it.
        p.set(self.a, 0)
        p.set(self.i, PLANES)
        with p.while_(self.i.is_not(0)):
            p.set(self.a, self.a + self.tiles_by_p[self.i])
            p.set(self.i, self.i - 1)
            p.set(self.b, self.i + self.i)
            p.set(self.window("READ_PLANES", self.b), self.a << 9)
            p.set(self.window("READ_PLANES", self.b + 1), self.a >> 23)

    def load_base(self) -> None:
        """First lines of the regions, from the window. Changes i."""
        p = self.p
        with self.each(self.i, len(Region)):
            low = self.window("BASE", self.i + self.i)
            high = self.window("BASE", self.i + self.i + 1)
            p.set(self.base[self.i], (low >> 6) | (high << 26))

    def scratch_row(self, address: Expr) -> Expr:
        """Row of a scratch address, for loads."""
        return address - WINDOW_WORDS

    def load_line(self, region: Region, line: Expr, address: Expr) -> None:
        """A line into the scratch memory."""
        self.load(
            line=self.base[int(region)] + line,
            count=1,
            load_target=int(Target.SCRATCH),
            word=self.scratch_row(address),
        )


assert ENTRIES == 16
