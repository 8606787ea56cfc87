"""A language model on the RTL: every round beside the functional simulator, tokens as expected."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import cocotb
import numpy as np

from model.decoding.loop import Round
from model.formats.commands import OPEN_ROWS, Region
from model.formats.constants import TILE_K
from model.formats.registers import EVENTS, TRAFFIC
from model.machine.image import Image
from model.machine.runtime import Generated, Host
from sim.board.launch import chip_here, say
from sim.environment import Environment
from sim.harness import MismatchError
from sim.pair import Pair, shape_of


def source_of(name: str) -> Any:
    """A model's stored bits, by name: "pydoc_llama", "smollm2" or a folder."""
    from model.lm.checkpoint import load
    from model.lm.stored import store
    from model.pydoc_llama import load as load_own

    return store(load_own() if name == "pydoc_llama" else load(name)[0])


def plant(pair: Pair, length: int, sequence: int, rng: np.random.Generator) -> int:
    """Writes random bytes over all keys and values of positions from ``length`` on; how many."""
    manifest = pair.manifest
    tile = manifest.tile_lines * 64
    tiles = manifest.capacity // TILE_K
    block = manifest.head_tiles * tile
    places: list[tuple[int, int]] = []

    def add(region: Region, offset: int, count: int) -> None:
        places.append((manifest.regions[region].base + offset, count))

    done, row = divmod(length, TILE_K)
    for layer in range(manifest.config.layers):
        for head in range(manifest.config.kv_heads):
            keys = 64 * (
                sequence * manifest.key_sequence
                + layer * manifest.key_layer
                + head * manifest.key_head
            )
            add(Region.KEYS, keys + done * block, (tiles - done) * block)
            for channels in range(manifest.head_tiles):
                values = 64 * (
                    sequence * manifest.value_sequence
                    + layer * manifest.value_layer
                    + head * manifest.value_head
                    + channels * manifest.value_channels
                )
                own = values + done * tile
                add(Region.VALUES, own + tile, (tiles - done - 1) * tile)
                if done < tiles:
                    add(Region.VALUES, own + row, TILE_K - row)
                    for plane in range((tile - TILE_K) // (8 * TILE_K)):
                        first = own + TILE_K + plane * 8 * TILE_K
                        add(Region.VALUES, first + 8 * row, 8 * (TILE_K - row))
            bytes_a_row = 128 * manifest.head_tiles
            rows = 64 * (sequence * manifest.open_sequence + layer * manifest.open_layer)
            rows += head * OPEN_ROWS * bytes_a_row
            for position in range(length, (done + 2) * TILE_K):
                add(Region.OPEN_KEYS, rows + position % OPEN_ROWS * bytes_a_row, bytes_a_row)
    total = 0
    for start, count in places:
        noise = rng.integers(0, 256, max(0, count), np.uint8)
        for memory in pair.memory:
            memory[start : start + len(noise)] = noise
        total += len(noise)
    return total


class Watcher:
    """Says what each round did, and plants noise behind what is committed."""

    def __init__(self, pair: Pair, seed: int) -> None:
        self.pair, self.rng = pair, np.random.default_rng(seed)
        self.cycles = pair.rtl.cycles
        self.first = self.cycles
        self.started = time.monotonic()
        self.planted = 0
        self.tokens = 0
        self.rounds: list[int] = []

    def __call__(self, sequence: int, tokens: Sequence[int], round_: Round | None) -> None:
        now = self.pair.rtl.cycles
        spent, self.cycles = now - self.cycles, now
        self.tokens += len(tokens)
        a_second = (now - self.first) / max(time.monotonic() - self.started, 1e-3)
        if round_ is None:
            say(f"prompt: {spent:,} cycles, {a_second:,.0f} a second; first token {tokens[0]}")
            return
        self.rounds.append(spent)
        say(
            f"round {len(self.rounds)}: {len(round_.drafted)} drafted, {round_.accepted} accepted,"
            f" {len(tokens)} new, {self.tokens} in all; {spent:,} cycles"
        )
        self.planted += plant(self.pair, round_.length + round_.accepted + 1, sequence, self.rng)


async def run(pair: Pair, host: Host, options: dict[str, Any], watcher: Watcher) -> Generated:
    """Decodes the prompt with the table, or the word, of the options."""
    if options["table"]:
        await host.load_table(bytes.fromhex(options["table"]))

    def progress(cycles: int, line: int) -> None:
        say(f"  {cycles:,} cycles in this job, at command {line}")

    pair.rtl.progress, pair.rtl.seconds = progress, 60.0
    return await host.generate(
        [options["prompt"]], max_new=options["max_new"], word=options["word"], listener=watcher
    )


@cocotb.test()
async def decode(dut: object) -> None:
    """One prompt to its end."""
    env = Environment.get()
    options = env.options
    chip = chip_here(env)
    image = Image.build(
        source_of(options["model"]), shape_of(chip), capacity=options["capacity"], sequences=1
    )
    pair = await Pair.start(dut, chip, image, seed=env.seed)
    host = Host(pair, image.manifest)
    watcher = Watcher(pair, env.seed)
    found = (await run(pair, host, options, watcher)).sequences[0]
    if found.tokens != options["expected"]:
        raise MismatchError(f"tokens are {found.tokens}, not {options['expected']}")
    rounds = [[list(r.drafted), r.accepted] for r in found.rounds]
    if options["rounds"] is not None and rounds != options["rounds"]:
        raise MismatchError("the rounds are not those of the golden model")
    counters = {name: await pair.rtl.read_register(name) for name in (*TRAFFIC, *EVENTS)}
    counters["READ_PLANES"] = sum(
        [await pair.rtl.read_register("READ_PLANES", p) for p in range(16)]
    )
    measured = {
        "counters": counters,
        "cycles_a_round": watcher.rounds,
        "planted": watcher.planted,
        "jobs": pair.jobs,
        "compared": pair.bytes,
    }
    env.report(
        "decode",
        transactions=pair.registers,
        cycles=pair.rtl.cycles,
        seed=env.seed,
        measured=json.dumps(measured),
    )
