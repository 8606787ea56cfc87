"""Packing by shape: round trips, what is refused, where two words differ."""

import numpy as np
import pytest
from amaranth.hdl import signed, unsigned
from amaranth.lib import data
from hypothesis import given
from hypothesis import strategies as st

from hw.compute import layouts
from sim import words
from sim.registry import CONFIGS, ODD, TINY

LAYOUT = data.StructLayout(
    {
        "flag": 1,
        "level": signed(5),
        "pairs": data.ArrayLayout(data.StructLayout({"low": unsigned(3), "high": signed(4)}), 3),
    }
)


def values() -> st.SearchStrategy:
    pair = st.fixed_dictionaries({"low": st.integers(0, 7), "high": st.integers(-8, 7)})
    return st.fixed_dictionaries(
        {
            "flag": st.integers(0, 1),
            "level": st.integers(-16, 15),
            "pairs": st.lists(pair, min_size=3, max_size=3),
        }
    )


@given(values())
def test_nested_values_come_back(value: dict) -> None:
    word = words.pack(LAYOUT, value)
    assert 0 <= word < 1 << LAYOUT.size
    assert words.unpack(LAYOUT, word) == value
    assert words.pack(LAYOUT, word) == word


@given(st.integers(0, (1 << LAYOUT.size) - 1))
def test_words_come_back(word: int) -> None:
    assert words.pack(LAYOUT, words.unpack(LAYOUT, word)) == word


def test_amaranth_agrees() -> None:
    value = {"flag": 1, "level": -3, "pairs": [{"low": i, "high": -i} for i in range(3)]}
    assert words.pack(LAYOUT, value) == LAYOUT.const(value).as_value().value


def test_fields_not_named_are_zero() -> None:
    assert words.unpack(LAYOUT, words.pack(LAYOUT, {"level": -1})) == {
        "flag": 0,
        "level": -1,
        "pairs": [{"low": 0, "high": 0}] * 3,
    }


def test_none_is_known_in_no_bit() -> None:
    assert words.pack_known(LAYOUT, None) == (0, 0)
    word, known = words.pack_known(LAYOUT, {"flag": 1, "level": None, "pairs": [None, 0, None]})
    assert words.unpack(LAYOUT, word)["flag"] == 1
    assert words.unpack(LAYOUT, known) == {
        "flag": 1,
        "level": 0,
        "pairs": [{"low": 0, "high": 0}, {"low": 7, "high": -1}, {"low": 0, "high": 0}],
    }
    with pytest.raises(ValueError, match="every part must have a value"):
        words.pack(LAYOUT, {"flag": None})


@pytest.mark.parametrize(
    ("shape", "value", "message"),
    [
        (signed(5), 16, "5 bits is -16 to 15, not 16"),
        (unsigned(3), -1, "3 bits is 0 to 7, not -1"),
        (1, 2, "1 bits is 0 to 1, not 2"),
        (LAYOUT, {"level": -17}, "-16 to 15"),
        (LAYOUT, 1 << LAYOUT.size, "not"),
        (data.ArrayLayout(4, 3), [1, 2], "3 elements, not of 2"),
    ],
)
def test_what_does_not_fit_is_refused(shape: object, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        words.pack(shape, value)


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(KeyError):
        words.pack(LAYOUT, {"flags": 1})


def test_difference_names_the_first_element() -> None:
    pairs = [{"low": 1, "high": 2}] * 3
    want = words.pack(LAYOUT, {"pairs": pairs})
    got = words.pack(LAYOUT, {"flag": 1, "pairs": [*pairs[:2], {"low": 1, "high": -5}]})
    everything = (1 << LAYOUT.size) - 1
    assert words.difference(LAYOUT, got, want, everything) == ".flag: 1, not 0"
    assert words.difference(LAYOUT, got, want, everything & ~1) == ".pairs[2].high: -5, not 2"
    assert words.difference(LAYOUT, want, want, everything) == ""


def test_arrays_come_back() -> None:
    values = np.arange(24, dtype=np.uint16).reshape(4, 6) * 777
    word = words.from_array(values)
    assert word & 0xFFFF == values[0, 0]
    assert np.array_equal(words.to_array(word, "u2", (4, 6)), values)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("p", [5, 9])
def test_planes_come_back(name: str, p: int) -> None:
    config = CONFIGS[name]
    rng = np.random.default_rng(p)
    signs, magnitudes = rng.integers(0, 2, (64, 64)), rng.integers(0, 1 << (p - 1), (64, 64))
    sent = words.plane_words(config, signs, magnitudes, p)
    assert len(sent) == p * config.fold
    back = words.planes_from_words(config, sent, p)
    assert np.array_equal(back[0], signs)
    assert np.array_equal(back[1], magnitudes)


def test_plane_words_are_the_stream_s_payload() -> None:
    rng = np.random.default_rng(0)
    signs, magnitudes = rng.integers(0, 2, (64, 64)), rng.integers(0, 16, (64, 64))
    first = words.plane_words(ODD, signs, magnitudes, 5)[0]
    rows = words.unpack(layouts.plane_layout(ODD), first)
    assert [row >> 3 & 1 for row in rows] == signs[:, 3].tolist()


def test_tile_word() -> None:
    word = words.tile_word(TINY, p=6, last=1, context=2, rows=3)
    fields = words.unpack(layouts.tile_layout(TINY), word)
    assert (fields["p"], fields["last"], fields["context"], fields["rows"]) == (6, 1, 2, 3)
    assert fields["first"] == fields["fp32"] == fields["scaled"] == fields["midpoint"] == 0
