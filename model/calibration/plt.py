"""The precision lookup table (PLT): which draft a round takes, by the sequences' total length.

16 entries of {p_w, p_kv, gamma, midpoint_w, midpoint_kv, valid}. Entry i serves total lengths (the
sum of the committed tokens of all live sequences) above 2^(10 + i) up to 2^(11 + i); entry 0 also
what is shorter, entry 15 also what is longer.

Three forms, each read back to the same table:

- JSON: an object with "entries", a list of 16 objects; other keys are not read.
- CSV: a header and 16 lines.
- the binary image, 64 bytes: 16 little-endian words of 32 bits: p_w [4:0], p_kv [12:8],
  gamma [23:16], midpoint_w [24], midpoint_kv [25], valid [31], all other bits 0
  (`model.formats.plt_layout`).

Source: the paper's section III-D and Table V; sizes and index are this project's.
"""

from __future__ import annotations

import csv
import io
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from model.calibration.cost import check_total
from model.formats.checks import check_int
from model.formats.constants import P_FULL_MAX, P_MIN
from model.formats.plt_layout import (
    ENTRIES,
    FIELDS,
    GAMMA_MAX,
    IMAGE_BYTES,
    RESERVED,
    index,
    longest,
    pack,
    unpack,
)
from model.lm.huggingface_config import read_json
from model.lm.precision import Load, Precision

_FLAGS = ("midpoint_w", "midpoint_kv", "valid")
_WORDS = struct.Struct(f"<{ENTRIES}I")

#: Columns of the CSV form. The second and third say what the first means; they are checked.
COLUMNS = ("index", "above", "up_to", *FIELDS)

#: Suffixes of the files that `Plt.load` reads.
SUFFIXES = (".json", ".csv", ".bin")


@dataclass(frozen=True)
class Entry:
    """What a round does.

    Attributes:
        p_w, p_kv: bits that a draft loads of each weight, of each cached key and value, 5..16.
        gamma: drafted tokens a round, 1..255.
        midpoint_w, midpoint_kv: read as midpoints, not truncated.
        valid: the entry may be used; otherwise all fields are 0 or False.

    Raises:
        TypeError, ValueError: a field, by name.
    """

    p_w: int
    p_kv: int
    gamma: int
    midpoint_w: bool = False
    midpoint_kv: bool = False
    valid: bool = True

    def __post_init__(self) -> None:
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be a bool, not {getattr(self, name)!r}")
        if not self.valid:
            for name in FIELDS:
                given = getattr(self, name)
                if given != 0:
                    raise ValueError(f"{name} must be 0 in an entry that is not valid, not {given}")
            return
        check_int("p_w", self.p_w, P_MIN, P_FULL_MAX)
        check_int("p_kv", self.p_kv, P_MIN, P_FULL_MAX)
        check_int("gamma", self.gamma, 1, GAMMA_MAX)

    @staticmethod
    def of(precision: Precision, gamma: int) -> Entry:
        """The entry of a precision and a gamma; raises as the class."""
        w, kv = precision.w, precision.kv
        return Entry(w.p, kv.p, gamma, w.midpoint, kv.midpoint)

    @property
    def precision(self) -> Precision:
        """What a draft loads."""
        return Precision(Load(self.p_w, self.midpoint_w), Load(self.p_kv, self.midpoint_kv))

    @property
    def word(self) -> int:
        """The entry as 32 bits."""
        return pack(asdict(self))


#: An entry without a choice.
EMPTY = Entry(0, 0, 0, valid=False)


def span(entry: int) -> tuple[int, int | None]:
    """(above, up to): total lengths of an entry; the last one has no end."""
    above = 0 if entry == 0 else longest(entry - 1)
    return above, None if entry == ENTRIES - 1 else longest(entry)


