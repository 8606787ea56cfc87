"""``make demo``: real weights and real prompts through the RTL.

Takes SmolLM2-135M from its package, runs prompts, captures the BF16 activations that enter four
of its linear layers, converts those layers' weights to BFP9, and runs draft and target tiles
through the simulated array. Every result code is compared with the golden model; the error is
against BF16 arithmetic on the unconverted weights. Then emits the Verilog and sizes it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor
from torch.nn import functional

from hw.config import PRESETS, TILE, Config
from model.datapath import matmul
from model.formats.bfp import Bfp, partial_load, quantize
from model.formats.floats import to_codes
from model.lm import plain, smollm2
from model.lm.prompts import load_prompts
from sim.build import Build, SimulatorMissing
from sim.product import Product, Ran, build, run

#: Layer whose projections are taken, and columns of each (all where None): enough for every
#: row length of the model, few enough for some minutes of simulation.
LAYER = 15
SLICES = {"q": None, "up": 256, "down": 128, "head": 192}
NAMES = {
    "q": "attention, queries",
    "up": "MLP, up",
    "down": "MLP, down",
    "head": "vocabulary head",
}
ROWS = (1, 8, 32)
LOADS = [(p, reconstruct) for p in (5, 6, 7, 8) for reconstruct in ("truncate", "midpoint")]
LOADS.append((9, "truncate"))


@dataclass
class Case:
    """One linear layer with real inputs.

    Attributes
    ----------
    name : str
    activations : bfloat16 (32, K)
    weight : bfloat16 (K, N)
    stored : Bfp
        The weight in BFP9, grouped along N.
    """

    name: str
    activations: Tensor
    weight: Tensor
    stored: Bfp


@dataclass
class Row:
    """One load of one layer at one M: what the RTL did.

    Attributes
    ----------
    name, p, reconstruct, m : what ran
    results, mismatches : codes compared with the golden model, and how many differ
    cycles, tiles : of the array
    ratio : cycles over p x tiles; ``fold`` is what it must be
    error : RMS of the difference to BF16 arithmetic over the RMS of its result
    """

    name: str
    p: int
    reconstruct: str
    m: int
    results: int
    mismatches: int
    cycles: int
    tiles: int
    ratio: float
    error: float


def _headline(prompt: str) -> str:
    """The line of a prompt that says most: its function's."""
    lines = prompt.strip().splitlines()
    return next((line for line in lines if line.startswith("def ")), lines[0])[:60]


def capture(console: Console, count: int = 4) -> list[Case]:
    """Runs prompts through the model and keeps the inputs of the chosen layers.

    The last ``32 / count`` positions of each prompt give the 32 rows.
    """
    checkpoint, tokenizer = smollm2.load()
    wanted = {f"{LAYER}.q": "q", f"{LAYER}.up": "up", f"{LAYER}.down": "down", "head": "head"}
    rows: dict[str, list[Tensor]] = {short: [] for short in wanted.values()}
    share = max(ROWS) // count

    def observe(name: str, inputs: Tensor) -> None:
        if name in wanted:
            rows[wanted[name]].append(inputs[-share:].clone())

    for prompt in load_prompts("humaneval")[:count]:
        tokens = torch.tensor(tokenizer.encode(prompt.text).ids)
        ran = plain.forward(checkpoint, tokens, observe, activations="bf16")
        following = int(ran.logits[-1].argmax())
        console.print(
            f"  {_headline(prompt.text)!r} ... {len(tokens)} tokens,"
            f" next: {tokenizer.decode([following])!r}"
        )
    cases = []
    for short, columns in SLICES.items():
        source = checkpoint.head_weight if short == "head" else checkpoint.blocks[LAYER][short]
        weight = source[:columns].T.contiguous()
        cases.append(Case(short, torch.cat(rows[short]), weight, quantize(weight)))
    return cases


def product(case: Case, p: int, reconstruct: str, m: int) -> Product:
    """A case as the array takes it."""
    stored = case.stored
    return Product(
        activations=case.activations[:m].view(torch.int16).numpy().view("u2"),
        exponents=stored.exponents.numpy(),
        signs=stored.signs.numpy(),
        magnitudes=partial_load(stored.magnitudes, stored.p_full, p).numpy(),
        p=p,
        midpoint=reconstruct == "midpoint",
    )


def judge(config: Config, case: Case, p: int, reconstruct: str, m: int, ran: Ran) -> Row:
    """Compares what came back with the golden model and with BF16 arithmetic."""
    activations = case.activations[:m]
    golden = matmul(activations, case.stored, p=p, reconstruct=reconstruct)
    expected = to_codes(golden).to(torch.int64)
    codes = torch.from_numpy(ran.codes.astype(np.int64))
    reference = functional.linear(activations.float(), case.weight.T.float()).to(torch.bfloat16)
    difference = golden.double() - reference.double()
    tiles = product(case, p, reconstruct, m).tile_count(config)
    return Row(
        case.name,
        p,
        reconstruct,
        m,
        codes.numel(),
        int((codes != expected).sum()),
        ran.cycles,
        tiles,
        ran.cycles / (p * tiles),
        float(difference.square().mean().sqrt() / reference.double().square().mean().sqrt()),
    )


