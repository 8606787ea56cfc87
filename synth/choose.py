"""Choose a mapping for every module: the smallest, and faster ones where a path is too long."""

from collections.abc import Callable
from dataclasses import dataclass, field

from synth.flow import Mapped
from synth.hierarchy import Module
from synth.libraries import Library
from synth.netlist import Key, add_repeaters, port_weights
from synth.recipes import FANOUT
from synth.sta import Analysis, Model, Paths, fo4

#: Modules with less than this share of the limit in any path of theirs are not worth a faster one.
WORTH = 0.25


@dataclass
class Choice:
    """What one module became: the mapping, the repeaters added to it, its paths."""

    mapped: Mapped
    repeaters: int = 0
    cells: dict[str, int] = field(default_factory=dict)
    paths: Paths | None = None
    model: Model | None = None
    weights: dict[Key, int] = field(default_factory=dict)


class Design:
    """The modules with their choices, and the analysis that follows from them."""

    def __init__(self, modules: dict[str, Module], library: Library):
        self.modules, self.library = modules, library
        self.choices: dict[str, Choice] = {}
        inverter = library.cells[library.inverter]
        self.fo4, self.slope = fo4(inverter) if library.has_timing else (0.0, 0.0)
        self.load = 4 * inverter.pins[inverter.inputs[0]].capacitance

    def put(self, mapped: Mapped) -> Choice:
        """Analyse a module with this mapping; its children must have been put before."""
        netlist = mapped.read(self.library)
        children = self.modules[mapped.name].children
        weights = {child: self.choices[child].weights for child in children}
        buffer = self.library.cells[self.library.buffer]
        added = add_repeaters(netlist, buffer, FANOUT, weights)
        choice = Choice(mapped, added, dict(netlist.cell_counts()), weights=port_weights(netlist))
        if self.library.has_timing:
            models = {c: m for c in children if (m := self.choices[c].model) is not None}
            analysis = Analysis(netlist, models, self.slope, self.load)
            choice.paths, choice.model = analysis.result()
        return choice

    def put_all(self, mapped: dict[str, Mapped]) -> None:
        for name in self.modules:  # children come first
            self.choices[name] = self.put(mapped[name])

    def swapped(self, mapped: Mapped) -> dict[str, Choice]:
        """The choices with one mapping replaced, all that depends on it analysed anew."""
        before = dict(self.choices)
        touched = {mapped.name}
        self.choices[mapped.name] = self.put(mapped)
        for name, module in self.modules.items():
            if name not in touched and touched & module.children.keys():
                touched.add(name)
                self.choices[name] = self.put(self.choices[name].mapped)
        after, self.choices = self.choices, before
        return after

    def longest(self, choices: dict[str, Choice] | None = None) -> float:
        """The longest path in ns between registers anywhere, or at the top's own border."""
        each = choices if choices is not None else self.choices
        inner = [c.paths.inside or 0.0 for c in each.values() if c.paths]
        top = each[list(self.modules)[-1]].paths
        return max([*inner, top.longest if top else 0.0])


def speed_up(
    design: Design,
    limit_fo4: float,
    faster: Callable[[Module], list[Mapped]],
    say: Callable[[str], None],
) -> None:
    """Take faster mappings, the best gain for its area first, until no path is above the limit."""
    limit = limit_fo4 * design.fo4
    while (now := design.longest()) > limit:
        best: tuple[float, dict[str, Choice], Mapped] | None = None
        for name, choice in design.choices.items():
            module, paths = design.modules[name], choice.paths
            if paths is None or paths.longest < WORTH * limit:
                continue
            for option in faster(module):
                growth = (option.area - choice.mapped.area) * module.count
                if option.recipe == choice.mapped.recipe:
                    continue
                swapped = design.swapped(option)
                gain = now - max(design.longest(swapped), limit)
                worth = gain / max(growth, 1.0)
                if gain > 1e-6 and (best is None or worth > best[0]):
                    best = (worth, swapped, option)
        if best is None:
            say(f"no mapping brings the longest path below {limit_fo4:g} FO4")
            return
        _, design.choices, option = best
        reached = design.longest() / design.fo4
        say(f"{option.name}: {option.recipe} for speed, longest path now {reached:.1f} FO4")
