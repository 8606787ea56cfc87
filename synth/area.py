"""What a configuration of the core costs in a cell library.

    python -m synth.area --config tiny|small|paper|path.toml [--lib x.lib] [--json out.json]

Every unique module is synthesised once, on its own, and added up over the hierarchy. `make area`
calls this.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from synth import flow, hierarchy, libraries, report
from synth.choose import Design, speed_up
from synth.errors import SynthError
from synth.flow import Mapped, Options
from synth.hierarchy import Module
from synth.libraries import BUILD, Library
from synth.recipes import FOR_AREA, FOR_SPEED, Recipe


@dataclass(frozen=True)
class Subject:
    """What is measured: Verilog, its top module, and the component that each module is."""

    name: str
    verilog: str
    top: str
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Title -> part -> the modules whose own area it is (the paper's Fig. 15 for the BS-RAC).
    breakdown: Mapping[str, Mapping[str, Iterable[str]]] = field(default_factory=dict)
    #: Bits of all memories, derived from the configuration; None where nothing is known.
    memory_bits: int | None = None

    def check_memories(self, found: int) -> None:
        """Refuse a netlist whose memories have other bits than the configuration gives."""
        if self.memory_bits is not None and found != self.memory_bits:
            raise SynthError(
                f"memories: {found} bits in the netlist, {self.memory_bits} by the configuration"
            )


def _say(text: str) -> None:
    print(f"[area] {text}", file=sys.stderr, flush=True)


def _map_all(
    modules: Mapping[str, Module],
    jobs: int,
    candidates: Callable[[Module, tuple[Recipe, ...]], list[Mapped]],
) -> dict[str, Mapped]:
    """The smallest mapping of every module."""
    chosen: dict[str, Mapped] = {}
    start = time.monotonic()
    for module, found in hierarchy.each_done(modules, jobs, lambda m: candidates(m, FOR_AREA)):
        best = min(found, key=lambda each: each.area)
        chosen[module.name] = best
        seconds = time.monotonic() - start
        count = f"{len(chosen)}/{len(modules)}"
        _say(f"{count} {module.name}: {best.area:.0f} um2 by {best.recipe} ({seconds:.0f} s)")
    return chosen


def measure(
    subject: Subject,
    library: Library,
    options: Options,
    jobs: int = 2,
    build: Path = BUILD,
) -> report.Report:
    """Synthesise, choose, analyse, add up."""
    build = build.resolve()
    _say(f"{subject.name} in {library.origin}")
    folder = build / "hierarchy" / subject.name
    modules = hierarchy.scan(subject.verilog, subject.top, folder)
    texts = {name: module.text for name, module in modules.items()}
    design = Design(modules, library, build)
    target = options.limit_fo4 * design.fo4 * 1000 if library.has_timing else None

    def candidates(module: Module, recipes: tuple[Recipe, ...]) -> list[Mapped]:
        return flow.candidates(module, texts, library, recipes, options, target, build)

    design.put_all(_map_all(modules, jobs, candidates))
    if library.has_timing:
        _say(f"longest path {design.longest() / design.fo4:.1f} FO4 with the smallest mappings")
        speed_up(design, options.limit_fo4, lambda module: candidates(module, FOR_SPEED), _say)
    result = report.build(subject, design, options)
    subject.check_memories(result.memory_bits)
    return result


def from_config(name: str, *, chip: bool = False) -> Subject:
    """The core of a preset or of a .toml file, or the chip of a preset."""
    from hw.config import ConfigError, load
    from hw.emit import chip_named, emit, emit_chip

    try:
        emission = emit_chip(chip_named(name)) if chip else emit(load(name))
    except (ConfigError, OSError) as error:
        raise SynthError(str(error)) from None
    return Subject(
        name=f"chip-{name}" if chip else Path(name).stem,
        verilog=emission.verilog,
        top=emission.top,
        labels=emission.modules,
        breakdown=getattr(emission, "breakdown", {}),
        memory_bits=getattr(emission, "memory_bits", None),
    )


def from_verilog(path: Path, top: str | None) -> Subject:
    """Any Verilog file without parameters; the last module is the top where none is named."""
    try:
        verilog = path.read_text()
    except OSError as error:
        raise SynthError(f"{path}: {error.strerror}") from None
    return Subject(path.stem, verilog, top or list(hierarchy.split(verilog))[-1])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="synth.area", description=__doc__.split("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--config", help="tiny, small, paper or the path of a .toml")
    what.add_argument("--verilog", type=Path, help="a Verilog file instead of a configuration")
    parser.add_argument("--chip", action="store_true", help="of --config the whole chip")
    parser.add_argument("--top", help="the top module of --verilog (default: its last)")
    parser.add_argument("--lib", help="a Liberty file (default: areas of sky130_fd_sc_hd)")
    parser.add_argument("--json", type=Path, help="where the JSON goes (default: build/synth/)")
    parser.add_argument("--jobs", type=int, default=2, help="modules at a time (default 2)")
    parser.add_argument("--limit", type=float, default=120.0, help="longest path allowed, in FO4")
    parser.add_argument(
        "--clock-gating", action="store_true", help="gate clocks where 8 or more bits share it"
    )
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    options = Options(limit_fo4=arguments.limit, clock_gating=arguments.clock_gating)
    try:
        if arguments.jobs < 1:
            raise SynthError(f"--jobs must be at least 1, not {arguments.jobs}")
        library = libraries.find(arguments.lib)
        if arguments.config:
            _say(f"emitting {arguments.config}")
            subject = from_config(arguments.config, chip=arguments.chip)
        else:
            subject = from_verilog(arguments.verilog, arguments.top)
        result = measure(subject, library, options, arguments.jobs)
        path = arguments.json or BUILD / f"area-{subject.name}-{library.name}.json"
        report.write(result, path)
    except SynthError as error:
        print(f"area: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("area: interrupted; what is done is kept", file=sys.stderr)
        return 130
    report.show(result)
    print(f"JSON: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