def simulate(config: Config, built: Build, cases: list[Case], console: Console) -> list[Row]:
    """All loads of all cases at all M, two simulations side by side, with progress."""
    rows: list[Row] = []
    total = len(cases) * len(ROWS) * len(LOADS)
    columns = (
        TextColumn("  on the RTL"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[now]}"),
    )
    with Progress(*columns, console=console, transient=False) as progress:
        task = progress.add_task("", total=total, now="")

        def one(case: Case, m: int) -> list[Row]:
            jobs = [product(case, p, reconstruct, m) for p, reconstruct in LOADS]

            def done(_: int) -> None:
                progress.update(task, advance=1, now=f"{NAMES[case.name]}, M {m}")

            ran = run(config, jobs, built=built, on_done=done)
            return [
                judge(config, case, p, reconstruct, m, result)
                for (p, reconstruct), result in zip(LOADS, ran, strict=True)
            ]

        with ThreadPoolExecutor(2) as pool:
            work = [(case, m) for case in cases for m in reversed(ROWS)]
            for part in pool.map(lambda item: one(*item), work):
                rows += part
    return rows


def table(config: Config, case: Case, rows: list[Row]) -> Table:
    """Results of one layer: a line a load, all M side by side."""
    k, n = case.weight.shape
    result = Table(
        title=f"{NAMES[case.name]}: K {k}, N {n}, {-(-k // TILE)} x {-(-n // TILE)} tiles",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    result.add_column("load")
    for heading in ("wrong", "of", *(f"cycles M {m}" for m in ROWS), "/(p tiles)", "error"):
        result.add_column(heading, justify="right")
    for p, reconstruct in LOADS:
        same = {
            row.m: row
            for row in rows
            if (row.name, row.p, row.reconstruct) == (case.name, p, reconstruct)
        }
        result.add_row(
            f"BFP{p} {reconstruct if p < case.stored.p_full else 'target'}",
            str(sum(row.mismatches for row in same.values())),
            f"{sum(row.results for row in same.values()):,}",
            *(f"{same[m].cycles:,}" for m in ROWS),
            f"{max(row.ratio for row in same.values()):.3f}",
            f"{same[max(ROWS)].error:.2%}",
        )
    return result


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="sim.demo", description=__doc__)
    parser.add_argument("--json", type=Path, help="also write all rows to a file")
    parser.add_argument("--no-hardware", action="store_true", help="stop before Verilog and area")
    arguments = parser.parse_args(argv)
    console = Console(width=max(100, Console().width))
    torch.set_num_threads(1)
    started = time.monotonic()
    config = PRESETS["small"]
    try:
        console.print("1. SmolLM2-135M-Instruct (dequantised from Q4_1) on prompts of HumanEval:")
        cases = capture(console)
        console.print(f"2. The array, preset {config.name}: building its simulation ...")
        built = build(config)
        console.print(
            f"3. {len(LOADS)} loads of {len(cases)} layers at M {', '.join(map(str, ROWS))},"
            f" {config.t_m} rows a pass, fold {config.fold}:"
        )
        rows = simulate(config, built, cases, console)
    except (FileNotFoundError, SimulatorMissing, RuntimeError, ValueError) as error:
        print(f"sim.demo: {error}", file=sys.stderr)
        return 2
    for case in cases:
        console.print(table(config, case, rows))
        console.print()
    console.print(
        "wrong: results that differ from the golden model. /(p tiles): cycles over p x tiles,"
        f" at best the fold, {config.fold}. error: RMS of the difference to BF16 arithmetic on the"
        f" unconverted weights, over the RMS of its results (M {max(ROWS)})."
    )
    if arguments.json:
        arguments.json.write_text(json.dumps([vars(row) for row in rows], indent=2) + "\n")
    status = 0
    if not arguments.no_hardware:
        for number, (what, command) in enumerate(
            {
                "The Verilog": ["hw.emit", "--config", config.name],
                "Its area": ["synth.area", "--config", config.name],
            }.items(),
            4,
        ):
            console.print(f"{number}. {what}:")
            status |= subprocess.run([sys.executable, "-m", *command], check=False).returncode
    mismatches = sum(row.mismatches for row in rows)
    console.print(
        f"Shown: {sum(row.results for row in rows):,} results of the RTL on real weights and"
        f" activations, {mismatches} mismatches against the golden model,"
        f" {sum(row.cycles for row in rows):,} cycles, {time.monotonic() - started:.0f} s.\n"
        "Next: make sim (every bench), make vectors, make faults,"
        " make verilog CONFIG=paper, make area CONFIG=paper, docs/."
    )
    return 1 if mismatches or status else 0


if __name__ == "__main__":
    sys.exit(main())
