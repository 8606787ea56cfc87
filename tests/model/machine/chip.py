"""A simulated chip with a random model, and layouts of keys and values written by hand.

Nothing here uses the simulator's own addresses or packing: places and bytes follow from
docs/chip.md and contract section 10, loop by loop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model.decoding.drafts.bs_spec import BsSpec
from model.decoding.loop import Options, Output, generate
from model.formats.commands import Region
from model.lm.cache import KVCache
from model.lm.config import ModelConfig
from model.lm.precision import Precision
from model.lm.random_model import TINY, random_checkpoint
from model.lm.stored import StoredModel, store
from model.machine.device import SimulatorDevice, finish
from model.machine.image import Image
from model.machine.jobs import autoregressive_word, precision_word
from model.machine.layout import STATIC
from model.machine.runtime import Generated, Host
from model.machine.shape import PRESETS, MachineShape
from model.machine.simulator import Simulator

#: One layer, so that a case takes a fraction of a second.
SMALL = dataclasses.replace(TINY, layers=1, ff_width=64, heads=2, kv_heads=1, max_positions=256)
#: Kinds of dynamic regions.
DYNAMIC = tuple(region for region in Region if region not in STATIC)
SEED = 20


def prompts_of(vocabulary: int, lengths: Sequence[int], seed: int = SEED) -> list[list[int]]:
    """Random prompts; the seed is printed."""
    print(f"seed {seed}")
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(vocabulary, (n,), generator=generator).tolist() for n in lengths]


@dataclass
class Chip:
    """A model, on a simulated chip."""

    model: StoredModel
    image: Image
    simulator: Simulator
    host: Host

    @staticmethod
    def of(
        config: ModelConfig = SMALL,
        *,
        shape: MachineShape = PRESETS["small"],
        capacity: int = 192,
        sequences: int = 2,
        p_full: int = 9,
        seed: int = SEED,
        base: int = 0,
        noise: int | None = None,
    ) -> Chip:
        """A chip with a random model; `noise` fills what is not part of the image."""
        model = store(random_checkpoint(config, seed), p_full=p_full)
        image = Image.build(model, shape, capacity=capacity, sequences=sequences, base=base)
        simulator = Simulator(shape, base + image.manifest.size)
        host = Host(SimulatorDevice(simulator), image.manifest)
        if noise is not None:
            generator = np.random.default_rng(noise)
            memory = simulator.machine.memory.data
            memory[:] = generator.integers(0, 256, len(memory), np.uint8)
            # Inf and NaN of either sign in every other pair of bytes.
            memory[1::4] = generator.choice(np.array([0x7F, 0xFF], np.uint8), len(memory[1::4]))
            memory[0::4] |= 0x80
        finish(host.load(image))
        return Chip(model, image, simulator, host)

    def bytes_of(self, region: Region) -> np.ndarray:
        """A view of a region's bytes."""
        extent = self.image.manifest.regions[region]
        data = self.simulator.machine.memory.data
        return data[extent.base : extent.base + extent.lines * 64]

    def run(
        self, prompts: Sequence[Sequence[int]], draft: str | None, gamma: int, options: Options
    ) -> Generated:
        """Greedy decoding, whole on the chip."""
        word = autoregressive_word(self.model.p_full)
        if draft is not None:
            word = precision_word(Precision.parse(draft), gamma)
        return finish(
            self.host.generate(
                prompts,
                max_new=options.max_new,
                word=word,
                end_ids=options.end_ids,
                rounds_a_job=3,
            )
        )

    def golden(
        self, prompts: Sequence[Sequence[int]], draft: str | None, options: Options
    ) -> tuple[BsSpec, Output]:
        """The same by `model.decoding`, on the exact path."""
        precision = None if draft is None else Precision.parse(draft)
        golden = BsSpec(self.model, precision, exact=True)
        golden.context = self.host.context
        return golden, generate(golden, prompts, options)

    def same(
        self, prompts: Sequence[Sequence[int]], draft: str | None, options: Options
    ) -> Generated:
        """Runs both, compares tokens, rounds, reasons and KV bytes, and returns the chip's."""
        golden, expected = self.golden(prompts, draft, options)
        found = self.run(prompts, draft, options.gamma, options)
        for mine, theirs in zip(found.sequences, expected.sequences, strict=True):
            assert mine.tokens == theirs.tokens
            assert mine.rounds == theirs.rounds
            assert mine.reason == theirs.reason
        assert self.compare_cache(golden.cache) > 0
        return found

    def compare_cache(self, cache: KVCache) -> int:
        """Compares every byte below the committed lengths; returns how many."""
        compared = 0
        for region, place, content in expected_bytes(self, cache):
            found = self.bytes_of(region)[place : place + len(content)].tobytes()
            assert found == content, (region.name, place)
            compared += len(content)
        return compared


