"""Bench of the cycle model: whole decode and verify steps, on it and on the RTL."""

from __future__ import annotations

import dataclasses
import random
from functools import partial
from typing import Any

import cocotb

from model.formats.commands import Opcode, pack
from model.lm import smollm2
from model.lm.precision import Precision
from model.lm.random_model import random_checkpoint
from model.lm.stored import StoredModel, store
from model.machine.encode import Segment, model_command, step_lines
from model.machine.image import Image
from model.machine.jobs import rows_commands
from model.machine.runtime import Host
from model.pydoc_llama import load as load_own
from sim.benches.chip import MODELS
from sim.board.board import BoardBehaviour
from sim.board.launch import chip_here, say
from sim.cycles import STALLS, TimedDevice
from sim.environment import Environment
from sim.harness import MismatchError
from sim.pair import Pair, shape_of

#: How far the model may be from the RTL.
TOLERANCE = 0.02
#: Committed tokens: a closed block, and an open one.
LENGTH = 100
#: Cycles of the memory's latency.
LATENCY = 30


def model_of(name: str, seed: int) -> StoredModel:
    """A model's stored bits: "pydoc_llama", "smollm2/2" for two of its layers and its head, or a
    random one with norms of queries and keys, and twelve planes."""
    name, _, layers = name.partition("/")
    if name == "pydoc_llama":
        return store(load_own())
    if name == "smollm2":
        whole = smollm2.load()[0]
        config = dataclasses.replace(whole.config, layers=int(layers))
        return store(dataclasses.replace(whole, config=config, blocks=whole.blocks[: int(layers)]))
    return store(random_checkpoint(MODELS[name], seed), p_full=12)


async def compare(dut: Any, env: Environment, name: str, options: dict[str, Any]) -> str:
    """Steps of a model; what was measured.

    Raises
    ------
    MismatchError
        If cycles differ by more than the tolerance.
    """
    chip = chip_here(env)
    latency = options.get("latency", LATENCY)
    length = options.get("length", LENGTH)
    image = Image.build(model_of(name, env.seed), shape_of(chip), capacity=192, sequences=1)
    as_device = partial(TimedDevice, chip=chip, latency=latency)
    pair = await Pair.start(dut, chip, image, seed=env.seed, as_device=as_device)
    assert isinstance(pair.device, TimedDevice)
    pair.rtl.limit = 40_000_000
    pair.rtl.behaviour(BoardBehaviour(latency=(latency, latency)), seed=env.seed)
    host = Host(pair, image.manifest)
    rng = random.Random(env.seed)
    rows = min(chip.core.t_m, options.get("rows", 8))
    tokens = [rng.randrange(image.manifest.config.vocabulary) for _ in range(length + rows)]
    pair.device.timed = False
    await host.prefill([tokens[:length]])
    await host.put_tokens(0, length, tokens[length:])
    pair.device.timed = True

    lines = step_lines(image.manifest)
    said = []
    for what, count, precision in (
        ("decode", 1, None),
        ("draft", 1, Precision.parse("W6KV6")),
        ("verify", rows, None),
    ):
        before = await host.counters()
        model_before = pair.device.model.parts.stalls
        await host.run(
            [
                model_command(image.manifest),
                *rows_commands([Segment(0, length, count)], precision),
                pack(Opcode.CALL, {"list": lines.whole[0], "count": lines.whole[1]}),
                pack(Opcode.HALT, {}),
            ]
        )
        after = await host.counters()
        cycles = after.events["CYCLES"] - before.events["CYCLES"]
        modelled = pair.device.jobs[-1]
        shares = [
            f"{field} {100 * (after.events[event] - before.events[event]) / cycles:.1f} / "
            f"{100 * (now - then) / modelled:.1f}"
            for (field, event), now, then in zip(
                STALLS.items(),
                dataclasses.astuple(pair.device.model.parts.stalls),
                dataclasses.astuple(model_before),
                strict=True,
            )
        ]
        difference = modelled / cycles - 1
        said.append(f"{what} {cycles:,} {difference:+.2%}")
        say(
            f"{name}: {what} of {count} rows, {cycles:,} cycles, model {modelled:,} "
            f"({difference:+.2%}); % of cycles, RTL / model: {', '.join(shares)}"
        )
        if abs(difference) > TOLERANCE:
            raise MismatchError(
                f"{name}: {what} takes {cycles:,} cycles, and {modelled:,} by the model, "
                f"more than {TOLERANCE:.0%} apart"
            )
    env.report(
        f"cycles {name}",
        transactions=pair.registers,
        cycles=pair.rtl.cycles,
        seed=env.seed,
        measured=f"cycles, and how far the model is: {'; '.join(said)}",
    )
    return "; ".join(said)


@cocotb.test()
async def steps(dut: Any) -> None:
    """Decode, draft and verify steps of two models, memory of a fixed latency."""
    env = Environment.get()
    second = "norms" if env.config.t_m < 8 else "smollm2/2"
    models = env.options.get("models", ["pydoc_llama", second])
    for name in models[:1] if env.quick else models:
        await compare(dut, env, name, env.options)
