"""Where registers lie in the window, for hardware: a row is a word of 32 bits, ``offset / 4``."""

from __future__ import annotations

from collections.abc import Callable, Collection

from amaranth.hdl import Value

from hw.axi.bus import AxiLite
from hw.chip_config import ChipConfig
from model.formats import registers
from model.formats.registers import REGISTERS, WINDOW_BYTES, WORD_BYTES

#: Words of the window, width of a row's number, of a word.
WINDOW_ROWS = WINDOW_BYTES // WORD_BYTES
ROW_BITS = (WINDOW_ROWS - 1).bit_length()
WORD_BITS = 8 * WORD_BYTES
#: Width of a status.
STATUS_BITS = REGISTERS["STATUS"].fields["status"].width

#: Registers that are no words of the memory.
HARDWIRED = (
    *("ID", "VERSION", "CONFIG", "SIZES", "MAX_K"),
    *("CONTROL", "STATUS", "IRQ_ENABLE", "IRQ_PENDING"),
)


def window_bus() -> AxiLite:
    """The host's way to the window."""
    return AxiLite(data_bits=WORD_BITS, address_bits=(WINDOW_BYTES - 1).bit_length())


def row_of(name: str, entry: int = 0) -> int:
    """Row of a register's (lower) word: its offset in words."""
    register = REGISTERS[name]
    return (register.offset + entry * register.stride) // WORD_BYTES


def rows_of(name: str) -> range:
    """Rows of all words of a register's entries."""
    return range(row_of(name), REGISTERS[name].end // WORD_BYTES)


def rows_where(wanted: Callable[[str], bool]) -> set[int]:
    """Rows of the registers whose names are wanted."""
    return {row for name in REGISTERS if wanted(name) for row in rows_of(name)}


def fixed_words(config: ChipConfig) -> dict[str, int]:
    """What the registers of a chip's configuration read as; every chip fits their fields."""
    return {
        "ID": registers.ID,
        "VERSION": registers.VERSION,
        "CONFIG": registers.pack(
            "CONFIG",
            t_m=config.core.t_m,
            p_max=config.core.p_max,
            head_tiles_max=config.head_tiles_max,
            tiles_per_block=config.block_tiles,
        ),
        "SIZES": registers.pack("SIZES", bank_words=config.bank_words, sequences=config.sequences),
        "MAX_K": config.core.max_k,
    }


def patterns(rows: Collection[int], bits: int = ROW_BITS) -> list[str]:
    """Patterns of :meth:`~amaranth.hdl.Value.matches` that cover exactly these rows."""
    if not rows:
        return []
    if len(rows) == 1 << bits:
        return ["-" * bits]
    half = 1 << (bits - 1)
    low = patterns({row for row in rows if row < half}, bits - 1)
    high = patterns({row - half for row in rows if row >= half}, bits - 1)
    if low == high:
        return [f"-{each}" for each in low]
    return [f"0{each}" for each in low] + [f"1{each}" for each in high]


def among(row: Value, rows: Collection[int]) -> Value:
    """Whether a row is one of these."""
    return row.matches(*patterns(rows))


def masks() -> dict[int, set[int]]:
    """Rows of the memory that the host writes, by the bits that it may set there."""
    found: dict[int, set[int]] = {}
    for name, register in REGISTERS.items():
        if register.access == "write" and name not in HARDWIRED:
            allowed = registers.writable(name)
            words = register.bits // WORD_BITS
            for place, row in enumerate(rows_of(name)):
                mask = allowed >> WORD_BITS * (place % words) & ((1 << WORD_BITS) - 1)
                found.setdefault(mask, set()).add(row)
    return found
