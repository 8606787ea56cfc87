"""Lays a model out in the chip's memory, and says how large everything is.

    bsspec image smollm2 --chip small --out build/smollm2
    bsspec image Llama-3.1-8B --chip paper --sequences 4

Without --out no weight is read: sizes follow from the model's shape. With it `image.bin` and
`image.json` are written, which `bsspec run --image` and other hosts load.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from model.calibration.models import find_shape
from model.formats.constants import TILE_K
from model.lm.checkpoint import load
from model.lm.config import ModelConfig
from model.lm.stored import store
from model.machine.encode import step_list
from model.machine.image import Image
from model.machine.layout import Manifest
from model.machine.listing import listed, text
from model.machine.shape import PRESETS, MachineShape, preset

#: Positions of a sequence unless the caller says otherwise.
CAPACITY = 1024


def capacity_of(config: ModelConfig, asked: int | None) -> int:
    """Positions of a sequence: those asked for, or at most `CAPACITY`."""
    if asked is not None:
        return asked
    return min(CAPACITY, -(-(config.max_positions + 1) // TILE_K) * TILE_K)


def build(
    config: ModelConfig, name: str, shape: MachineShape, capacity: int, sequences: int, p_full: int
) -> Image:
    """Loads a model and lays it out, with a progress line on stderr.

    Raises:
        ValueError: what the chip cannot hold, before anything is loaded.
    """
    Manifest(config=config, p_full=p_full, shape=shape, capacity=capacity, sequences=sequences)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("loading", total=None)
        checkpoint, _ = load(name)
        progress.update(task, description="quantising")
        model = store(checkpoint, p_full=p_full)
        progress.update(task, description="laying out")
        return Image.build(
            model,
            shape,
            capacity=capacity,
            sequences=sequences,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
        )


def show(console: Console, manifest: Manifest) -> None:
    """Regions, the bank, and what a weight's load takes."""
    table = Table(box=None, pad_edge=False)
    for name in ("region", "base", "bytes"):
        table.add_column(name, justify="left" if name == "region" else "right")
    for name, base, size in manifest.table():
        table.add_row(name, f"{base:#x}", f"{size:,}")
    table.add_row("all", "", f"{manifest.size:,}")
    console.print(table)
    bank = manifest.bank
    console.print(
        f"bank words of a row: {bank.words} of {manifest.shape.usable_words} "
        f"(x {bank.side}, side {bank.wide - bank.side}, wide {bank.words - bank.wide})"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bsspec image",
        description="Lay a model out in the chip's memory; print sizes.",
    )
    parser.add_argument("model", help="smollm2, a Hugging Face folder, or (sizes only) a paper's")
    parser.add_argument("--out", help="folder for image.bin and image.json; sizes only without")
    parser.add_argument("--chip", default="small", help=f"{', '.join(PRESETS)} (default small)")
    parser.add_argument("--capacity", type=int, help=f"positions, default {CAPACITY} at most")
    parser.add_argument("--sequences", type=int, default=1, help="room for (default 1)")
    parser.add_argument("--bits", type=int, default=9, help="of a stored number, 9..16")
    parser.add_argument("--list", action="store_true", help="print the step's commands")
    parser.add_argument("--threads", type=int, default=1, help="of the processor (default 1)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """The command; 0, or an error for the caller to print."""
    arguments = _parser().parse_args(argv)
    torch.set_num_threads(arguments.threads)
    shape, config = preset(arguments.chip), find_shape(arguments.model).config
    capacity = capacity_of(config, arguments.capacity)
    if arguments.out is None:
        manifest = Manifest(
            config=config,
            p_full=arguments.bits,
            shape=shape,
            capacity=capacity,
            sequences=arguments.sequences,
        )
    else:
        image = build(config, arguments.model, shape, capacity, arguments.sequences, arguments.bits)
        image.save(arguments.out)
        manifest = image.manifest
    show(Console(highlight=False, width=max(100, Console().width)), manifest)
    if arguments.list:
        sys.stdout.write(text(listed(b"".join(step_list(manifest)))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
