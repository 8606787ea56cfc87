"""Verilog of a compute core or a chip: plain Verilog-2005 text, every unique module once.

``python -m hw.emit --config tiny|small|paper|path.toml [--top core|chip] --out DIR``
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from amaranth._toolchain.yosys import find_yosys
from amaranth.lib import data

from hw.chip import Chip
from hw.chip_config import CHIPS, ChipConfig
from hw.compute import layouts
from hw.compute.array import Array
from hw.config import Config, ConfigError, load
from hw.library import Library, Unique, flat_ports
from hw.memory.ram import Ram
from hw.memory.ram_bytes import RamBytes
from hw.memory.rom import Rom
from hw.tools import search_path

#: Version of the emitted core.
VERSION = "0.1.0"


class Memory(NamedTuple):
    """A memory module: rows of some bits, as often as the design has it; written, or only read."""

    name: str
    instances: int
    rows: int
    width: int
    written: bool

    @property
    def bits(self) -> int:
        """Of all instances."""
        return self.instances * self.rows * self.width


@dataclass(frozen=True, kw_only=True)
class Emission:
    """The emitted design.

    Attributes
    ----------
    config : Config
    top : str
        Name of the top module.
    verilog : str
        All unique modules, children before parents.
    modules : dict
        Component label of every module name.
    children : dict
        For every module name, how often it instantiates each other module.
    ports : list
        ``(name, "input" or "output", bits)`` of the top module.
    memory_bits : int or None
        Bits of all memories, derived from the configuration; None for a part of the design.
    chip : ChipConfig or None
        Of a whole chip.
    memories : tuple of Memory
        Of a whole chip: what foundry macros may replace.
    """

    config: Config
    top: str
    verilog: str
    modules: dict[str, str]
    children: dict[str, dict[str, int]]
    ports: list[tuple[str, str, int]]
    memory_bits: int | None
    chip: ChipConfig | None = None
    memories: tuple[Memory, ...] = ()

    #: The BS-RAC of the paper's Fig. 15: modules whose own area makes up each part.
    breakdown: ClassVar[dict[str, dict[str, tuple[str, ...]]]] = {
        "BS-RAC": {
            "sign decoder": ("bsspec_sign_decoder",),
            "look-up": ("bsspec_lane",),
            "accumulation": ("bsspec_column",),
        }
    }


def emit(config: Config, component: Unique | None = None) -> Emission:
    """Verilog of ``component`` (the whole array by default) for ``config``."""
    top = Array(config) if component is None else component
    library = Library()
    library.add(top)
    return Emission(
        config=config,
        top=top.module_name,
        verilog=to_verilog(library),
        modules={name: module.label for name, module in library.modules.items()},
        children=library.children,
        ports=[
            (name, "input" if member.flow.name == "In" else "output", len(value))
            for name, member, value in flat_ports(top)
        ],
        memory_bits=sum(config.memory_bits.values()) if component is None else None,
    )


def emit_chip(chip: ChipConfig) -> Emission:
    """Verilog of a whole chip, with its memories."""
    top = Chip(chip)
    library = Library()
    library.add(top)
    counts = dict.fromkeys(library.modules, 0)
    counts[top.module_name] = 1
    # Parents behind children: from the top down.
    for name in reversed(library.modules):
        for child, times in library.children[name].items():
            counts[child] += times * counts[name]
    memories = []
    for name, module in library.modules.items():
        if isinstance(module, Ram | RamBytes):
            memories.append(Memory(name, counts[name], module.depth, module.width, True))
        elif isinstance(module, Rom):
            memories.append(Memory(name, counts[name], len(module.content), module.width, False))
    return Emission(
        config=chip.core,
        top=top.module_name,
        verilog=to_verilog(library),
        modules={name: module.label for name, module in library.modules.items()},
        children=library.children,
        ports=[
            (name, "input" if member.flow.name == "In" else "output", len(value))
            for name, member, value in flat_ports(top)
        ],
        memory_bits=sum(each.bits for each in memories if each.written),
        chip=chip,
        memories=tuple(memories),
    )


def chip_named(name: str) -> ChipConfig:
    """The chip of a preset.

    Raises
    ------
    ConfigError
        If it is none.
    """
    if name not in CHIPS:
        raise ConfigError(f"a chip must be one of {', '.join(CHIPS)}, not {name!r}")
    return CHIPS[name]


def to_verilog(library: Library) -> str:
    """Verilog text of all modules of a library."""
    yosys = find_yosys(lambda version: version >= (0, 40))
    script = [
        f"read_rtlil <<rtlil\n{library.rtlil()}\nrtlil",
        # Continuous assignments instead of always blocks for what is combinational: they settle
        # at time zero in every simulator.
        "proc -norom -noopt",
        "memory_collect",
        "write_verilog -noattr",
    ]
    text: str = yosys.run(["-q", "-"], "\n".join(script), ignore_warnings=True)
    return text


#: Lint rules that say nothing about this text, each with its reason.
WAIVERS = {
    "WIDTHEXPAND": "operands are extended on purpose: sums are as wide as their bound",
    "CASEOVERLAP": "selections are one-hot by construction (parallel_case)",
    "SYMRSVDWORD": "a port may have the name of a C++ word: Verilator renames it in its own code",
}


def ports_text(emission: Emission) -> str:
    """The port list of the top module as an aligned table; of a core what each payload holds."""
    lines = [f"{emission.top}: ports for configuration {emission.config.name}", ""]
    rows = [
        ("clk", "input", 1, "clock, rising edge"),
        ("rst", "input", 1, "reset, synchronous, active high"),
    ]
    rows += [(name, way, bits, "") for name, way, bits in sorted(emission.ports)]
    width = max(len(name) for name, *_ in rows)
    lines += [
        f"{name:<{width}}  {way:<6}  {bits:>6}  {note}".rstrip() for name, way, bits, note in rows
    ]
    if emission.chip is not None:
        return "\n".join(lines) + "\n"
    lines += ["", "Fields of the payloads, lowest bit first (offset, bits):"]
    for stream, layout in layouts.payloads(emission.config).items():
        lines.append(f"{stream}__payload" if stream != "status" else stream)
        lines += [f"  {field:<24} {offset:>6} {bits:>6}" for field, offset, bits in _fields(layout)]
    return "\n".join(lines) + "\n"


def _fields(layout: data.Layout, prefix: str = "", base: int = 0) -> list[tuple[str, int, int]]:
    """Fields of a layout; an array is one row that names its first element's shape."""
    if isinstance(layout, data.ArrayLayout):
        name = f"{prefix}[0..{layout.length - 1}]"
        if isinstance(layout.elem_shape, data.Layout):
            return _fields(layout.elem_shape, name, base)
        return [(name, base, layout.size // layout.length)]
    rows = []
    for name, field in layout:
        full = f"{prefix}.{name}" if prefix else str(name)
        if isinstance(field.shape, data.Layout):
            rows += _fields(field.shape, full, base + field.offset)
        else:
            rows.append((full, base + field.offset, field.width))
    return rows


def core_text(emission: Emission, stem: str) -> str:
    """A FuseSoC core file (CAPI 2)."""
    kind, what = ("chip", "accelerator") if emission.chip else ("core", "compute core")
    return f"""CAPI=2:
name: bsspec:{kind}:{emission.config.name}:{VERSION}
description: BS-Spec {what}, configuration {emission.config.name}
filesets:
  rtl:
    files:
      - {stem}.v
    file_type: verilogSource
  lint:
    files:
      - {stem}.vlt
    file_type: vlt
targets:
  default:
    filesets: [rtl]
    toplevel: {emission.top}
  lint:
    default_tool: verilator
    filesets: [rtl, lint]
    tools:
      verilator:
        mode: lint-only
    toplevel: {emission.top}
"""


def waivers_text() -> str:
    """A Verilator control file with the waivers and their reasons."""
    lines = ["`verilator_config"]
    for rule, reason in WAIVERS.items():
        lines += [f"// {reason}", f"lint_off -rule {rule}"]
    return "\n".join(lines) + "\n"


def chip_json(emission: Emission) -> str:
    """Parameters of a chip, its core's with derived figures, its memories."""
    assert emission.chip is not None
    given = {
        field.name: getattr(emission.chip, field.name)
        for field in dataclasses.fields(emission.chip)
        if field.name != "core"
    }
    return (
        json.dumps(
            {
                "name": emission.chip.name,
                **given,
                "core": emission.config.as_dict(),
                "memories": [{**each._asdict(), "bits": each.bits} for each in emission.memories],
                "memory_bits": emission.memory_bits,
            },
            indent=2,
        )
        + "\n"
    )


def memories_text(emission: Emission) -> str:
    """All memories as a table, with the rule that a macro in their place must keep."""
    lines = [
        f"{emission.top}: memories for configuration {emission.config.name}",
        "",
        "One write port, one read port of latency 1, one clock. A row is never read and written in",
        "one cycle, so any collision rule does; the read port keeps its word until the next read.",
        "Contents need no initial value, those of read-only memories aside.",
        "",
        f"{'module':<32} {'times':>6} {'rows':>6} {'width':>6} {'bits':>11}",
    ]
    for each in emission.memories:
        kind = "" if each.written else "  read-only"
        sizes = f"{each.instances:>6} {each.rows:>6} {each.width:>6} {each.bits:>11,}"
        lines.append(f"{each.name:<32} {sizes}{kind}")
    lines.append(f"{'all that are written':<32} {'':>20} {emission.memory_bits or 0:>11,}")
    return "\n".join(lines) + "\n"


def write(emission: Emission, folder: Path) -> list[Path]:
    """Writes the text and what belongs beside it; each file appears whole or not at all."""
    chip = emission.chip
    stem = f"bsspec_{'chip_' if chip else ''}{emission.config.name}"
    contents = {
        f"{stem}.v": emission.verilog,
        f"{stem}.json": emission.config.to_json() if chip is None else chip_json(emission),
        f"{stem}.ports.txt": ports_text(emission),
        f"{stem}.core": core_text(emission, stem),
        f"{stem}.vlt": waivers_text(),
    }
    if chip is not None:
        contents[f"{stem}.memories.txt"] = memories_text(emission)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in contents.items():
        path = folder / name
        partial = folder / f".{name}.partial"
        partial.write_text(text)
        os.replace(partial, path)
        paths.append(path)
    return paths


_MODULE = re.compile(r"(?ms)^module (\w+)\(.*?^endmodule")
_PORT = re.compile(r"(?m)^  ((?:input|output) (?:\[\d+:\d+\] )?\S+) ?;")


def lint(emission: Emission, waivers: Path) -> tuple[str, bool]:
    """Verilator's lint, one unique module at a time with empty boxes for what it instantiates.

    Linting the whole at once flattens it, which takes minutes for ``paper`` and says the same.

    Returns
    -------
    said : str
        ``clean``, or the first complaint.
    clean : bool
    """
    verilator = shutil.which("verilator", path=search_path())
    if verilator is None:
        return "verilator is not installed: make setup", False
    texts = {found.group(1): found.group(0) for found in _MODULE.finditer(emission.verilog)}
    boxes = {}
    for name, text in texts.items():
        header = text[: text.index(";") + 1]
        ports = [f"  {port} ;" for port in _PORT.findall(text)]
        boxes[name] = "\n".join([header, *ports, "endmodule"])
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in texts.items():
            source = Path(scratch) / f"{name}.v"
            source.write_text("\n".join([*(boxes[c] for c in emission.children[name]), text, ""]))
            command = [verilator, "--lint-only", "--top-module", name]
            command += [str(waivers), str(source)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            complaints = [line for line in done.stderr.splitlines() if line.startswith("%")]
            if done.returncode or complaints:
                return complaints[0] if complaints else f"{name}: lint failed", False
    return "clean", True


def elaborate(verilog: Path, top: str) -> tuple[str, bool]:
    """A second tool's elaboration (slang): what it said, and whether it succeeded."""
    script = (
        "import sys, pyslang\n"
        "from pyslang import ast, driver\n"
        "d = driver.Driver(); d.addStandardArgs()\n"
        "ok = d.parseCommandLine(' '.join(['slang', '--top', sys.argv[2], sys.argv[1]]))\n"
        "ok = ok and d.processOptions() and d.parseAllSources()\n"
        "ok = ok and d.runFullCompilation(True)\n"
        "sys.exit(0 if ok else 1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(verilog), top],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return "elaborates", True
    lines = (done.stderr + done.stdout).strip().splitlines()
    return lines[-1] if lines else "failed", False


def main(argv: list[str] | None = None) -> int:
    """The command ``make verilog``."""
    parser = argparse.ArgumentParser(prog="hw.emit", description="Emits Verilog.")
    parser.add_argument("--config", default="small", help="tiny, small, paper or a .toml")
    parser.add_argument("--top", choices=("core", "chip"), default="core", help="what of it")
    parser.add_argument("--out", type=Path, help="folder; build/verilog/<config> by default")
    parser.add_argument("--no-check", action="store_true", help="skip lint and elaboration")
    arguments = parser.parse_args(argv)
    try:
        started = time.monotonic()
        if arguments.top == "chip":
            chip = chip_named(arguments.config)
            print(f"emitting the chip of {chip.name} ...", flush=True)
            emission = emit_chip(chip)
        else:
            config = load(arguments.config)
            print(f"emitting {config.name} ...", flush=True)
            emission = emit(config)
        folder = arguments.out or Path("build/verilog") / emission.config.name
        paths = write(emission, folder)
    except (ConfigError, OSError) as error:
        print(f"hw.emit: {error}", file=sys.stderr)
        return 2
    lines = emission.verilog.count("\n")
    print(
        f"{len(emission.modules)} unique modules, {lines:,} lines,"
        f" {len(emission.verilog) / 1e6:.2f} MB, {time.monotonic() - started:.0f} s"
    )
    for path in paths:
        print(f"  {path}  {path.stat().st_size:,} bytes")
    digest = hashlib.sha256(emission.verilog.encode()).hexdigest()
    print(f"sha256 of the Verilog: {digest}")
    if arguments.no_check:
        return 0
    text = next(path for path in paths if path.suffix == ".v")
    waivers = next(path for path in paths if path.suffix == ".vlt")
    said, clean = lint(emission, waivers)
    print(f"verilator --lint-only, {len(WAIVERS)} waivers: {said}", flush=True)
    heard, elaborated = elaborate(text, emission.top)
    print(f"slang: {heard}")
    return 0 if clean and elaborated else 1


if __name__ == "__main__":
    sys.exit(main())
