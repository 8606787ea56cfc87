"""The weight ring: lines of several ports in, whole bit planes out."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.chip_config import LINE_BITS, PLANE_LINES, ChipConfig
from hw.library import Unique, instantiate, packed
from hw.memory.ram import Ram

_BANK_BITS = (PLANE_LINES - 1).bit_length()


def ring_line_layout(config: ChipConfig) -> data.StructLayout:
    """A line on its way into the ring.

    ``place``: where it belongs, a line of shared exponents or of planes (row of the ring times 8
    and line within the plane); ``exponents``: which of the two.
    """
    return data.StructLayout(
        {
            "data": LINE_BITS,
            "place": (config.ring_rows * PLANE_LINES - 1).bit_length(),
            "exponents": 1,
        }
    )


class WeightRing(Unique):
    """Memory between the ports and the array: planes in eight macros a row, exponents beside them.

    A plane of 512 bytes lies in one row, its eight lines in as many macros, so any port can bring
    any line while a whole plane is read. Ports that want the same macro in the same cycle take
    turns, the one that waited longest first; in the next cycle they want neighbouring macros, so
    ports that bring a line a cycle stop meeting. The exponents have one macro and one turn a cycle.

    Whoever writes and reads sees to it that a row is not read while it is written. Latency of a
    read 1; a plane and a line of exponents a cycle.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    lines_0 .. lines_n : streams of :func:`ring_line_layout`, one a port
    plane_read, plane_row -> plane : 4096 bits, held until the next read
    exponent_read, exponent_line -> exponents : 512 bits, held until the next read
    """

    module_name = "bsspec_weight_ring"
    label = "memory: weight ring"

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        super().__init__(
            {
                **{
                    f"lines_{i}": In(stream.Signature(ring_line_layout(config)))
                    for i in range(config.ports)
                },
                "plane_read": In(1),
                "plane_row": In((config.ring_rows - 1).bit_length()),
                "plane": Out(PLANE_LINES * LINE_BITS),
                "exponent_read": In(1),
                "exponent_line": In((config.exponent_lines - 1).bit_length()),
                "exponents": Out(LINE_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        lines = [getattr(self, f"lines_{i}") for i in range(config.ports)]
        granted: list[list[Value]] = [[] for _ in lines]

        # Who goes first changes every cycle, so nobody waits longer than there are ports.
        first = Signal(range(max(2, config.ports)))
        if config.ports > 1:
            m.d.sync += first.eq(first + 1)

        for bank in range(PLANE_LINES):
            wants = [
                line.valid & ~line.payload.exponents & (line.payload.place[:_BANK_BITS] == bank)
                for line in lines
            ]
            chosen, taken = self._choose(m, f"bank_{bank}", lines, wants, first, granted)
            rows = instantiate(
                m,
                f"planes_{bank}",
                Ram,
                purpose="weight_ring",
                width=LINE_BITS,
                depth=config.ring_rows,
            )
            m.d.comb += [
                rows.write_enable.eq(taken),
                rows.write_row.eq(chosen.place[_BANK_BITS:]),
                rows.write_data.eq(chosen.data),
                rows.read_enable.eq(self.plane_read),
                rows.read_row.eq(self.plane_row),
                self.plane[bank * LINE_BITS : (bank + 1) * LINE_BITS].eq(rows.read_data),
            ]

        wants = [line.valid & line.payload.exponents for line in lines]
        chosen, taken = self._choose(m, "exponents", lines, wants, first, granted)
        ram = instantiate(
            m,
            "exponents",
            Ram,
            purpose="weight_exponents",
            width=LINE_BITS,
            depth=config.exponent_lines,
        )
        m.d.comb += [
            ram.write_enable.eq(taken),
            ram.write_row.eq(chosen.place[: len(ram.write_row)]),
            ram.write_data.eq(chosen.data),
            ram.read_enable.eq(self.exponent_read),
            ram.read_row.eq(self.exponent_line),
            self.exponents.eq(ram.read_data),
        ]
        for line, grants in zip(lines, granted, strict=True):
            m.d.comb += line.ready.eq(Cat(grants).any())
        return m

    def _choose(
        self,
        m: Module,
        name: str,
        lines: list[data.View],
        wants: list[Value],
        first: Value,
        granted: list[list[Value]],
    ) -> tuple[data.View, Value]:
        """One of those who want, in turns; notes the grant."""
        ports = len(lines)
        layout = ring_line_layout(self.config)
        chosen = packed(layout, name=f"{name}_line")
        taken = Signal(name=f"{name}_taken")
        wanted = Signal(ports, name=f"{name}_wanted")
        m.d.comb += [wanted.eq(Cat(wants)), taken.eq(wanted.any())]
        if ports == 1:
            m.d.comb += chosen.eq(lines[0].payload)
            granted[0].append(wanted[0])
            return chosen, taken
        # Rotated so that ``first`` is at the bottom; the lowest one wins.
        turned = Signal(ports, name=f"{name}_turned")
        lowest = Signal(range(ports), name=f"{name}_lowest")
        winner = Signal(range(ports), name=f"{name}_winner")
        m.d.comb += [
            turned.eq((Cat(wanted, wanted) >> first)[:ports]),
            winner.eq(lowest + first),
            chosen.eq(Array(line.payload.as_value() for line in lines)[winner]),
        ]
        pick: Value | int = 0
        for i in reversed(range(ports)):
            pick = Mux(turned[i], i, pick)
        m.d.comb += lowest.eq(pick)
        for i, grants in enumerate(granted):
            grants.append(wanted[i] & (winner == i))
        return chosen, taken
