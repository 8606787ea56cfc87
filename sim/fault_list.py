"""Deliberate faults, one a line of the list: a place in the hardware, and what is wrong there.

Each fault replaces a piece of text that occurs exactly once in its file; a list that no longer
fits the hardware is an error. The bench named beside it must turn red.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes
    ----------
    what : str
        What is wrong, for the report.
    bench : str
        The bench that must see it.
    file : str
        Below ``hw``.
    old, new : str
        Text and its replacement.
    config : str
        Configuration of the bench: a name of :mod:`sim.registry`.
    """

    what: str
    bench: str
    file: str
    old: str
    new: str
    config: str = "tiny"


def faults_of(
    bench: str, file: str, *rows: tuple[str, str, str], config: str = "tiny"
) -> list[Fault]:
    """Faults of one bench in one file below ``hw``; without a folder, in ``hw/compute``."""
    path = file if "/" in file else f"compute/{file}"
    return [Fault(what, bench, path, old, new, config) for what, old, new in rows]


FAULTS: list[Fault] = [
    *faults_of(
        "aligner",
        "aligner.py",
        (
            "distance off by one",
            "distance.eq(self.tile_exponent - self.kept.eps)",
            "distance.eq(self.tile_exponent - self.kept.eps + 1)",
        ),
        (
            "subnormals keep exponent 0",
            "Cat(activation.exponent[0] | ~normal,",
            "Cat(activation.exponent[0],",
        ),
        (
            "subnormals get a leading one",
            "Cat(activation.mantissa, normal)",
            "Cat(activation.mantissa, Const(1, 1))",
        ),
        (
            "far shifts wrap",
            "self.kept.significand & (~distance[steps:].any()).replicate(8)",
            "self.kept.significand",
        ),
        (
            "negation without its carry",
            'conditional_negate(m, "aligned", shifted, self.kept.sign)',
            "(Cat(shifted, Const(0, 1)) ^ self.kept.sign.replicate(width + 1))",
        ),
        ("Inf and NaN are live", "finite.eq(~activation.exponent.all())", "finite.eq(1)"),
        (
            "groups of exponent 0 are live",
            "                & self.shared_exponent.any()\n",
            "",
        ),
        (
            "an exponent bit is flipped",
            "self.folded.eps.eq(effective + self.shared_exponent)",
            "self.folded.eps.eq((effective + self.shared_exponent) ^ 16)",
        ),
        (
            "masked rows are live",
            "                self.enable\n                & finite",
            "                finite",
        ),
    ),
    *faults_of(
        "aligner_bank",
        "aligner.py",
        (
            "the maximum never restarts",
            "((filled_group == 0) | (candidates[0] > running))",
            "(candidates[0] > running)",
        ),
        ("the minimum is taken", "Mux(a > b, a, b)", "Mux(a > b, b, a)"),
        (
            "the tile exponent is not kept for groups 1 to 3",
            "Mux(self.align_group == 0, running, self.tile_exponent)",
            "running",
        ),
        (
            "a group lands in the wrong slots",
            "self.fill & (self.fill_group == g)",
            "self.fill & (self.fill_group != g)",
        ),
    ),
    *faults_of(
        "lut_bank",
        "lut.py",
        (
            "a signed sum adds where it should subtract",
            "total.eq(low + high if same_2 else low - high)",
            "total.eq(low + high)",
        ),
        (
            "the differences of the upper pair are lost",
            "high_plus if same_2 == same_3 else high_minus",
            "high_plus",
        ),
        (
            "parity from one pair",
            "self.table.odd.eq(low_plus[0] ^ high_plus[0])",
            "self.table.odd.eq(low_plus[0])",
        ),
        ("all groups are renewed at once", "self.load[group]", "self.load[0]"),
        (
            "one bit of one entry",
            "self.table.entries[index].eq(total >> 1)",
            "self.table.entries[index].eq((total >> 1) ^ (index == 5))",
        ),
    ),
    *faults_of(
        "sign_decoder",
        "lane.py",
        (
            "signs are ored instead of xored",
            "self.bits ^ (self.signs |",
            "self.bits | (self.signs |",
        ),
        (
            "the sign plane is read as a magnitude plane",
            "(self.signs | self.sign_plane.replicate(mu))",
            "(self.signs)",
        ),
        (
            "the index is complemented",
            "~(added[1:] ^ added[0].replicate(mu - 1))",
            "(added[1:] ^ added[0].replicate(mu - 1))",
        ),
        ("negation is inverted", "negate.eq(~added[0])", "negate.eq(added[0])"),
    ),
    *faults_of(
        "plane_decoder",
        "lane.py",
        (
            "signs are latched on every plane",
            "m.If(self.valid & self.sign_plane)",
            "m.If(self.valid)",
        ),
        (
            "no skew between the groups",
            "eq(stages[group][lane][lut])",
            "eq(stages[0][lane][lut])",
        ),
        (
            "all lanes read lane 0's bits",
            "Cat(self.plane[k][lane] for k",
            "Cat(self.plane[k][0] for k",
        ),
    ),
    *faults_of(
        "lane",
        "lane.py",
        (
            "dropped carry of a negated even entry",
            "self.carry.eq(self.look.negate & ~self.table.odd)",
            "self.carry.eq(0)",
        ),
        (
            "carry of a negated odd entry",
            "self.look.negate & ~self.table.odd",
            "self.look.negate",
        ),
        (
            "neighbouring entries swapped",
            "self.look.index == index)",
            "self.look.index == (index ^ 1))",
        ),
        (
            "negation is lost",
            "(read ^ self.look.negate.replicate(config.entry_bits))",
            "(read)",
        ),
    ),
    *faults_of(
        "column",
        "column.py",
        ("planes are not doubled", "plane_sum << 1", "plane_sum"),
        (
            "dropped carry of group 0",
            "chain + injected + spare",
            "chain + injected",
        ),
        ("dropped carry of a stage", "total + chain + carries[-1]", "total + chain"),
        (
            "dropped carry of the subtracted sign sum",
            "doubled + chain + control.sum_minus",
            "doubled + chain",
        ),
        (
            "the plane sum never restarts",
            "Mux(control.sum_first, 0, plane_sum << 1)",
            "(plane_sum << 1)",
        ),
        (
            "the sign sum follows every plane",
            "m.If(control.sum_valid & control.sum_first)",
            "m.If(control.sum_valid)",
        ),
        ("the offset is lost", "injected.eq(self.offset | inverted)", "injected.eq(inverted)"),
        (
            "the tile sum is taken at once",
            "m.If(control.sum_valid & control.sum_last)",
            "m.If(control.sum_valid)",
        ),
    ),
    *faults_of(
        "subarray",
        "subarray.py",
        (
            "all columns get the first one's bits",
            "column.looks[0].eq(self.looks[i])",
            "column.looks[0].eq(self.looks[0])",
        ),
    ),
    *faults_of(
        "running_exponent",
        "accumulator.py",
        (
            "R falls as well as rises",
            "decision.exponent.eq(Mux(raises, tile, old))",
            "decision.exponent.eq(tile)",
        ),
        (
            "distances are not made positive",
            "distance.eq(Mux(raises, difference, -difference))",
            "distance.eq(difference)",
        ),
        (
            "far distances wrap",
            "Mux(distance[amount_bits:].any(), (1 << amount_bits) - 1, distance)",
            "distance",
        ),
        (
            "a first tile meets the last output tile's R",
            "kept.eq(Mux(self.first, 0, exponents[self.context]))",
            "kept.eq(exponents[self.context])",
        ),
        (
            "one R for all contexts",
            "                exponents[self.context].eq(",
            "                exponents[0].eq(",
        ),
        ("a rise does not count", "fallen.eq(kept - self.rise)", "fallen.eq(kept)"),
        ("a fallen R wraps", "Mux(fallen < 1, 1, fallen)", "fallen"),
        ("none falls too", "Mux(kept == 0, 0, Mux(", "Mux(Const(0), 0, Mux("),
        (
            "the wrong side is shifted",
            "decision.shift_old.eq(raises)",
            "decision.shift_old.eq(~raises)",
        ),
    ),
    *faults_of(
        "accumulators",
        "accumulator.py",
        (
            "the odd bit is lost",
            "Cat(Const(0, config.acc_guard_bits), self.odd, self.half_sum)",
            "Cat(Const(0, config.acc_guard_bits), Const(0, 1), self.half_sum)",
        ),
        (
            "a guard bit too few",
            "Cat(Const(0, config.acc_guard_bits), self.odd",
            "Cat(Const(0, config.acc_guard_bits - 1), self.odd",
        ),
        (
            "one step of the shifter is dead",
            "Mux(decision.amount[step], shifted",
            "Mux(decision.amount[step] & (step != 2), shifted",
        ),
        (
            "an accumulator bit is flipped",
            "self.updated.eq(shifted + kept)",
            "self.updated.eq((shifted + kept) ^ (1 << 20))",
        ),
        (
            "old sums of a fresh output tile count",
            "self.old & (~decision.fresh).replicate(width).as_signed()",
            "self.old",
        ),
        ("slices all take the first", "chosen.eq(piece)", "chosen.eq(slices[0])"),
    ),
    *faults_of(
        "converter",
        "converter.py",
        (
            "ties round away",
            "(half & (sticky | aligned[drop]))",
            "half",
        ),
        ("no sticky bit", "Cat(shifted[: width - kept].any(),", "Cat(Const(0, 1),"),
        (
            "the least normal number is subnormal",
            "normal.eq(s2_exponent > 0)",
            "normal.eq(s2_exponent > 1)",
        ),
        (
            "subnormal shifts lose bits",
            "lost = aligned[: min(step + 1, len(aligned))].any()",
            "lost = aligned[0]",
        ),
        (
            "overflow far beyond the range",
            "too_large.eq(s2_exponent > 254)",
            "too_large.eq(s2_exponent > 300)",
        ),
        (
            "BF16 overflow by FP32's rule",
            "overflow.eq(Mux(self.fp32, infinite32, infinite16))",
            "overflow.eq(infinite32)",
        ),
        (
            "results twice as large",
            "config.acc_guard_bits + width - 1",
            "config.acc_guard_bits + width",
        ),
        (
            "magnitude without its carry",
            'conditional_negate(m, "magnitude", low, sign)',
            "low ^ sign.replicate(len(low))",
        ),
    ),
    *faults_of(
        "drain",
        "drain.py",
        (
            "p is taken for 9",
            "base.eq(row.exponent - RUNNING_BIAS - self.p)",
            "base.eq(row.exponent - RUNNING_BIAS - 9)",
        ),
        (
            "scales are ignored",
            "converter.exponent.eq(base + self.scales[i])",
            "converter.exponent.eq(base)",
        ),
    ),
    *faults_of(
        "drain",
        "drain.py",
        (
            "the first slice leaves every time",
            "row.accumulators.as_value().word_select(i, slice_layout.size)",
            "row.accumulators.as_value().word_select(0, slice_layout.size)",
        ),
        config="odd",
    ),
    *faults_of(
        "mpu",
        "mpu.py",
        ("midpoint offset rounded down", "-((odd + 1) >> 1)", "-(odd >> 1)"),
        (
            "the odd bit of a midpoint also of a truncated tile",
            "odd_sum.eq(control.reduce.end_midpoint & odd[0])",
            "odd_sum.eq(odd[0])",
        ),
    ),
    *faults_of(
        "array",
        "mpu.py",
        ("the next tile's decision is used", "m.If(control.follow)", "m.If(1)"),
        (
            "parities of the next tile are used",
            "Mux(control.reduce.new_tile, odd_now, odd_kept)",
            "odd_now",
        ),
    ),
    *faults_of(
        "array",
        "feed.py",
        ("slots are overwritten", "((occupied != GROUPS) | self.align)", "(occupied == occupied)"),
        (
            "the maximum is used too early",
            "complete.eq(self.fill & self.fill_last)",
            "complete.eq(self.fill)",
        ),
    ),
    *faults_of(
        "array",
        "sequencer.py",
        (
            "the wrong tile's mode",
            "flags[0].midpoint.eq(job.tile.midpoint)",
            "flags[0].midpoint.eq(self.next_tile.midpoint)",
        ),
        (
            "result rows are not reserved",
            "accepted & group_ends & job.tile.last",
            "accepted & ~accepted",
        ),
        ("the next column group's number", ", following.column_group.eq(entering)]", "]"),
        (
            "the accumulator row read is the one written",
            "row(current, acc_slice + 1)",
            "row(current, acc_slice)",
        ),
        ("p above p_max is not clamped", "p.eq(config.p_max)", "p.eq(wanted.p)"),
    ),
    *faults_of(
        "array",
        "results.py",
        (
            "room for one row is room enough",
            "self.room.eq(free >= config.acc_rows)",
            "self.room.eq(free != 0)",
        ),
        (
            "a stalled result moves on",
            "self.advance.eq(~valid[2] | self.o_ready)",
            "self.advance.eq(1)",
        ),
        (
            "the next result's format",
            "self.fp32.eq(stages[1].fp32)",
            "self.fp32.eq(stages[0].fp32)",
        ),
        (
            "scales are taken from unscaled tiles",
            "self.scale_ready.eq(loaded & note.scaled &",
            "self.scale_ready.eq(loaded &",
        ),
    ),
    *faults_of(
        "array",
        "array.py",
        (
            "shared exponents of 255 are live",
            "eq(Mux(exponent.all(), 0, exponent))",
            "eq(exponent)",
        ),
        (
            "first is always set",
            "control.decide_first.eq(next_tile.first)",
            "control.decide_first.eq(1)",
        ),
        (
            "the row mask is ignored",
            "mpu.row_enable.eq(self.tiles.payload.rows[row])",
            "mpu.row_enable.eq(1)",
        ),
        (
            "overflow of masked rows is raised",
            "(payload.overflow & payload.rows).any()",
            "payload.overflow.any()",
        ),
    ),
    *faults_of(
        "exp2_table",
        "special/tables.py",
        ("a slope is one off", "slope.eq(pair[1])", "slope.eq(pair[1] ^ (segment == 9))"),
        ("a base is one off", "base.eq(pair[0])", "base.eq(pair[0] ^ (segment == 40))"),
        ("segments are swapped", "m.Case(segment)", "m.Case(segment ^ 1)"),
        ("the change is rounded up", "product.eq(slope * step)", "product.eq(slope * (step + 1))"),
    ),
    *faults_of(
        "reciprocal_table",
        "special/tables.py",
        ("a falling function rises", "if table.falling else", "if not table.falling else"),
    ),
    *faults_of(
        "rsqrt_table",
        "special/tables.py",
        (
            "the parity of the exponent is ignored",
            "m.Switch(self.index[table.step_bits :])",
            "m.Switch(self.index[table.step_bits : -1])",
        ),
    ),
    *faults_of(
        "scores",
        "special/scores.py",
        ("negative scores are cut off", "(sign & below)", "(sign & 0)"),
        (
            "what a far shift loses is forgotten",
            "Cat(lost).any() | (far & product.any())",
            "Cat(lost).any()",
        ),
        (
            "bits of the least shift are forgotten",
            "lost = [product[:_LEAST_SHIFT].any()]",
            "lost = []",
        ),
        ("no clamp above", "((shift < 0) | magnitude[X_BITS - 1 :].any())", "(shift < 0)"),
        (
            "no clamp far above",
            "((shift < 0) | magnitude[X_BITS - 1 :].any())",
            "magnitude[X_BITS - 1 :].any()",
        ),
        (
            "a clamp of 2^31 - 2",
            "(1 << (X_BITS - 1)) - 1, magnitude",
            "(1 << (X_BITS - 1)) - 2, magnitude",
        ),
        (
            "the exponent of the factor",
            "score.exponent + self.factor.exponent",
            "score.exponent - 18",
        ),
    ),
    *faults_of(
        "probabilities",
        "special/softmax.py",
        (
            "dead tokens take part",
            "(beat.live[i], beat.values[i] >>",
            "(Const(1, 1), beat.values[i] >>",
        ),
        (
            "the maximum of one tile",
            "raises.eq(top.live & (~begun | (top.value > maximum)))",
            "raises.eq(top.live)",
        ),
        ("M outlives its row", "(begun | top.live) & ~row_ends", "(begun | top.live)"),
        ("rises are lost", "room=rises_taken != GROUPS_WAITING", "room=1"),
        ("the first tile rises", "rise.eq(Mux(raises & begun,", "rise.eq(Mux(raises,"),
        ("L is not shifted", "places.eq(Mux(tile_begins, rise, 0))", "places.eq(0)"),
        ("L is shifted with every beat", "places.eq(Mux(tile_begins, rise, 0))", "places.eq(rise)"),
        ("L outlives its row", "Mux(fresh, 0, total)", "total"),
        ("far rises wrap", "Mux(rise >= _RISE_LIMIT, _RISE_LIMIT, rise)", "rise"),
        ("the flush border is one off", "integer < EXP2_LEAST", "integer <= EXP2_LEAST"),
        ("far differences wrap", "Mux(difference < least, least, difference)", "difference"),
        ("ties round up", "(s2_value[: drop - 1].any() | s2_value[drop])", "Const(1, 1)"),
        (
            "terms are doubled",
            "places.eq(128 - self.number.exponent)",
            "places.eq(127 - self.number.exponent)",
        ),
        ("small P count", "Mux(places[6], 0, term >> places[:6])", "term >> places[:6]"),
        ("a total is overwritten", "valid & ~(result.last & reserved)", "valid"),
    ),
    *faults_of(
        "probabilities",
        "special/groups.py",
        (
            "the first live token wins",
            "Mux(b_live & (~a_live | (b > a)), b, a)",
            "Mux(~a_live, b, a)",
        ),
        (
            "the largest of the last beat",
            "(~group_live | (s1_value > group_value))",
            "(group_live == group_live)",
        ),
        ("the largest outlives its group", "self.live & ~groups.closed", "self.live"),
        (
            "a note leaves a beat late",
            "self.stages.valid[0] & self.final)",
            "self.stages.valid[1] & self.final)",
        ),
        ("rows are overwritten", "(occupied != depth) & (groups_taken", "(groups_taken"),
        ("notes are overwritten", " & (groups_taken != GROUPS_WAITING)", ""),
        (
            "groups do not end by themselves",
            "last_row.eq(closes | (open_rows == rows - 1))",
            "last_row.eq(closes)",
        ),
        (
            "beats are read before their group is complete",
            "Mux(self.closed, complete, 0)",
            "self.seen",
        ),
    ),
    *faults_of(
        "attention_output",
        "special/output.py",
        ("L = 0 has a reciprocal", "Mux(s1_live, recip.value, 0)", "recip.value"),
        ("the binary point of L", "eq(s1_zeros - top)", "eq(s1_zeros - top + 1)"),
        (
            "the leading one is part of the index",
            "up[TOTAL_BITS - 1 - _INDEX_BITS : TOTAL_BITS - 1]",
            "up[TOTAL_BITS - _INDEX_BITS :]",
        ),
        ("sums go before their L", "self.sums.valid & loaded)", "self.sums.valid)"),
        ("L stays for the next row", "m.Elif(ends)", "m.Elif(ends & waits)"),
        ("the next L comes too early", "moves.eq(waits & (~loaded | ends))", "moves.eq(waits)"),
        (
            "the exponent of the sum",
            "self.reciprocal.exponent - 150",
            "self.reciprocal.exponent - 149",
        ),
    ),
    *faults_of(
        "argmax",
        "special/argmax.py",
        ("the later one wins a tie", "(high.rank > low.rank)", "(high.rank >= low.rank)"),
        ("the later beat wins a tie", "(s1_rank > rank)", "(s1_rank >= rank)"),
        ("-0 is below +0", "logit.sign & bits.any()", "logit.sign"),
        ("negative logits are ordered by magnitude", "Cat(~bits, 0)", "Cat(bits, 0)"),
        ("NaN takes part", "beat.live[i] & ~refused[i]", "beat.live[i]"),
        ("padded columns take part", "_Candidate(beat.live[i] & ", "_Candidate("),
        ("Inf is refused", "logit.exponent.all() & logit.mantissa.any()", "logit.exponent.all()"),
        ("the best of the row before stays", "(begun | s1_live) & ~s1_last", "(begun | s1_live)"),
        ("beats are counted on", "beats.eq(Mux(s1_last, 0, beats + 1))", "beats.eq(beats + 1)"),
        ("an index is overwritten", "advance.eq(~(s1_taken & s1_last) | free)", "advance.eq(1)"),
    ),
    *faults_of(
        "value_quantizer",
        "special/quantizer.py",
        ("zeros keep their sign", "number.sign & number.significand.any()", "number.sign"),
        (
            "far shifts wrap",
            "Mux(distance[4:].any(), 0, wide >> distance[:4])",
            "wide >> distance[:4]",
        ),
        ("a group of zeros has an exponent", "Mux(top.live, top.value, 0)", "top.value"),
        (
            "zeros take part in the exponent",
            "beat.live[i] & number.significand.any()",
            "beat.live[i]",
        ),
        (
            "dead elements take part in it",
            "(beat.live[i] & number.significand",
            "(number.significand",
        ),
        ("exponents are lost", "room=exponents_taken != GROUPS_WAITING", "room=1"),
        ("dead elements are refused", "number.refused & beat.live[i]", "number.refused"),
    ),
    *faults_of(
        "open_key_quantizer",
        "special/quantizer.py",
        (
            "guard bits are lost",
            "Cat(Const(0, self.p_full - P_FULL_MIN), number.significand)",
            "number.significand",
        ),
        ("exponents leave early", "queue.push.eq(groups.closed)", "queue.push.eq(groups.closing)"),
    ),
    *faults_of(
        "square_sum",
        "special/squares.py",
        ("shifts are not doubled", "Cat(Const(0, 1), distance[:5])", "distance[:5]"),
        ("far shifts wrap", "Mux(distance[5:].any(), 0, moved >> places)", "(moved >> places)"),
        (
            "the wrong side is shifted",
            "moved = Mux(raises, old, group_sum)",
            "moved = Mux(raises, group_sum, old)",
        ),
        (
            "R outlives its row",
            "running.eq(Mux(group_ends_row, 0, new_running))",
            "running.eq(new_running)",
        ),
        ("A outlives its row", "old.eq(Mux(running.any(), total, 0))", "old.eq(total)"),
        ("S outlives its 64", "Mux(group_begins, 0, group_sum)", "group_sum"),
        ("elements wrap when far", "self.live & ~distance[4:].any()", "self.live"),
        ("dead elements count", "self.live & ~distance[4:].any()", "~distance[4:].any()"),
        ("a sum is overwritten", "stages.valid[-1] & ~(row_ends & reserved)", "stages.valid[-1]"),
    ),
    *faults_of(
        "inverse_root",
        "special/norm.py",
        ("ties round up", "(half & (below | keep[0]))", "half"),
        ("a carry loses the leading one", "rounded[_BITS - 1] | carry", "rounded[_BITS - 1]"),
        ("the carry of the first rounding", "s1_exponent + sum_carry + self", "s1_exponent + self"),
        ("the carry of the mean", "s2_exponent + high + mean_carry", "s2_exponent + high"),
        ("the carry of z", "s4_exponent + carried + z_carry", "s4_exponent + carried"),
        (
            "a mean of 0 has an exponent",
            "s3_mean[-1] & (s3_exponent > eps_exponent)",
            "s3_exponent > eps_exponent",
        ),
        ("far shifts wrap", "Mux(distance[5:].any(), 31, distance[:5])", "distance[:5]"),
        ("the parity of the exponent", "z_exponent[0]),", "~z_exponent[0]),"),
    ),
    *faults_of(
        "rms_norm",
        "special/norm.py",
        ("r stays for the next row", "m.Elif(ends)", "m.Elif(0)"),
        (
            "the next r comes too early",
            "root.scales.ready.eq(~loaded | ends)",
            "root.scales.ready.eq(1)",
        ),
        ("the sign of the weight", "x.sign ^ weight.sign", "x.sign"),
        ("the exponent of the weight", "x.exponent + weight.exponent +", "x.exponent + 127 +"),
        (
            "status of the second pass alone",
            "squares.status.as_value() | lanes.status.as_value()",
            "lanes.status.as_value()",
        ),
        (
            "the second pass goes before its r",
            "self.operands.valid & loaded)",
            "self.operands.valid)",
        ),
    ),
    *faults_of(
        "silu",
        "special/silu.py",
        (
            "the flush border is one off",
            "(shifted > (-EXP2_LEAST << EXPONENT_FRACTION_BITS))",
            "(shifted > (-EXP2_LEAST + 1 << EXPONENT_FRACTION_BITS))",
        ),
        ("huge gates are not flushed", "flushed.eq((shift < 0) | ", "flushed.eq("),
        ("log2(e) is one off", "log2_e_factor().integer)", "(log2_e_factor().integer + 32))"),
        ("far shifts wrap", "far.eq(shift[5:9].any())", "far.eq(0)"),
        ("t = 1 is a fraction of 0", " | fraction[top].replicate(top)", ""),
        (
            "negative gates keep the factor of positive ones",
            "Mux(s3_negative, below[exp2_table().fraction_bits :], sigmoid)",
            "sigmoid",
        ),
        (
            "the exponent of t is lost",
            "s2_exponent - Mux(s2_negative, s2_drop, 0)",
            "s2_exponent",
        ),
        ("the sign of the gate alone", "gate.sign ^ up.sign)", "gate.sign)"),
    ),
    *faults_of(
        "silu",
        "special/floats.py",
        (
            "subnormal operands keep their exponent",
            "self.exponent.eq(effective - zeros)",
            "self.exponent.eq(effective)",
        ),
        (
            "rounding without its sticky bit",
            "(aligned[0] | aligned[2])",
            "aligned[2]",
        ),
        ("Inf counts as a number", "(~self.refused).replicate(", "Const(1, 1).replicate("),
        (
            "a result of 0 keeps its sign",
            "m.Elif(nonzero)",
            "m.Elif(self.exponent == self.exponent)",
        ),
    ),
    *faults_of(
        "silu",
        "special/elementwise.py",
        ("dead elements leave", "return bits & live.replicate(len(bits))", "return bits"),
        ("dead elements are refused", "eq(lane.refused & beat.live[i])", "eq(lane.refused)"),
        (
            "overflow of dead elements",
            "eq(lane.overflow & result.live[i])",
            "eq(lane.overflow & beat.live[i])",
        ),
    ),
    *faults_of(
        "silu",
        "special/flow.py",
        (
            "a stalled beat moves on",
            "self.advance.eq(~self.valid[-1] | ready)",
            "self.advance.eq(1)",
        ),
        (
            "valid waits for ready",
            "self.advance.eq(~self.valid[-1] | ready)",
            "self.advance.eq(ready)",
        ),
        ("status does not stay", "((held[name] & ~clear) | value)", "(value)"),
    ),
    *faults_of(
        "residual",
        "special/floats.py",
        (
            "overflow after rounding is missed",
            "((exponent > 254) | code[7:15].all())",
            "(exponent > 254)",
        ),
    ),
    *faults_of(
        "residual",
        "special/sums.py",
        ("far is one place early", "(distance > reach)", "(distance > 6)"),
        (
            "the sign of the larger exponent",
            "small_sign, large_sign)),",
            "large_sign, large_sign)),",
        ),
        (
            "equal signs are taken off",
            "Mux(large_sign ^ small_sign, moved - kept, moved + kept)",
            "Mux(large_sign ^ small_sign, moved + kept, moved - kept)",
        ),
        (
            "the exponent of a far sum",
            "Mux(far, large_exponent - reach, small_exponent)",
            "small_exponent",
        ),
    ),
    *faults_of(
        "residual",
        "special/residual.py",
        (
            "exponents are never swapped",
            "total.swap.eq(y.exponent > x.exponent)",
            "total.swap.eq(0)",
        ),
    ),
    *faults_of(
        "rope",
        "special/rope.py",
        ("low adds its second product", 'minus = number == 0 and side == "y"', "minus = False"),
        (
            "sine and cosine are swapped in high",
            '("high", "sine", "cosine")',
            '("high", "cosine", "sine")',
        ),
        (
            "the sign of a factor is lost",
            "channels[channel].sign ^ negative ^ minus",
            "channels[channel].sign ^ minus",
        ),
        (
            "a factor of 1 is 0",
            "magnitude.eq(Mux(factor < 0, -factor, factor))",
            "magnitude.eq(Mux(factor < 0, -factor, factor)[:14])",
        ),
        (
            "overflow of low alone",
            "self.overflow.eq(overflow.any())",
            "self.overflow.eq(overflow[0])",
        ),
    ),
    *faults_of(
        "rope",
        "special/sums.py",
        ("no sticky bit", "Mux(far, small.any(), small)", "Mux(far, 0, small)"),
        (
            "a larger exponent on a product of 0 hides the other",
            "far.eq((distance > reach) & large.any())",
            "far.eq(distance > reach)",
        ),
    ),
]

#: Planted by ``make test``: one for each of a few components that build fast.
QUICK = (
    "negation without its carry",
    "one bit of one entry",
    "dropped carry of a negated even entry",
    "ties round away",
)
