"""The lookup table: which entry, and three forms that read back to the same table."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from math import ceil, log2
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.calibration.plt import COLUMNS, EMPTY, Entry, Plt, span
from model.formats.plt_layout import FIELDS, RESERVED, index, longest, pack, unpack
from model.lm.precision import Precision

#: Entries that differ from each other in every field that the index could confuse.
TABLE = Plt(tuple(Entry(5 + i % 5, 9 - i % 5, i + 1, i % 2 == 1, i % 3 == 1) for i in range(16)))

entries = st.one_of(
    st.just(EMPTY),
    st.builds(
        Entry,
        st.integers(5, 16),
        st.integers(5, 16),
        st.integers(1, 255),
        st.booleans(),
        st.booleans(),
    ),
)
tables = st.builds(Plt, st.tuples(*[entries] * 16))


class TestIndex:
    @pytest.mark.parametrize(
        ("total", "place"),
        [
            *((1, 0), (2047, 0), (2048, 0), (2049, 1), (4096, 1), (4097, 2), (1 << 20, 9)),
            *(((1 << 20) + 1, 10), (1 << 25, 14), ((1 << 25) + 1, 15), (1 << 26, 15)),
            *(((1 << 26) + 1, 15), (1 << 40, 15)),
        ],
    )
    def test_boundaries(self, total: int, place: int) -> None:
        assert index(total) == place
        assert TABLE.lookup(total) is TABLE.entries[place]

    @given(st.integers(1, 1 << 40))
    def test_is_the_formula(self, total: int) -> None:
        # log2 of a float is exact at powers of two, and far enough from them elsewhere.
        assert index(total) == min(max(ceil(log2(total)) - 11, 0), 15)

    def test_spans_meet(self) -> None:
        assert span(0) == (0, 2048)
        assert span(15) == (1 << 25, None)
        for place in range(15):
            assert span(place)[1] == span(place + 1)[0] == longest(place)

    @pytest.mark.parametrize("total", [0, -5, (1 << 40) + 1])
    def test_lengths_that_are_none(self, total: int) -> None:
        with pytest.raises(ValueError, match=rf"total_length must be in 1\.\.\d+, not {total}"):
            TABLE.lookup(total)

    def test_an_entry_that_is_not_valid(self) -> None:
        table = Plt((*TABLE.entries[:3], EMPTY, *TABLE.entries[4:]))
        with pytest.raises(ValueError, match="entry 3, for total_length 16384, is not valid"):
            table.choose(16384)


def test_choice() -> None:
    assert TABLE.choose(2049) == (Precision.parse("W6mKV8m"), 2)
    assert TABLE.choose(1 << 13) == (Precision.parse("W7KV7"), 3)
    precision = Precision.parse("W5mKV8")
    assert Entry.of(precision, 4).precision == precision


class TestImage:
    def test_bits(self) -> None:
        entry = Entry(5, 8, 7, midpoint_w=True)
        assert entry.word == 1 << 31 | 1 << 24 | 7 << 16 | 8 << 8 | 5
        assert Entry(16, 16, 255, True, True).word == 0x83FF_1010
        image = Plt((entry, *[EMPTY] * 15)).image()
        assert image == bytes([5, 8, 7, 0x81]) + bytes(60)

    def test_layout_is_whole(self) -> None:
        assert sum(field.mask for field in FIELDS.values()) | RESERVED == 0xFFFF_FFFF
        assert all(field.mask & RESERVED == 0 for field in FIELDS.values())
        assert len(FIELDS) == sum(
            field.mask.bit_count() == field.width for field in FIELDS.values()
        )
        assert unpack(pack(unpack(0x83FF_1010))) == unpack(0x83FF_1010)

    @given(tables)
    def test_round_trip(self, table: Plt) -> None:
        assert Plt.of_image(table.image()) == table
        assert Plt.of_image(table.image()).image() == table.image()

    @pytest.mark.parametrize(
        ("word", "said"),
        [
            (0x8007_0805 | 1 << 5, "word 2 must be 0 in bits 0x7c00e0e0, not 0x80070825"),
            (0x8007_0805 | 1 << 26, "word 2 must be 0 in bits"),
            (0x8007_0804, r"word 2: p_w must be in 5\.\.16, not 4"),
            (0x8007_1105, r"word 2: p_kv must be in 5\.\.16, not 17"),
            (0x8000_0805, r"word 2: gamma must be in 1\.\.255, not 0"),
            (0x0007_0000, "word 2: gamma must be 0 in an entry that is not valid, not 7"),
            (0x0100_0000, "word 2: midpoint_w must be 0 in an entry that is not valid, not True"),
        ],
    )
    def test_words_that_are_refused(self, word: int, said: str) -> None:
        words = [0x8007_0805] * 16
        words[2] = word
        with pytest.raises(ValueError, match=said):
            Plt.of_image(struct.pack("<16I", *words))

    @pytest.mark.parametrize("count", [0, 63, 65, 128])
    def test_other_sizes(self, count: int) -> None:
        with pytest.raises(ValueError, match=f"image must be 64 bytes, not {count}"):
            Plt.of_image(bytes(count))
        with pytest.raises(TypeError, match="image must be bytes, not str"):
            Plt.of_image("x" * 64)  # type: ignore[arg-type]


class TestText:
    @given(tables)
    def test_round_trips(self, table: Plt) -> None:
        assert Plt.of_json(json.loads(json.dumps({"entries": table.as_json()}))) == table
        assert Plt.of_csv(table.as_csv()) == table

    def test_csv_says_what_an_entry_serves(self) -> None:
        lines = TABLE.as_csv().splitlines()
        assert lines[0] == ",".join(COLUMNS)
        assert lines[1] == "0,0,2048,5,9,1,0,0,1"
        assert lines[16] == "15,33554432,,5,9,16,1,0,1"

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda t: t.replace("gamma", "g"), "line 1 must be index,above"),
            (lambda t: "", "line 1 must be index,above.*, not nothing"),
            (lambda t: t[: t.rindex("15,")], "lines must be 17, not 16"),
            (lambda t: t.replace("1,2048,4096", "1,2048,4097"), "line 3 must be 1,2048,4096"),
            (lambda t: t.replace("0,0,2048,5,9,1,0,0,1", "0,0,2048,5,9,1,0,0"), "line 2 must be"),
            (lambda t: t.replace("2048,5,9", "2048,5.0,9"), "line 2 must hold whole numbers"),
            (lambda t: t.replace("2048,5,9", "2048,-5,9"), "line 2 must hold whole numbers"),
            (lambda t: t.replace("2048,5,9", "2048,17,9"), r"entry 0: p_w must be in 5\.\.16"),
            (lambda t: t.replace("9,1,0,0,1", "9,1,0,2,1"), "line 2: midpoint_kv must be 0 or 1"),
        ],
    )
    def test_csv_that_is_refused(self, change: Callable[[str], str], said: str) -> None:
        with pytest.raises(ValueError, match=said):
            Plt.of_csv(change(TABLE.as_csv()))

    @pytest.mark.parametrize(
        ("place", "change", "said"),
        [
            (0, {"p_w": 5.0}, r"entry 0: p_w must be an int, not 5\.0"),
            (0, {"p_w": True}, "entry 0: p_w must be an int, not True"),
            (1, {"gamma": 256}, r"entry 1: gamma must be in 1\.\.255, not 256"),
            (2, {"valid": 1}, "entry 2: valid must be true or false, not 1"),
            (3, {"index": 4}, "entry 3: index must be 3, not 4"),
            (1, {"index": True}, "entry 1: index must be 1, not True"),
            (4, {"more": 1}, "entry 4 must have index, p_w"),
        ],
    )
    def test_json_that_is_refused(self, place: int, change: dict[str, object], said: str) -> None:
        rows = TABLE.as_json()
        rows[place] |= change
        with pytest.raises(ValueError, match=said):
            Plt.of_json({"entries": rows})

    def test_json_without_16_entries(self) -> None:
        with pytest.raises(ValueError, match="entries must be a list of 16 objects, not None"):
            Plt.of_json({})
        with pytest.raises(ValueError, match="entries must be 16, not 15"):
            Plt.of_json({"entries": TABLE.as_json()[:15]})


class TestLoad:
    def test_by_suffix(self, tmp_path: Path) -> None:
        (tmp_path / "a.json").write_text(json.dumps({"entries": TABLE.as_json()}))
        (tmp_path / "a.csv").write_text(TABLE.as_csv())
        (tmp_path / "a.bin").write_bytes(TABLE.image())
        assert [Plt.load(tmp_path / f"a.{s}") for s in ("json", "csv", "bin")] == [TABLE] * 3
        assert Plt.load(str(tmp_path / "a.bin")) == TABLE

    def test_refusals_name_the_file(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=r"b\.bin is missing"):
            Plt.load(tmp_path / "b.bin")
        with pytest.raises(ValueError, match=r"a lookup table must be \.json or \.csv or \.bin"):
            Plt.load(tmp_path / "b.txt")
        for suffix in ("json", "csv", "bin"):
            path = tmp_path / f"torn.{suffix}"
            path.write_text("{")
            with pytest.raises(ValueError, match=rf"torn\.{suffix}"):
                Plt.load(path)
        (tmp_path / "c.json").write_text('{"entries": []}')
        with pytest.raises(ValueError, match=r"c\.json: entries must be 16, not 0"):
            Plt.load(tmp_path / "c.json")


def test_table_refuses_what_is_none() -> None:
    with pytest.raises(TypeError, match="entries must be a tuple of Entry"):
        Plt(list(TABLE.entries))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="valid must be a bool, not 1"):
        Entry(5, 5, 7, valid=1)  # type: ignore[arg-type]


def test_hardware_reads_the_layout_without_torch() -> None:
    code = "import sys, model.formats.plt_layout; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
