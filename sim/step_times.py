"""How long steps take on a chip, and what its array does meanwhile, by the cycle model.

    python -m sim.step_times [--config paper] [--model SmolLM2-135M] [--length 1000] [--rows 8]

Shapes are all that it needs: two layers and three are timed, with the embedding and the head, and
what the third adds is taken for every other layer. `make cycles` calls this.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from hw.chip_config import CHIPS, ChipConfig
from model.formats.commands import LINE_BYTES, Opcode, Region, pack
from model.lm import smollm2
from model.lm.config import ModelConfig
from model.lm.paper_models import PAPER_MODELS
from model.lm.precision import Precision
from model.machine.cycles import Stalls
from model.machine.encode import Segment, model_command, step_lines, step_list
from model.machine.jobs import rows_commands
from model.machine.layout import Manifest
from model.pydoc_llama import load as load_own
from sim.cycles import STALLS, CycleModel
from sim.pair import shape_of

#: Layers that are timed: the last one is like all that follow.
_FEW, _MORE = 2, 3
#: Waits for activations that no special function is the reason of.
_NO_FUNCTION = ("moves", "memory", "tables")
#: Operations that the table names; the sum over all of them is its last column.
_NAMED = ("norm", "softmax")


@dataclass(frozen=True)
class Time:
    """Cycles of something, and what the array does in them.

    Attributes
    ----------
    cycles : int
    stalls : Stalls
    waits : Counter
        Cycles of ``stalls.special`` by what the array waited for
        (:class:`~model.machine.cycles.array.Array`).
    """

    cycles: int
    stalls: Stalls
    waits: Counter[str]

    def plus(self, other: Time, times: int = 1) -> Time:
        """With another one, so many times."""
        both = zip(dataclasses.astuple(self.stalls), dataclasses.astuple(other.stalls), strict=True)
        waits = Counter(self.waits)
        for cause, cycles in other.waits.items():
            waits[cause] += times * cycles
        return Time(
            self.cycles + times * other.cycles,
            Stalls(*(mine + times * others for mine, others in both)),
            waits,
        )

    def shares(self) -> dict[str, float]:
        """Parts of the cycles, by the names of :class:`Stalls`; ``other``: no piece is there."""
        found = {k: v / self.cycles for k, v in dataclasses.asdict(self.stalls).items()}
        return {**found, "other": 1 - sum(found.values())}

    def exposed(self) -> dict[str, float]:
        """The special functions' part of the cycles by operation: in them a plane waits for it."""
        kinds = sorted(set(self.waits) - set(_NO_FUNCTION))
        return {kind: self.waits[kind] / self.cycles for kind in kinds}


#: Models by name.
MODELS: dict[str, Callable[[], ModelConfig]] = {
    "pydoc_llama": lambda: load_own().config,
    "SmolLM2-135M": lambda: smollm2.load()[0].config,
    **{name: functools.partial(PAPER_MODELS.__getitem__, name) for name in PAPER_MODELS},
}


