"""When does speculation pay? Measured on the machine at hand, factor by factor.

    bsspec study --model smollm2 --device cpu

For every draft and gamma: acceptance by position, the times T_D, T_T and T_V(gamma), the speedup
that Eq. 1 predicts from them, and the measured one: tokens a second of the speculative run over
those of autoregressive decoding of the same target in the same process. Where speculation does not
pay, the study says which factor decides: a draft that is not cheaper than its target, acceptance,
or a verification that is not parallel over its positions.

A BS-Spec draft is emulated here: its weights are dequantised beforehand, so that a draft pass costs
as much time as a target pass. What it saves is traffic, and what that is worth on hardware that
loads planes is modelled (`bsspec plt`), not measured here.

Source: "Lossless but Not Free: An Empirical Anatomy of Speculative Decoding on Consumer Hardware"
(2026), whose experiment this repeats.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from model.calibration import report
from model.calibration.files import json_text, write_whole
from model.calibration.timing import PassTimes, Verdict, judge_factors, time_passes
from model.commands.generate import timed
from model.decoding.drafts.base import Draft
from model.decoding.loop import Options
from model.decoding.methods import Source, autoregressive, check_name, make_draft
from model.decoding.rates import Rates
from model.decoding.sampling import Sampling
from model.formats.checks import check_int
from model.lm.prompts import load_prompts

DRAFTS = "W8mKV8m,W6mKV6m,W5KV5,quantspec-s,quantspec-ns-w4kv8,speq,separate:first-15"


@dataclass(frozen=True)
class Run:
    """One draft at one gamma over all prompts.

    Attributes:
        gamma: drafted tokens a round.
        rates: of all rounds.
        tokens, seconds: decoded, prompts' passes left out.
        plain_tokens, plain_seconds: of autoregressive decoding.
        verdict: Eq. 1.
    """

    gamma: int
    rates: Rates
    tokens: int
    seconds: float
    plain_tokens: int
    plain_seconds: float
    verdict: Verdict

    @property
    def measured(self) -> float:
        """Speedup by the clock."""
        return (self.plain_seconds / self.plain_tokens) / (self.seconds / self.tokens)


@dataclass(frozen=True)
class Study:
    """One draft.

    Attributes:
        draft: its name.
        times: of its passes.
        runs: by rising gamma.
    """

    draft: str
    times: PassTimes
    runs: list[Run]

    @property
    def best(self) -> Run:
        """The run with the largest measured speedup."""
        return max(self.runs, key=lambda run: run.measured)

    @property
    def conclusion(self) -> str:
        """Whether it pays, and if not, why."""
        best = self.best
        slower = "" if self.times.t_d < 1 else "; the draft is not cheaper than its target"
        if best.measured > 1:
            return f"pays at gamma {best.gamma}: {best.measured:.2f}x{slower}"
        return f"does not pay: {best.verdict.decides} decides{slower}"


def run_draft(
    draft: Draft, prompts: Sequence[Sequence[int]], gammas: Sequence[int], options: Options
) -> tuple[dict[int, tuple[Rates, int, float]], tuple[int, float]]:
    """Decodes all prompts one by one, with each gamma and with none, in turn.

    Returns:
        By gamma: rates, decoded tokens, seconds. And tokens and seconds of autoregressive decoding.
    """
    totals = {gamma: (Rates(), 0, 0.0) for gamma in gammas}
    plain_tokens, plain_seconds = 0, 0.0
    for prompt in prompts:
        plain = timed(autoregressive(draft), [prompt], options)
        plain_tokens += plain.output.new_tokens - 1
        plain_seconds += plain.seconds
        for gamma in gammas:
            result = timed(draft, [prompt], Options(**{**vars(options), "gamma": gamma}))
            rates, tokens, seconds = totals[gamma]
            totals[gamma] = (
                rates + Rates.of(result.output.rounds),
                tokens + result.output.new_tokens - 1,
                seconds + result.seconds,
            )
    return totals, (plain_tokens, plain_seconds)


def study(
    name: str,
    draft: Draft,
    prompts: Sequence[Sequence[int]],
    gammas: Sequence[int],
    options: Options,
    device: str,
) -> Study:
    """Times a draft's passes and its runs."""
    times = time_passes(draft, prompts[0], gammas, device=device)
    totals, (plain_tokens, plain_seconds) = run_draft(draft, prompts, gammas, options)
    runs = [
        Run(
            gamma,
            rates,
            tokens,
            seconds,
            plain_tokens,
            plain_seconds,
            judge_factors(times, gamma, rates.alpha_cond),
        )
        for gamma, (rates, tokens, seconds) in totals.items()
    ]
    return Study(name, times, runs)


def as_json(studies: Sequence[Study], noted: dict[str, Any]) -> dict[str, Any]:
    """Everything measured, for programs."""
    return {
        "settings": noted,
        "drafts": {
            one.draft: {
                "T_T": one.times.target,
                "T_D": one.times.draft,
                "T_V": {str(gamma): seconds for gamma, seconds in one.times.verify.items()},
                "conclusion": one.conclusion,
                "runs": [
                    {
                        "gamma": run.gamma,
                        **run.rates.as_json(),
                        "t_d": one.times.t_d,
                        "t_v": one.times.t_v(run.gamma),
                        "tokens_per_second": run.tokens / run.seconds,
                        "autoregressive_tokens_per_second": run.plain_tokens / run.plain_seconds,
                        "predicted_speedup": run.verdict.predicted,
                        "measured_speedup": run.measured,
                        "with_one_factor_at_its_best": run.verdict.without,
                        "decides": run.verdict.decides,
                    }
                    for run in one.runs
                ],
            }
            for one in studies
        },
    }


