"""Sign decoder and BS-RAC lane: from streamed weight bits to a signed table entry."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, signed
from amaranth.lib.wiring import In, Out

from hw.compute.layouts import look_layout, looks_layout, plane_layout, table_layout
from hw.config import GROUPS, TILE, Config
from hw.library import Unique, instantiate, packed


class SignDecoder(Unique):
    """Turns ``mu`` bits of a plane into a look-up; combinational.

    A magnitude bit counts with the sign of its weight where it is 1 and against it where it is 0
    (contract section 6): activation i is added where ``bits[i] ^ signs[i]``. On the sign plane
    itself the bits are the signs, and a set bit subtracts.

    Members
    -------
    bits, signs : ``mu`` bits of the plane and of the sign plane; ``sign_plane`` : 1 on the latter
    look : index and negation of a half-table look-up
    """

    module_name = "bsspec_sign_decoder"
    label = "sign decoder"
    sequential = False

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "bits": In(config.mu),
                "signs": In(config.mu),
                "sign_plane": In(1),
                "look": Out(look_layout(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        mu = self.config.mu
        added = Signal(mu)
        m.d.comb += [
            added.eq(self.bits ^ (self.signs | self.sign_plane.replicate(mu))),
            self.look.negate.eq(~added[0]),
            self.look.index.eq(~(added[1:] ^ added[0].replicate(mu - 1))),
        ]
        return m


class PlaneDecoder(Unique):
    """Decodes each streamed plane once, before the broadcast, and skews it over the four groups.

    A plane accepted in cycle c (``valid``) is on ``looks`` in cycle c + 1 + g for the tables of
    group g. The signs of a column group are latched as its sign plane passes.
    """

    module_name = "bsspec_plane_decoder"
    label = "plane registers and skew"

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "valid": In(1),
                "sign_plane": In(1),
                "plane": In(plane_layout(config)),
                "looks": Out(looks_layout(config, config.lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        signs = Signal(plane_layout(config), reset_less=True)
        with m.If(self.valid & self.sign_plane):
            m.d.sync += signs.eq(self.plane)
        layout = looks_layout(config, config.lanes)
        decoded = packed(layout, name="decoded")
        stages = [packed(layout, name=f"looks_{g}", reset_less=True) for g in range(GROUPS)]
        for lane in range(config.lanes):
            for lut in range(config.luts):
                decoder = instantiate(m, f"decoder_{lane}_{lut}", SignDecoder, config)
                reduction = range(lut * config.mu, (lut + 1) * config.mu)
                m.d.comb += [
                    decoder.bits.eq(Cat(self.plane[k][lane] for k in reduction)),
                    decoder.signs.eq(Cat(signs[k][lane] for k in reduction)),
                    decoder.sign_plane.eq(self.sign_plane),
                    decoded[lane][lut].eq(decoder.look),
                ]
                group = lut // config.luts_per_group
                previous = decoded
                for g in range(group + 1):
                    m.d.sync += stages[g][lane][lut].eq(previous[lane][lut])
                    previous = stages[g]
                m.d.comb += self.looks[lane][lut].eq(stages[group][lane][lut])
        assert config.luts * config.mu == TILE
        return m


class BsRacLane(Unique):
    """One read port of one table for one column; combinational.

    The read value is ``value + carry`` in halves: the entry, or its complement where the look-up
    negates. ``-T`` of an odd table is the complement alone, since ``T = 2 U + 1`` gives
    ``-T = 2 ~U + 1``; an even table's needs one more, which rides on a carry input of the adders
    behind.
    """

    module_name = "bsspec_lane"
    label = "BS-RAC lane"
    sequential = False

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "table": In(table_layout(config)),
                "look": In(look_layout(config)),
                "value": Out(signed(config.entry_bits)),
                "carry": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        read = Signal(config.entry_bits)
        # One-hot AND-OR: about half the area of a multiplexer tree.
        terms = []
        for index in range(config.entries):
            chosen = Signal(name=f"chosen_{index}")
            m.d.comb += chosen.eq(self.look.index == index)
            entry = self.table.entries[index].as_unsigned()
            terms.append(entry & chosen.replicate(config.entry_bits))
        while len(terms) > 1:
            terms = [a | b for a, b in zip(terms[::2], terms[1::2], strict=True)]
        m.d.comb += [
            read.eq(terms[0]),
            self.value.eq((read ^ self.look.negate.replicate(config.entry_bits)).as_signed()),
            self.carry.eq(self.look.negate & ~self.table.odd),
        ]
        return m
