"""Synthesise one module at a time, its submodules as black boxes, by each of some recipes.

A cell that is left unmapped, or that the library does not have, is an error: a report without it
would be too small.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from synth import hierarchy, netlist, yosys
from synth.errors import SynthError
from synth.hierarchy import MEMORY_PREFIX, Module
from synth.libraries import Library
from synth.netlist import Netlist
from synth.recipes import Recipe, abc_script, ripple_verilog

MEMORY_CELL = "$mem_v2"


@dataclass(frozen=True)
class Options:
    """What a user may choose: the longest path allowed (FO4), and whether enables gate clocks."""

    limit_fo4: float = 120.0
    clock_gating: bool = False


@dataclass
class Mapped:
    """One module mapped by one recipe: its netlist on disk, its area in um2."""

    name: str
    key: str
    folder: str
    recipe: str
    area: float
    abc_delay_ps: float | None
    memory_bits: int

    @property
    def netlist_path(self) -> Path:
        return Path(self.folder) / f"{self.recipe}.json"

    def read(self, library: Library) -> Netlist:
        return netlist.read(self.netlist_path, self.name, library.cells)


def _front(module: Module, memory: bool) -> list[str]:
    """Passes from the text to coarse cells: arithmetic merged into sums of many operands."""
    return [
        *hierarchy.reading(module),
        "opt_expr",
        "opt_clean",
        "opt -full",
        "wreduce",
        "peepopt",
        "opt_clean",
        "alumacc",
        "share",
        "opt",
        "memory -nomap",
        *([] if memory else ["memory_map"]),
        "opt -undriven -fine",
        "maccmap",
    ]


def _gates(recipe: Recipe, library: Library, options: Options) -> list[str]:
    """Passes from coarse cells to gates, and the flip-flops to the library's."""
    liberty, avoid = _liberty(library)
    gate = library.clock_gate if options.clock_gating else None
    lines = [f"techmap -map {recipe.name}.v -map +/techmap.v", "opt -full"]
    if gate is not None:
        pins = gate.pins.values()
        enable = next(p.name for p in pins if p.direction == "input" and not p.clock)
        clock = next(p.name for p in pins if p.direction == "input" and p.clock)
        out = gate.outputs[0]
        lines.append(f"clockgate -pos {gate.name} {enable}:{clock}:{out} -min_net_size 8")
    # Optimising may join multiplexers of single bits to a wide one again, which ABC would leave.
    return [*lines, f"dfflibmap {liberty} {avoid}", "opt -full", "simplemap t:$mux"]


def _liberty(library: Library) -> tuple[str, str]:
    avoid = " ".join(f"-dont_use {name}" for name in library.avoided)
    return f"-liberty {library.path}", avoid


def _script(
    module: Module,
    recipes: tuple[Recipe, ...],
    library: Library,
    options: Options,
    memory: bool,
) -> str:
    liberty, avoid = _liberty(library)
    lines = [*_front(module, memory), "design -save front"]
    constraint = "-constr constraints" if library.has_timing else ""
    for recipe in recipes:
        lines += [
            "design -load front",
            *_gates(recipe, library, options),
            f"log RECIPE {recipe.name}",
            f"abc {liberty} {avoid} {constraint} -script {recipe.name}.abc",
            "opt_clean",
            f"tee -q -o {recipe.name}.stat stat -json {liberty}",
            f"write_json {recipe.name}.json",
        ]
    return "\n".join([*lines, ""])


def check_mapped(module: Module, result: dict, library: Library, memory: bool) -> None:
    """Refuse what is not a cell of the library, a submodule or a memory."""
    known = library.cells.keys() | module.children.keys() | ({MEMORY_CELL} if memory else set())
    cells = result["modules"][module.name]["cells"].values()
    strange: dict[str, int] = {}
    for cell in cells:
        if cell["type"] not in known:
            strange[cell["type"]] = strange.get(cell["type"], 0) + 1
        elif cell["type"] in library.cells and not library.cells[cell["type"]].area > 0:
            raise SynthError(f"{module.name}: cell {cell['type']} has no area in {library.name}")
    if strange:
        words = ", ".join(f"{count} x {kind}" for kind, count in sorted(strange.items()))
        raise SynthError(f"{module.name}: not mapped to {library.name}: {words}")


def _memory_bits(result: dict, name: str) -> int:
    cells = result["modules"][name]["cells"].values()
    memories = [cell["parameters"] for cell in cells if cell["type"] == MEMORY_CELL]
    return sum(int(each["WIDTH"], 2) * int(each["SIZE"], 2) for each in memories)


def _delays(log: str) -> dict[str, float]:
    """The last delay (ps) that ABC printed for each recipe."""
    found = {}
    for part in re.split(r"^RECIPE ", log, flags=re.MULTILINE)[1:]:
        name, _, text = part.partition("\n")
        values = re.findall(r"Delay = *([\d.]+) ps", text)
        if values:
            found[name.strip()] = float(values[-1])
    return found


def _run(
    module: Module,
    recipes: tuple[Recipe, ...],
    library: Library,
    options: Options,
    folder: Path,
    key: str,
) -> list[Mapped]:
    """Map by each recipe in one child process and add up what came of it."""
    memory = module.name.startswith(MEMORY_PREFIX)
    script = _script(module, recipes, library, options, memory)
    delays = _delays(yosys.run(script, folder, "synth"))
    results = []
    for recipe in recipes:
        result = yosys.read_json(folder / f"{recipe.name}.json")
        check_mapped(module, result, library, memory)
        cells = result["modules"][module.name]["cells"].values()
        area = sum(library.cells[c["type"]].area for c in cells if c["type"] in library.cells)
        stat = yosys.read_json(folder / f"{recipe.name}.stat")["design"].get("area", 0.0)
        if abs(stat - area) > 1e-3 * max(1.0, area):
            raise SynthError(f"{module.name}: Yosys counts {stat} um2, the cells add to {area}")
        bits = _memory_bits(result, module.name)
        delay = delays.get(recipe.name)
        results.append(Mapped(module.name, key, str(folder), recipe.name, area, delay, bits))
    return results


def _salt(
    recipes: tuple[Recipe, ...], library: Library, options: Options, target_ps: float | None
) -> str:
    """The flow itself as text: scripts, recipes and options."""
    ways = [(abc_script(r, target_ps), ripple_verilog(r)) for r in recipes]
    scripts = [_script(Module("m", "", {}), recipes, library, options, m) for m in (True, False)]
    return json.dumps([ways, scripts]).replace(str(library.path), "")


def candidates(
    module: Module,
    texts: Mapping[str, str],
    library: Library,
    recipes: tuple[Recipe, ...],
    options: Options,
    target_ps: float | None,
    build: Path,
) -> list[Mapped]:
    """Map a module by each recipe, or take the results from the cache."""
    salt = _salt(recipes, library, options, target_ps)
    key = hierarchy.digest(module, texts, library.digest, salt)
    folder = build / "modules" / f"{module.name[:60]}-{key}"
    record = folder / "results.json"
    if record.exists():
        return [Mapped(**each) for each in json.loads(record.read_text())]
    hierarchy.write(module, texts, folder)
    (folder / "constraints").write_text(f"set_driving_cell {library.inverter}\n")
    for recipe in recipes:
        (folder / f"{recipe.name}.abc").write_text(abc_script(recipe, target_ps))
        (folder / f"{recipe.name}.v").write_text(ripple_verilog(recipe))
    found = _run(module, recipes, library, options, folder, key)
    half = record.with_suffix(".unfinished")
    half.write_text(json.dumps([asdict(each) for each in found], indent=1))
    half.replace(record)
    return found
