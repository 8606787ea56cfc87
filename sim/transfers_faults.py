"""Deliberate faults in what carries small data between memory and banks."""

from __future__ import annotations

from sim.fault_list import Fault, faults_of

TRANSFERS_FAULTS: list[Fault] = [
    *faults_of(
        "loader",
        "transfers/loader.py",
        ("a request without a place is taken", "room.eq(work.count != REQUESTS)", "room.eq(1)"),
        (
            "read requests are made for nobody",
            "self.requests.valid & room),\n            self.read_requests.payload.line",
            "self.requests.valid),\n            self.read_requests.payload.line",
        ),
        ("each request begins where the last one ended", "Mux(ends, 0, number + 1)", "number + 1"),
        ("each line is a request", "last_word & line.last)", "last_word)"),
        (
            "a line is taken with its first word",
            "self.read_lines.ready.eq(moves & last_word)",
            "self.read_lines.ready.eq(moves)",
        ),
        ("writes do not wait for the bank", "(WORD_BITS, self.bank_ready)", "(WORD_BITS, 1)"),
        ("the first word is 0", "place.eq(load.word + number)", "place.eq(number)"),
        ("cosines of every row", "& (load.row == i) for", "for"),
        ("cosines from a bank word on", "self.rope_row.eq(number)", "self.rope_row.eq(place)"),
        (
            "an error counts for the first word",
            "error=moves & last_word & line.error",
            "error=moves & ~last_word & line.error",
        ),
        (
            "keys, too, are refused",
            "(here[Target.BANK] | here[Target.WEIGHTS]) & refused",
            "refused",
        ),
        ("weights are not refused", " | here[Target.WEIGHTS]) & refused", ") & refused"),
        ("the largest exponent is refused", "number[7:15].all()", "number[8:15].all()"),
        (
            "the last number is not refused",
            "range(0, LINE_BITS, 16)",
            "range(0, LINE_BITS - 16, 16)",
        ),
        ("idle while the last request is written", "(work.count == 0)", "(work.count <= 1)"),
    ),
    *faults_of(
        "mover",
        "transfers/mover.py",
        ("heads lie in one row", "staged_row + last_word", "staged_row"),
        (
            "each position begins with its row's first head",
            "Mux(ends, 0, staged_row",
            "Mux(last_head, 0, staged_row",
        ),
        ("a position begins behind the last one", "Mux(last_head, 0, offset + 1)", "offset + 1"),
        ("positions share a row", "row.eq(move.row + position)", "row.eq(move.row)"),
        (
            "words are scattered from where they go",
            "Mux(scatter, staged_place, place)",
            "place",
        ),
        (
            "rows are scattered from where they go",
            "source_row.eq(Mux(scatter, staged_row, row))",
            "source_row.eq(row)",
        ),
        ("keys are moves of groups", "last_word & (~between | (head", "last_word & ((head"),
        (
            "values have as many words as is said",
            "Mux(move.kind == Kind.VALUES, TILE_WORDS, move.words)",
            "move.words",
        ),
        (
            "a word is read that finds no place",
            "words.count + asked < WORDS",
            "words.count < WORDS",
        ),
        ("a read counts that is not granted", "self.read & self.granted", "self.read"),
        ("data a cycle early", "words.push.eq(asked)", "words.push.eq(reads)"),
        (
            "a key waits in a single place",
            'Queue(m, "keys", line_request_layout(config), JOBS)',
            'Queue(m, "keys", line_request_layout(config), 1)',
        ),
        (
            "values are begun without a place",
            " | (values.count != JOBS)",
            " | 1",
        ),
        (
            "a key is asked for by each word",
            "keys.push.eq(reads & ~begun &",
            "keys.push.eq(reads &",
        ),
        ("words are lines", "move.words >> (LINE_WORDS.bit_length() - 1)", "move.words"),
        ("writes do not wait for the bank", "self.bank_write & self.bank_ready", "self.bank_write"),
        ("a word is a beat", "taken & (beat == beats - 1)", "taken"),
        ("each word is a group", "note.ends & (beat == beats - 1)", "(beat == beats - 1)"),
        ("done with each word", "words.pop & words.head.note.ends", "words.pop"),
        ("done with the last read", "m.If(words.pop & words.head.note.ends)", "m.If(reads & ends)"),
        ("idle while values are quantised", "                    values.count == 0,\n", ""),
        ("idle while rows are kept", "                    writer.idle,\n", ""),
        ("idle while a word is read", "                    ~asked,\n", ""),
        ("idle while a key's line waits", "                    rows.idle,\n", ""),
    ),
    *faults_of(
        "write_arbiter",
        "transfers/arbiter.py",
        ("a request that was shown changes", "m.If(~held & requests", "m.If(requests"),
        (
            "the first source always goes first",
            "other = (i + distance) % count",
            "other = distance",
        ),
        ("the turn goes backwards", "range(count - 1, 0, -1)", "range(1, count)"),
        ("requests run ahead", "room.eq(work.count != REQUESTS)", "room.eq(1)"),
        ("lines without a request", "m.If(work.count != 0), ", "m.If(1), "),
        ("a line too few", "work.head.count - 1", "work.head.count - 2"),
        ("lines change with each line", "work.pop.eq(moves & ends)", "work.pop.eq(moves)"),
        ("lines are counted on", "m.d.sync += passed.eq(0)", "pass"),
        ("a tag is the source before", "payload.tag.eq(chosen)", "payload.tag.eq(last)"),
        (
            "a full queue takes a request",
            "each.ready.eq(request.ready & room)",
            "each.ready.eq(request.ready)",
        ),
    ),
]
