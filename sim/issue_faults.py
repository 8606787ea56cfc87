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
            "moves.eq(self.pieces.valid & arrived & (~valid | self.planes.ready))",
            "moves.eq(self.pieces.valid & arrived)",
        ),
    ),
    *faults_of(
        "engine",
        "issue/pieces.py",
        (
            "a full ring's positions are too far apart to compare",
            "return config.memory.index_bits",
            "return config.memory.index_bits - 1",
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
            "                & self.go\n",
            "",
        ),
        ("rises of every tile", "Mux(piece.mix, self.rises, 0)", "self.rises"),
        (
            "the first tile of a block is the last",
            "word.last.eq(piece.last & last_tile)",
            "word.last.eq(piece.last)",
        ),
        ("every tile of a block starts anew", "piece.first & (tile == 0)", "piece.first"),
        (
            "open keys have exponents",
            "Mux(piece.opened, 1, Mux(piece.mix & byte.all(), 0, byte))",
            "Mux(piece.mix & byte.all(), 0, byte)",
        ),
        (
            "lines are counted for the planes of a tile",
            "((piece.tiles * piece.p) << 3)",
            "(piece.p << 3)",
        ),
    ),
    *faults_of(
        "epilogue",
        "special/epilogue.py",
        (
            "a norm's words are read before they are written",
            "from_words & started, enters",
            "from_words, enters",
        ),
        (
            "a word that the front replaced is used",
            "with m.Elif(asked & ~moves & self.front_read):",
            "with m.Elif(0):",
        ),
        (
            "rows that take no part are written",
            "Mux(attends, pass_rows[row], self.rows[row])",
            "Mux(attends, pass_rows[row], 1)",
        ),
        ("padded columns may win", "(column + i < job.columns)", "(column + i < 64)"),
        (
            "a tile's words have one target",
            "targets.head.next + self._place(number, kind)",
            "targets.head.next",
        ),
        (
            "another operation's results overtake",
            "| (quiet & (job.op != kind))",
            "| (job.op != kind)",
        ),
        (
            "the parts of a word are mixed up",
            "each.control.part.eq(part)",
            "each.control.part.eq(0)",
        ),
    ),
    *faults_of(
        "epilogue",
        "special/slice.py",
        (
            "beats are packed the wrong way round",
            "Cat(word[width:], beat)",
            "Cat(beat, word[:-width])",
        ),
        ("the gates of the beat before", "ram.read_row.eq(row + taken)", "ram.read_row.eq(row)"),
        ("old gates", "is_op[Op.UP] & (~fresh | taken)", "is_op[Op.UP] & ~fresh"),
        ("residual sums do not enter the norm", "Mux(self.tap, sums.valid,", "Mux(0, sums.valid,"),
        (
            "a row of residual sums does not end",
            "Mux(self.tap, sums.payload.last,",
            "Mux(0, sums.payload.last,",
        ),
    ),
    *faults_of(
        "epilogue",
        "special/slice.py",
        (
            "a row sees one token too many",
            "control.column + i <= self",
            "control.column + i <= 1 + self",
        ),
        ("all tokens of the own block are seen", "(~is_own | seen)", "1"),
        ("rows take what is not theirs", "is_op[Op.SCORES] & self.takes", "is_op[Op.SCORES]"),
        ("a far rise wraps", "Mux(new.rise > most, most, new.rise)", "new.rise"),
        (
            "tiles are counted a word too early",
            ".all()):\n                m.d.sync += self.tiles",
            ".any()):\n                m.d.sync += self.tiles",
        ),
        (
            "a staged word is overwritten",
            "beats.ready.eq(~full | self.staged_ready)",
            "beats.ready.eq(1)",
        ),
        ("rises of the pass before", "place.eq(0), rise_tile.eq(0)", "place.eq(0)"),
    ),
    *faults_of(
        "epilogue",
        "special/epilogue.py",
        (
            "probabilities go before lockstep words",
            "Mux(leaves, next_word, config",
            "Mux(~each.staged_valid, next_word, config",
        ),
        ("one row's probabilities are enough", "(~sees | staged).all()", "(~sees | staged).any()"),
        ("rows above their block are waited for", "(block <= own)", "1"),
        (
            "a pass does not end",
            "restart.eq(self.mix_taken & self.mix_ends & last_channels)",
            "restart.eq(0)",
        ),
        (
            "a tile is read once for all channels",
            "last_channels.eq(channels == self.head_tiles - 1)",
            "last_channels.eq(1)",
        ),
    ),
    *faults_of(
        "epilogue",
        "special/slice.py",
        ("heads go on in the factors", "Mux(control.last, 0, row + 1)", "row + 1"),
        ("the factors of the beat before", "Mux(taken, next_row, row)", "row"),
        ("factors of the row before", "fresh.eq(~(taken & control.last))", "fresh.eq(1)"),
        (
            "high channels leave as they come",
            "Mux(second, kept, word)",
            "Mux(second, high_word, word)",
        ),
        ("only low channels leave", "second.eq(valid & pairs)", "second.eq(0)"),
    ),
    *faults_of(
        "epilogue",
        "special/epilogue.py",
        ("halves of a head overlap", "half = self.head_tiles << 1", "half = self.head_tiles"),
    ),
    *faults_of(
        "matrix_walker",
        "control/matrix.py",
        (
            "all planes are fetched",
            "(tiles * matrix.p) << _PLANE_SHIFT),",
            "(tiles * matrix.p_full) << _PLANE_SHIFT),",
        ),
        (
            "blocks follow each other at p planes",
            "(tiles * matrix.p_full) <<",
            "(tiles * matrix.p) <<",
        ),
        (
            "a last block is as long as the others",
            "Mux(last_block, left, matrix.tiles_per_block)",
            "matrix.tiles_per_block",
        ),
        ("planes begin where exponents do", "fetch.line.eq(first + tiles)", "fetch.line.eq(first)"),
        ("a matrix leaves its offset behind", "n.eq(0), offset.eq(0)", "n.eq(0)"),
        ("gates and ups are apart", "Mux(silu, n >> 1, n)", "n"),
        ("padded columns in every tile", "Mux(last_tile, matrix.columns, TILE)", "matrix.columns"),
    ),
    *faults_of(
        "datapath",
        "./datapath.py",
        (
            "lines go where their position says",
            "tag[:place_bits] + source.payload.index",
            "source.payload.index",
        ),
        (
            "exponents go into the planes",
            "sink.payload.exponents.eq(tag[-1])",
            "sink.payload.exponents.eq(0)",
        ),
        (
            "what is asked for is not counted",
            "asked.eq(asked + fetch.payload.count)",
            "asked.eq(asked + 1)",
        ),
        ("nothing is given back", "dma.released.eq(engine.released)", "dma.released.eq(0)"),
    ),
]
