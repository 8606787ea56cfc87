"""``bsspec verify``: shows that speculative decoding is lossless, level by level.

Every level has negative controls, faults that are planted in the product and must be found. The
command prints a report and exits with 1 where a check does not hold or a control was not found.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from model.decoding.methods import Source, make_draft
from model.decoding.sampling import Sampling
from model.formats.checks import check_int
from model.lm.prompts import load_prompts
from model.lm.random_model import TINY, random_checkpoint
from model.verification import algebra, enumeration, greedy, kernel, two_sample
from model.verification.report import LEVELS, Check, as_json, decided, table
from model.verification.two_sample import Method, Plan, Prefix

#: Tokens that a method is compared by, in the long and in the short form.
TOKENS, QUICK_TOKENS = 9200, 3000

GAMMA = 3
SAMPLING = Sampling(temperature=0.7)

#: Lengths of prefixes: the last one ends just before the end of a key block.
PREFIX_LENGTHS = (12, 12, 16, 16, 20, 62)
QUICK_LENGTHS = (8, 61)

#: Drafts of the level on a real model, and the target that each belongs to.
METHODS = {
    "W5KV5": "bfp9",
    "W6mKV6m": "bfp9",
    "separate:first-": "bfp9",
    "quantspec-ns-w4kv4": "quantspec",
    "speq": "speq",
}
QUICK_METHODS = ("W5KV5", "quantspec-ns-w4kv4")

#: Faults of that level. A tiny model needs a worse draft for the same effect on its flat laws.
CONTROLS = ("accept always", "accept min(1, q/p)")
CONTROL_DRAFT, TINY_CONTROL_DRAFT = "W5KV5", "W3KV3"

#: The sample of greedy runs on a real model: prompt tokens, new tokens, loads and gammas.
MODEL_PROMPT, MODEL_NEW = 60, 10
MODEL_LOADS = (("W5KV5", 3), ("W6mKV7m", 7), ("W9KV9", 4))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bsspec verify",
        description="Shows that speculative decoding is lossless, at five levels with controls.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="levels:\n" + "\n".join(f"  {name:<12} {what}" for name, what in LEVELS.items()),
        allow_abbrev=False,
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, the tiny model only")
    parser.add_argument(
        "--level", nargs="+", metavar="NAME", choices=list(LEVELS), help="only these"
    )
    parser.add_argument(
        "--model", default=None, help="smollm2, a folder, or tiny (default smollm2)"
    )
    parser.add_argument("--exact", action="store_true", help="level real on the exact path")
    parser.add_argument("--seed", type=int, default=0, help="of all random numbers (default 0)")
    parser.add_argument("--tokens", type=int, help=f"of a method at level real (default {TOKENS})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there too")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="report.txt and report.json")
    return parser


class _Run:
    """One call of the command."""

    def __init__(self, options: argparse.Namespace, progress: Progress) -> None:
        self.options, self.progress = options, progress
        self.quick, self.seed = options.quick, options.seed
        self.model = options.model or ("tiny" if self.quick else "smollm2")
        self._source: Source | None = None

    @property
    def source(self) -> Source:
        """The model, loaded once."""
        if self._source is None:
            if self.model == "tiny":
                self._source = Source("tiny", random_checkpoint(TINY, 0), None)
            else:
                self._source = Source.load(self.model)
        return self._source

    def checks(self, level: str) -> Iterator[Check]:
        """The checks of a level."""
        by_name: dict[str, Callable[[], Iterator[Check]]] = {
            "algebra": lambda: algebra.check(self.seed, 100 if self.quick else 2000),
            "kernel": lambda: kernel.check(self.seed, 4000 if self.quick else 100_000),
            "enumeration": lambda: enumeration.check(self.seed, quick=self.quick),
            "real": self._real,
            "greedy": self._greedy,
        }
        return by_name[level]()

    def _methods(self) -> list[Method]:
        tiny = self.model == "tiny"
        layers = self.source.checkpoint.config.layers
        first = f"separate:first-{max(1, layers - 2) if tiny else layers - 4}"
        exact = self.options.exact

        def method(name: str, control: str | None = None) -> Method:
            target = METHODS.get(name, "bfp9")
            return Method(
                name, target, partial(make_draft, name, self.source, exact=exact), control
            )

        names = [first if name.endswith("-") else name for name in METHODS]
        if self.quick:
            names = [*QUICK_METHODS]
        if exact:
            names = [name for name in names if METHODS.get(name, "bfp9") == "bfp9"]
        hard = TINY_CONTROL_DRAFT if tiny else CONTROL_DRAFT
        return [*map(method, names), *(method(hard, control) for control in CONTROLS)]

    def _prefixes(self) -> list[Prefix]:
        lengths = QUICK_LENGTHS if self.quick else PREFIX_LENGTHS
        if self.source.tokenizer is None:
            vocabulary = self.source.checkpoint.config.vocabulary
            texts = greedy.prompts_of(vocabulary, self.seed, lengths)
            return [Prefix(f"random {i}", text) for i, text in enumerate(texts)]
        prompts = [p for pair in zip(*map(load_prompts, ("humaneval", "gsm8k")), strict=False)
                   for p in pair]  # fmt: skip
        encoded = ((p.id, self.source.tokenizer.encode(p.text).ids) for p in prompts)
        found = []
        for length in lengths:
            name, tokens = next((name, ids) for name, ids in encoded if len(ids) >= length)
            found.append(Prefix(name, tokens[:length]))
        return found

    def _real(self) -> Iterator[Check]:
        tokens = self.options.tokens or (QUICK_TOKENS if self.quick else TOKENS)
        plan = Plan.of(self._prefixes(), GAMMA, SAMPLING, tokens, self.seed)
        methods = self._methods()
        task = self.progress.add_task("real: continuations", total=two_sample.work(plan, methods))
        path = "exact" if self.options.exact else "fast"
        return two_sample.check(
            plan, methods, path=path, progress=lambda drawn: self.progress.advance(task, drawn)
        )

    def _greedy(self) -> Iterator[Check]:
        task = self.progress.add_task("greedy: runs on a tiny model", total=1.0)
        yield from greedy.check(
            random_checkpoint(TINY, 0),
            self.seed,
            quick=self.quick,
            progress=lambda done: self.progress.update(task, completed=done),
        )
        if self.quick or self.model == "tiny":
            return
        task = self.progress.add_task(f"greedy: runs on {self.model}", total=1.0)
        assert self.source.tokenizer is not None
        text = next(p.text for p in load_prompts("humaneval"))
        prompt = self.source.tokenizer.encode(text).ids[:MODEL_PROMPT]
        yield from greedy.check_model(
            self.source.stored,
            [prompt],
            MODEL_LOADS,
            new=MODEL_NEW,
            progress=lambda done: self.progress.update(task, completed=done),
        )


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns 0 where everything is as it must be, else 1.

    Raises:
        TypeError, ValueError, OSError: options or files that cannot be.
    """
    options = _parser().parse_args(argv)
    check_int("seed", options.seed, 0, 1 << 40)
    if options.tokens is not None:
        check_int("tokens", options.tokens, 1, 1 << 30)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        checks, seconds = _checked(options)
    finally:
        torch.set_num_threads(threads)
    return _report(options, checks, seconds)


