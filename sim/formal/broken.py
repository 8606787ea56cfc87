"""Broken copies of the hardware, each with the proof that must fail for it."""

from __future__ import annotations

from sim.fault_list import Fault, faults_of

#: Faults that a proof must see; ``bench`` is its name.
BROKEN: list[Fault] = [
    *faults_of(
        "fifo_3",
        "memory/fifo.py",
        ("rows wrap too late", "Mux(row == depth - 1, 0, row + 1)", "row + 1"),
        ("a full queue takes a word", "stored != depth)", "stored != depth + 1)"),
        (
            "the next word is read before the last is taken",
            "(stored != 0) & (~shown | self.o.ready)",
            "stored != 0",
        ),
    ),
    *faults_of(
        "splitter_tiny",
        "axi/splitter.py",
        ("a burst crosses 4 KiB", "Mux(page_left < longest, page_left, longest)", "longest"),
        ("last one burst too late", "left <= allowed", "left < allowed"),
        ("a burst too long by a line", "page_left, longest)", "page_left, longest + 1)"),
        ("an empty request has bursts", "request.count != 0", "1"),
        ("lines do not follow", "line.eq(line + burst.lines)", "line.eq(line + allowed - 1)"),
    ),
    *faults_of(
        "fifo_4",
        "memory/fifo.py",
        (
            "room goes away without a word",
            "eq(stored != depth)",
            "eq((stored != depth) & self.o.ready)",
        ),
    ),
    *faults_of(
        "streams_controller",
        "control/controller.py",
        (
            "closed blocks outlive a flush",
            "with m.If(flush):\n            m.d.sync += closed.count.eq(0)",
            "with m.If(0):\n            m.d.sync += closed.count.eq(0)",
        ),
        (
            "a setting waits",
            "m.d.comb += processor.out_ready.eq(1)",
            "m.d.comb += processor.out_ready.eq(text_ready[Push.TEXT])",
        ),
    ),
    *faults_of(
        "streams_read_arbiter",
        "axi/arbiter.py",
        (
            "an address that was shown gives way",
            "held.eq(bus.arvalid & ~bus.arready)",
            "held.eq(0)",
        ),
    ),
    *faults_of(
        "streams_write_arbiter",
        "transfers/arbiter.py",
        ("a request that was shown gives way", "held.eq(~request.ready)", "held.eq(0)"),
    ),
    *faults_of(
        "credits_read_port_passing",
        "axi/read.py",
        ("an address falls before it is taken", "with m.Elif(bus.arready):", "with m.Else():"),
    ),
    *faults_of(
        "credits_read_port_passing",
        "axi/read.py",
        ("more bursts than are noted", "room.eq(notes.count != config.outstanding)", "room.eq(1)"),
        ("idle with an answer due", "self.idle.eq(notes.count == 0)", "self.idle.eq(~pending)"),
    ),
    *faults_of(
        "credits_read_port_reserving",
        "axi/read.py",
        (
            "a burst without room",
            "promised + burst.lines <= self.depth",
            "promised < self.depth",
        ),
        (
            "room is given back too early",
            "left.eq(self.lines.valid & self.lines.ready)",
            "left.eq(complete)",
        ),
    ),
    *faults_of(
        "credits_line_writer",
        "axi/write.py",
        ("a burst before its lines", "(burst.lines <= waiting) & room", "room"),
        ("idle with a burst on its way", "self.idle.eq(answers.count == 0)", "self.idle.eq(1)"),
        ("more answers than are noted", "answers.count != config.outstanding", "1"),
    ),
    *faults_of(
        "streams_read_dma",
        "axi/dma.py",
        ("more lines than rows", "used + burst.lines <= config.ring_lines", "used < 64"),
    ),
    *faults_of(
        "streams_write_arbiter",
        "transfers/arbiter.py",
        ("lines pass before their request", "with m.If(work.count != 0), m", "with m.If(1), m"),
        ("more requests than there is room for", "work.count != REQUESTS", "1"),
    ),
    *faults_of(
        "credits_line_writer",
        "axi/write.py",
        (
            "an address falls before it is taken",
            "with m.Elif(bus.awready):",
            "with m.Else():",
        ),
    ),
    *faults_of(
        "streams_residual",
        "special/flow.py",
        ("stages move over what nobody took", "~self.valid[-1] | ready", "1"),
    ),
    *faults_of(
        "streams_square_sum",
        "special/squares.py",
        ("a sum does not wait for the one before", "~(row_ends & reserved)", "1"),
    ),
    *faults_of(
        "streams_probabilities",
        "special/softmax.py",
        (
            "a sum falls before it is taken",
            "with m.If(self.totals.ready & waits):",
            "with m.If(waits):",
        ),
    ),
    *faults_of(
        "streams_loader",
        "transfers/loader.py",
        ("more requests than there is room for", "work.count != REQUESTS", "1"),
    ),
    *faults_of(
        "streams_plane_reader",
        "issue/planes.py",
        ("a plane falls before it is taken", "with m.If(self.planes.ready):", "with m.If(1):"),
    ),
    *faults_of(
        "streams_works",
        "control/works.py",
        ("what is joined is not waited for", "source.ready.eq(sink.ready)", "source.ready.eq(1)"),
    ),
    *faults_of(
        "streams_chip",
        "./chip.py",
        ("what waits is taken to be taken", "source.ready.eq(sink.ready)", "source.ready.eq(1)"),
    ),
    *faults_of(
        "streams_mover",
        "transfers/mover.py",
        ("words without room", "room.eq(words.count + asked < WORDS)", "room.eq(1)"),
    ),
    *faults_of(
        "streams_matrix_walker",
        "control/matrix.py",
        ("nothing is offered behind planes", "self.pieces.valid.eq(1)", "self.pieces.valid.eq(0)"),
        ("one block too many", "left <= matrix.tiles_per_block", "left < matrix.tiles_per_block"),
        ("one output tile too many", "n == matrix.n_tiles - 1", "n == matrix.n_tiles"),
    ),
    *faults_of(
        "streams_attention_walker",
        "control/attention.py",
        (
            "the open form is not asked for",
            "m.d.comb += self.pieces.valid.eq(1)",
            "m.d.comb += self.pieces.valid.eq(~opened)",
        ),
        (
            "keys beyond the pass' last block",
            "(key <= last_block) & (key < value + STAGED_TILES)",
            "key < value + STAGED_TILES",
        ),
        ("values beyond the last block", "last_value.eq(value == last_block)", "last_value.eq(0)"),
    ),
    *faults_of(
        "program_tiny",
        "control/program/main.py",
        ("parts are reset while memory is at work", "    c.wait(Idle.MEMORY)\n", ""),
        (
            "another part is waited for",
            "    c.wait(Idle.MEMORY)\n",
            "    c.wait(Idle.MEMORY, Idle.MOVER)\n",
        ),
        ("a fault ends nowhere", "p.place(c.faulted)", "p.place(c.faulted); p.jump(c.faulted)"),
    ),
    *faults_of(
        "program_tiny",
        "control/program/state.py",
        ("a loop does not count", "p.set(index, index + 1)", "p.set(index, index)"),
        ("a wait that nothing ends", ">= 0x80, again)", ">= 0, again)"),
    ),
    *faults_of(
        "program_tiny",
        "control/assembler.py",
        (
            "a function does not keep where it came from",
            "self.set(Register(_LINK), kept)",
            "self.set(Register(_LINK), 0)",
        ),
    ),
    *faults_of(
        "kv_lengths",
        "control/program/rounds.py",
        (
            "drafts beyond the limit",
            'c.window("LENGTH", c.i) - 2).least',
            'c.window("LENGTH", c.i) - 1).least',
        ),
        ("a sequence ends a token late", "c.h >= c.limit[c.i]", "c.h > c.limit[c.i]"),
        (
            "the length counts what was not accepted",
            'p.set(c.window("LENGTH", c.i), length + accepted + 1)',
            'p.set(c.window("LENGTH", c.i), length + drafted + 1)',
        ),
        (
            "verification begins behind the pending token",
            'p.set(c.segment_start[c.a], c.window("LENGTH", c.i))',
            'p.set(c.segment_start[c.a], c.window("LENGTH", c.i) + 1)',
        ),
        ("an end of text does not count itself", "p.set(emitted, c.j + 1)", "p.set(emitted, c.j)"),
    ),
    *faults_of(
        "kv_lengths",
        "control/program/control.py",
        (
            "COMMIT forgets the last row",
            "p.set(end, c.segment_start[c.i] + c.segment_rows[c.i])",
            "p.set(end, c.segment_start[c.i] + c.segment_rows[c.i] - 1)",
        ),
    ),
]
