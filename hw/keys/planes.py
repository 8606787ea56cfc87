"""The plane memory of a block of keys: written by the byte, read by the plane."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.chip_config import LINE_BITS, PLANE_LINES, ChipConfig
from hw.config import TILE
from hw.keys.layouts import BYTE_TOKENS, BYTES, OPEN_PLANES, head_tiles_bits
from hw.library import Unique, instantiate
from hw.memory.ram_bytes import RamBytes

_HALF = PLANE_LINES // 2
#: Bytes of a row of a plane, one of eight tokens each.
PLACES = TILE // BYTE_TOKENS
#: Channels of a macro's row.
_MACRO_CHANNELS = LINE_BITS // TILE


def planes_row_bits(config: ChipConfig) -> int:
    """Width of a row of the plane memory."""
    return (OPEN_PLANES * config.head_tiles_max - 1).bit_length()


class KeyPlanes(Unique):
    """Planes of a block in eight macros a row: row ``plane * tiles + tile``, as in memory.

    A write brings eight tokens' bits of half a tile's channels, in two planes: a sign plane or
    even one, and the one after it. So that both find their macros free, the halves of a plane
    change places from plane to plane of a tile, and change back as they are read. Throughput: a
    write or a plane a cycle; latency of a read 1.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    head_tiles
        Tiles of the block, for writes and reads alike.
    write, row, upper, place, ends, even, odd
        Row of the even plane; which half of the channels; which byte of their rows; whether all
        bytes after it become zeros; ``[channel]`` bits of eight tokens, the even plane's and the
        odd one's.
    read, read_row -> plane
        4096 bits, bit ``64 k + n`` of channel k and token n, held until the next read.
    line_number -> line
        A line of it, 512 bits.
    """

    module_name = "bsspec_key_planes"
    label = "keys: planes"

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        row_bits = planes_row_bits(config)
        super().__init__(
            {
                "head_tiles": In(head_tiles_bits(config)),
                "write": In(1),
                "row": In(row_bits),
                "upper": In(1),
                "place": In((PLACES - 1).bit_length()),
                "ends": In(1),
                "even": In(BYTES),
                "odd": In(BYTES),
                "read": In(1),
                "read_row": In(row_bits),
                "plane": Out(PLANE_LINES * LINE_BITS),
                "line_number": In((PLANE_LINES - 1).bit_length()),
                "line": Out(LINE_BITS),
            }
        )

    def _swaps(self, row: Value) -> Value:
        """Whether the halves of a row's plane have changed places.

        The lowest bit of the row that adding ``head_tiles`` changes: it differs between a tile's
        neighbouring planes, however many tiles there are.
        """
        swaps: Value = row[0]
        for bit in reversed(range(len(self.head_tiles))):
            swaps = Mux(self.head_tiles[bit], row[bit], swaps)
        return swaps

    def elaborate(self, platform: object) -> Module:
        m = Module()
        row_bits = len(self.row)
        odd_row = Signal(row_bits)
        crossed = Signal()
        m.d.comb += [
            odd_row.eq(self.row + self.head_tiles),
            crossed.eq(self._swaps(self.row) ^ self.upper),
        ]
        enable = Signal(PLACES)
        m.d.comb += enable.eq(
            Cat(
                self.write & ((self.place == i) | (self.ends & (self.place < i) if i else 0))
                for i in range(PLACES)
            )
        )
        swapped = Signal(reset_less=True)
        with m.If(self.read):
            m.d.sync += swapped.eq(self._swaps(self.read_row))

        macros: list[Value] = []
        for number in range(PLANE_LINES):
            half, within = divmod(number, _HALF)
            # Even planes go into the lower macros unless crossed, odd ones into the others.
            takes_odd = crossed ^ half
            channels = slice(within * _MACRO_CHANNELS, (within + 1) * _MACRO_CHANNELS)
            chosen = [
                Mux(takes_odd, self.odd[channel], self.even[channel])
                for channel in range(LINE_BITS // 16)[channels]
            ]
            macro = instantiate(
                m,
                f"macro_{number}",
                RamBytes,
                purpose="key_planes",
                width=LINE_BITS,
                depth=OPEN_PLANES * self.config.head_tiles_max,
            )
            bytes_in = [
                each & (self.place == i).replicate(BYTE_TOKENS)
                for each in chosen
                for i in range(PLACES)
            ]
            m.d.comb += [
                macro.write_enable.eq(enable.replicate(_MACRO_CHANNELS)),
                macro.write_row.eq(Mux(takes_odd, odd_row, self.row)),
                macro.write_data.eq(Cat(bytes_in)),
                macro.read_enable.eq(self.read),
                macro.read_row.eq(self.read_row),
            ]
            macros.append(macro.read_data)
        lines = Signal(data.ArrayLayout(unsigned(LINE_BITS), PLANE_LINES))
        for number in range(PLANE_LINES):
            other = macros[(number + _HALF) % PLANE_LINES]
            m.d.comb += lines[number].eq(Mux(swapped, other, macros[number]))
        m.d.comb += [self.plane.eq(lines.as_value()), self.line.eq(Array(lines)[self.line_number])]
        return m
