"""Verilog of a compute core: plain Verilog-2005 text, every unique module once.

``python -m hw.emit --config tiny|small|paper|path.toml --out DIR``
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from amaranth._toolchain.yosys import find_yosys

from hw.compute.array import Array
from hw.config import Config, ConfigError, load
from hw.library import Library, Unique, flat_ports


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
    """

    config: Config
    top: str
    verilog: str
    modules: dict[str, str]
    children: dict[str, dict[str, int]]
    ports: list[tuple[str, str, int]]


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
    )


def to_verilog(library: Library) -> str:
    """Verilog text of all modules of a library."""
    yosys = find_yosys(lambda version: version >= (0, 40))
    script = [
        f"read_rtlil <<rtlil\n{library.rtlil()}\nrtlil",
        "proc -norom -noopt",
        "memory_collect",
        "write_verilog -noattr",
    ]
    return yosys.run(["-q", "-"], "\n".join(script), ignore_warnings=True)