def show(console: Console, studies: Sequence[Study]) -> None:
    """Tables: every draft and gamma, then a conclusion a draft."""
    table = Table(box=None, title="measured, but for Eq. 1", title_justify="left")
    names = ("alpha_cond", "T_D/T_T", "t_v", "Eq. 1", "measured", "decides")
    table.add_column("draft")
    for name in ("gamma", *names):
        table.add_column(name, justify="right")
    for one in studies:
        for place, run in enumerate(one.runs):
            table.add_row(
                "" if place else one.draft,
                str(run.gamma),
                f"{run.rates.alpha_cond:.3f}",
                f"{one.times.t_d:.2f}",
                f"{one.times.t_v(run.gamma):.2f}",
                f"{run.verdict.predicted:.2f}",
                f"{run.measured:.2f}",
                run.verdict.decides,
            )
    console.print(table)
    positions = Table(box=None, title="accept_at[k] at the largest gamma", title_justify="left")
    positions.add_column("draft")
    for k in range(1, max(run.gamma for one in studies for run in one.runs) + 1):
        positions.add_column(str(k), justify="right")
    for one in studies:
        shares = one.runs[-1].rates.accept_at
        positions.add_row(one.draft, *(f"{share:.3f}" for share in shares))
    console.print()
    console.print(positions)
    console.print()
    for one in studies:
        console.print(f"{one.draft}: {one.conclusion}")


def plot(studies: Sequence[Study], path: Path, device: str) -> None:
    """Speedup over gamma, measured and by Eq. 1, and the cost of verification."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2))
    for one in studies:
        gammas = [run.gamma for run in one.runs]
        (line,) = left.plot(gammas, [run.measured for run in one.runs], "o-", label=one.draft)
        predicted = [run.verdict.predicted for run in one.runs]
        left.plot(gammas, predicted, ":", color=line.get_color())
        t_v = [one.times.t_v(gamma) for gamma in gammas]
        right.plot(gammas, t_v, "o-", color=line.get_color(), label=one.draft)
    left.axhline(1, color="grey", linewidth=0.8)
    left.set(xlabel="gamma", ylabel="speedup over the same target's AR", title=f"on {device}")
    left.plot([], [], "k:", label="Eq. 1")
    left.legend(fontsize=7)
    right.plot(gammas, [gamma + 1 for gamma in gammas], "k--", label="not parallel: gamma + 1")
    right.set(xlabel="gamma", ylabel="t_v = T_V / T_T", title="verification")
    right.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def parse_gammas(text: str) -> list[int]:
    """`1..8` or `1,2,4`, rising; ValueError otherwise."""
    try:
        if ".." in text:
            low, high = text.split("..")
            gammas = list(range(int(low), int(high) + 1))
        else:
            gammas = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ValueError(f"--gammas must be such as 1..8 or 1,2,4, not {text!r}") from error
    if not gammas or gammas != sorted(set(gammas)) or gammas[0] < 1:
        raise ValueError(f"--gammas must rise from 1 or more, not {text!r}")
    return gammas


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bsspec study", description="When does speculation pay? Measured on this machine."
    )
    parser.add_argument("--model", default="smollm2", help="smollm2, or a Hugging Face folder")
    parser.add_argument("--drafts", default=DRAFTS, help=f"by commas (default {DRAFTS})")
    parser.add_argument("--gammas", default="1..8", help="1..8 (default), or such as 1,2,4")
    parser.add_argument("--prompts", default="humaneval", help="humaneval, gsm8k, or a file")
    parser.add_argument("--limit", type=int, default=2, help="prompts (default 2)")
    parser.add_argument("--max-new", type=int, default=32, help="tokens a prompt (default 32)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="cpu, cuda, mps")
    parser.add_argument("--threads", type=int, default=1, help="of the processor (default 1)")
    parser.add_argument("--out", type=Path, default=Path("build/study"), help="result folder")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """The command; 0, or an error for the caller to print."""
    arguments = _parser().parse_args(argv)
    names = [name for name in arguments.drafts.split(",") if name and name != "none"]
    if not names:
        raise ValueError("--drafts must name at least one draft other than none")
    for name in names:
        check_name(name)
    gammas = parse_gammas(arguments.gammas)
    options = Options(
        sampling=Sampling(temperature=arguments.temperature),
        max_new=check_int("--max-new", arguments.max_new, gammas[-1] + 2, 1 << 20),
        seed=arguments.seed,
    )
    limit = check_int("--limit", arguments.limit, 1, 1 << 31)
    torch.set_num_threads(check_int("--threads", arguments.threads, 1, 1024))
    chosen = load_prompts(arguments.prompts)[:limit]
    console, begun = report.console(), time.perf_counter()
    studies: list[Study] = []
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("loading the model", total=len(names))
        source = Source.load(arguments.model)
        if source.tokenizer is None:
            raise ValueError(f"model {arguments.model} has no tokenizer")
        prompts = [source.tokenizer.encode(prompt.text).ids for prompt in chosen]
        for name in names:
            progress.update(bar, description=name)
            draft = make_draft(name, source, device=arguments.device)
            studies.append(study(name, draft, prompts, gammas, options, arguments.device))
            progress.advance(bar)
    noted = {
        **{key: str(value) for key, value in vars(arguments).items() if key != "out"},
        "processor": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "sampling": asdict(options.sampling),
        "path": "fast",
    }
    show(console, studies)
    data = json_text(as_json(studies, noted))
    write_whole(arguments.out / "study.json", data)
    for kind in ("svg", "png"):
        plot(studies, arguments.out / f"study.{kind}", arguments.device)
    console.print(
        f"\nnone: autoregressive decoding of each draft's own target is the 1.00 of its rows.\n"
        f"{time.perf_counter() - begun:.0f} s; {arguments.out}/study.json, study.svg, study.png"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
