"""The tables: widths, accuracy at every index, and the entries themselves."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import pytest
import torch

from model.datapath.special.exact import look_up
from model.formats.special_tables import (
    SegmentTable,
    exp2_table,
    log2_e_factor,
    reciprocal_table,
    rsqrt_table,
    score_factor,
)
from tests.model.special import reference

TABLES = [exp2_table(), reciprocal_table(), rsqrt_table()]
by_name = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)

ENTRIES = {"exp2": "a121419291e2", "recip": "f18edfade1c0", "rsqrt": "bc6c7576a585"}

# Where bits are cut off below the index, it stands for the middle of its interval.
FUNCTIONS: dict[str, Callable[[int], float]] = {
    "exp2": lambda index: 2 ** (index / 65536),
    "recip": lambda index: 1 / (1 + (index + 0.5) / 65536),
    "rsqrt": lambda index: (
        1 / math.sqrt((1 + (index % 65536 + 0.5) / 65536) * (1 + index // 65536))
    ),
}


@by_name
def test_every_index_is_near_the_function(table: SegmentTable) -> None:
    """Half the chord's deviation (1.5 units at most), half a unit each of base and floor."""
    function, unit = FUNCTIONS[table.name], 2.0**table.fraction_bits
    exact = [function(index) * unit for index in range(1 << table.index_bits)]
    errors = [table.value(index) - each for index, each in enumerate(exact)]
    assert max(map(abs, errors)) < {"exp2": 1.9, "recip": 2.0, "rsqrt": 2.51}[table.name]
    relative = [abs(error) / each for error, each in zip(errors, exact, strict=True)]
    assert max(relative) < 2**-15.5
    # A centred chord is above a convex function on average, by a sixth of its deviation.
    assert 0 < sum(errors) / len(errors) < 0.35


@by_name
def test_values_have_17_bits(table: SegmentTable) -> None:
    values = [table.value(i) for i in range(1 << table.index_bits)]
    assert min(values) >= 1 << 16
    assert max(values) < 1 << 17
    assert table.base_bits == 16
    assert table.slope_bits == (11 if table.name == "exp2" else 10)
    assert len(table.bases) == len(table.slopes) == 1 << table.segment_bits


@by_name
def test_look_up_equals_value(table: SegmentTable) -> None:
    index = torch.arange(1 << table.index_bits)
    assert look_up(table, index).tolist() == [table.value(i) for i in index.tolist()]


def test_sizes() -> None:
    assert [table.bits for table in TABLES] == [1728, 3328, 3328]


@by_name
def test_entries(table: SegmentTable) -> None:
    """A change of an entry is a change of the hardware."""
    text = repr((table.bases, table.slopes)).encode()
    assert hashlib.sha256(text).hexdigest()[:12] == ENTRIES[table.name]


@pytest.mark.parametrize("width", [1, 2, 3, 64, 80, 96, 128, 256, 65536])
def test_score_factor(width: int) -> None:
    factor = score_factor(width)
    assert factor.integer.bit_length() == 18
    assert factor.integer * reference.power(factor.exponent) == reference.score_factor(width)
    assert factor.value == math.ldexp(factor.integer, factor.exponent)


def test_log2_e() -> None:
    factor = log2_e_factor()
    assert factor.integer * reference.power(factor.exponent) == reference.LOG2_E
