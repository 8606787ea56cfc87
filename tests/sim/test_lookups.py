"""The model's tables and patterns in the core's form, against sums made by hand."""

import numpy as np
import pytest

from hw.compute import layouts
from hw.config import GROUPS, TILE
from sim import lookups, words
from sim.registry import ODD, TINY
from sim.stimulus import aligned_rows

CONFIGS = [TINY, ODD]


@pytest.mark.parametrize("config", CONFIGS)
def test_look_and_pattern_are_inverse(config) -> None:
    seen = set()
    for v in range(1 << config.mu):
        look = lookups.look(config, v)
        assert lookups.pattern(config, **look) == v
        seen.add((look["index"], look["negate"]))
    assert len(seen) == 1 << config.mu


@pytest.mark.parametrize("config", CONFIGS)
def test_tables_are_signed_sums(config) -> None:
    rows = aligned_rows(config, np.random.default_rng(1), 40, config.mu)
    for row, full in zip(rows, lookups.tables(config, rows.reshape(-1)), strict=True):
        for v, value in enumerate(full):
            assert value == sum(-a if v >> i & 1 else a for i, a in enumerate(row))
        table = lookups.table(config, full)
        for index, entry in enumerate(table["entries"]):
            assert 2 * entry + table["odd"] == full[lookups.pattern(config, index, 0)]


@pytest.mark.parametrize("config", CONFIGS)
def test_planes_subtract_where_the_contract_says(config) -> None:
    rng = np.random.default_rng(2)
    signs, magnitudes = rng.integers(0, 2, (TILE, 5)), rng.integers(0, 32, (TILE, 5))
    subtracted = lookups.subtracts(signs, magnitudes, 6)
    assert np.array_equal(subtracted[0], signs)
    for plane in range(1, 6):
        bit = magnitudes >> (5 - plane) & 1
        assert np.array_equal(subtracted[plane], np.where(bit, signs, 1 - signs))


@pytest.mark.parametrize("config", CONFIGS)
def test_looks_word_is_the_layout_s(config) -> None:
    rng = np.random.default_rng(3)
    subtracted = rng.integers(0, 2, (TILE, 3))
    layout = layouts.looks_layout(config, 3)
    weights = 1 << np.arange(config.mu)
    value = [
        [lookups.look(config, int(part @ weights)) for part in column.reshape(-1, config.mu)]
        for column in subtracted.T
    ]
    word = lookups.looks_word(config, subtracted)
    assert word == words.pack(layout, value)
    masks = lookups.group_masks(config, layouts.look_layout(config).size, 3)
    assert len(masks) == GROUPS
    assert sum(masks) == (1 << layout.size) - 1
    per_group = config.luts_per_group
    chosen = words.unpack(layout, word & masks[2])
    for column, expected in zip(chosen, value, strict=True):
        assert column[2 * per_group : 3 * per_group] == expected[2 * per_group : 3 * per_group]
        assert not any(look["index"] or look["negate"] for look in column[: 2 * per_group])


def test_tables_word_puts_the_first_lowest() -> None:
    rows = aligned_rows(TINY, np.random.default_rng(4), 1, TILE)
    full = lookups.tables(TINY, rows[0])
    word = lookups.tables_word(TINY, full)
    unpacked = words.unpack(layouts.tables_layout(TINY), word)
    assert unpacked == [lookups.table(TINY, each) for each in full]
