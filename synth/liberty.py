"""Read Liberty files: areas, functions, flip-flops, and the tables behind the delays.

Units inside: areas in um2 (Liberty has no unit for them; every library here means um2), times in
ns, capacitances in pF, whatever the file's own units are.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from synth.errors import SynthError

_TOKEN = re.compile(
    r'\s+|/\*.*?\*/|//[^\n]*|\\\r?\n|(?P<string>"(?:[^"\\]|\\.)*")|(?P<word>[^\s{}():;,"]+)'
    r"|(?P<mark>[{}():;,])",
    re.DOTALL,
)


@dataclass
class Group:
    """One `kind (args) { ... }`: simple attributes as text, complex ones as lists of text."""

    kind: str
    args: list[str]
    simple: dict[str, str] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)
    groups: list["Group"] = field(default_factory=list)

    def of(self, kind: str) -> Iterator["Group"]:
        return (group for group in self.groups if group.kind == kind)


def parse(text: str, name: str = "a Liberty file") -> Group:
    """The outermost group of a Liberty text."""
    tokens = []
    for hit in _TOKEN.finditer(text):
        if hit.lastgroup is not None:
            tokens.append(hit.group().strip('"') if hit.lastgroup == "string" else hit.group())
    root = Group("root", [])
    stack, index, count = [root], 0, len(tokens)
    try:
        while index < count:
            word = tokens[index]
            if word == "}":
                stack.pop()
                index += 1
                if index < count and tokens[index] == ";":
                    index += 1
            elif word == ";":
                index += 1
            elif tokens[index + 1] == ":":
                end = index + 2
                while tokens[end] not in (";", "}"):
                    end += 1
                    if end - index > 16:
                        raise IndexError
                stack[-1].simple[word] = " ".join(tokens[index + 2 : end])
                index = end + (tokens[end] == ";")
            elif tokens[index + 1] == "(":
                end = tokens.index(")", index + 2)
                args = [token for token in tokens[index + 2 : end] if token != ","]
                index = end + 1
                if index < count and tokens[index] == "{":
                    group = Group(word, args)
                    stack[-1].groups.append(group)
                    stack.append(group)
                    index += 1
                else:
                    stack[-1].lists[word] = args
                    if index < count and tokens[index] == ";":
                        index += 1
            else:
                raise IndexError
    except (IndexError, ValueError):
        raise SynthError(f"{name}: not Liberty near {' '.join(tokens[index : index + 6])!r}") from (
            None
        )
    libraries = list(root.of("library"))
    if len(stack) != 1 or len(libraries) != 1:
        raise SynthError(f"{name}: one library group is expected, found {len(libraries)}")
    return libraries[0]


@dataclass(frozen=True)
class Table:
    """A table of one or two indices; reading between and beyond its points is linear."""

    rows: tuple[float, ...]
    columns: tuple[float, ...]
    values: tuple[tuple[float, ...], ...]

    def at(self, row: float, column: float) -> float:
        return self.read(self.locate(row, column))

    def locate(self, row: float, column: float) -> tuple[int, float, int, float]:
        """Where a point lies; the same for every table with the same axes."""
        return (*_locate(self.rows, row), *_locate(self.columns, column))

    def read(self, place: tuple[int, float, int, float]) -> float:
        i, x, j, y = place
        low = self.values[i]
        if len(low) == 1:
            return low[0] + (x * (self.values[i + 1][0] - low[0]) if x else 0.0)
        first = low[j] + y * (low[j + 1] - low[j])
        if x == 0.0:
            return first
        high = self.values[i + 1]
        return first + x * (high[j] + y * (high[j + 1] - high[j]) - first)


def _locate(axis: tuple[float, ...], value: float) -> tuple[int, float]:
    """(index, fraction): where the value lies, extrapolating from the outermost pair."""
    if len(axis) == 1:
        return 0, 0.0
    index = min(max(bisect_right(axis, value) - 1, 0), len(axis) - 2)
    return index, (value - axis[index]) / (axis[index + 1] - axis[index])


@dataclass
class Arc:
    """Delay from a pin, or a setup constraint to a clock; `tables` by Liberty's own names."""

    related: str
    kind: str
    sense: str
    tables: dict[str, Table]


@dataclass
class Pin:
    """A pin: capacitance and the largest load that it may drive in pF."""

    name: str
    direction: str
    capacitance: float = 0.0
    function: str | None = None
    max_capacitance: float = 0.0
    clock: bool = False
    arcs: list[Arc] = field(default_factory=list)


@dataclass
class Cell:
    """A cell: area in um2; `sequential` is the kind of its state group, if any."""

    name: str
    area: float
    dont_use: bool
    sequential: str | None
    next_state: str | None
    clocked_on: str | None
    clock_gate: str | None
    pins: dict[str, Pin]

    @property
    def inputs(self) -> list[str]:
        return [pin.name for pin in self.pins.values() if pin.direction == "input"]

    @property
    def outputs(self) -> list[str]:
        return [pin.name for pin in self.pins.values() if pin.direction == "output"]


