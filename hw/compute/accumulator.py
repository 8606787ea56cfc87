"""From tile sums to accumulators with a running exponent (contract section 7)."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.compute.layouts import row_bits
from hw.config import EXPONENT_BITS, RISE_BITS, RUNNING_BIAS, RUNNING_BITS, Config
from hw.library import Unique, instantiate
from hw.memory.ram import Ram


def decision_layout(config: Config) -> data.StructLayout:
    """What a tile does to one row's accumulators, the same for all its columns.

    ``amount``: how far a shift goes, saturated at a width that leaves nothing; ``shift_old``:
    the old sums are shifted (the tile raises R) rather than the tile sums; ``fresh``: there are
    no old sums; ``exponent``: R afterwards, biased, 0 if no tile of the output tile was live so
    far.
    """
    return data.StructLayout(
        {
            "amount": (config.acc_width - 1).bit_length(),
            "shift_old": 1,
            "fresh": 1,
            "exponent": RUNNING_BITS,
        }
    )


class RunningExponent(Unique):
    """Running exponents R of one MPU, and what each tile does to the sums.

    R depends on tile exponents alone, so the decision is made as a tile starts and follows its
    sums. ``decide`` in cycle c: ``decision`` from c + 1 until the next ``decide``.

    Members
    -------
    decide, first, context, tile_exponent, rise
        A tile starts; ``tile_exponent`` 0 means that it is skipped (contract section 5, step 2).
        ``rise`` is taken off R before the tile, also of a skipped one.
    """

    module_name = "bsspec_running_exponent"
    label = "running exponents"

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "decide": In(1),
                "first": In(1),
                "context": In(config.context_bits),
                "tile_exponent": In(EXPONENT_BITS),
                "rise": In(RISE_BITS),
                "decision": Out(decision_layout(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        exponents = Array(
            Signal(RUNNING_BITS, name=f"exponent_{i}", reset_less=True)
            for i in range(config.contexts)
        )
        kept = Signal(RUNNING_BITS)
        fallen = Signal(signed(RUNNING_BITS + 1))
        old = Signal(RUNNING_BITS)
        tile = Signal(RUNNING_BITS)
        m.d.comb += [
            kept.eq(Mux(self.first, 0, exponents[self.context])),
            fallen.eq(kept - self.rise),
            # What falls below the least R stays there; none stays none.
            old.eq(Mux(kept == 0, 0, Mux(fallen < 1, 1, fallen))),
            tile.eq(Mux(self.tile_exponent == 0, 0, self.tile_exponent + RUNNING_BIAS)),
        ]
        raises = Signal()
        difference = Signal(signed(RUNNING_BITS + 1))
        distance = Signal(RUNNING_BITS)
        decision = Signal(decision_layout(config), reset_less=True)
        amount_bits = len(decision.amount)
        m.d.comb += [
            difference.eq(tile - old),
            raises.eq(difference > 0),
            distance.eq(Mux(raises, difference, -difference)),
            self.decision.eq(decision),
        ]
        # Where a side is missing (R = 0 or X = 0 stand for none) the shift falls on zeros: the old
        # sums are masked by ``fresh``, the sums of a tile without a live activation are 0.
        with m.If(self.decide):
            m.d.sync += [
                decision.fresh.eq(old == 0),
                decision.shift_old.eq(raises),
                decision.amount.eq(
                    Mux(distance[amount_bits:].any(), (1 << amount_bits) - 1, distance)
                ),
                decision.exponent.eq(Mux(raises, tile, old)),
                exponents[self.context].eq(Mux(raises, tile, old)),
            ]
        return m


class AccumulateUnit(Unique):
    """One accumulator update; combinational: shift either side, add.

    Members
    -------
    old, half_sum, odd, decision -> updated
        ``updated = (old >> shift) + ((I << f) >> shift)`` with at most one shift other than 0.
    """

    module_name = "bsspec_accumulate_unit"
    label = "accumulate unit"
    sequential = False

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "old": In(signed(config.acc_width)),
                "half_sum": In(signed(config.half_sum_bits)),
                "odd": In(1),
                "decision": In(decision_layout(config)),
                "updated": Out(signed(config.acc_width)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        width = config.acc_width
        old = Signal(signed(width))
        term = Signal(signed(width))
        shifted = Signal(signed(width), name="shifted")
        kept = Signal(signed(width))
        decision = self.decision
        m.d.comb += [
            old.eq(self.old & (~decision.fresh).replicate(width).as_signed()),
            term.eq(Cat(Const(0, config.acc_guard_bits), self.odd, self.half_sum).as_signed()),
            shifted.eq(Mux(decision.shift_old, old, term)),
            kept.eq(Mux(decision.shift_old, term, old)),
        ]
        for step in range(len(decision.amount)):
            level = Signal(signed(width), name=f"shifted_{1 << step}")
            m.d.comb += level.eq(Mux(decision.amount[step], shifted >> (1 << step), shifted))
            shifted = level
        m.d.comb += self.updated.eq(shifted + kept)
        return m


class Accumulators(Unique):
    """Accumulators of one MPU: a memory of all contexts, ``acc_columns`` columns a row.

    The memory row that is read in cycle c meets the tile sums of slice ``slice`` in c + 1 and is
    written at the end of it; ``updated`` shows it in that cycle.

    Members
    -------
    read, read_row : read of a row for the next cycle
    write, write_row, slice : update of the row read before, from tile sums of that slice
    half_sums, odd, decision : from the columns and the running exponent; held meanwhile
    updated : the row as it is written
    """

    module_name = "bsspec_accumulators"
    label = "accumulators"

    def __init__(self, config: Config) -> None:
        self.config = config
        rows = config.contexts * config.tile_rows
        super().__init__(
            {
                "read": In(1),
                "read_row": In(row_bits(rows)),
                "write": In(1),
                "write_row": In(row_bits(rows)),
                "slice": In(row_bits(config.acc_rows)),
                "half_sums": In(data.ArrayLayout(signed(config.half_sum_bits), config.lanes)),
                "odd": In(1),
                "decision": In(decision_layout(config)),
                "updated": Out(data.ArrayLayout(signed(config.acc_width), config.acc_columns)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        row_layout = data.ArrayLayout(signed(config.acc_width), config.acc_columns)
        ram = instantiate(
            m,
            "ram",
            Ram,
            purpose="accumulators",
            width=config.acc_columns * config.acc_width,
            depth=config.contexts * config.tile_rows,
        )
        m.d.comb += [
            ram.read_enable.eq(self.read),
            ram.read_row.eq(self.read_row),
            ram.write_enable.eq(self.write),
            ram.write_row.eq(self.write_row),
            ram.write_data.eq(self.updated),
        ]
        old = data.View(row_layout, ram.read_data)
        slices = [
            self.half_sums.as_value().word_select(i, config.acc_columns * config.half_sum_bits)
            for i in range(config.acc_rows)
        ]
        chosen = Signal(data.ArrayLayout(signed(config.half_sum_bits), config.acc_columns))
        with m.Switch(self.slice):
            for i, piece in enumerate(slices):
                with m.Case(i):
                    m.d.comb += chosen.eq(piece)
        for i in range(config.acc_columns):
            unit = instantiate(m, f"unit_{i}", AccumulateUnit, config)
            m.d.comb += [
                unit.old.eq(old[i]),
                unit.half_sum.eq(chosen[i]),
                unit.odd.eq(self.odd),
                unit.decision.eq(self.decision),
                self.updated[i].eq(unit.updated),
            ]
        return m
