"""Deliberate faults in what only the whole chip shows: program, controller, wiring."""

from __future__ import annotations

from sim.fault_list import Fault, faults_of

CHIP_FAULTS: list[Fault] = [
    *faults_of(
        "chip",
        "./datapath.py",
        (
            "planes lie behind the exponents of their block",
            "planes.eq(planes + fetch.payload.count)",
            "planes.eq(planes + fetch.payload.count + 1)",
        ),
        (
            "logits are written without their row's argmax",
            "epilogue.results.valid.eq(engine.results.valid & (~both | logits.results.ready))",
            "epilogue.results.valid.eq(engine.results.valid & ~both)",
        ),
    ),
    *faults_of(
        "chip",
        "control/attention.py",
        (
            "closed keys of the pass' own block are not used",
            "block > first_block, block >= first_block",
            "block > first_block, block > first_block",
        ),
        (
            "the block of a pass is half as long",
            "first_block.eq(each.start >> 6)",
            "first_block.eq(each.start >> 5)",
        ),
    ),
    *faults_of(
        "chip",
        "control/works.py",
        (
            "a pass is taken before it ends",
            "Mux(is_pass, attention.passes.ready, matrices.matrices.ready)",
            "Mux(is_pass, self.rows.ready, matrices.matrices.ready)",
        ),
    ),
    *faults_of(
        "chip",
        "control/controller.py",
        (
            "a line of text is written with all of its bytes",
            "Cat(strobes[i].replicate(4) for i in range(TEXT_WORDS))",
            "~0",
        ),
        ("moves that wait are not seen", 'Idle.MOVER: waiting["moves"],', "Idle.MOVER: 0,"),
        (
            "jobs of the transposer close every block",
            '{"tokens": "count"}',
            '{"tokens": "count", "close": "last"}',
        ),
    ),
    *faults_of(
        "chip",
        "control/program/attention.py",
        (
            "a complete block is not closed",
            "p.set(end, (c.segment_start[c.i] + c.segment_rows[c.i]) >> 6)",
            "p.set(end, (c.segment_start[c.i] + c.segment_rows[c.i] - 1) >> 6)",
        ),
        (
            "open keys of two blocks share their place",
            "c.move(line=line + (c.c & (OPEN_ROWS - 1)) * c.b, row=c.d)",
            "c.move(line=line + (c.c & (TILE_K - 1)) * c.b, row=c.d)",
        ),
    ),
    *faults_of(
        "chip",
        "control/program/rounds.py",
        (
            "drafts are verified with the draft's planes",
            'p.call("use_full")',
            'p.call("use_precision")',
        ),
        (
            "each draft step has the first one's position",
            'c.window("LENGTH", c.i) + step)',
            'c.window("LENGTH", c.i))',
        ),
    ),
    *faults_of(
        "chip",
        "control/program/control.py",
        ("rows keep the argmax of a step before", "p.set(c.argmax[c.i], 0)", "pass"),
    ),
    *faults_of(
        "chip",
        "control/program/step.py",
        (
            "all rows have the first token's embedding",
            "line=c.base[int(Region.EMBED)] + c.c * c.tokens[c.i]",
            "line=c.base[int(Region.EMBED)] + c.c * c.tokens[0]",
        ),
    ),
    *faults_of(
        "chip",
        "control/program/main.py",
        (
            "the last command of a list is left out",
            "p.set(end, c.i + c.j)",
            "p.set(end, c.i + c.j - 1)",
        ),
    ),
    *faults_of(
        "chip",
        "transfers/logits.py",
        (
            "rows' logits follow each other",
            "address.eq(address + self.stride)",
            "address.eq(address + 1)",
        ),
        (
            "a step's logits lie behind the last one's",
            "with m.If(self.restart):\n            m.d.sync += place.eq(0)",
            "with m.If(0):\n            m.d.sync += place.eq(0)",
        ),
    ),
    *faults_of(
        "chip_trouble",
        "./chip.py",
        (
            "the memory is told silent while results are written",
            "datapath.memory_idle & reader.idle & writer.idle",
            "datapath.memory_idle & reader.idle",
        ),
    ),
    *faults_of(
        "chip_trouble",
        "control/program/main.py",
        (
            "after a fault loads are counted on",
            "for register in (c.loads, c.moves, c.gate):\n        p.set(register, 0)\n    for word",
            "for register in (c.moves, c.gate):\n        p.set(register, 0)\n    for word",
        ),
        (
            "reserved bits of a command's first word are not looked at",
            "p.set(c.a, Word(c.cmd, 0) & bits[0])",
            "p.set(c.a, 0)",
        ),
    ),
    *faults_of(
        "chip_trouble",
        "control/program/step.py",
        (
            "a matrix may reach beyond its region by a line",
            'c.need_region(Region.WEIGHTS, c.h * c.tile_lines + field("weights"))',
            'c.need_region(Region.WEIGHTS, c.h * c.tile_lines + field("weights") - 1)',
        ),
    ),
]
