"""Speed of decoding, as ratios within one run, and what limits it.

    bsspec bench decoding [--model smollm2] [--json FILE]

Times passes over one sequence at one committed length, on one thread: a token of the plain 16-bit
model, then of the fast and the exact path, as target, as draft, and as verification of gamma + 1
positions. For each: tokens (positions) a second, time over that of the plain model, the bits that
the pass would load from memory, over those of the target, and which steps take the time. The kinds
take turns, round after round, and the median counts, since others may use the machine.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from model.calibration import report
from model.calibration.files import json_text, write_whole
from model.calibration.measure import Settings, Task, run
from model.datapath import bench as products
from model.decoding.drafts.base import Loaded
from model.decoding.drafts.bs_spec import BsSpec
from model.decoding.methods import Source
from model.formats.checks import check_int
from model.lm.dense import DenseWeights
from model.lm.fast import FastPath
from model.lm.footprint import HALF, plain_kv_numbers, plain_weights
from model.lm.plain_cache import PlainView
from model.lm.precision import Precision
from model.lm.prompts import load_prompts
from model.lm.rows import Rows
from model.lm.transformer import Path as Steps
from model.lm.transformer import forward

#: The draft that is timed, and the positions of a verification: gamma 7.
DRAFT, POSITIONS = Precision.parse("W6mKV7m"), 8

#: Steps of a path, as the table groups them.
STEPS = {
    "linear": "linear layers",
    "head": "head",
    "attend": "attention",
    "write": "KV converters",
    "norm": "special functions",
    "rotate": "special functions",
    "silu_times_up": "special functions",
    "add": "special functions",
    "embed": "embedding",
}


class Stopwatch:
    """A path that notes how long each kind of step takes."""

    def __init__(self, path: Steps) -> None:
        self.path, self.config = path, path.config
        self.seconds: dict[str, float] = defaultdict(float)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.path, name)
        if name not in STEPS:
            return call

        def timed(*arguments: Any) -> Any:
            start = time.perf_counter()
            result = call(*arguments)
            self.seconds[STEPS[name]] += time.perf_counter() - start
            return result

        return timed


@dataclass
class Pass:
    """A kind of pass.

    Attributes:
        name: as the table writes it.
        path: its steps.
        positions: fed at once.
        loaded: bits that it would load.
        seconds: of each timed pass.
        steps: seconds by kind of step, of all timed passes.
    """

    name: str
    path: Steps
    positions: int
    loaded: Loaded
    seconds: list[float] = field(default_factory=list)
    steps: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def time(self, token: int, length: int, keep: bool) -> None:
        """Runs the pass once behind `length` committed tokens."""
        stopwatch = Stopwatch(self.path)
        rows = Rows.of([[token] * self.positions], [length])
        start = time.perf_counter()
        forward(stopwatch, rows)
        if keep:
            self.seconds.append(time.perf_counter() - start)
            for step, seconds in stopwatch.seconds.items():
                self.steps[step] += seconds

    @property
    def positions_per_second(self) -> float:
        """From the median pass."""
        return self.positions / median(self.seconds)

    @property
    def shares(self) -> list[tuple[str, float]]:
        """Kinds of steps and their share of the time, the largest first."""
        total = sum(self.seconds)
        shares = [(name, seconds / total) for name, seconds in self.steps.items()]
        return sorted(shares, key=lambda share: -share[1])


def passes(source: Source, prompt: Sequence[int]) -> list[Pass]:
    """The kinds of passes, each behind the same committed prompt."""
    config, length = source.checkpoint.config, len(prompt)
    capacity = length + POSITIONS
    rows = Rows.of([prompt], [0])
    plain = FastPath(DenseWeights.of_checkpoint(source.checkpoint), PlainView(config, 1, capacity))
    forward(plain, rows, last_only=True)
    numbers = plain_weights(config) * HALF, plain_kv_numbers(config, length + 1) * HALF
    found = [Pass("plain 16-bit model", plain, 1, Loaded(*numbers))]
    for exact in (False, True):
        kind = "exact" if exact else "fast"
        draft = BsSpec(source.stored, DRAFT, exact=exact)
        draft.start(1, capacity)
        draft.verify([prompt], last_only=True)
        draft.commit([prompt])
        for name, precision, positions in (
            (f"{kind} target", draft.full, 1),
            (f"{kind} draft {DRAFT}", DRAFT, 1),
            (f"{kind} verification of {POSITIONS}", draft.full, POSITIONS),
        ):
            loads = draft.draft_loads if precision is DRAFT else draft.verify_loads
            found.append(Pass(name, draft.path(precision), positions, loads([positions])))
    return found


def measure(source: Source, prompt: Sequence[int], rounds: int) -> list[Pass]:
    """Times every kind of pass `rounds` times, after one that is not counted."""
    found = passes(source, prompt)
    for turn in range(rounds + 1):
        for one in found:
            one.time(prompt[-1], len(prompt), keep=turn > 0)
    return found


def calibration(model: str, prompts: Sequence[Sequence[int]], max_new: int) -> float:
    """Tokens a second of an acceptance task on the fast path (one worker), `alpha_tv` included."""
    names = tuple(str(index) for index in range(len(prompts)))
    task = Task(str(DRAFT), 0, names, tuple(map(tuple, prompts)))
    run(Settings(model=model, max_new=2), task)  # loads the model, dequantises
    result = run(Settings(model=model, max_new=max_new), task)
    return sum(prompt["tokens"] for prompt in result["prompts"]) / float(result["seconds"])


def as_json(found: Sequence[Pass]) -> list[dict[str, Any]]:
    """The timings for programs."""
    plain, target = found[0], found[1]
    return [
        {
            "pass": one.name,
            "positions": one.positions,
            "milliseconds": median(one.seconds) * 1e3,
            "positions_per_second": one.positions_per_second,
            "time_over_plain": median(one.seconds) / median(plain.seconds),
            "bits_loaded": sum(one.loaded),
            "bits_over_target": sum(one.loaded) / sum(target.loaded),
            "shares": dict(one.shares),
        }
        for one in found
    ]


def show(console: Console, rows: Sequence[dict[str, Any]], length: int) -> None:
    """The timings as a table."""
    table = Table(
        box=None,
        title=f"one thread, one sequence, {length} tokens committed",
        title_justify="left",
    )
    table.add_column("pass")
    for name in ("ms", "positions/s", "x plain", "Mbit loaded", "of target"):
        table.add_column(name, justify="right")
    table.add_column("limited by")
    for row in rows:
        shares = list(row["shares"].items())[:3]
        table.add_row(
            row["pass"],
            f"{row['milliseconds']:.0f}",
            f"{row['positions_per_second']:.2f}",
            f"{row['time_over_plain']:.2f}",
            f"{row['bits_loaded'] / 1e6:,.0f}",
            f"{row['bits_over_target']:.2f}",
            ", ".join(f"{name} {share:.0%}" for name, share in shares),
        )
    console.print(table)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; 0, or an error for the caller to print."""
    parser = argparse.ArgumentParser(
        prog="bsspec bench", description="Speed of the golden model, as ratios within one run."
    )
    parser.add_argument(
        "what",
        choices=("all", "products", "decoding"),
        nargs="?",
        default="all",
        help="products: the exact product beside torch's; decoding: whole passes",
    )
    parser.add_argument("--model", default="smollm2", help="of decoding")
    parser.add_argument("--prompts", default="humaneval", help="humaneval, gsm8k or a file")
    parser.add_argument("--rounds", type=int, default=5, help="timed passes (default 5)")
    parser.add_argument("--json", type=Path, help="write the timings there too")
    arguments = parser.parse_args(argv)
    rounds = check_int("--rounds", arguments.rounds, 1, 1 << 20)
    console = report.console()
    data: dict[str, Any] = {"torch": str(torch.__version__)}
    torch.set_num_threads(1)
    if arguments.what != "decoding":
        timings = products.measure_all()
        print(products.table(timings))
        data["products"] = products.as_json(timings)
    if arguments.what != "products":
        with Console(stderr=True).status("loading the model"):
            source = Source.load(arguments.model)
            if source.tokenizer is None:
                raise ValueError(f"model {arguments.model} has no tokenizer")
            chosen = load_prompts(arguments.prompts)[:8]
            prompts = [source.tokenizer.encode(prompt.text).ids for prompt in chosen]
        rows = as_json(measure(source, prompts[0], rounds))
        show(console, rows, len(prompts[0]))
        speed = calibration(arguments.model, prompts, 16)
        console.print(
            f"calibration: {speed:.1f} tokens a second and worker ({len(prompts)} prompts a batch, "
            f"16 tokens each, {DRAFT}, gamma 7, alpha_tv included)"
        )
        data["decoding"] = {"passes": rows, "calibration_tokens_per_second": speed}
    if arguments.json is not None:
        write_whole(arguments.json, json_text(data))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
