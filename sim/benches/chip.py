"""Bench of the whole chip: models on RTL and functional simulator, equal after every job."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import cocotb

from model.formats.commands import Region
from model.lm import smollm2
from model.lm.config import ModelConfig
from model.lm.precision import Precision
from model.lm.random_model import TINY, random_checkpoint
from model.lm.stored import store
from model.machine.encode import Segment
from model.machine.image import Image
from model.machine.jobs import autoregressive_word, precision_word
from model.machine.runtime import Host
from sim.board.board import BoardBehaviour
from sim.chips import chip_of
from sim.environment import Environment
from sim.pair import Pair, shape_of

#: One layer of one tile a side: a step takes some thousand cycles.
LEAST = dataclasses.replace(TINY, layers=1, ff_width=64, heads=1, kv_heads=1, max_positions=256)
#: What a model may have more of.
MODELS = {
    "least": LEAST,
    "layers": TINY,
    "norms": dataclasses.replace(
        LEAST, family="qwen3", heads=2, kv_heads=1, width=128, qk_norm=True
    ),
    "wide": dataclasses.replace(
        LEAST, width=576, ff_width=192, heads=2, kv_heads=2, vocabulary=200
    ),
    "heads": dataclasses.replace(LEAST, heads=2, kv_heads=1, head_width=128, tied=False),
}
#: Regions that a step reads, and those that it writes.
_READ = (
    *(Region.COMMANDS, Region.WEIGHTS, Region.EMBED, Region.NORM, Region.ROPE),
    *(Region.VALUES, Region.OPEN_KEYS, Region.TOKENS),
)
_WRITTEN = (Region.VALUES, Region.OPEN_KEYS, Region.TOKENS)
#: How memory may be.
MEMORIES = (
    BoardBehaviour(),
    BoardBehaviour(latency=(0, 40), stall=0.2, swap=0.3),
    BoardBehaviour(latency=(100, 300), late_writes=True, port_latency=(0, 50, 20, 90)),
    BoardBehaviour(latency=(10, 10), rate=5.0, slow=0.5, stalls={"b": 0.9, "r": 0.5}),
)


def precision_of(rng: random.Random) -> Precision:
    """A draft's."""
    return Precision.parse(
        "W{}{}KV{}{}".format(
            rng.randint(5, 8), rng.choice(("", "m")), rng.randint(5, 8), rng.choice(("", "m"))
        )
    )


async def begin(
    dut: Any, env: Environment, config: ModelConfig, *, p_full: int = 9, seed: int, sequences: int
) -> tuple[Pair, Host]:
    """A model on both."""
    chip = chip_of(env.config)
    shape = shape_of(chip)
    model = store(random_checkpoint(config, seed), p_full=p_full)
    image = Image.build(
        model, shape, capacity=192, sequences=min(sequences, shape.sequences), base=4096
    )
    pair = await Pair.start(dut, chip, image, seed=seed)
    pair.rtl.limit = 4_000_000
    return pair, Host(pair, image.manifest)


def prompts_of(rng: random.Random, vocabulary: int, lengths: list[int]) -> list[list[int]]:
    """Random tokens."""
    return [[rng.randrange(vocabulary) for _ in range(n)] for n in lengths]


def report(env: Environment, part: str, pair: Pair, seed: int, measured: str = "") -> None:
    """Registers that were compared, a transaction each."""
    env.report(
        part,
        transactions=pair.registers,
        cycles=pair.rtl.cycles,
        seed=seed,
        measured=measured or f"{pair.jobs} jobs, {pair.bytes:,} bytes of memory compared",
    )