@dataclass(frozen=True)
class Plt:
    """A table.

    Attributes:
        entries: 16, by index.

    Raises:
        TypeError, ValueError: not 16 entries.
    """

    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.entries, tuple) or not all(
            isinstance(entry, Entry) for entry in self.entries
        ):
            raise TypeError(f"entries must be a tuple of Entry, not {self.entries!r}")
        if len(self.entries) != ENTRIES:
            raise ValueError(f"entries must be {ENTRIES}, not {len(self.entries)}")

    def lookup(self, total_length: int) -> Entry:
        """The entry of a total length.

        Args:
            total_length: committed tokens of all live sequences, from 1 up.

        Raises:
            TypeError: not an int.
            ValueError: not in 1..2^40; the entry is not valid.
        """
        place = index(check_total(total_length))
        entry = self.entries[place]
        if not entry.valid:
            raise ValueError(f"entry {place}, for total_length {total_length}, is not valid")
        return entry

    def choose(self, total_length: int) -> tuple[Precision, int]:
        """Precision and gamma of a total length, for `AutoBsSpec`; raises as `lookup`."""
        entry = self.lookup(total_length)
        return entry.precision, entry.gamma

    def image(self) -> bytes:
        """The binary image, 64 bytes."""
        return _WORDS.pack(*(entry.word for entry in self.entries))

    @staticmethod
    def of_image(image: bytes) -> Plt:
        """The table of an image.

        Raises:
            TypeError: not bytes.
            ValueError: not 64 bytes; a word with a reserved bit or a field out of range, by index.
        """
        if not isinstance(image, bytes):
            raise TypeError(f"image must be bytes, not {type(image).__name__}")
        if len(image) != IMAGE_BYTES:
            raise ValueError(f"image must be {IMAGE_BYTES} bytes, not {len(image)}")
        rows = []
        for place, word in enumerate(_WORDS.unpack(image)):
            if word & RESERVED:
                raise ValueError(f"word {place} must be 0 in bits {RESERVED:#010x}, not {word:#x}")
            rows.append(unpack(word))
        return _table(rows, "word")

    def as_json(self) -> list[dict[str, Any]]:
        """The value of "entries" in the JSON form."""
        return [{"index": i, **asdict(entry)} for i, entry in enumerate(self.entries)]

    @staticmethod
    def of_json(found: Mapping[str, Any]) -> Plt:
        """The table of the JSON form.

        Raises:
            ValueError: no list of 16 objects with an index and the six fields; by place.
        """
        rows = found.get("entries")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError(f"entries must be a list of {ENTRIES} objects, not {rows!r}")
        for place, row in enumerate(rows):
            if set(row) != {"index", *FIELDS}:
                raise ValueError(f"entry {place} must have index, {', '.join(FIELDS)}, not {row}")
            for name in _FLAGS:
                if not isinstance(row[name], bool):
                    raise ValueError(
                        f"entry {place}: {name} must be true or false, not {row[name]}"
                    )
            if row["index"] is True or row["index"] != place:
                raise ValueError(f"entry {place}: index must be {place}, not {row['index']!r}")
        return _table([{name: row[name] for name in FIELDS} for row in rows], "entry")

    def as_csv(self) -> str:
        """The CSV form."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for place, entry in enumerate(self.entries):
            above, up_to = span(place)
            fields = [int(value) for value in asdict(entry).values()]
            writer.writerow([place, above, "" if up_to is None else up_to, *fields])
        return text.getvalue()

    @staticmethod
    def of_csv(text: str) -> Plt:
        """The table of the CSV form.

        Raises:
            ValueError: another header, another number of lines, a cell that is no such number; by
                line.
        """
        lines = list(csv.reader(io.StringIO(text)))
        if not lines or tuple(lines[0]) != COLUMNS:
            given = ",".join(lines[0]) if lines else "nothing"
            raise ValueError(f"line 1 must be {','.join(COLUMNS)}, not {given}")
        if len(lines) != ENTRIES + 1:
            raise ValueError(f"lines must be {ENTRIES + 1}, not {len(lines)}")
        rows = []
        for place, cells in enumerate(lines[1:]):
            where = f"line {place + 2}"
            above, up_to = span(place)
            head = [str(place), str(above), "" if up_to is None else str(up_to)]
            if cells[: len(head)] != head or len(cells) != len(COLUMNS):
                wanted, given = ",".join(head), ",".join(cells)
                raise ValueError(f"{where} must be {wanted},{len(FIELDS)} numbers, not {given}")
            numbers = cells[len(head) :]
            if not all(cell.isascii() and cell.isdigit() and len(cell) < 4 for cell in numbers):
                raise ValueError(f"{where} must hold whole numbers, not {','.join(numbers)}")
            row = dict(zip(FIELDS, map(int, numbers), strict=True))
            for name in _FLAGS:
                if row[name] > 1:
                    raise ValueError(f"{where}: {name} must be 0 or 1, not {row[name]}")
            rows.append(row)
        return _table(rows, "entry")

    @staticmethod
    def load(path: str | Path) -> Plt:
        """Reads a file in the form that its suffix names: .json, .csv or .bin.

        Raises:
            FileNotFoundError: no such file.
            ValueError: another suffix; not of that form, by path and place.
        """
        path = Path(path)
        if path.suffix not in SUFFIXES:
            raise ValueError(f"a lookup table must be {' or '.join(SUFFIXES)}, not {str(path)!r}")
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing")
        try:
            if path.suffix == ".bin":
                return Plt.of_image(path.read_bytes())
            if path.suffix == ".csv":
                return Plt.of_csv(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        found = read_json(path)  # its messages name the path
        try:
            return Plt.of_json(found)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


def _table(rows: Sequence[Mapping[str, Any]], what: str) -> Plt:
    entries = []
    for place, row in enumerate(rows):
        flags = {name: bool(row[name]) for name in _FLAGS}
        try:
            entries.append(Entry(row["p_w"], row["p_kv"], row["gamma"], **flags))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{what} {place}: {error}") from None
    return Plt(tuple(entries))
