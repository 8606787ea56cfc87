"""What a chip can be: each limit is said, with what was given."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from hw.chip_config import CHIPS, ROWS_MAX, ChipConfig
from hw.config import ConfigError

TINY = CHIPS["tiny"]


def core(**more: Any) -> dict[str, Any]:
    """Another core."""
    return {"core": dataclasses.replace(TINY.core, **more)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ports": 3}, "ports must be 1, 2, 4 or 8, not 3"),
        ({"port_bits": 1024}, "port_bits must be 64, 128, 256 or 512, not 1024"),
        ({"address_bits": 31}, "address_bits must be 32 to 64, not 31"),
        ({"ring_rows": 48}, "ring_rows must be a power of two from two tiles of"),
        ({"ring_rows": 1 << 17}, "not 131072"),
        ({"bank_words": 48}, "bank_words must be"),
        ({"sequences": 3}, "sequences must be 1 to t_m = 2"),
        (core(special_elements=2), "special_elements = 2 must equal drain = 1"),
        (core(t_m=64), f"t_m must be {ROWS_MAX} at most, not 64"),
    ],
)
def test_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(TINY, **change)


def test_all_problems_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        dataclasses.replace(TINY, ports=3, sequences=0)
    assert str(error.value).count("\n  - ") == 2


@pytest.mark.parametrize("field", ["ports", "sequences", "bank_words"])
def test_kinds(field: str) -> None:
    with pytest.raises(TypeError, match=f"{field} must be an integer, not 1.0"):
        dataclasses.replace(TINY, **{field: 1.0})


def test_core() -> None:
    with pytest.raises(TypeError, match="core must be a Config"):
        ChipConfig(core="tiny", ports=1, port_bits=64, ring_rows=64, bank_words=256, sequences=2)  # type: ignore[arg-type]
