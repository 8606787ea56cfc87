"""Which modules a Verilog text has, which of them the top needs, and how often."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from synth import yosys
from synth.errors import SynthError

# One module with the attributes before it; `\name ` is Verilog's escaped form.
_MODULE = re.compile(
    r"(?:\(\*(?:[^*]|\*(?!\)))*\*\)\s*)*\bmodule\s+(\\\S+\s|[A-Za-z_][\w$]*).*?\bendmodule\b",
    re.DOTALL,
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


#: Modules whose memories stay memories: they are counted apart, not mapped to flip-flops.
MEMORY_PREFIX = "bsspec_mem_"

_Result = TypeVar("_Result")


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


def write(module: Module, texts: Mapping[str, str], folder: Path) -> None:
    """`module.v` in `folder`: the module and, for their ports, its children."""
    folder.mkdir(parents=True, exist_ok=True)
    children = [texts[child] for child in module.children]
    (folder / "module.v").write_text("\n\n".join([module.text, *children, ""]))


def reading(module: Module) -> list[str]:
    """Yosys passes from `module.v` to cells, checks and prints removed; children are boxes."""
    return [
        "read_verilog -formal module.v",
        *[f"blackbox {escape(child)}" for child in module.children],
        f"hierarchy -check -top {escape(module.name)}",
        "proc",
        "chformal -remove",
        "delete */t:$print",
        "check -assert",
    ]


def digest(module: Module, texts: Mapping[str, str], *more: str) -> str:
    """What a module's synthesis depends on: its text, its children's, `more`, Yosys's version."""
    whole = hashlib.sha256()
    parts = [module.text, *(texts[child] for child in sorted(module.children))]
    for part in (*parts, *more, yosys.version()):
        whole.update(hashlib.sha256(part.encode()).digest())
    return whole.hexdigest()[:16]


def each_done(
    modules: Mapping[str, Module], jobs: int, work: Callable[[Module], _Result]
) -> Iterator[tuple[Module, _Result]]:
    """Every module with what `work` makes of it, as they end; the largest texts start first."""
    order = sorted(modules.values(), key=lambda module: -len(module.text))
    with ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(work, module): module for module in order}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        except BaseException:
            for each in waiting:
                each.cancel()
            raise
