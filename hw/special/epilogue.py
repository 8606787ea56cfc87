"""The epilogue: slices in lockstep, and what leads beats through them to and from the banks."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.chip_config import WORD_BITS, ChipConfig
from hw.compute.layouts import results_layout
from hw.config import COLUMN_BITS, RISE_BITS, TILE
from hw.issue.pieces import jobs_bits
from hw.library import Unique, instantiate, packed
from hw.special.flow import Queue
from hw.special.layouts import BF16, FP32, STATUS
from hw.special.scores import FACTOR
from hw.special.slice import INDEX_BITS, OP_BITS, PACKED, POSITION_BITS, Op, Slice, rope_row_bits
from model.formats.commands import BANK_WORD

#: Operations that take results of the array, and those that take a bank word.
FROM_RESULTS = (Op.PASS, Op.RESIDUAL, Op.GATE, Op.UP, Op.LOGITS, Op.SCORES, Op.SUMS)
FROM_WORDS = (Op.RESIDUAL, Op.NORM, Op.SQUARES, Op.ROPE)
#: Operations that share a unit with another one.
EXCLUSIVE = (*PACKED, Op.SQUARES)

#: Width of the number of a block of 64 positions.
BLOCK_BITS = POSITION_BITS - COLUMN_BITS
#: Width of the count of passes of attention, modulo its range.
PASSES_BITS = 8
#: Width of d_h in tiles.
HEAD_TILES_BITS = 4

#: Jobs whose words may be on their way to the banks at a time.
_JOBS_UNDER_WAY = 4


def epilogue_job_layout(config: ChipConfig) -> data.StructLayout:
    """What becomes of an output tile, or of bank words.

    ``op``; ``words``: bank words that a row has in it, 4 for a tile; ``source``: the first word
    that is read; ``target``: the first one that is written; ``tap``: residual sums enter a norm's
    first pass; ``ends``: its last beat is the last of a row; ``columns``: live ones of a tile of
    logits; ``block`` of a tile of scores; ``barrier``: begins only when all before it is written.
    """
    return data.StructLayout(
        {
            "op": unsigned(OP_BITS),
            "words": unsigned(config.word_bits + 1),
            "source": unsigned(config.word_bits),
            "target": unsigned(config.word_bits),
            "tap": 1,
            "ends": 1,
            "columns": unsigned(TILE.bit_length()),
            "block": unsigned(BLOCK_BITS),
            "barrier": 1,
        }
    )


def pass_rows_layout(config: ChipConfig) -> data.StructLayout:
    """Rows of a pass of attention: ``rows`` of them, ``group`` at a position, from ``start`` on."""
    count = config.core.t_m.bit_length()
    return data.StructLayout(
        {
            "start": unsigned(POSITION_BITS),
            "group": unsigned(count),
            "rows": unsigned(count),
        }
    )


def _is_one_of(op: Signal, ops: tuple[Op, ...]) -> Signal:
    return Cat(op == each for each in ops).any()


class Epilogue(Unique):
    """Jobs in order: results of output tiles as they come, passes over bank words between them.

    Throughput: a beat of ``special_elements`` a cycle, from job to job too where both pack results
    of the same operation.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    jobs : stream of :func:`epilogue_job_layout`
        Taken with its last beat.
    results : stream of the array's results
    weights : stream of beats of BF16, for NORM
    inverse_width, eps : constants of the norm
    factor : C of the scores
    passes : stream of :func:`pass_rows_layout`
        Taken ahead, in a cycle a row; SETUP makes it the pass in work.
    head_tiles : d_h in tiles, held while a head's words are on their way
    rope_write, rope_row, rope_data
        Writes cosines and sines of the rows' positions, each row for itself; not during RoPE.
    rows : rows of the step: the others' banks are not written, and raise no flag
        In a pass of attention its own rows take their place.
    other_* , data, write_* : ports of :class:`~hw.memory.banks.UnifiedBuffer`
    begun : a job begins in this cycle
    writing, write_next, write_end
        The oldest job that is not all written: its next word, and the one behind its last.
    written, passes_written
        Counts, modulo their ranges, of jobs whose words are all in the banks, and of passes of
        attention of which all are.
    mix, mix_taken, mix_ends, go, rises : of :class:`~hw.issue.engine.Engine`
        A tile of probabilities may be read once it is staged for each row that sees it. It is read
        for each tile of d_h; with the last one the pass is over.
    winners : a stream for each row
    status, clear : of all slices of ``rows``
    idle : no job, nothing on its way
    """

    module_name = "bsspec_epilogue"
    label = "epilogue"

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        core = config.core
        words = data.ArrayLayout(unsigned(WORD_BITS), core.t_m)
        winner = data.StructLayout({"index": unsigned(INDEX_BITS), "none": 1})
        super().__init__(
            {
                "jobs": In(stream.Signature(epilogue_job_layout(config))),
                "results": In(stream.Signature(results_layout(core))),
                "weights": In(stream.Signature(data.ArrayLayout(BF16, core.special_elements))),
                "inverse_width": In(FP32),
                "eps": In(FP32),
                "factor": In(FACTOR),
                "passes": In(stream.Signature(pass_rows_layout(config))),
                "head_tiles": In(HEAD_TILES_BITS),
                "rope_write": In(core.t_m),
                "rope_row": In(rope_row_bits(core.special_elements)),
                "rope_data": In(32 * core.special_elements),
                "mix": In(1),
                "mix_taken": In(1),
                "mix_ends": In(1),
                "go": Out(1),
                "rises": Out(data.ArrayLayout(unsigned(RISE_BITS), core.t_m)),
                "rows": In(core.t_m),
                "other_read": Out(1),
                "other_word": Out(config.word_bits),
                "other_granted": In(1),
                "front_read": In(1),
                "data": In(words),
                "write_enable": Out(core.t_m),
                "write_word": Out(data.ArrayLayout(unsigned(config.word_bits), core.t_m)),
                "write_data": Out(words),
                "begun": Out(1),
                "written": Out(jobs_bits(config)),
                "passes_written": Out(PASSES_BITS),
                "writing": Out(1),
                "write_next": Out(config.word_bits),
                "write_end": Out(config.word_bits + 1),
                **{f"winners_{i}": Out(stream.Signature(winner)) for i in range(core.t_m)},
                "status": Out(STATUS),
                "clear": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, core = self.config, self.config.core
        elements = core.special_elements
        parts = BANK_WORD // elements
        job = self.jobs.payload
        slices = [
            instantiate(m, f"slice_{row}", Slice, elements=elements) for row in range(core.t_m)
        ]

        from_results = Signal()
        from_words = Signal()
        is_packed = Signal()
        exclusive = Signal()
        m.d.comb += [
            from_results.eq(_is_one_of(job.op, FROM_RESULTS)),
            from_words.eq(_is_one_of(job.op, FROM_WORDS)),
            is_packed.eq(_is_one_of(job.op, PACKED)),
            exclusive.eq(_is_one_of(job.op, EXCLUSIVE)),
        ]

        # Progress within the job: word and part of it.
        word = Signal(config.word_bits + 1)
        part = Signal(range(max(2, parts)))
        first = Signal()
        last_part = Signal()
        last_word = Signal()
        enters = Signal()
        # Low channels of a pair of words are held in one cycle.
        hold = Signal()
        m.d.comb += [
            first.eq((word == 0) & (part == 0)),
            hold.eq((job.op == Op.ROPE) & ~word[0]),
            last_part.eq((part == parts - 1) | hold),
            last_word.eq(word == job.words - 1),
        ]
        with m.If(enters):
            m.d.sync += part.eq(Mux(last_part, 0, part + 1))
            with m.If(last_part):
                m.d.sync += word.eq(Mux(last_word, 0, word + 1))

        started = Signal()
        have = self._words(m, job, from_words & started, enters & last_part, last_word)

        # A job begins when what is on its way is of its kind, and its target has a place.
        kind = Signal(OP_BITS)
        tap = Signal()
        targets = Queue(
            m,
            "targets",
            data.StructLayout(
                {"next": config.word_bits, "end": config.word_bits + 1, "ends_pass": 1}
            ),
            _JOBS_UNDER_WAY,
        )
        quiet = Signal()
        may_begin = Signal()
        slices_idle = Signal()
        m.d.comb += [
            slices_idle.eq(Cat(each.idle for each in slices).all()),
            quiet.eq(slices_idle & (targets.count == 0)),
            may_begin.eq(
                Mux(
                    job.barrier,
                    quiet,
                    ~exclusive
                    | (quiet & (job.op != kind))
                    | ((job.op == kind) & (job.tap == tap) & (targets.count != _JOBS_UNDER_WAY)),
                )
            ),
        ]
        ready = Signal()
        offered = Signal()
        is_setup = Signal()
        pass_ready, positions, pass_rows = self._pass_rows(m, self.begun & is_setup)
        m.d.comb += [
            is_setup.eq(job.op == Op.SETUP),
            started.eq(~first | may_begin),
            ready.eq(Cat(each.ready for each in slices).all()),
            offered.eq(
                self.jobs.valid
                & started
                & (~from_results | self.results.valid)
                & (~from_words | have)
                & ((job.op != Op.NORM) | self.weights.valid)
                & (~is_setup | ~first | pass_ready)
            ),
            enters.eq(offered & ready),
            self.begun.eq(enters & first),
            self.results.ready.eq(enters & from_results),
            self.weights.ready.eq(enters & (job.op == Op.NORM)),
            self.jobs.ready.eq(enters & last_part & last_word),
            targets.push.eq(self.begun & is_packed),
            targets.entry.next.eq(job.target),
            targets.entry.end.eq(job.target + job.words),
            targets.entry.ends_pass.eq((job.op == Op.SUMS) & job.ends),
        ]
        with m.If(self.begun & exclusive):
            m.d.sync += [kind.eq(job.op), tap.eq(job.tap)]

        # Words that leave the slices, all at once, to the oldest target.
        number = Signal(config.word_bits)
        leaves = Signal()
        next_word = Signal(config.word_bits)
        m.d.comb += [
            leaves.eq(slices[0].leaving_valid),
            next_word.eq(targets.head.next + self._place(number, kind)),
            # Of a head the last word is the last one of its high channels.
            targets.pop.eq(leaves & (next_word + 1 == targets.head.end)),
            # Words of a head do not ascend.
            self.writing.eq((targets.count != 0) & (kind != Op.ROPE)),
            self.write_next.eq(next_word),
            self.write_end.eq(targets.head.end),
            self.idle.eq(~self.jobs.valid & quiet),
        ]
        with m.If(leaves):
            m.d.sync += number.eq(Mux(targets.pop, 0, number + 1))
        with m.If(targets.pop):
            m.d.sync += [
                self.written.eq(self.written + 1),
                self.passes_written.eq(self.passes_written + targets.head.ends_pass),
            ]

        mix_block, restart, sees = self._mix(m, slices, positions, pass_rows)
        attends = Signal()  # What leaves belongs to a pass.
        m.d.comb += attends.eq(kind == Op.SUMS)
        live = Signal(elements)
        column = Signal(TILE.bit_length())
        m.d.comb += column.eq((word[:2] << 4) | (part * elements))
        for i in range(elements):
            m.d.comb += live[i].eq((job.op != Op.LOGITS) | (column + i < job.columns))
        raised = Signal(len(self.status.as_value()))
        flags = []
        for row, each in enumerate(slices):
            takes_part = Mux(job.op == Op.SUMS, pass_rows[row], self.rows[row])
            winners = getattr(self, f"winners_{row}")
            m.d.comb += [
                each.offered.eq(offered),
                each.enters.eq(enters),
                each.control.op.eq(job.op),
                each.control.part.eq(part),
                each.control.hold.eq(hold),
                each.rope_write.eq(self.rope_write[row]),
                each.rope_row.eq(self.rope_row),
                each.rope_data.eq(self.rope_data),
                each.control.last.eq(job.ends & last_part & last_word),
                # Dead elements raise no flag.
                each.control.live.eq(live & takes_part.replicate(elements)),
                each.control.weights.eq(self.weights.payload),
                each.tap.eq(tap & (kind == Op.RESIDUAL)),
                each.inverse_width.eq(self.inverse_width),
                each.eps.eq(self.eps),
                each.clear.eq(self.clear),
                # What leaves in lockstep goes first; probabilities wait.
                self.write_enable[row].eq(
                    Mux(leaves, Mux(attends, pass_rows[row], self.rows[row]), each.staged_valid)
                ),
                self.write_word[row].eq(Mux(leaves, next_word, config.staging + each.staged_word)),
                self.write_data[row].eq(Mux(leaves, each.leaving, each.staged)),
                each.staged_ready.eq(~leaves),
                each.factor.eq(self.factor),
                each.position.eq(positions[row]),
                each.takes.eq(
                    Mux(job.op == Op.SUMS, pass_rows[row], self.results.payload.rows[row])
                ),
                each.rise_tile.eq(mix_block),
                each.restart.eq(restart),
                each.control.block.eq(job.block),
                each.control.column.eq(column),
                each.control.tile_last.eq(last_part & last_word),
                self.rises[row].eq(Mux(sees[row], each.rise, 0)),
                winners.valid.eq(each.winners.valid),
                winners.payload.eq(each.winners.payload),
                each.winners.ready.eq(winners.ready),
            ]
            m.d.comb += [
                each.codes[i].eq(self.results.payload.codes[row][i]) for i in range(elements)
            ]
            m.d.comb += each.word.eq(self._kept[row])
            flags.append(each.status.as_value())
        total = flags[0]
        for each_flags in flags[1:]:
            total = total | each_flags
        m.d.comb += [raised.eq(total), self.status.as_value().eq(raised)]
        return m

    def _place(self, number: Value, op: Value) -> Value:
        """Where the ``number``-th word of a job lies: words of a head come in pairs."""
        half = self.head_tiles << 1
        return Mux(op == Op.ROPE, (number >> 1) + Mux(number[0], half, 0), number)

    def _pass_rows(self, m: Module, begins: Value) -> tuple[Signal, Any, Signal]:
        """Whether the next pass is known; positions and mask of the rows of the one in work."""
        core = self.config.core
        layout = data.ArrayLayout(unsigned(POSITION_BITS), core.t_m)
        positions = packed(layout, name="positions", reset_less=True)
        rows = Signal(core.t_m)
        # The next pass, a row a cycle.
        following = packed(layout, name="next_positions", reset_less=True)
        following_rows = Signal(core.t_m)
        ready = Signal()
        row = Signal(range(core.t_m + 1))
        member = Signal(range(core.t_m + 1))
        position = Signal(POSITION_BITS)
        entry = self.passes.payload
        done = Signal()
        m.d.comb += [
            done.eq(row == entry.rows),
            self.passes.ready.eq(done & ~ready),
        ]
        with m.If(self.passes.valid & ~ready):
            with m.If(done):
                m.d.sync += [row.eq(0), member.eq(0), ready.eq(1)]
            with m.Else():
                at = Mux(row == 0, entry.start, position)
                m.d.sync += [
                    row.eq(row + 1),
                    member.eq(Mux(member == entry.group - 1, 0, member + 1)),
                    position.eq(at + (member == entry.group - 1)),
                ]
                for i in range(core.t_m):
                    with m.If(row == i):
                        m.d.sync += [following[i].eq(at), following_rows[i].eq(1)]
        with m.If(begins):
            m.d.sync += [
                positions.eq(following),
                rows.eq(following_rows),
                following_rows.eq(0),
                ready.eq(0),
            ]
        return ready, positions, rows

    def _mix(
        self, m: Module, slices: list[Any], positions: Any, rows: Signal
    ) -> tuple[Signal, Signal, Signal]:
        """The tile of probabilities that is read next: its block, and who sees it."""
        block = Signal(BLOCK_BITS)
        channels = Signal(HEAD_TILES_BITS)
        last_channels = Signal()
        restart = Signal()
        sees = Signal(len(slices))
        staged = Signal(len(slices))
        for row, each in enumerate(slices):
            own = positions[row][COLUMN_BITS:]
            m.d.comb += [
                sees[row].eq(rows[row] & (block <= own)),
                staged[row].eq(each.tiles_staged > block),
            ]
        m.d.comb += [
            # Before the first pass nobody sees anything.
            self.go.eq(~self.mix | (sees.any() & (~sees | staged).all())),
            last_channels.eq(channels == self.head_tiles - 1),
            restart.eq(self.mix_taken & self.mix_ends & last_channels),
        ]
        with m.If(self.mix_taken):
            m.d.sync += channels.eq(Mux(last_channels, 0, channels + 1))
            with m.If(last_channels):
                m.d.sync += block.eq(Mux(restart, 0, block + 1))
        return block, restart, sees

    def _words(
        self,
        m: Module,
        job: data.View,
        wanted: Value,
        used: Value,
        last_word: Signal,
    ) -> Signal:
        """Bank words of the job, one ahead: whether the one for the next beat is there.

        A word is read while the one before it is in use. It stays at the memories' outputs until
        it can move on; where the front reads meanwhile, it is read again.
        """
        config, core = self.config, self.config.core
        self._kept = Array(
            Signal(WORD_BITS, name=f"word_{row}", reset_less=True) for row in range(core.t_m)
        )
        have = Signal()
        asked = Signal()
        moves = Signal()
        number = Signal(config.word_bits + 1)  # The next word to read.
        done = Signal()
        m.d.comb += [
            done.eq(number == job.words),
            moves.eq(asked & (~have | used)),
            self.other_read.eq(self.jobs.valid & wanted & ~done & (~asked | moves)),
            self.other_word.eq(job.source + self._place(number, job.op)),
        ]
        granted = Signal()
        m.d.comb += granted.eq(self.other_read & self.other_granted)
        with m.If(moves):
            m.d.sync += [kept.eq(self.data[row]) for row, kept in enumerate(self._kept)]
            m.d.sync += [have.eq(1), asked.eq(0)]
        with m.Elif(used):
            m.d.sync += have.eq(0)
        with m.If(granted):
            m.d.sync += [asked.eq(1), number.eq(number + 1)]
        with m.Elif(asked & ~moves & self.front_read):
            m.d.sync += [asked.eq(0), number.eq(number - 1)]
        with m.If(used & last_word):
            m.d.sync += [number.eq(0), have.eq(0), asked.eq(0)]
        return have