class Reader:
    """Cells out of a parsed library, in this module's units."""

    def __init__(self, library: Group):
        self.library = library
        self.time = _nanoseconds(library.simple.get("time_unit", "1ns"))
        amount, unit = [*library.lists.get("capacitive_load_unit", ["1", "pf"]), "pf"][:2]
        self.capacitance = float(amount) * {"ff": 1e-3, "pf": 1.0, "nf": 1e3}[unit.lower()]
        self.templates = {group.args[0]: group for group in library.groups if group.args}
        self.axes: dict[tuple[float, ...], tuple[float, ...]] = {}  # equal axes are one object
        self.default_max = float(library.simple.get("default_max_capacitance", "0"))

    def cells(self) -> dict[str, Cell]:
        return {group.args[0]: self.cell(group) for group in self.library.of("cell")}

    def cell(self, group: Group) -> Cell:
        state = next((g for g in group.groups if g.kind in ("ff", "latch", "statetable")), None)
        pins = {name: self.pin(each, name) for each in group.of("pin") for name in each.args}
        return Cell(
            name=group.args[0],
            area=float(group.simple.get("area", "0")),
            dont_use=group.simple.get("dont_use", "false").lower() == "true",
            sequential=state.kind if state else None,
            next_state=state.simple.get("next_state") if state else None,
            clocked_on=state.simple.get("clocked_on") if state else None,
            clock_gate=group.simple.get("clock_gating_integrated_cell"),
            pins=pins,
        )

    def pin(self, group: Group, name: str) -> Pin:
        simple = group.simple
        maximum = float(simple.get("max_capacitance", self.default_max)) * self.capacitance
        default = self.library.simple.get("default_input_pin_cap", "0")
        driven = simple.get("direction") == "output"
        return Pin(
            name=name,
            direction=simple.get("direction", "input"),
            capacitance=0.0
            if driven
            else float(simple.get("capacitance", default)) * self.capacitance,
            function=simple.get("function"),
            max_capacitance=maximum,
            clock=simple.get("clock", "false").lower() == "true",
            arcs=[self.arc(each, pin) for each in group.of("timing") for pin in _related(each)],
        )

    def arc(self, group: Group, related: str) -> Arc:
        return Arc(
            related=related,
            kind=group.simple.get("timing_type", "combinational"),
            sense=group.simple.get("timing_sense", "non_unate"),
            tables={g.kind: self.table(g) for g in group.groups if g.lists.get("values")},
        )

    def table(self, group: Group) -> Table:
        """Rows run over the input's transition, columns over the load (or the other's slope)."""
        template = self.templates.get(group.args[0]) if group.args else None
        axes = []
        for key, name in (("index_1", "variable_1"), ("index_2", "variable_2")):
            values = group.lists.get(key) or (template.lists.get(key) if template else None) or []
            meaning = template.simple.get(name, "") if template else ""
            unit = self.capacitance if "capacitance" in meaning else self.time
            points = tuple(float(v) * unit for text in values for v in re.split(r"[,\s]+", text))
            axes.append(("capacitance" in meaning, points))
        rows = [
            tuple(float(v) * self.time for v in re.split(r"[,\s]+", text.strip()) if v)
            for text in group.lists["values"]
        ]
        (first_is_load, first), (_, second) = axes
        first, second = self.axes.setdefault(first, first), self.axes.setdefault(second, second)
        if not second:  # one index: over the load where it says so, else over the transition
            flat = tuple(value for row in rows for value in row)
            first = first or (0.0,)
            if first_is_load:
                return Table((0.0,), first, (flat,))
            return Table(first, (0.0,), tuple((value,) for value in flat))
        if first_is_load:
            return Table(second, first, tuple(zip(*rows, strict=True)))
        return Table(first, second, tuple(rows))


def _related(group: Group) -> list[str]:
    return group.simple.get("related_pin", "").split()


def _nanoseconds(text: str) -> float:
    """'1ps' or '10ns' in ns."""
    hit = re.fullmatch(r"([\d.]+)\s*([munpf]?)s", text.strip())
    if hit is None:
        raise SynthError(f"a time unit that cannot be read: {text!r}")
    return (
        float(hit.group(1))
        * {"": 1e9, "m": 1e6, "u": 1e3, "n": 1.0, "p": 1e-3, "f": 1e-6}[hit.group(2)]
    )


def read(path: Path) -> dict[str, Cell]:
    """Every cell of a Liberty file, by name."""
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise SynthError(f"{path}: {error.strerror}") from None
    return Reader(parse(text, str(path))).cells()