def _checked(options: argparse.Namespace) -> tuple[list[Check], float]:
    start = time.monotonic()
    columns = (TextColumn("{task.description}"), TextColumn("{task.percentage:>3.0f}%"))
    times = (
        TimeElapsedColumn(),
        TextColumn("of about"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    checks: list[Check] = []
    with Progress(*columns, *times, console=Console(stderr=True), transient=True) as progress:
        run = _Run(options, progress)
        for level in options.level or LEVELS:
            task = progress.add_task(level, total=None)
            for check in run.checks(level):
                checks.append(check)
                if not options.quick:  # the long form tells what it has before Holm's correction
                    line = f"{level}: {check.name}: {check.verdict}"
                    progress.console.print(line, highlight=False, markup=False)
            progress.update(task, total=1, completed=1)
    return decided(checks), time.monotonic() - start


def _report(options: argparse.Namespace, checks: list[Check], seconds: float) -> int:
    model = options.model or ("tiny" if options.quick else "smollm2")
    head = f"bsspec verify: model {model}, seed {options.seed}, torch {torch.__version__}"
    text = f"{head}\n\n{table(checks)}\n"
    print(f"{text}{seconds:.0f} s")
    content = json.dumps(
        {
            "model": model,
            "seed": options.seed,
            "quick": options.quick,
            "torch": torch.__version__,
            "seconds": round(seconds, 1),
            "checks": as_json(checks),
        },
        indent=2,
    )
    if options.json is not None:
        options.json.write_text(content + "\n")
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "report.txt").write_text(text)
        (options.out / "report.json").write_text(content + "\n")
    good = all(check.good for check in checks)
    if not good:
        print(
            f"bsspec verify: not as it must be; again with --seed {options.seed}", file=sys.stderr
        )
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
