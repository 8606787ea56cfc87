"""Bench of a long linear layer: how much of memory's rate is used, and what latency is hidden."""

from __future__ import annotations

import dataclasses
from typing import Any

import cocotb

from hw.chip_config import PLANE_LINES, ChipConfig
from model.formats.commands import LINE_BYTES, Opcode, pack
from model.formats.constants import TILE_K
from model.lm.config import ModelConfig
from model.lm.precision import Precision
from model.lm.random_model import TINY, random_checkpoint
from model.lm.stored import store
from model.machine.encode import Segment, model_command
from model.machine.image import Image
from model.machine.jobs import rows_commands
from model.machine.runtime import Host
from sim.board.board import BoardBehaviour
from sim.board.launch import chip_here, say
from sim.cycles import STALLS
from sim.environment import Environment
from sim.harness import MismatchError
from sim.pair import Pair, shape_of

#: Part of what memory offers that must be used; part of the array's best that it must be busy.
DMA_LEAST, BUSY_LEAST = 0.95, 0.97
#: Lines of the step: the embedding and its norm; the gate and up matrix of the only layer.
_NORMED, _MATRIX = (0, 2), (7, 1)
#: Inputs of the matrix, and its outputs: on ``paper`` those of an 8B model, and a part of them.
SIZES = {"tiny": (512, 256), "small": (1024, 2048), "paper": (4096, 1024)}
LATENCIES = (30, 100, 200, 400, 800)


def wide(chip: ChipConfig) -> ModelConfig:
    """A model of one layer with this matrix."""
    inputs, outputs = SIZES[chip.core.name]
    return dataclasses.replace(
        TINY, layers=1, width=inputs, ff_width=outputs // 2, heads=1, kv_heads=1, vocabulary=64
    )


@cocotb.test()
async def rates(dut: Any) -> None:
    """The matrix at several precisions, then at several latencies."""
    env = Environment.get()
    chip = chip_here(env)
    config = wide(chip)
    image = Image.build(
        store(random_checkpoint(config, env.seed)), shape_of(chip), capacity=64, sequences=1
    )
    pair = await Pair.start(dut, chip, image, seed=env.seed)
    pair.rtl.limit = 4_000_000
    host = Host(pair, image.manifest)
    await host.put_tokens(0, 0, [1])
    tiles = config.width // TILE_K * 2 * config.ff_width // TILE_K
    offered = chip.ports * chip.port_bits // 8
    said = []
    cases = [(p, LATENCIES[0]) for p in ((9, 5) if env.quick else (9, 8, 7, 6, 5))]
    cases += [(9, latency) for latency in LATENCIES[1:] if not env.quick]
    for p, latency in cases:
        pair.rtl.behaviour(BoardBehaviour(latency=(latency, latency)), seed=env.seed)
        precision = None if p == 9 else Precision.of(p, p)
        before = await host.counters()
        calls = [pack(Opcode.CALL, {"list": a, "count": n}) for a, n in (_NORMED, _MATRIX)]
        rows = rows_commands([Segment(0, 0, 1)], precision)
        await host.run([model_command(image.manifest), *rows, *calls, pack(Opcode.HALT, {})])
        after = await host.counters()
        events = {k: after.events[v] - before.events[v] for k, v in STALLS.items()}
        # From the time the first plane is due, so the wait for it counts.
        cycles = sum(events.values())
        moved = tiles * (1 + PLANE_LINES * p) * LINE_BYTES / cycles
        busy = events["busy"] / cycles
        if events["busy"] != tiles * p * chip.core.fold:
            raise MismatchError(f"{events['busy']} planes are read, not {tiles * p}")
        # A plane of 512 bytes every `fold` cycles, and its part of the exponents.
        best = min(1.0, offered * chip.core.fold / (PLANE_LINES * LINE_BYTES + LINE_BYTES / p))
        text = (
            f"p {p}, latency {latency}: array busy {busy:.1%} of {cycles:,} cycles, "
            f"{busy / best:.1%} of its best; {moved:.1f} of {offered} bytes a cycle "
            f"({moved / offered:.1%}); stalled on memory {events['memory'] / cycles:.1%}"
        )
        say(text)
        said.append(text)
        if latency == LATENCIES[0]:
            if busy < BUSY_LEAST * best:
                raise MismatchError(
                    f"the array is busy less than {BUSY_LEAST:.0%} of its best: {text}"
                )
            if best < 1 and moved < DMA_LEAST * offered:
                raise MismatchError(f"less than {DMA_LEAST:.0%} of memory's rate is used: {text}")
    env.report(
        "rates",
        transactions=pair.registers,
        cycles=pair.rtl.cycles,
        seed=env.seed,
        measured="\n".join(said),
    )
