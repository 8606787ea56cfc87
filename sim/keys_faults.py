"""Deliberate faults in what brings keys and values into the forms of memory and array."""

from __future__ import annotations

from sim.fault_list import Fault, faults_of

KEYS_FAULTS: list[Fault] = [
    *faults_of(
        "key_transposer",
        "keys/rows.py",
        ("a full ring takes a line", "!= 1 << self.line_bits", "!= -1"),
        ("an open key's first lines do not count", "~marks[1][0] & (", "marks[1][0] & ("),
        (
            "channels begin with the maxima of the block before",
            "~starts & (rounds[0][i] > seen[i])",
            "(rounds[0][i] > seen[i])",
        ),
        (
            "a zero has an exponent",
            "Mux(number.significand.any(), number.exponent[:8], 0)",
            "number.exponent[:8]",
        ),
        ("what is not taken is refused", "taken & refused.any()", "refused.any()"),
        (
            "every head has the lines of the widest",
            "end.eq((job.head_tiles << 1) - 1)",
            "end.eq(self.row_lines - 1)",
        ),
        (
            "exponents of channels are overwritten while they are needed",
            "~(self.jobs.payload.close & channels_taken)",
            "1",
        ),
    ),
    *faults_of(
        "key_transposer",
        "keys/maker.py",
        (
            "a closed block begins with its first tokens",
            "Mux(job.close, tokens_left, present)",
            "present",
        ),
        ("a group begins with its first token", "(here >= needed)", "(here != 0)"),
        (
            "the next job's first line lies behind empty moves",
            "m.If(~empties):\n                m.d.sync += address",
            "m.If(1):\n                m.d.sync += address",
        ),
        (
            "tokens that are not there leave bits",
            " & leaving.live.replicate(OPEN_PLANES)",
            "",
        ),
        (
            "open keys have the exponents of channels",
            "Mux(self.job.close, channels[i], self.exponent)",
            "channels[i]",
        ),
        ("lines are freed while others need them", "m.If(reads & last_line):", "m.If(reads):"),
        ("later bytes keep what was there", "before.ends.eq(last_group)", "before.ends.eq(0)"),
        ("the corner turner keeps its direction", "down.eq(~down)", "down.eq(down)"),
        ("scales of the last job's kind", " & ~self.job.close),", "),"),
    ),
    *faults_of(
        "key_transposer",
        "keys/planes.py",
        (
            "halves stay where they were put",
            "Mux(swapped, other, macros[number])",
            "macros[number]",
        ),
        (
            "rows of two tiles change places as those of one",
            "swaps = Mux(self.head_tiles[bit], row[bit], swaps)",
            "swaps = row[0]",
        ),
        ("both planes of a pair are the even one", "Mux(takes_odd, odd_row, self.row)", "self.row"),
    ),
    *faults_of(
        "key_transposer",
        "keys/corner.py",
        (
            "tokens leave in the order in which they lie",
            "cells[last][last - i], cells[last - i][last]",
            "cells[last][i], cells[i][last]",
        ),
    ),
    *faults_of(
        "key_transposer",
        "keys/scales.py",
        ("the exponent itself", "self.exponent - 1, 0", "self.exponent, 0"),
        ("old exponents of tokens that are not there", "beat * drain + i < tokens", "1"),
        (
            "exponents are written where others are given",
            "Cat(self.token[column_bits:], written)",
            "Cat(self.token[column_bits:], given)",
        ),
        ("a third block finds room", "self.room.eq(waiting != BLOCKS)", "self.room.eq(1)"),
    ),
    *faults_of(
        "key_transposer",
        "keys/closer.py",
        (
            "the last plane is left out",
            "rows_left.eq(job.p_full * job.head_tiles)",
            "rows_left.eq(job.p_full * job.head_tiles - 1)",
        ),
        ("exponents of the first tile alone", "Array(tiles)[row] if", "tiles[0] if"),
    ),
    *faults_of(
        "key_transposer",
        "keys/transposer.py",
        ("an open block is there for a read too many", "(uses == 1)", "(uses == 0)"),
        ("planes are made while others are read", "& ~shown & ~closer", "& ~closer"),
    ),
    *faults_of(
        "value_writer",
        "keys/values.py",
        ("rows of two tiles are merged", "(job.line != tile) | ", ""),
        (
            "rows of two lines are merged",
            "(job.line != tile) | (job.token[len(place) :] != eighth)",
            "(job.line != tile)",
        ),
        ("exponents in every eighth", "kept.replicate(eighths) & here", "kept.replicate(eighths)"),
        ("a row is merged with what is being written", "& ~writing & ~elsewhere", "& ~writing"),
        (
            "a line is asked for twice",
            "self.requests.valid.eq(shown & ~asked)",
            "self.requests.valid.eq(shown)",
        ),
        ("planes lie side by side", "line + PLANE_LINES", "line + 1"),
        ("rows that were written stay", "[writing.eq(0), kept.eq(0)]", "[writing.eq(0)]"),
        ("a number's bits leave from below", "Cat(channel[-1] for", "Cat(channel[0] for"),
    ),
    *faults_of(
        "row_writer",
        "keys/values.py",
        (
            "words are swapped",
            "Cat(lower, self.words.payload)",
            "Cat(self.words.payload, lower)",
        ),
        ("a word is taken before its line can leave", "& (~half | self.lines.ready)", ""),
    ),
]
