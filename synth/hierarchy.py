"""Which modules a Verilog text has, which of them the top needs, and how often."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from synth import yosys
from synth.errors import SynthError

# One module with the attributes before it; `\name ` is Verilog's escaped form.
_MODULE = re.compile(
    r"(?:\(\*(?:[^*]|\*(?!\)))*\*\)\s*)*\bmodule\s+(\\\S+\s|[A-Za-z_][\w$]*).*?\bendmodule\b",
    re.DOTALL,
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass
class Module:
    """One unique module: its own text, its instances of others, how often the top has it."""

    name: str
    text: str
    children: dict[str, int] = field(default_factory=dict)
    count: int = 0


def split(verilog: str) -> dict[str, str]:
    """{module name: its text}, in the order of the file."""
    found = {}
    for hit in _MODULE.finditer(_COMMENT.sub("", verilog)):
        found[hit.group(1).strip().removeprefix("\\")] = hit.group()
    if not found:
        raise SynthError("no module in this Verilog")
    return found


def scan(verilog: str, top: str, folder: Path) -> dict[str, Module]:
    """The modules under `top`, children before parents, each with its count in the top."""
    texts = split(verilog)
    if top not in texts:
        raise SynthError(f"no module {top!r} in this Verilog; it has {', '.join(texts)}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "all.v").write_text(verilog)
    script = f"read_verilog -formal all.v\nhierarchy -check -top {escape(top)}\n"
    yosys.run(script + "tee -q -o hierarchy.json stat -json\n", folder, "hierarchy")
    stat = yosys.read_json(folder / "hierarchy.json")["modules"]
    modules = {}
    for key, value in stat.items():
        name = key.removeprefix("\\")
        if name not in texts:
            raise SynthError(f"module {name}: parameters must be resolved before synthesis")
        cells = value["num_cells_by_type"]
        children = {kind: count for kind, count in cells.items() if kind in texts}
        modules[name] = Module(name, texts[name], children)
    return _count(modules, top)


def _count(modules: dict[str, Module], top: str) -> dict[str, Module]:
    """Order children first, and multiply the counts down from the top."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name in order:
            return
        for child in modules[name].children:
            visit(child)
        order.append(name)

    visit(top)
    modules[top].count = 1
    for name in reversed(order):
        for child, number in modules[name].children.items():
            modules[child].count += number * modules[name].count
    return {name: modules[name] for name in order}


def escape(name: str) -> str:
    """A module's name as a Yosys script needs it."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else "\\" + name
