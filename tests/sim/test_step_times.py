"""Steps by the cycle model: what the array reads is counted exactly, the rest is in order."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from hw.chip_config import CHIPS, ChipConfig
from model.lm.config import ModelConfig
from model.lm.precision import Precision
from model.lm.random_model import TINY
from sim.pair import shape_of
from sim.step_times import main, time_step, times_of

LLAMA = dataclasses.replace(TINY, heads=2, kv_heads=1)
DRAFT = Precision.parse("W6KV7")


def planes_read(
    chip: ChipConfig, config: ModelConfig, length: int, rows: int, p_w: int, p_kv: int
) -> int:
    """Cycles in which a plane is read, counted from the shapes (contract section 8)."""
    width, head = config.width // 64, config.head_width // 64
    queries = config.heads * config.head_width // 64
    wide = queries + 2 * config.kv_heads * head
    feed = config.ff_width // 64
    layer = width * wide + queries * width + width * 2 * feed + feed * width
    tiles = config.layers * layer + width * -(-config.vocabulary // 64)
    # A pass of as many positions as rows of a group fit. Its rows are of one block or two.
    positions = shape_of(chip).t_m // (config.heads // config.kv_heads)
    attention = 0
    for first in range(length, length + rows, positions):
        last = min(first + positions, length + rows) - 1
        own = last // 64 - first // 64 + 1
        attention += last // 64 * p_kv + own * 16 + (last // 64 + 1) * p_kv
    attention *= config.layers * config.kv_heads * head
    return chip.core.fold * (tiles * p_w + attention)


@pytest.mark.parametrize(
    ("name", "length", "rows", "precision"),
    [
        ("tiny", 0, 1, DRAFT),
        ("tiny", 62, 2, None),
        ("tiny", 200, 2, DRAFT),
        ("small", 63, 1, None),
        ("small", 64, 1, DRAFT),
        ("small", 126, 8, None),
    ],
)
def test_every_plane_is_read_once(
    name: str, length: int, rows: int, precision: Precision | None
) -> None:
    chip = CHIPS[name]
    time = time_step(chip, LLAMA, length=length, rows=rows, precision=precision, latency=20)
    p_w, p_kv = (9, 9) if precision is None else (6, 7)
    assert time.stalls.busy == planes_read(chip, LLAMA, length, rows, p_w, p_kv)
    shares = time.shares()
    assert sum(shares.values()) == pytest.approx(1)
    assert all(share >= 0 for share in shares.values())
    assert sum(time.waits.values()) == time.stalls.special


def test_more_latency_takes_longer_and_the_same_takes_as_long() -> None:
    cycles = [
        time_step(CHIPS["tiny"], LLAMA, length=70, rows=2, precision=None, latency=latency).cycles
        for latency in (0, 50, 50, 400)
    ]
    assert cycles[0] < cycles[1] == cycles[2] < cycles[3]


def test_layers_beyond_the_third_are_alike() -> None:
    six = dataclasses.replace(LLAMA, layers=6)
    how = {"length": 100, "rows": 1, "precision": None, "latency": 30}
    step, layer = times_of(CHIPS["small"], six, **how)  # type: ignore[arg-type]
    whole = time_step(CHIPS["small"], six, **how)  # type: ignore[arg-type]
    assert step.stalls.busy == whole.stalls.busy
    assert step.cycles == pytest.approx(whole.cycles, rel=0.005)
    assert 0 < layer.cycles < step.cycles / 6


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "times.json"
    given = ["--config", "tiny", "--model", "pydoc_llama", "Llama-3.1-8B", "--length", "5"]
    assert main([*given, "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert [(each["model"], each.get("step"), each.get("of")) for each in found] == [
        *(
            ("pydoc_llama", s, of)
            for s in ("decode", "draft", "verify")
            for of in ("step", "layer")
        ),
        ("Llama-3.1-8B", None, None),
    ]
    assert "heads / kv_heads must be at most t_m = 2" in found[-1]["refused"]
    said = capsys.readouterr().out
    assert "Llama-3.1-8B does not fit on tiny: " in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "llama"], "--model must be one of pydoc_llama, "),
        (["--rows", "0"], "--rows must be at least 1"),
        (["--draft", "W6"], "W6"),
    ],
)
def test_bad_arguments(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("sim.step_times: ")
    assert said in error
    assert error.count("\n") == 1