def bits(values: Tensor) -> bytes:
    """64 bits, the first one lowest."""
    return sum(int(bit) << i for i, bit in enumerate(values.tolist())).to_bytes(8, "little")


def expected_bytes(chip: Chip, cache: KVCache) -> Iterator[tuple[Region, int, bytes]]:
    """(region, byte offset, bytes) of all that is defined of a cache."""
    config, p = chip.model.config, chip.model.p_full
    capacity, d = chip.image.manifest.capacity, config.head_width
    h_tiles, tile = d // 64, 64 + 512 * p
    per = 7
    for b, length in enumerate(cache.lengths):
        parts = cache.committed(b)
        for layer in range(config.layers):
            ve, vs, vm, ce, cs, cm, rows = parts[per * layer : per * (layer + 1)]
            for head in range(config.kv_heads):
                number = (b * config.layers + layer) * config.kv_heads + head
                for t in range(length):
                    for n in range(h_tiles):
                        place = ((number * h_tiles + n) * (capacity // 64) + t // 64) * tile
                        yield Region.VALUES, place + t % 64, bytes([int(ve[head, t, n])])
                        columns = slice(64 * n, 64 * n + 64)
                        sign, magnitude = vs[head, t, columns], vm[head, t, columns]
                        for plane in range(p):
                            plane_bits = sign if plane == 0 else magnitude >> (p - 1 - plane) & 1
                            offset = 64 + 512 * plane + 8 * (t % 64)
                            yield Region.VALUES, place + offset, bits(plane_bits)
                for block in range(length // 64):
                    content = bytearray(bytes(ce[head, block].tolist()))
                    for plane in range(p):
                        for channel in range(d):
                            sign, magnitude = cs[head, block, channel], cm[head, block, channel]
                            shift = p - 1 - plane
                            content += bits(sign if plane == 0 else magnitude >> shift & 1)
                    place = (number * (capacity // 64) + block) * h_tiles * tile
                    yield Region.KEYS, place, bytes(content)
                first = length // 64 * 64
                for i, row in enumerate(rows[head]):
                    place = (number * 128 + (first + i) % 128) * 2 * d
                    codes = row.view(torch.int16).numpy().astype("<i2")
                    yield Region.OPEN_KEYS, place, codes.tobytes()


def dead_bytes(chip: Chip, lengths: Sequence[int]) -> dict[Region, np.ndarray]:
    """Which bytes are at or beyond the committed lengths: a mask of each region."""
    config, p = chip.model.config, chip.model.p_full
    capacity, h_tiles = chip.image.manifest.capacity, config.head_width // 64
    blocks, heads = capacity // 64, config.layers * config.kv_heads
    tokens = np.arange(64)
    values = np.ones((len(lengths), heads, h_tiles, blocks, 64 + 512 * p), bool)
    keys = np.ones((len(lengths), heads, blocks, h_tiles * (64 + 512 * p)), bool)
    rows = np.ones((len(lengths), heads, 128, 2 * config.head_width), bool)
    for b, length in enumerate(lengths):
        for block in range(blocks):
            dead = tokens + 64 * block >= length
            values[b, :, :, block, :64] = dead
            values[b, :, :, block, 64:] = np.tile(dead.repeat(8), p)
        keys[b, :, : length // 64] = False
        for position in range(length // 64 * 64, length):
            rows[b, :, position % 128] = False
    return {
        Region.VALUES: values.reshape(-1),
        Region.KEYS: keys.reshape(-1),
        Region.OPEN_KEYS: rows.reshape(-1),
    }
