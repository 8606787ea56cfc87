"""BF16 to block floating point (contract section 3): value rows, keys of a block, open keys."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.library import Unique, instantiate
from hw.special.elementwise import masked
from hw.special.floats import Unpack
from hw.special.flow import Queue, sticky
from hw.special.groups import GROUPS_WAITING, GroupLargest, Groups
from hw.special.layouts import BF16, STATUS, beat_layout, check_elements
from model.formats.constants import P_FULL_MAX, P_FULL_MIN


def member_layout(p_full: int) -> data.StructLayout:
    """A member of a group: ``sign`` and ``magnitude``."""
    return data.StructLayout({"sign": 1, "magnitude": unsigned(p_full - 1)})


class QuantizerLane(Unique):
    """``(significand << F) >> (E - e)``, truncated; latency 1, moved by ``advance``.

    A zero has sign 0; another number keeps its sign, also where nothing of it is left.

    Members
    -------
    advance, number, exponent -> member
        ``exponent`` is E, not below that of the number.
    """

    def __init__(self, *, p_full: int) -> None:
        self.p_full = p_full
        self.module_name = f"bsspec_quantizer_lane_{p_full}"
        self.label = f"quantizer lane, BFP{p_full}"
        super().__init__(
            {
                "advance": In(1),
                "number": In(BF16),
                "exponent": In(8),
                "member": Out(member_layout(p_full)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        number = instantiate(m, "number", Unpack, mantissa_bits=7, normal=False)
        distance = Signal(8)
        magnitude = Signal(self.p_full - 1)
        wide = Cat(Const(0, self.p_full - P_FULL_MIN), number.significand)
        m.d.comb += [
            number.number.eq(self.number),
            distance.eq(self.exponent - number.exponent),
            magnitude.eq(Mux(distance[4:].any(), 0, wide >> distance[:4])),
        ]
        member = Signal(self.member.shape(), reset_less=True)
        m.d.comb += self.member.eq(member)
        with m.If(self.advance):
            m.d.sync += [
                member.sign.eq(number.sign & number.significand.any()),
                member.magnitude.eq(magnitude),
            ]
        return m


class Quantizer(Unique):
    """Groups of BF16 numbers to their shared exponent, signs and magnitudes.

    BFP9 of 64 channels makes a row of values, BFP9 of 64 tokens of one channel a group of a closed
    key block, BFP16 of all channels of a head an open key. A group waits in a memory until its
    exponent is known. Throughput: a beat a cycle, for groups of four beats or more. Latency: the
    exponent is valid 2 cycles after the group's last beat was taken, its first members 4.

    Parameters
    ----------
    elements : int
        Elements of a beat: 1, 2, 4 or 8.
    p_full : int
        Bits of a number, 9 to 16.
    longest : int
        Longest group, a multiple of ``elements``. A longer one is split.

    Members
    -------
    numbers : stream of beats of BF16
        ``last`` ends a group. Dead elements are zeros.
    exponents : stream of E
        One a group, 0 for a group of zeros.
    members : stream of beats of :func:`member_layout`
    status, clear
        ``refused``; ``overflow`` is never raised.

    Raises
    ------
    ValueError
        If a parameter is out of range.
    """

    def __init__(self, *, elements: int, p_full: int, longest: int) -> None:
        self.elements = check_elements(elements)
        if not isinstance(p_full, int) or not P_FULL_MIN <= p_full <= P_FULL_MAX:
            raise ValueError(f"p_full must be {P_FULL_MIN} to {P_FULL_MAX}, not {p_full!r}")
        if not isinstance(longest, int) or longest < elements or longest % elements:
            raise ValueError(
                f"longest must be a multiple of elements, which is {elements}, not {longest!r}"
            )
        self.p_full = p_full
        self.longest = longest
        self.module_name = f"bsspec_quantizer_{p_full}"
        self.label = f"quantizer, BFP{p_full}"
        super().__init__(
            {
                "numbers": In(stream.Signature(beat_layout(BF16, elements, "last"))),
                "exponents": Out(stream.Signature(unsigned(8))),
                "members": Out(
                    stream.Signature(beat_layout(member_layout(p_full), elements, "last"))
                ),
                "status": Out(STATUS),
                "clear": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat, result = self.numbers.payload, self.members.payload
        exponents_taken = Signal(range(GROUPS_WAITING + 1))
        groups = Groups(
            m,
            purpose=f"numbers_{self.p_full}",
            source=self.numbers,
            closes=beat.last,
            rows=self.longest // self.elements,
            note=unsigned(8),
            left=self.members.valid & self.members.ready,
            stages=2,
            room=exponents_taken != GROUPS_WAITING,
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
        queue = Queue(m, "exponents", unsigned(8), GROUPS_WAITING)
        m.d.comb += [
            groups.note.eq(Mux(top.live, top.value, 0)),
            queue.push.eq(groups.closed),
            queue.entry.eq(groups.note),
            queue.pop.eq(self.exponents.valid & self.exponents.ready),
            self.exponents.valid.eq(queue.count != 0),
            self.exponents.payload.eq(queue.head),
        ]
        m.d.sync += exponents_taken.eq(exponents_taken + groups.closing - queue.pop)

        stages = groups.stages
        m.d.comb += [
            self.members.valid.eq(stages.valid[-1]),
            result.live.eq(stages.follow("live", self.elements, groups.beat.live, 1)),
            result.last.eq(stages.follow("last", 1, groups.final, 1)),
        ]
        for i in range(self.elements):
            lane = instantiate(m, f"lane_{i}", QuantizerLane, p_full=self.p_full)
            m.d.comb += [
                lane.advance.eq(stages.advance),
                lane.number.eq(groups.beat.values[i]),
                lane.exponent.eq(groups.known),
                result.values[i].eq(masked(lane.member, result.live[i])),
            ]
        sticky(m, self.status, self.clear, refused=groups.taken & refused.any())
        return m
