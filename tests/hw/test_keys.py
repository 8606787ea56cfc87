"""Units of keys and values: what they refuse, and sizes that follow from a chip."""

from __future__ import annotations

import dataclasses

import pytest

from hw.chip_config import CHIPS
from hw.config import PRESETS
from hw.keys.rows import key_lines, key_tokens
from hw.keys.transposer import KeyTransposer
from hw.keys.values import RowWriter, ValueWriter
from hw.library import Library
from hw.memory.ram_bytes import RamBytes

# A unit that refuses its configuration is never elaborated.
pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")


@pytest.mark.parametrize("unit", [KeyTransposer, ValueWriter, RowWriter])
def test_a_core_is_no_chip(unit: type) -> None:
    with pytest.raises(TypeError, match="config must be a ChipConfig"):
        unit(PRESETS["tiny"])


def test_open_keys_need_all_planes() -> None:
    core = dataclasses.replace(CHIPS["tiny"].core, p_max=12)
    with pytest.raises(ValueError, match="p_max must be 16 for open keys, not 12"):
        KeyTransposer(dataclasses.replace(CHIPS["tiny"], core=core))


@pytest.mark.parametrize(("width", "depth"), [(0, 4), (12, 4), (8, 0)])
def test_rows_are_whole_bytes(width: int, depth: int) -> None:
    with pytest.raises(ValueError, match="width must be a multiple of 8"):
        RamBytes(purpose="rows", width=width, depth=depth)


def test_the_ring_holds_a_block_of_the_widest_head() -> None:
    assert (key_lines(CHIPS["paper"]), key_tokens(CHIPS["paper"])) == (256, 128)


def test_no_macro_is_wider_than_a_line() -> None:
    library = Library()
    library.add(KeyTransposer(CHIPS["tiny"]))
    widths = {name: part.width for name, part in library.modules.items() if hasattr(part, "bits")}
    assert widths.pop("bsspec_mem_key_planes") == widths.pop("bsspec_mem_key_rows") == 512
    assert max(widths.values()) == 8
