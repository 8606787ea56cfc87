"""Tokens, drafts, logits and bytes of the simulated chip equal those of `model.decoding`."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

from model.calibration.plt import Entry, Plt
from model.decoding.drafts.bs_spec import AutoBsSpec, BsSpec
from model.decoding.loop import CONTEXT, END, LIMIT, Options, generate
from model.decoding.sampling import Sampling
from model.formats.commands import Region
from model.lm.config import ModelConfig
from model.lm.precision import Precision
from model.lm.random_model import TINY
from model.machine.device import finish
from model.machine.draft import MachineDraft
from model.machine.jobs import Live, precision_word
from model.machine.runtime import as_round
from model.machine.shape import PRESETS, MachineShape
from model.verification.wrappers import Wrapped
from tests.model.machine.chip import SEED, SMALL, Chip, dead_bytes, prompts_of

QWEN = dataclasses.replace(SMALL, family="qwen3", qk_norm=True)

SHAPES: dict[str, tuple[ModelConfig, dict[str, int]]] = {
    "tiny": (TINY, {}),
    "group-3": (dataclasses.replace(SMALL, heads=6, kv_heads=2), {}),
    "group-4": (dataclasses.replace(SMALL, heads=4, kv_heads=1), {}),
    "wide-heads": (dataclasses.replace(SMALL, heads=2, kv_heads=2, head_width=128), {}),
    "qk-norm": (dataclasses.replace(QWEN, tied=False, heads=3, kv_heads=3), {}),
    "qk-norm-wide": (dataclasses.replace(QWEN, head_width=128, width=128, vocabulary=192), {}),
    "nine-k-tiles": (dataclasses.replace(SMALL, ff_width=576), {}),
    "ten-k-tiles": (dataclasses.replace(SMALL, width=640, ff_width=640), {}),
    "bfp16": (SMALL, {"p_full": 16}),
    "bfp12-wide": (dataclasses.replace(SMALL, head_width=128), {"p_full": 12}),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str) -> None:
    config, more = SHAPES[name]
    chip = Chip.of(config, noise=SEED, **more)
    prompts = prompts_of(config.vocabulary, (59, 23))
    draft = "W8mKV10" if more else "W6KV7m"
    found = chip.same(prompts, draft, Options(gamma=3, max_new=12))
    drafted = sum(len(r.drafted) for text in found.sequences for r in text.rounds)
    assert drafted > 0
    assert chip.run(prompts, None, 0, Options(max_new=12)).sequences[0].tokens == (
        found.sequences[0].tokens
    )


@pytest.mark.parametrize("shape", [*PRESETS.values()], ids=PRESETS)
def test_presets(shape: MachineShape) -> None:
    """T_M changes nothing that is drafted while gamma fits, and passes of a segment nothing."""
    chip = Chip.of(TINY, shape=shape)
    chip.same(prompts_of(97, (61,)), "W5KV5", Options(gamma=min(shape.t_m - 1, 6), max_new=10))


def test_block_ends_at_every_offset_of_a_verification() -> None:
    """Rejected before, at and after the end of a block; closed again with other tokens."""
    chip = Chip.of(noise=SEED)
    met: set[tuple[int, str]] = set()
    for length in range(56, 64):
        for seed in (SEED, SEED + 1):
            prompts = prompts_of(97, (length, 129 - length), seed)
            found = chip.same(prompts, "W5KV5", Options(gamma=3, max_new=10))
            for text in found.sequences:
                for r in text.rounds:
                    last = r.length + len(r.drafted)
                    if r.length // 64 == last // 64:
                        continue
                    offset = 63 - r.length % 64
                    if r.accepted == len(r.drafted):
                        met.add((offset, "none"))
                    else:
                        # The first rejected token stands in row accepted + 1.
                        row = r.accepted + 1
                        met.add((offset, "before" if row < offset else "at" if row == offset else
                                 "after"))  # fmt: skip
    assert {offset for offset, _ in met} == {0, 1, 2}
    assert {kind for _, kind in met} == {"before", "at", "after", "none"}


def test_bytes_beyond_the_length_change_nothing() -> None:
    """Before every round all dead bytes are drawn anew, Inf and NaN among them."""
    generator = np.random.default_rng(SEED)
    chip = Chip.of(dataclasses.replace(SMALL, heads=2, kv_heads=2))
    prompts = prompts_of(97, (60, 118))
    options = Options(gamma=3, max_new=14)
    golden, expected = chip.golden(prompts, "W6KV5", options)
    lengths = [len(prompt) for prompt in prompts]
    first = finish(chip.host.prefill(prompts))
    tokens = [[token] for token in first]
    rounds: list[list] = [[], []]
    word = precision_word(Precision.parse("W6KV5"), 3)
    while live := [b for b in range(2) if len(tokens[b]) < options.max_new]:
        for region, mask in dead_bytes(chip, lengths).items():
            noise = generator.integers(0, 256, mask.sum(), np.uint8)
            noise[generator.random(len(noise)) < 0.3] = 0xFF
            chip.bytes_of(region)[: len(mask)][mask] = noise
        states = [Live(b, lengths[b], len(prompts[b]) + options.max_new) for b in live]
        for entry in finish(chip.host.rounds(states, 1, word=word)):
            done = as_round(entry)
            rounds[done.sequence].append(done)
            tokens[done.sequence] += done.emitted
            lengths[done.sequence] += done.accepted + 1
    assert tokens == [text.tokens for text in expected.sequences]
    assert rounds == [text.rounds for text in expected.sequences]
    assert lengths == golden.lengths
    assert chip.compare_cache(golden.cache) > 0


@pytest.mark.parametrize(("config", "draft"), [(SMALL, "W9KV9"), (QWEN, "W9mKV9m")])
def test_all_bits_are_all_accepted(config: ModelConfig, draft: str) -> None:
    """A midpoint at full precision is the exact value: the bit must not reach the core."""
    found = Chip.of(config).same(prompts_of(97, (62,)), draft, Options(gamma=7, max_new=17))
    assert all(r.accepted == len(r.drafted) for r in found.sequences[0].rounds)


def test_ends() -> None:
    """An end-of-text id, also inside a round; the limit; the context; ragged ends in a batch."""
    chip = Chip.of(capacity=128)
    prompts = prompts_of(97, (116, 20))
    _, plain = chip.golden(prompts, None, Options(max_new=12))
    reasons = set()
    for max_new in (1, 2, 11, 40):
        found = chip.same(prompts, "W7KV7", Options(gamma=3, max_new=max_new))
        reasons |= {text.reason for text in found.sequences}
    for place in (0, 2, 3, 5):
        end = plain.sequences[0].tokens[place]
        ids = (95, 96, 94, end) if place % 2 else (end,)
        found = chip.same(prompts, "W7KV7", Options(gamma=3, max_new=12, end_ids=ids))
        assert found.sequences[0].reason == END
    assert reasons == {LIMIT, CONTEXT}


def test_context_of_the_model() -> None:
    config = dataclasses.replace(SMALL, max_positions=70)
    chip = Chip.of(config, capacity=128)
    found = chip.same(prompts_of(97, (61, 70)), "W6KV6", Options(gamma=3, max_new=99))
    assert [text.reason for text in found.sequences] == [CONTEXT, CONTEXT]


def test_lookup_table() -> None:
    chip = Chip.of()
    entries = [Entry(5 + i % 4, 9 - i % 4, 1 + i % 3, i % 2 == 1) for i in range(16)]
    table = Plt(tuple(entries))
    finish(chip.host.load_table(table.image()))
    prompts = prompts_of(97, (50, 33))
    options = Options(max_new=10)
    expected = generate(AutoBsSpec(chip.model, table.choose, exact=True), prompts, options)
    found = finish(chip.host.generate(prompts, max_new=10))
    assert [t.rounds for t in found.sequences] == [t.rounds for t in expected.sequences]
    assert {entry.words["word"] for entry in found.entries} == {entries[0].word}


class Logits(Wrapped):
    """Notes the logits of all passes."""

    def start(self, batch: int, capacity: int) -> None:
        self.seen: list[Tensor] = []
        super().start(batch, capacity)

    def verify(self, tokens, *, last_only=False):  # type: ignore[no-untyped-def]
        found = super().verify(tokens, last_only=last_only)
        self.seen += found
        return found

    def draft(self, tokens):  # type: ignore[no-untyped-def]
        found = super().draft(tokens)
        self.seen += found
        return found


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("config", [SMALL, dataclasses.replace(QWEN, tied=False, vocabulary=128)])
def test_logits(config: ModelConfig, temperature: float) -> None:
    """The host accepts: logits of every draft and verification, bit for bit."""
    chip = Chip.of(config, noise=SEED)
    prompts = prompts_of(config.vocabulary, (58, 12))
    sampling = Sampling(temperature=temperature)
    options = Options(gamma=5, max_new=10, sampling=sampling, seed=SEED)
    precision = Precision.parse("W6mKV6")
    golden = Logits(BsSpec(chip.model, precision, exact=True))
    machine = Logits(MachineDraft(chip.host, precision))
    expected, found = generate(golden, prompts, options), generate(machine, prompts, options)
    assert [t.rounds for t in found.sequences] == [t.rounds for t in expected.sequences]
    assert len(machine.seen) == len(golden.seen) > 10
    for mine, theirs in zip(machine.seen, golden.seen, strict=True):
        assert torch.equal(mine.view(torch.int32), theirs.view(torch.int32))


def test_regions_elsewhere_and_nothing_outside_them() -> None:
    """Memory before the image stays as it is, and so does the padding behind each region."""
    chip = Chip.of(base=3 * 4096, noise=SEED)
    memory = chip.simulator.machine.memory.data
    inside = np.zeros(len(memory), bool)
    for extent in chip.image.manifest.regions.values():
        inside[extent.base : extent.base + extent.lines * 64] = True
    before = memory.copy()
    chip.same(prompts_of(97, (60, 9)), "W6KV6", Options(gamma=3, max_new=9))
    assert np.array_equal(memory[~inside], before[~inside])
    for region in (Region.WEIGHTS, Region.EMBED, Region.NORM, Region.ROPE):
        assert np.array_equal(chip.bytes_of(region), chip.image.region(region))
