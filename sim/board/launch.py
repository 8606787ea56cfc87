"""Runs a cocotb module on a board, from Python or the command line, and prints what it says.

``python -m sim.board.launch MODULE [--config tiny|small|paper] [--options JSON] [--seed N]
[--waves]``
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hw.chip import Chip
from hw.chip_config import CHIPS, ChipConfig
from hw.config import Config
from hw.emit import emit
from sim.board.control import FOLDER
from sim.board.wrapper import wrapper
from sim.build import WAVES_FILE, Build, SimulatorMissing, compile_design
from sim.chips import chip_of
from sim.environment import Environment
from sim.run import REPORT, Outcome, run_folder, simulate

#: The file in a run's folder that :func:`say` writes to.
_SAID = "said.txt"
#: Where the options of a run hold the chip.
_CHIP = "chip"


def say(text: str) -> None:
    """In a simulation: a line for the terminal, at once."""
    with (Path(os.environ[FOLDER]) / _SAID).open("a") as handle:
        handle.write(text + "\n")


def chip_here(environment: Environment) -> ChipConfig:
    """In a simulation: the chip that was built."""
    if _CHIP not in environment.options:
        return chip_of(environment.config)
    fields = dict(environment.options[_CHIP])
    return ChipConfig(core=Config(**fields.pop("core")), **fields)


#: Modules that Verilator compiles once, by chip: for many rows. Two rows run slower with it, and
#: compile no sooner.
BLOCKS = dict.fromkeys(("small", "paper"), ("bsspec_mpu", "bsspec_slice"))


def build_board(
    chip: ChipConfig, *, waves: bool = False, hierarchical: tuple[str, ...] | None = None
) -> Build:
    """Emits a chip and compiles it with its board, or finds it compiled before.

    Parameters
    ----------
    chip : ChipConfig
    waves : bool
        Build so that a run can write waves.
    hierarchical : tuple of str or None
        Modules that Verilator compiles once and links many times; None for those of ``BLOCKS``.

    Raises
    ------
    SimulatorMissing
        If Verilator is not installed.
    RuntimeError
        If the design cannot be built.
    """
    design = emit(chip.core, Chip(chip))
    return compile_design(
        design.verilog,
        design.top,
        waves=waves,
        hierarchical=BLOCKS.get(chip.name, ()) if hierarchical is None else hierarchical,
        board=wrapper(design.ports),
    )


def run_module(
    chip: ChipConfig,
    test_module: str,
    *,
    seed: int,
    options: dict[str, Any] | None = None,
    quick: bool = False,
    waves: bool = False,
    build: Build | None = None,
    hear: Callable[[str], None] = print,
) -> Outcome:
    """Runs the tests of a cocotb module on a chip's board.

    Parameters
    ----------
    chip : ChipConfig
    test_module : str
        Its tests get the board's top, and make an :class:`~sim.rtl_device.RtlDevice` with
        :func:`chip_here`.
    seed : int
    options : dict
        For the module, as ``Environment.get().options``; what JSON can hold.
    quick, waves : bool
    build : Build or None
        Of the same chip; None to build it.
    hear : callable
        Gets every line of :func:`say` while the simulation runs.

    Raises
    ------
    SimulatorMissing, RuntimeError
        As of :func:`build_board`.
    """
    started = time.monotonic()
    built = build_board(chip, waves=waves) if build is None else build
    name = test_module.rpartition(".")[2]
    folder = run_folder(f"{name}-{chip.name}", seed)
    said = folder / _SAID
    said.touch()
    given = {**(options or {}), _CHIP: dataclasses.asdict(chip)}
    environment = Environment(chip.core, seed, quick, folder / REPORT, given)
    over = threading.Event()

    def listen() -> None:
        with said.open() as handle:
            last = False
            while not last:
                last = over.wait(0.2)
                while line := handle.readline():
                    hear(line.rstrip("\n"))

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        return simulate(built, test_module, environment, name=name, started=started)
    finally:
        over.set()
        listener.join()


def main(argv: list[str] | None = None) -> int:
    """The command; 0 if every test passed."""
    parser = argparse.ArgumentParser(prog="sim.board.launch", description=__doc__)
    parser.add_argument("module", help="of cocotb tests, as sim.benches.chip_registers")
    parser.add_argument("--config", default="tiny", choices=list(CHIPS))
    parser.add_argument("--options", default="{}", help="JSON object for the module")
    parser.add_argument("--seed", type=int, help="of all random choices; drawn and printed")
    parser.add_argument("--waves", action="store_true", help="write waves")
    arguments = parser.parse_args(argv)
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().getrandbits(24)
    try:
        options = json.loads(arguments.options)
        if not isinstance(options, dict):
            raise ValueError("--options must be a JSON object")
        outcome = run_module(
            CHIPS[arguments.config],
            arguments.module,
            seed=seed,
            options=options,
            waves=arguments.waves,
        )
    except (ValueError, RuntimeError, SimulatorMissing) as error:
        print(f"sim.board.launch: {error}", file=sys.stderr)
        return 2
    for part in outcome.parts:
        print(f"{part['part']}: {part['transactions']:,} in {part['cycles']:,} cycles")
    print(f"{outcome.seconds:.0f} s, seed {seed}: {outcome.error or 'ok'}")
    if not outcome.passed:
        print(f"log: {outcome.log}")
    if arguments.waves:
        print(f"waves: {Path(outcome.log).parent / WAVES_FILE}")
    return 0 if outcome.passed else 1


if __name__ == "__main__":
    sys.exit(main())
