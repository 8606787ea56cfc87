"""How close each method's target is to the 16-bit model: the paper's Table VI on our model.

    bsspec accuracy --model smollm2 --limit 100

This is another claim than losslessness. Speculative decoding gives the text of its own target,
exactly; whether that target is as good as the 16-bit model is measured here, on GSM8K's test items:

- the mean negative log-likelihood a token (nats) that each target gives to the reference solutions,
  with the difference to the 16-bit model and its 95 % interval (items are resampled);
- the share of positions at which both have the same most likely token;
- with `--generate`, the share of items whose greedy answer ends in the right number.

All targets run on the fast path.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor

from model.calibration import report
from model.calibration.files import json_text, write_whole
from model.calibration.measure import RESAMPLE_SEED, RESAMPLES
from model.calibration.paper import TARGETS
from model.decoding.drafts.base import Draft
from model.decoding.drafts.plain import PlainModel
from model.decoding.loop import Options, generate
from model.decoding.methods import Source, autoregressive, make_draft
from model.formats.checks import check_int
from model.lm.packages import package_file
from model.lm.prompts import SETS

#: Drafts whose targets are meant, by the targets' names in measured files.
_OWNERS = {"speq": "speq", "quantspec": "quantspec-s", "bfp9": "none"}

#: Items that share a pass, and a batch of greedy answers.
BATCH = 10

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


class Item(NamedTuple):
    """A question with its reference solution.

    Attributes:
        question: text.
        solution: text that ends in "#### NUMBER".
        answer: the number.
    """

    question: str
    solution: str
    answer: str


def load_items(limit: int) -> list[Item]:
    """The first `limit` of the GSM8K items that the package ships; 0 for all."""
    path = package_file(*SETS["gsm8k"])
    items = []
    for line in path.read_text().splitlines():
        found = json.loads(line)
        items.append(Item(found["prompt"], found["upstream_answer"], found["expected"]))
    return items[: limit or None]


def last_number(text: str) -> str | None:
    """The last number of a text, without separators and trailing zeros; None if there is none."""
    found = _NUMBER.findall(text)
    if not found:
        return None
    number = found[-1].replace(",", "").rstrip(".")
    return number.rstrip("0").rstrip(".") if "." in number else number


def target_of(name: str, source: Source, device: str = "cpu") -> Draft:
    """The target of a method, without a draft."""
    if name == "bf16":
        return PlainModel(source.checkpoint, device=device)
    return autoregressive(make_draft(_OWNERS[name], source, device=device))


@dataclass(frozen=True)
class Scores:
    """A target on all items.

    Attributes:
        losses: summed negative log-likelihood of each item's solution, nats.
        counts: tokens of each solution.
        tops: most likely token at each position of each solution.
        right: items answered rightly; None if no answers were asked for.
    """

    losses: list[float]
    counts: list[int]
    tops: list[list[int]]
    right: int | None

    @property
    def loss(self) -> float:
        """Nats a token."""
        return sum(self.losses) / sum(self.counts)


def score(
    target: Draft, prompts: Sequence[Sequence[int]], solutions: Sequence[Sequence[int]]
) -> tuple[list[float], list[list[int]]]:
    """Losses and most likely tokens of solutions behind their prompts."""
    target.start(
        len(prompts), max(len(p) + len(s) for p, s in zip(prompts, solutions, strict=True))
    )
    target.verify([prompt[:-1] for prompt in prompts], last_only=True)
    target.commit([prompt[:-1] for prompt in prompts])
    fed = [[p[-1], *s[:-1]] for p, s in zip(prompts, solutions, strict=True)]
    losses, tops = [], []
    for rows, solution in zip(target.verify(fed), solutions, strict=True):
        law: Tensor = torch.log_softmax(rows.double(), -1)
        losses.append(-float(law.gather(1, torch.tensor(solution).unsqueeze(1)).sum()))
        tops.append(rows.argmax(-1).tolist())
    return losses, tops


def measure(
    name: str,
    source: Source,
    items: Sequence[Item],
    *,
    max_new: int,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Scores:
    """Scores a target.

    Args:
        name: one of `paper.TARGETS`.
        source: the model, with a tokenizer.
        items: questions and solutions.
        max_new: tokens of a greedy answer; 0 asks for none.
        device: to run on.
        progress: advanced by items.
    """
    tokenizer = source.tokenizer
    if tokenizer is None:
        raise ValueError(f"model {source.name} has no tokenizer")
    target = target_of(name, source, device)
    bar = progress.add_task(name, total=len(items)) if progress is not None else None
    losses: list[float] = []
    counts: list[int] = []
    tops: list[list[int]] = []
    right = 0
    for first in range(0, len(items), BATCH):
        batch = items[first : first + BATCH]
        prompts = [tokenizer.encode(f"Question: {i.question}\nAnswer:").ids for i in batch]
        solutions = [tokenizer.encode(f" {item.solution}").ids for item in batch]
        new_losses, new_tops = score(target, prompts, solutions)
        losses += new_losses
        tops += new_tops
        counts += [len(solution) for solution in solutions]
        if max_new:
            ends = source.checkpoint.config.end_ids
            output = generate(target, prompts, Options(max_new=max_new, end_ids=ends))
            for item, text in zip(batch, output.sequences, strict=True):
                # A model that goes on with the next question has answered this one.
                answer = tokenizer.decode(text.tokens).split("\nQuestion:")[0]
                right += last_number(answer) == last_number(item.answer)
        if progress is not None and bar is not None:
            progress.advance(bar, len(batch))
    return Scores(losses, counts, tops, right if max_new else None)


def difference_interval(a: Scores, b: Scores) -> tuple[float, float]:
    """95 % interval of loss(a) - loss(b), both on the same items, which are resampled."""
    random = np.random.default_rng(RESAMPLE_SEED)
    drawn = random.integers(0, len(a.losses), (RESAMPLES, len(a.losses)))
    more = np.array(a.losses) - np.array(b.losses)
    low, high = np.percentile(
        more[drawn].sum(1) / np.array(a.counts, float)[drawn].sum(1), [2.5, 97.5]
    )
    return float(low), float(high)


def same_tops(a: Scores, b: Scores) -> float:
    """Share of positions with the same most likely token."""
    pairs = [
        (x, y)
        for one, other in zip(a.tops, b.tops, strict=True)
        for x, y in zip(one, other, strict=True)
    ]
    return sum(x == y for x, y in pairs) / len(pairs)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bsspec accuracy", description="How close each method's target is to the BF16 model."
    )
    parser.add_argument("--model", default="smollm2", help="smollm2, or a Hugging Face folder")
    parser.add_argument("--limit", type=int, default=0, help="GSM8K items (default 0: all 100)")
    parser.add_argument("--generate", action="store_true", help="greedy answers too (slow)")
    parser.add_argument("--max-new", type=int, default=192, help="tokens of an answer")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, mps")
    parser.add_argument("--threads", type=int, default=1, help="of the processor (default 1)")
    parser.add_argument("--out", type=Path, default=Path("build/accuracy"), help="result folder")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """The command; 0, or an error for the caller to print."""
    arguments = _parser().parse_args(argv)
    limit = check_int("--limit", arguments.limit, 0, 1 << 31)
    max_new = check_int("--max-new", arguments.max_new, 1, 1 << 20) if arguments.generate else 0
    torch.set_num_threads(check_int("--threads", arguments.threads, 1, 1024))
    items = load_items(limit)
    found: dict[str, Scores] = {}
    with Progress(console=Console(stderr=True)) as progress:
        source = Source.load(arguments.model)
        for name in TARGETS:
            found[name] = measure(
                name,
                source,
                items,
                max_new=max_new,
                device=arguments.device,
                progress=progress,
            )
    console, plain = report.console(), found["bf16"]
    table = Table(box=None)
    for column in ("target", "nats a token", "more than BF16", "95 %", "same top token", "GSM8K"):
        table.add_column(column, justify="left" if column == "target" else "right")
    details: dict[str, Any] = {}
    for name, scores in found.items():
        interval = difference_interval(scores, plain)
        share = None if scores.right is None else scores.right / len(items)
        details[name] = {
            "nats_a_token": scores.loss,
            "more_than_bf16": scores.loss - plain.loss,
            "interval": interval,
            "same_top": same_tops(scores, plain),
            "gsm8k": share,
            **{key: value for key, value in asdict(scores).items() if key != "tops"},
        }
        table.add_row(
            TARGETS[name],
            f"{scores.loss:.5f}",
            f"{scores.loss - plain.loss:+.5f}",
            f"{interval[0]:+.5f}..{interval[1]:+.5f}",
            f"{same_tops(scores, plain):.4f}",
            "not asked" if share is None else f"{scores.right} of {len(items)}",
        )
    console.print(table)
    title = "SmolLM2-135M" if arguments.model == "smollm2" else Path(arguments.model).name
    accuracy = {n: d["gsm8k"] for n, d in details.items() if d["gsm8k"] is not None}
    data = {"source": "bsspec accuracy: measured", "details": details}
    if accuracy:
        data["table_VI"] = {title: accuracy}
    write_whole(arguments.out / "accuracy.json", json_text(data))
    console.print(
        f"{len(items)} items, {sum(plain.counts):,} tokens; {arguments.out}/accuracy.json"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
