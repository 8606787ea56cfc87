"""Exponent folding and alignment of activations (contract section 5, steps 1 to 3).

An :class:`Aligner` is the arithmetic for one activation. An :class:`AlignerBank` is the front of
an MPU: it takes a tile's activations in four groups, keeps them until the tile exponent is known,
and gives them out aligned, group by group.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.compute.arithmetic import conditional_negate
from hw.compute.layouts import BF16
from hw.config import EXPONENT_BITS, GROUPS, Config
from hw.library import Unique, instantiate


class Aligner(Unique):
    """Arithmetic for one activation; combinational, two independent paths.

    Folding: ``eps = e + E`` for a live activation. An activation is dead (``significand`` and
    ``eps`` are 0) if it is zero, its shared exponent is 0, its row is masked, or it is Inf or NaN
    (``refused``, whether its row is masked or not).

    Shifting: ``aligned = (-1)**sign * ((significand << g) >> (tile_exponent - eps))``, truncated
    toward zero.

    Members
    -------
    activation, shared_exponent, enable -> folded, refused
        ``folded`` has fields eps (9 bits), significand (8), sign.
    kept, tile_exponent -> aligned
        ``kept`` has the fields of ``folded``.
    """

    module_name = "bsspec_aligner"
    label = "aligner"
    sequential = False

    FOLDED = data.StructLayout({"significand": 8, "sign": 1, "eps": EXPONENT_BITS})

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "activation": In(BF16),
                "shared_exponent": In(8),
                "enable": In(1),
                "folded": Out(self.FOLDED),
                "refused": Out(1),
                "kept": In(self.FOLDED),
                "tile_exponent": In(EXPONENT_BITS),
                "aligned": Out(signed(config.aligned_bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        guard = self.config.align_guard_bits

        activation = self.activation
        normal = Signal()
        finite = Signal()
        live = Signal()
        m.d.comb += [
            normal.eq(activation.exponent.any()),
            finite.eq(~activation.exponent.all()),
            self.refused.eq(~finite),
            live.eq(
                self.enable
                & finite
                & (normal | activation.mantissa.any())
                & self.shared_exponent.any()
            ),
            self.folded.sign.eq(activation.sign),
        ]
        # A subnormal has the effective exponent 1.
        effective = Cat(activation.exponent[0] | ~normal, activation.exponent[1:])
        with m.If(live):
            m.d.comb += [
                self.folded.significand.eq(Cat(activation.mantissa, normal)),
                self.folded.eps.eq(effective + self.shared_exponent),
            ]

        # Dead activations have eps 0 and so a meaningless distance, but also significand 0.
        distance = Signal(EXPONENT_BITS)
        m.d.comb += distance.eq(self.tile_exponent - self.kept.eps)
        width = 8 + guard
        steps = (width - 1).bit_length()
        significand = Signal(8)
        m.d.comb += significand.eq(self.kept.significand & (~distance[steps:].any()).replicate(8))
        shifted = Cat(Const(0, guard), significand)
        # Small steps first: what they produce is narrow, the rest of the word is still zeros.
        for step in range(steps):
            level = Signal(width, name=f"shifted_{1 << step}")
            m.d.comb += level.eq(Mux(distance[step], shifted >> (1 << step), shifted))
            shifted = level
        negated = conditional_negate(m, "aligned", shifted, self.kept.sign)
        m.d.comb += self.aligned.eq(negated.as_signed())
        return m


class AlignerBank(Unique):
    """Front of an MPU: activations in, aligned activations and the tile exponent out.

    Cycle by cycle: a group accepted in cycle c (``fill``) takes part in the maximum in c + 1; the
    tile exponent is known in c + 2 for the last group of a tile. A group aligned in cycle c
    (``align``) is on ``aligned`` from c + 1 until the next ``align``. A slot is free for the next
    tile's group in the cycle in which its old content is aligned. The four groups of a tile are
    filled and aligned in order; group 0 may be aligned no earlier than the tile exponent is known.

    Members
    -------
    fill, fill_group, activations, shared_exponents, row_enable
        One group of 16 activations; ``row_enable`` is this row's bit of the row mask.
    align, align_group -> aligned
        16 two's complement numbers, registered.
    tile_exponent
        ``X`` of the tile whose groups are being aligned, from the cycle after its group 0 was
        aligned; 0 if no activation of the tile is live.
    refused
        High in the cycle in which a group with Inf or NaN in an enabled row is filled.
    """

    module_name = "bsspec_aligner_bank"
    label = "activation slots and tile maximum"

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "fill": In(1),
                "fill_group": In(2),
                "row_enable": In(1),
                "activations": In(data.ArrayLayout(BF16, config.group_k)),
                "shared_exponents": In(data.ArrayLayout(unsigned(8), config.group_k)),
                "align": In(1),
                "align_group": In(2),
                "aligned": Out(data.ArrayLayout(signed(config.aligned_bits), config.group_k)),
                "tile_exponent": Out(EXPONENT_BITS),
                "refused": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        group_k = self.config.group_k
        slot_layout = data.ArrayLayout(Aligner.FOLDED, group_k)
        slots = [Signal(slot_layout, name=f"slot_{g}", reset_less=True) for g in range(GROUPS)]

        aligners = [instantiate(m, f"aligner_{i}", Aligner, self.config) for i in range(group_k)]
        folded = Signal(slot_layout)
        refused = Signal(group_k)
        for i, aligner in enumerate(aligners):
            m.d.comb += [
                aligner.activation.eq(self.activations[i]),
                aligner.shared_exponent.eq(self.shared_exponents[i]),
                aligner.enable.eq(self.row_enable),
                folded[i].eq(aligner.folded),
                refused[i].eq(aligner.refused),
            ]
        m.d.comb += self.refused.eq(self.fill & self.row_enable & refused.any())
        for g, slot in enumerate(slots):
            with m.If(self.fill & (self.fill_group == g)):
                m.d.sync += slot.eq(folded)

        # The maximum runs one cycle behind the fill.
        filled = Signal()
        filled_group = Signal(2, reset_less=True)
        m.d.sync += [filled.eq(self.fill), filled_group.eq(self.fill_group)]

        def select(group: Signal) -> Signal:
            chosen = Signal(slot_layout, name=f"{group.name}_slot")
            with m.Switch(group):
                for g, slot in enumerate(slots):
                    with m.Case(g):
                        m.d.comb += chosen.eq(slot)
            return chosen

        newest = select(filled_group)
        candidates = [newest[i].eps for i in range(group_k)]
        while len(candidates) > 1:
            level = len(candidates) // 2
            larger = []
            for i in range(level):
                winner = Signal(EXPONENT_BITS, name=f"maximum_{level}_{i}")
                a, b = candidates[2 * i], candidates[2 * i + 1]
                m.d.comb += winner.eq(Mux(a > b, a, b))
                larger.append(winner)
            candidates = larger
        running = Signal(EXPONENT_BITS, reset_less=True)
        with m.If(filled & ((filled_group == 0) | (candidates[0] > running))):
            m.d.sync += running.eq(candidates[0])

        # Group 0 is aligned with the maximum itself; meanwhile the next tile may restart it.
        exponent = Signal(EXPONENT_BITS)
        m.d.comb += exponent.eq(Mux(self.align_group == 0, running, self.tile_exponent))
        align_group = Signal(2)
        m.d.comb += align_group.eq(self.align_group)
        chosen = select(align_group)
        for i, aligner in enumerate(aligners):
            m.d.comb += [aligner.kept.eq(chosen[i]), aligner.tile_exponent.eq(exponent)]
        aligned = Signal.like(self.aligned, reset_less=True)
        tile_exponent = Signal(EXPONENT_BITS, reset_less=True)
        with m.If(self.align):
            m.d.sync += tile_exponent.eq(exponent)
            for i, aligner in enumerate(aligners):
                m.d.sync += aligned[i].eq(aligner.aligned)
        m.d.comb += [self.aligned.eq(aligned), self.tile_exponent.eq(tile_exponent)]
        return m