def time_step(
    chip: ChipConfig,
    config: ModelConfig,
    *,
    length: int,
    rows: int,
    precision: Precision | None,
    latency: int,
) -> Time:
    """One whole step of a sequence, from the embedding to the argmax.

    Parameters
    ----------
    chip : ChipConfig
    config : ModelConfig
    length : int
        Committed tokens.
    rows : int
        Tokens of the step.
    precision : Precision or None
        All planes if None.
    latency : int
        Of the memory.

    Raises
    ------
    ValueError
        If the chip cannot hold the model.
    """
    manifest = Manifest(
        config=config,
        p_full=9,
        shape=shape_of(chip),
        capacity=-(-(length + rows + 1) // 64) * 64,
        sequences=1,
        base=0,
    )
    # Weights do not matter: pages that nothing is written to take no room.
    memory = np.zeros(manifest.base + manifest.size, np.uint8)

    def put(line: int, commands: list[bytes]) -> None:
        content = np.frombuffer(b"".join(commands), np.uint8)
        start = manifest.regions[Region.COMMANDS].base + line * LINE_BYTES
        memory[start : start + len(content)] = content

    whole = step_lines(manifest).whole
    put(0, step_list(manifest))
    put(
        manifest.jobs,
        [
            model_command(manifest),
            *rows_commands([Segment(0, length, rows)], precision),
            pack(Opcode.CALL, {"list": whole[0], "count": whole[1]}),
            pack(Opcode.HALT, {}),
        ],
    )

    def read(address: int, count: int) -> bytes:
        return memory[address : address + count].tobytes()

    model = CycleModel(chip, latency=latency, read=read)
    for region, extent in manifest.regions.items():
        model.write_register("BASE", extent.base, region)
        model.write_register("SIZE", extent.lines, region)
    model.write_register("FIRST_COMMAND", manifest.jobs)
    cycles = model.job()
    return Time(cycles, model.parts.stalls, model.parts.array.waits)


def steps_of(rows: int, draft: Precision) -> dict[str, tuple[int, Precision | None]]:
    """Rows and precision of each kind of step."""
    return {"decode": (1, None), "draft": (1, draft), "verify": (rows, None)}


def times_of(
    chip: ChipConfig,
    config: ModelConfig,
    *,
    length: int,
    rows: int,
    precision: Precision | None,
    latency: int,
) -> tuple[Time, Time]:
    """A whole step, and one of its layers."""
    few, more = (
        time_step(
            chip,
            dataclasses.replace(config, layers=layers),
            length=length,
            rows=rows,
            precision=precision,
            latency=latency,
        )
        for layers in (_FEW, _MORE)
    )
    layer = more.plus(few, -1)
    return few.plus(layer, config.layers - _FEW), layer


def table_of(found: list[dict[str, Any]]) -> Table:
    """All of them, a line each."""
    table = Table(
        title="modelled: cycles, and what the array does in them, percent", box=box.SIMPLE_HEAD
    )
    names = ("chip", "model", "length", "step", "of")
    for name in names:
        table.add_column(name, no_wrap=True)
    functions = (*_NAMED, "all functions")
    for name in ("cycles", *STALLS, "other", *functions):
        table.add_column(name.replace(" ", "\n"), justify="right", no_wrap=True)
    for each in found:
        if "refused" in each:
            table.add_row(each["chip"], each["model"], "", "does not fit")
            continue
        exposed = each["exposed"]
        shares = [each["shares"][name] for name in (*STALLS, "other")]
        shares += [*(exposed.get(name, 0) for name in _NAMED), sum(exposed.values())]
        table.add_row(
            *(str(each[name]) for name in names),
            f"{each['cycles']:,}",
            *(f"{100 * share:.1f}" if share >= 0.1 else f"{100 * share:.2f}" for share in shares),
        )
    table.caption = (
        "other: no piece of work is there. Behind it: where a plane waits for a special function."
    )
    return table


def _measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    for name in arguments.model:
        if name not in MODELS:
            raise ValueError(f"--model must be one of {', '.join(MODELS)}, not {name}")
    for name in ("length", "rows", "latency"):
        if getattr(arguments, name) < (name == "rows"):
            raise ValueError(f"--{name} must be at least {int(name == 'rows')}")
    draft = Precision.parse(arguments.draft)
    models = {name: MODELS[name]() for name in arguments.model}
    found: list[dict[str, Any]] = []
    jobs = [(chip, model) for chip in arguments.config for model in arguments.model]
    console = Console(stderr=True)
    for chip_name, model_name in track(jobs, "timing", console=console, transient=True):
        chip = CHIPS[chip_name]
        rows = min(arguments.rows, chip.core.t_m)
        config = models[model_name]
        length = min(arguments.length, config.max_positions - rows)
        where = {"chip": chip_name, "model": model_name, "length": length}
        try:
            for step, (count, precision) in steps_of(rows, draft).items():
                both = times_of(
                    chip,
                    config,
                    length=length,
                    rows=count,
                    precision=precision,
                    latency=arguments.latency,
                )
                for of, time in zip(("step", "layer"), both, strict=True):
                    found.append(
                        {
                            **where,
                            "step": step,
                            "rows": count,
                            "precision": str(precision or "all planes"),
                            "of": of,
                            "cycles": time.cycles,
                            "shares": time.shares(),
                            "exposed": time.exposed(),
                        }
                    )
        except ValueError as error:
            found.append({**where, "refused": str(error)})
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="sim.step_times", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--config", nargs="+", default=list(CHIPS), choices=list(CHIPS))
    parser.add_argument(
        "--model", nargs="+", default=["pydoc_llama", "SmolLM2-135M", "Llama-3.1-8B"]
    )
    parser.add_argument(
        "--length", type=int, default=1000, help="committed tokens (1000, or what the model allows)"
    )
    parser.add_argument("--rows", type=int, default=8, help="of a verify step, at most t_m (8)")
    parser.add_argument("--draft", default="W6KV6", help="precision of a draft step (W6KV6)")
    parser.add_argument("--latency", type=int, default=100, help="of memory, in cycles (100)")
    parser.add_argument("--json", type=Path, help="where the figures go")
    arguments = parser.parse_args(argv)
    try:
        found = _measure(arguments)
    except (ValueError, TypeError, OSError) as error:
        print(f"sim.step_times: {error}", file=sys.stderr)
        return 2
    # A table that is not shown on a terminal is as wide as it must be.
    terminal = Console()
    Console(width=None if terminal.is_terminal else 200).print(table_of(found))
    for each in found:
        if "refused" in each:
            print(f"{each['model']} does not fit on {each['chip']}: {each['refused']}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
