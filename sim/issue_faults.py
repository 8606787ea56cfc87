"""Deliberate faults in what feeds the array: ring, buffer, queues, readers."""

from __future__ import annotations

from sim.fault_list import Fault, faults_of

ISSUE_FAULTS: list[Fault] = [
    *faults_of(
        "engine",
        "memory/ring.py",
        (
            "ports that meet: both are told that they were taken",
            "grants.append(wanted[i] & (winner == i))",
            "grants.append(wanted[i])",
        ),
        (
            "the line of a port that lost",
            "winner.eq(lowest + first)",
            "winner.eq(lowest)",
        ),
        config="slice",
    ),
    *faults_of(
        "engine",
        "memory/ring.py",
        (
            "exponents go into the planes too",
            "line.valid & ~line.payload.exponents & (",
            "line.valid & (",
        ),
        ("planes in the wrong row", "chosen.place[_BANK_BITS:]", "chosen.place[_BANK_BITS - 1 :]"),
    ),
    *faults_of(
        "engine",
        "memory/fifo.py",
        ("a full queue takes a word", "self.i.ready.eq(stored != depth)", "self.i.ready.eq(1)"),
        (
            "a word is read again",
            "(stored != 0) & (~shown | self.o.ready)",
            "(stored != 0) & ~shown",
        ),
    ),
    *faults_of(
        "engine",
        "memory/banks.py",
        (
            "another reader is granted beside the front",
            "self.other_granted.eq(self.other_read & ~self.front_read)",
            "self.other_granted.eq(self.other_read)",
        ),
    ),
    *faults_of(
        "engine",
        "issue/planes.py",
        (
            "a plane is read before its last line is there",
            "needed.eq(position + piece.tiles + ((row + 1) <<",
            "needed.eq(position + piece.tiles + (row <<",
        ),
        ("planes of a tile lie side by side", "row.eq(row + piece.tiles)", "row.eq(row + 1)"),
        ("open keys are rows of the ring", "Mux(piece.opened, 0, base) + row", "base + row"),
        ("open keys free rows of the ring", "with m.If(~piece.opened):", "with m.If(1):"),
        (
            "rows are freed a plane too early",
            "base.eq(base + row + 1)",
            "base.eq(base + row + 2)",
        ),
        (
            "the column group of the next read is shown",
            "Array(groups)[shown_group]",
            "Array(groups)[group]",
        ),
        (
            "a plane is overwritten while it waits",
            "arrived & (~valid | self.planes.ready)",
            "arrived",
        ),
    ),
    *faults_of(
        "engine",
        "issue/front.py",
        (
            "exponents are read before they are there",
            "needed.eq(position + tile + 1)",
            "needed.eq(position + tile)",
        ),
        (
            "the successor's exponents are not waited for",
            "taken & ahead & next_arrived",
            "taken & ahead",
        ),
        (
            "a word that another read replaced is shown",
            "with m.If(taken | lost):",
            "with m.If(taken):",
        ),
        (
            "probabilities are not waited for",
            "self.pieces.valid & self.go & Mux(",
            "self.pieces.valid & Mux(",
        ),
        ("rises of every tile", "Mux(piece.mix, self.rises, 0)", "self.rises"),
        ("the first tile of a block is the last", "piece.last & last_tile", "piece.last"),
        ("every tile of a block starts anew", "piece.first & (tile == 0)", "piece.first"),
        ("open keys have exponents", "Mux(piece.opened, 1, chosen)", "chosen"),
        (
            "lines are counted for the planes of a tile",
            "((piece.tiles * piece.p) << 3)",
            "(piece.p << 3)",
        ),
    ),
]
