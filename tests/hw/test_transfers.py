"""Units of small data between memory and banks: what they refuse, widths, how they are emitted."""

from __future__ import annotations

from typing import Any

import pytest

from hw.chip_config import CHIPS, ChipConfig
from hw.config import PRESETS
from hw.library import Library
from hw.transfers.arbiter import WriteArbiter
from hw.transfers.layouts import Kind, Target, load_layout, move_layout
from hw.transfers.loader import Loader
from hw.transfers.mover import Mover

# A unit that refuses its configuration is never elaborated.
pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")


def _arbiter(config: ChipConfig) -> WriteArbiter:
    return WriteArbiter(config, sources=4)


@pytest.mark.parametrize("unit", [Loader, Mover, _arbiter])
def test_a_core_is_no_chip(unit: Any) -> None:
    with pytest.raises(TypeError, match="config must be a ChipConfig"):
        unit(PRESETS["tiny"])


def test_sources_are_counted_by_an_integer() -> None:
    with pytest.raises(TypeError, match="sources must be an integer, not '3'"):
        WriteArbiter(CHIPS["tiny"], sources="3")  # type: ignore[arg-type]


@pytest.mark.parametrize("sources", [0, -1, 1025])
def test_a_source_fits_into_a_tag(sources: int) -> None:
    with pytest.raises(ValueError, match=f"sources must be 1 to 1024, not {sources}"):
        WriteArbiter(CHIPS["tiny"], sources=sources)


@pytest.mark.parametrize("sources", [1, 2, 5])
def test_any_number_of_sources(sources: int) -> None:
    Library().add(WriteArbiter(CHIPS["tiny"], sources=sources))


@pytest.mark.parametrize("unit", [Loader, Mover, _arbiter])
@pytest.mark.parametrize("name", CHIPS)
def test_each_chip_has_it(name: str, unit: Any) -> None:
    library = Library()
    library.add(unit(CHIPS[name]))
    assert unit(CHIPS[name]).module_name in library.modules


@pytest.mark.parametrize("config", CHIPS.values(), ids=list(CHIPS))
def test_requests_and_moves_hold_all_there_is(config: ChipConfig) -> None:
    load, move = load_layout(config), move_layout(config)
    largest = {
        "target": max(Target),
        "row": config.core.t_m - 1,
        "word": max(config.bank_words, 1024) - 1,
        "count": 1 << 20,
    }
    for name, value in largest.items():
        assert value < 1 << load[name].width
    largest = {
        "kind": max(Kind),
        "row": config.core.t_m - 1,
        "word": config.bank_words - 1,
        "words": 4 * config.head_tiles_max,
        "staged": config.bank_words - 1,
        "positions": config.core.t_m,
        "group": config.core.t_m,
        "token": 63,
        "p_full": 16,
    }
    for name, value in largest.items():
        assert value < 1 << move[name].width
    assert load["line"].width == move["line"].width == config.memory.line_address_bits


def test_memories_are_those_of_values() -> None:
    library = Library()
    library.add(Mover(CHIPS["paper"]))
    memories = {name for name, part in library.modules.items() if hasattr(part, "bits")}
    assert memories == {"bsspec_mem_numbers_16", "bsspec_mem_value_rows"}
