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
    ),
    *faults_of(
        "chip",
        "control/controller.py",
        (
            "a line of text is written with all of its bytes",
            "Cat(strobes[i].replicate(4) for i in range(TEXT_WORDS))",
            "~0",
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
    ),
]
