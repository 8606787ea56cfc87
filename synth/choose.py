"""Choose a mapping for every module: the smallest, and faster ones where a path is too long."""

import hashlib
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from synth import arcs, liberty, models, netlist, sta
from synth.flow import Mapped
from synth.fo4 import fo4
from synth.hierarchy import Module
from synth.libraries import Library
from synth.models import Model, Paths
from synth.netlist import Key, add_repeaters, port_weights
from synth.recipes import FANOUT
from synth.sta import Analysis

#: Modules whose own gates take less than this share of the limit are not worth a faster mapping.
WORTH = 0.1
#: A change must gain this share of what the longest path is above the limit.
FAIR = 0.2


def _source() -> str:
    """Changes with the code behind an analysis, so that a kept one is of this code."""
    files = [Path(module.__file__ or "") for module in (arcs, liberty, models, netlist, sta)]
    return hashlib.sha256(
        b"".join(file.read_bytes() for file in (*files, Path(__file__)))
    ).hexdigest()


@dataclass
class Choice:
    """What one module became: the mapping, the repeaters added to it, its paths."""

    key: str
    mapped: Mapped
    repeaters: int = 0
    cells: dict[str, int] = field(default_factory=dict)
    paths: Paths | None = None
    model: Model | None = None
    weights: dict[Key, int] = field(default_factory=dict)


class Design:
    """The modules with their choices, and the analysis that follows from them."""

    def __init__(self, modules: dict[str, Module], library: Library, build: Path):
        self.modules, self.library = modules, library
        self.top = list(modules)[-1]
        self.choices: dict[str, Choice] = {}
        self.known: dict[str, Choice] = {}
        self.folder = build / "analyses"
        self.salt = f"{_source()} {library.digest} {library.has_timing}"
        inverter = library.cells[library.inverter]
        self.fo4, self.slope = fo4(inverter) if library.has_timing else (0.0, 0.0)
        self.load = 4 * inverter.pins[inverter.inputs[0]].capacitance

    def put(self, mapped: Mapped) -> Choice:
        """Analyse a module with this mapping; its children must have been put before."""
        children = self.modules[mapped.name].children
        parts = [self.choices[child].key for child in sorted(children)]
        text = " ".join([self.salt, mapped.key, mapped.recipe, *parts])
        key = hashlib.sha256(text.encode()).hexdigest()[:24]
        if key not in self.known:
            self.known[key] = self._kept(key) or self._analyse(mapped, key)
        return self.known[key]

    def _kept(self, key: str) -> Choice | None:
        """The analysis of an earlier run."""
        try:
            with (self.folder / key).open("rb") as file:
                choice = pickle.load(file)
        except (OSError, EOFError, pickle.UnpicklingError, AttributeError, ImportError):
            return None
        return choice if isinstance(choice, Choice) else None

    def _analyse(self, mapped: Mapped, key: str) -> Choice:
        gates = mapped.read(self.library)
        children = self.modules[mapped.name].children
        weights = {child: self.choices[child].weights for child in children}
        buffer = self.library.cells[self.library.buffer]
        added = add_repeaters(gates, buffer, FANOUT, weights)
        choice = Choice(key, mapped, added, dict(gates.cell_counts()), weights=port_weights(gates))
        if self.library.has_timing:
            behind = {c: m for c in children if (m := self.choices[c].model) is not None}
            analysis = Analysis(gates, behind, self.slope, self.load)
            choice.paths = analysis.paths()
            if mapped.name != self.top:
                choice.model = analysis.model()
        self.folder.mkdir(parents=True, exist_ok=True)
        half = self.folder / f"{key}.unfinished"
        half.write_bytes(pickle.dumps(choice))
        half.replace(self.folder / key)
        return choice

    def put_all(self, mapped: dict[str, Mapped]) -> None:
        for name in self.modules:  # children come first
            self.choices[name] = self.put(mapped[name])

    def swapped(self, mapped: Mapped) -> dict[str, Choice]:
        """The choices with one mapping replaced, all that depends on it analysed anew."""
        before, self.choices = self.choices, dict(self.choices)
        touched = {mapped.name}
        self.choices[mapped.name] = self.put(mapped)
        for name, module in self.modules.items():
            if name not in touched and touched & module.children.keys():
                touched.add(name)
                self.choices[name] = self.put(self.choices[name].mapped)
        after, self.choices = self.choices, before
        return after

    def worst(self) -> tuple[float, str]:
        """The longest path in ns between registers anywhere, or at the top's own border, and its
        module."""
        found = [(c.paths.inside or 0.0, name) for name, c in self.choices.items() if c.paths]
        paths = self.choices[self.top].paths
        return max([*found, (paths.longest if paths else 0.0, self.top)])

    def longest(self) -> float:
        return self.worst()[0]

    def on_path(self, name: str) -> list[str]:
        """The modules that the longest path inside a module runs through. Of a submodule that it
        goes straight through, the parts are among them."""
        paths = self.choices[name].paths
        todo = [name, *(paths.via if paths else ())]
        found = set(todo)
        while todo:
            each = todo.pop()
            model = self.choices[each].model
            if each != name and model is not None and model.through:
                fresh = self.modules[each].children.keys() - found
                found |= fresh
                todo += fresh
        return sorted(found)


def _options(
    design: Design, limit: float, faster: Callable[[Module], list[Mapped]]
) -> Iterator[tuple[float, float, dict[str, Choice], Mapped]]:
    """(ns gained, um2 more, the choices then, the mapping) of each change to the longest path."""
    now, where = design.worst()
    for name in design.on_path(where):
        choice, module = design.choices[name], design.modules[name]
        if (choice.mapped.abc_delay_ps or 0.0) < WORTH * limit * 1000:
            continue
        for option in faster(module):
            if (option.abc_delay_ps or 0.0) >= (choice.mapped.abc_delay_ps or 0.0):
                continue
            before, design.choices = design.choices, design.swapped(option)
            gain = now - max(design.longest(), limit)
            after, design.choices = design.choices, before
            growth = (option.area - choice.mapped.area) * module.count
            yield gain, max(growth, 1.0), after, option


def speed_up(
    design: Design,
    limit_fo4: float,
    faster: Callable[[Module], list[Mapped]],
    say: Callable[[str], None],
) -> None:
    """Take faster mappings until no path is above the limit: of those that gain a fair part of what
    is missing the one that gains most for its area, else the one that gains most."""
    limit = limit_fo4 * design.fo4
    while (missing := design.longest() - limit) > 0:
        found = [each for each in _options(design, limit, faster) if each[0] > 1e-6]
        if not found:
            say(f"no mapping brings the longest path nearer to {limit_fo4:g} FO4")
            return
        fair = [each for each in found if each[0] > FAIR * missing]
        best = max(fair, key=lambda e: e[0] / e[1]) if fair else max(found, key=lambda e: e[0])
        _, _, design.choices, option = best
        reached = design.longest() / design.fo4
        say(f"{option.name}: {option.recipe} for speed, longest path now {reached:.1f} FO4")
