"""The register window: constants of the configuration, rows, what it refuses to be."""

from __future__ import annotations

import dataclasses

import pytest

from hw.axi.bus import AxiLite
from hw.chip_config import BANK_WORDS_MAX, CHIPS, ROWS_MAX
from hw.config import PRESETS, ConfigError
from hw.control.register_rows import (
    HARDWIRED,
    ROW_BITS,
    WINDOW_ROWS,
    fixed_words,
    masks,
    patterns,
    row_of,
    rows_where,
)
from hw.control.window import RegisterWindow
from hw.library import Library
from model.formats.registers import REGISTERS, unpack, writable
from model.machine.shape import PRESETS as SHAPES

# A unit that refuses its configuration is never elaborated.
pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")


@pytest.mark.parametrize("name", sorted(CHIPS))
def test_the_configuration_is_what_software_expects(name: str) -> None:
    assert fixed_words(CHIPS[name]) == SHAPES[name].registers()


def test_a_core_is_no_chip() -> None:
    with pytest.raises(TypeError, match="config must be a ChipConfig"):
        RegisterWindow(PRESETS["tiny"])  # type: ignore[arg-type]


def test_the_largest_chip_fits_the_fields_of_its_registers() -> None:
    core = dataclasses.replace(CHIPS["paper"].core, t_m=ROWS_MAX, contexts=16, max_k=1 << 24)
    chip = dataclasses.replace(
        CHIPS["paper"], core=core, ring_rows=1 << 16, bank_words=BANK_WORDS_MAX, sequences=ROWS_MAX
    )
    words = fixed_words(chip)
    assert unpack("CONFIG", words["CONFIG"]) == {
        "t_m": 48,
        "p_max": 16,
        "head_tiles_max": 15,
        "tiles_per_block": 8,
    }
    assert unpack("SIZES", words["SIZES"]) == {"bank_words": 65535, "sequences": 48}
    assert words["MAX_K"] == 16777216
    with pytest.raises(ConfigError, match=r"bank_words must be \d+ .* to 65535, not 65536"):
        dataclasses.replace(CHIPS["paper"], bank_words=1 << 16)


def test_patterns_cover_exactly_their_rows() -> None:
    everything = rows_where(lambda _: True)
    for rows in ({0}, {WINDOW_ROWS - 1}, everything, set(range(WINDOW_ROWS)), *masks().values()):
        covered = [
            row
            for row in range(WINDOW_ROWS)
            for pattern in patterns(rows)
            if all(p in ("-", b) for p, b in zip(pattern, f"{row:0{ROW_BITS}b}", strict=True))
        ]
        assert sorted(covered) == sorted(rows)
    assert patterns(set()) == []


def test_rows_are_offsets_in_words() -> None:
    assert row_of("ID") == 0
    assert row_of("BASE", 3) == (REGISTERS["BASE"].offset + 24) // 4
    assert rows_where("READ_PLANES".__eq__) == set(range(0x300 // 4, 0x380 // 4))


def test_the_host_writes_what_is_writable() -> None:
    found = {row: mask for mask, rows in masks().items() for row in rows}
    for name, register in REGISTERS.items():
        for word in range(register.bits // 32):
            wanted = writable(name) >> 32 * word & 0xFFFF_FFFF
            row = row_of(name) + word
            if register.access == "write" and name not in HARDWIRED:
                assert found[row] == wanted
            else:
                assert row not in found


def test_one_macro_of_a_window() -> None:
    library = Library()
    library.add(RegisterWindow(CHIPS["tiny"]))
    bits = {name: part.bits for name, part in library.modules.items() if hasattr(part, "bits")}
    assert bits == {"bsspec_mem_registers": 32 * 1024}


def test_axi_lite_signature() -> None:
    bus = AxiLite(address_bits=12)
    assert repr(bus) == "AxiLite(data_bits=32, address_bits=12)"
    assert bus == AxiLite(data_bits=32, address_bits=12) != AxiLite(address_bits=13)
    assert len(bus.members) == 19
    for wrong, match in ((16, "32 or 64, not 16"), (128, "32 or 64, not 128")):
        with pytest.raises(ValueError, match=match):
            AxiLite(data_bits=wrong, address_bits=12)
    with pytest.raises(ValueError, match="address_bits must be 2 to 64, not 1"):
        AxiLite(address_bits=1)
    with pytest.raises(TypeError, match="data_bits must be an integer, not '32'"):
        AxiLite(data_bits="32", address_bits=12)  # type: ignore[arg-type]
