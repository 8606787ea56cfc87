"""Sum of squares of a row under a running exponent (contract section 11, RMSNorm, 1 and 2)."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.config import TILE
from hw.library import Unique, instantiate
from hw.special.floats import Unpack
from hw.special.flow import sticky
from hw.special.groups import GroupLargest, Groups
from hw.special.layouts import BF16, STATUS, beat_layout, check_elements
from model.formats.special_tables import NORM_GUARD_BITS

#: An aligned element, ``(sig << 8) >> (X - e)``.
_ALIGNED_BITS = 8 + NORM_GUARD_BITS
#: 64 of their squares.
_GROUP_BITS = 2 * _ALIGNED_BITS + TILE.bit_length() - 1
#: Longest row of the model.
LONGEST = 1 << 20


def square_sum_bits(longest: int) -> int:
    """Width of the sum of squares of a row of ``longest`` elements."""
    return _GROUP_BITS + (-(-longest // TILE) - 1).bit_length()


def square_sum_layout(longest: int) -> data.StructLayout:
    """A sum of squares, ``total * 2**(2 * exponent - 284)``; both 0 for a row of zeros."""
    return data.StructLayout({"total": unsigned(square_sum_bits(longest)), "exponent": 8})


class SquareLane(Unique):
    """Square of an aligned element, ``((sig << 8) >> (X - e))^2``; latency 2, moved by ``advance``.

    Members
    -------
    advance, number, live, exponent -> square
        ``exponent`` is X, not below that of a live number.
    """

    module_name = "bsspec_square_lane"
    label = "square lane"

    def __init__(self) -> None:
        super().__init__(
            {
                "advance": In(1),
                "number": In(BF16),
                "live": In(1),
                "exponent": In(8),
                "square": Out(2 * _ALIGNED_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        number = instantiate(m, "number", Unpack, mantissa_bits=7, normal=False)
        distance = Signal(8)
        aligned = Signal(_ALIGNED_BITS, reset_less=True)
        square = Signal(2 * _ALIGNED_BITS, reset_less=True)
        wide = Cat(Const(0, NORM_GUARD_BITS), number.significand)
        m.d.comb += [
            number.number.eq(self.number),
            distance.eq(self.exponent - number.exponent),
            self.square.eq(square),
        ]
        with m.If(self.advance):
            m.d.sync += [
                aligned.eq(
                    Mux(self.live & ~distance[4:].any(), wide >> distance[:4], 0),
                ),
                square.eq(aligned * aligned),
            ]
        return m


class SquareSum(Unique):
    """Sum of squares of each row: exact within 64 elements, floors where their exponents differ.

    64 elements wait in a memory until their largest exponent X is known. Then they are aligned to
    it, squared and added: 38 bits. R is the running maximum of X in a row, and

        R' = max(R, X);  A' = (A >> 2 (R' - R)) + (S >> 2 (R' - X))

    One shifter serves both, since one of the shifts is 0. Throughput: a beat a cycle. Latency: the
    sum is valid 6 cycles after the row's last beat was taken, and one more for each beat of its
    last 64 elements.

    Parameters
    ----------
    elements : int
        Elements of a beat: 1, 2, 4 or 8.
    longest : int
        Longest row, 64 to 2^20.

    Members
    -------
    numbers : stream of beats of BF16
        ``last`` ends a row. Dead elements are zeros.
    sums : stream of :func:`square_sum_layout`
        One a row. While one waits, the next row does not end.
    status, clear
        ``refused``; ``overflow`` is never raised.

    Raises
    ------
    ValueError
        If a parameter is out of range.
    """

    module_name = "bsspec_square_sum"
    label = "sum of squares"

    def __init__(self, *, elements: int, longest: int) -> None:
        self.elements = check_elements(elements)
        if not isinstance(longest, int) or not TILE <= longest <= LONGEST:
            raise ValueError(f"longest must be {TILE} to {LONGEST}, not {longest!r}")
        self.longest = longest
        super().__init__(
            {
                "numbers": In(stream.Signature(beat_layout(BF16, elements, "last"))),
                "sums": Out(stream.Signature(square_sum_layout(longest))),
                "status": Out(STATUS),
                "clear": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat = self.numbers.payload
        left = Signal()
        groups = Groups(
            m,
            purpose="norm",
            source=self.numbers,
            closes=beat.last,
            rows=TILE // self.elements,
            note=unsigned(8),
            left=left,
            stages=3,
        )
        candidates = []
        refused = Signal(self.elements)
        for i in range(self.elements):
            number = instantiate(m, f"number_{i}", Unpack, mantissa_bits=7, normal=False)
            m.d.comb += [
                number.number.eq(beat.values[i]),
                refused[i].eq(number.refused & beat.live[i]),
            ]
            candidates.append((beat.live[i] & number.significand.any(), number.exponent[:8]))
        top = GroupLargest(m, groups, candidates, unsigned(8))
        m.d.comb += groups.note.eq(Mux(top.live, top.value, 0))
        sticky(m, self.status, self.clear, refused=groups.taken & refused.any())

        stages = groups.stages
        squares = []
        for i in range(self.elements):
            lane = instantiate(m, f"lane_{i}", SquareLane)
            m.d.comb += [
                lane.advance.eq(stages.advance),
                lane.number.eq(groups.beat.values[i]),
                lane.live.eq(groups.beat.live[i]),
                lane.exponent.eq(groups.known),
            ]
            squares.append(lane.square)
        final = stages.follow("final", 1, groups.final, 2)
        row_ends = stages.follow("row_ends", 1, groups.beat.last, 2)
        exponent = stages.follow("exponent", 8, groups.known, 2)

        # S: the beats of a group. A row's last beat waits while the sum before has not left.
        reserved = Signal()
        group_begins = Signal(init=1)
        group_sum = Signal(_GROUP_BITS, reset_less=True)
        group_done = Signal()
        group_exponent = Signal(8, reset_less=True)
        group_ends_row = Signal(reset_less=True)
        m.d.comb += left.eq(stages.valid[-1] & ~(row_ends & reserved))
        m.d.sync += group_done.eq(left & final)
        with m.If(left):
            m.d.sync += [
                group_begins.eq(final),
                group_sum.eq(Mux(group_begins, 0, group_sum) + sum(squares)),
                group_exponent.eq(exponent),
                group_ends_row.eq(row_ends),
            ]

        # A and R: the groups of a row.
        width = square_sum_bits(self.longest)
        running = Signal(8)
        total = Signal(width, reset_less=True)
        old = Signal(width)
        raises = Signal()
        distance = Signal(8)
        new_running = Signal(8)
        new_total = Signal(width)
        m.d.comb += [
            # No group with a number so far: there is no old sum.
            old.eq(Mux(running.any(), total, 0)),
            raises.eq(group_exponent > running),
            distance.eq(Mux(raises, group_exponent - running, running - group_exponent)),
            new_running.eq(Mux(raises, group_exponent, running)),
        ]
        moved = Mux(raises, old, group_sum)
        kept = Mux(raises, group_sum, old)
        places = Cat(Const(0, 1), distance[:5])
        m.d.comb += new_total.eq(Mux(distance[5:].any(), 0, moved >> places) + kept)
        with m.If(group_done):
            m.d.sync += [total.eq(new_total), running.eq(Mux(group_ends_row, 0, new_running))]
        waits = Signal()
        out = Signal(self.sums.payload.shape(), reset_less=True)
        m.d.comb += [self.sums.valid.eq(waits), self.sums.payload.eq(out)]
        with m.If(group_done & group_ends_row):
            m.d.sync += [waits.eq(1), out.total.eq(new_total), out.exponent.eq(new_running)]
        with m.Elif(self.sums.ready):
            m.d.sync += waits.eq(0)
        with m.If(left & row_ends):
            m.d.sync += reserved.eq(1)
        with m.Elif(waits & self.sums.ready):
            m.d.sync += reserved.eq(0)
        return m
