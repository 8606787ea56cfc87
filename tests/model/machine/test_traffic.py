"""Bytes by class, recounted from docs/chip.md without the simulator's own sums."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

import pytest

from model.lm.config import ModelConfig
from model.lm.precision import Precision
from model.lm.random_model import TINY
from model.machine.device import finish
from model.machine.jobs import chunks, precision_word
from model.machine.runtime import as_round
from tests.model.machine.chip import SMALL, Chip, prompts_of

WIDE = dataclasses.replace(
    SMALL, family="qwen3", qk_norm=True, heads=6, kv_heads=2, head_width=128, vocabulary=130
)
#: Rows of a step: (first position, rows) of each sequence.
Rows = Sequence[tuple[int, int]]


class Ledger:
    """Counts what steps move."""

    def __init__(self, config: ModelConfig, t_m: int, p_full: int) -> None:
        self.config, self.t_m, self.p_full = config, t_m, p_full
        self.bytes: Counter[str] = Counter()

    def matrices(self) -> list[tuple[int, int]]:
        """Tiles of each matrix of a layer."""
        config = self.config
        wide, d = config.heads * config.head_width // 64, config.width // 64
        kv, ff = config.kv_heads * config.head_width // 64, config.ff_width // 64
        return [(d, wide + 2 * kv), (wide, d), (d, 2 * ff), (ff, d)]

    def weights(self, tiles: int, p: int) -> None:
        self.bytes["READ_EXPONENTS"] += 64 * tiles
        for plane in range(p):
            self.bytes[f"plane {plane}"] += 512 * tiles

    def layers(self, rows: Rows, p_w: int, p_kv: int) -> None:
        """The embedding and all layers."""
        config, d_h = self.config, self.config.head_width
        count = sum(n for _, n in rows)
        self.bytes["READ_EMBED"] += count * 2 * config.width
        for _ in range(config.layers):
            for k, n in self.matrices():
                self.weights(k * n, p_w)
            self.bytes["READ_NORM"] += 4 * config.width
            if config.qk_norm:
                self.bytes["READ_NORM"] += 2 * d_h * (config.heads + config.kv_heads)
            self.bytes["READ_ROPE"] += count * 2 * d_h
            for start, n in rows:
                for _ in range(config.kv_heads):
                    self.head(start, n, p_kv)

    def head(self, start: int, count: int, p: int) -> None:
        """A KV head: what is written, then the passes."""
        d_h, full = self.config.head_width, self.p_full
        self.bytes["WRITE_OPEN_KEYS"] += count * 2 * d_h
        self.bytes["WRITE_VALUES"] += count * d_h // 64 * (1 + 8 * full)
        for position in range(start, start + count):
            if position % 64 == 63:
                self.bytes["READ_OPEN_KEYS"] += 64 * 2 * d_h
                self.bytes["WRITE_KEYS"] += d_h // 64 * (64 + 512 * full)
        width = self.t_m // (self.config.heads // self.config.kv_heads)
        tile = d_h // 64 * (64 + 512 * p)
        for first in range(start, start + count, width):
            positions = range(first, min(first + width, start + count))
            own = {position // 64 for position in positions}
            for block in range(max(own) + 1):
                self.bytes["READ_VALUES"] += tile
                if any(position // 64 > block for position in positions):
                    self.bytes["READ_KEYS"] += tile
                if block in own:
                    seen = [t for t in range(64 * block, 64 * block + 64) if t <= positions[-1]]
                    self.bytes["READ_OPEN_KEYS"] += len(seen) * 2 * d_h

    def top(self, p_w: int) -> None:
        """The last norm and the head."""
        self.bytes["READ_NORM"] += 2 * self.config.width
        self.weights(self.config.width // 64 * -(-self.config.vocabulary // 64), p_w)


@pytest.mark.parametrize("config", [TINY, WIDE], ids=["tiny", "wide"])
def test_bytes_of_greedy_decoding(config: ModelConfig) -> None:
    chip = Chip.of(config)
    prompts = prompts_of(config.vocabulary, (57, 70))
    ledger = Ledger(config, 8, 9)
    for segments, final in chunks(8, {b: (0, len(prompt)) for b, prompt in enumerate(prompts)}):
        ledger.layers([(s.start, s.rows) for s in segments], 9, 9)
        for s in segments:
            first, last = s.start // 16, (s.start + s.rows - 1) // 16
            ledger.bytes["READ_TOKENS"] += 64 * (last - first + 1)
        if final:
            ledger.top(9)
            ledger.bytes["WRITE_TOKENS"] += 4 * len(segments)
    word = precision_word(Precision.parse("W6mKV5"), 3)
    found = finish(chip.host.generate(prompts, max_new=14, word=word))
    rounds: list[list] = []
    for entry in found.entries:  # one round a job: each begins with sequence 0 or the only one
        done = as_round(entry)
        if not rounds or done.sequence <= rounds[-1][-1].sequence:
            rounds.append([])
        rounds[-1].append(done)
    for each in rounds:
        ledger.bytes["READ_TOKENS"] += 64 * len(each)
        for step in range(max(len(r.drafted) for r in each)):
            ledger.layers([(r.length + step, 1) for r in each if step < len(r.drafted)], 6, 5)
            ledger.top(6)
        ledger.layers([(r.length, len(r.drafted) + 1) for r in each], 9, 9)
        ledger.top(9)
        ledger.bytes["WRITE_TOKENS"] += sum(4 * (r.accepted + 1) for r in each)
        ledger.bytes["WRITE_TRACE"] += 256 * len(each)
    counters = finish(chip.host.counters(clear=True))
    for name, count in counters.traffic.items():
        if name != "READ_COMMANDS":
            assert count == ledger.bytes[name], name
    for plane, count in enumerate(counters.planes):
        assert count == ledger.bytes[f"plane {plane}"], plane
    assert counters.events["ROUNDS"] == len(rounds)
    flat = [r for each in rounds for r in each]
    assert counters.events["DRAFTED"] == sum(len(r.drafted) for r in flat)
    assert counters.events["ACCEPTED"] == sum(r.accepted for r in flat)
    steps = sum(1 + max(len(r.drafted) for r in each) for each in rounds)
    assert counters.events["STEPS"] == steps
    # MODEL, SEQUENCE for each live one, ROUND, HALT; the step's list for each pass.
    listed = 1 + 8 * config.layers + 2
    jobs = sum(64 * (3 + len(each)) for each in rounds)
    prompt_commands = counters.traffic["READ_COMMANDS"] - jobs - 64 * listed * steps
    # 16 chunks (one of them of the last rows of both prompts), each ROWS, CALL and the layers; at
    # the end CALL, NORM, CALL, HEAD and COMMIT; and MODEL and HALT.
    assert prompt_commands == 64 * (16 * (2 + listed - 2) + 5 + 2)
    assert not any(finish(chip.host.counters()).traffic.values())