@cocotb.test()
async def decoding(dut: object) -> None:
    """Prompts and rounds of greedy decoding, of every kind of model, in any memory."""
    env = Environment.get()
    names = list(MODELS) if not env.quick else ["least", "norms"]
    if env.config.t_m < 3:
        names = [name for name in names if name != "norms"] + ["norms"]
    for number, name in enumerate(names):
        seed = env.seed + number
        rng = random.Random(seed)
        config = MODELS[name]
        p_full = 9 if number % 3 != 2 else rng.choice((12, 16))
        pair, host = await begin(dut, env, config, p_full=p_full, seed=seed, sequences=4)
        pair.rtl.behaviour(MEMORIES[(number + seed) % len(MEMORIES)], seed=seed)
        batch = rng.randint(1, host.manifest.sequences)
        prompts = prompts_of(rng, config.vocabulary, [rng.randint(1, 9) for _ in range(batch)])
        draft = precision_of(rng)
        word = precision_word(draft, rng.randint(1, 7))
        await host.generate(prompts, max_new=env.scale(4, 8), word=word, rounds_a_job=2)
        report(env, f"decoding {name} p{p_full} {draft} batch {batch}", pair, seed)


@cocotb.test()
async def block_ends(dut: object) -> None:
    """Drafts and verifications across the end of a block, at every offset; then other tokens."""
    env = Environment.get()
    seed = env.seed
    rng = random.Random(seed)
    pair, host = await begin(dut, env, LEAST, seed=seed, sequences=1)
    rows = env.config.t_m
    (prompt,) = prompts_of(rng, LEAST.vocabulary, [127])
    await host.prefill([prompt])
    # All rows in the block's end, and some behind it.
    for start in range(64 - rows, 65) if not env.quick else (64 - rows, 64 - rows // 2):
        draft = precision_of(rng)
        # As a draft, with other tokens, as a verification.
        await host.put_tokens(0, start, prompts_of(rng, LEAST.vocabulary, [rows])[0])
        for row in range(rows):
            await host.logits([Segment(0, start + row, 1)], draft)
        await host.put_tokens(0, start, prompts_of(rng, LEAST.vocabulary, [rows])[0])
        await host.logits([Segment(0, start, rows)])
    word = precision_word(precision_of(rng), 7)
    await host.prefill([prompt[:62]])
    await host.generate([prompt[:61]], max_new=env.scale(4, 10), word=word)
    await host.generate([prompt[:125]], max_new=env.scale(3, 8), word=autoregressive_word(9))
    report(env, "block ends", pair, seed)


@cocotb.test()
async def real_layer(dut: object) -> None:
    """The first layer of SmolLM2-135M, as a draft and as a verification."""
    env = Environment.get()
    if env.quick or env.config.t_m < 8:
        return
    checkpoint = smollm2.load()[0]
    config = dataclasses.replace(checkpoint.config, layers=1)
    layer = dataclasses.replace(checkpoint, config=config, blocks=checkpoint.blocks[:1])
    chip = chip_of(env.config)
    image = Image.build(store(layer), shape_of(chip), capacity=128, sequences=1, base=4096)
    pair = await Pair.start(dut, chip, image, seed=env.seed)
    pair.rtl.limit = 4_000_000
    host = Host(pair, image.manifest)
    rng = random.Random(env.seed)
    rows = env.config.t_m
    await host.put_tokens(0, 0, prompts_of(rng, config.vocabulary, [2 * rows])[0])
    measured = []
    for start, count, draft in (
        (0, rows, None),
        (rows, 1, Precision.parse("W6KV6")),
        (rows, rows, None),
    ):
        before = await pair.rtl.read_register("CYCLES")
        busy = await pair.rtl.read_register("ARRAY_BUSY")
        await host.logits([Segment(0, start, count)], draft, head=False)
        cycles = await pair.rtl.read_register("CYCLES") - before
        busy = await pair.rtl.read_register("ARRAY_BUSY") - busy
        name = "verify" if draft is None else str(draft)
        measured.append(f"{name} of {count} rows {cycles:,} cycles, array busy {busy / cycles:.1%}")
    report(env, "real layer", pair, env.seed, "; ".join(measured))
