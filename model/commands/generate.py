"""Generates text by speculative decoding, and says what it cost.

    bsspec generate --model smollm2 --draft W6KV7 --gamma 4 --prompt "The capital of France is"

Text is streamed as it is committed. On a terminal, drafted tokens that were accepted are green, a
token by which the target replaced a rejected one is red, the bonus behind a round of accepted ones
is blue, and the first token, of the prompt's pass, has no colour. Then come the rates (`alpha_tv`
at temperature 1, from a second pass over the text), the bits loaded, and two speedups over
autoregressive decoding of the same target, which is run as well:

- *modelled*: the bits that it loads over those that this run loads, as if time were traffic;
- *measured*: by the clock, on this machine. Here a draft is emulated and costs as much time as a
  target pass, so the clock shows no gain; hardware that loads fewer bits is what gains.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text as RichText

from model.calibration.measure import overlap
from model.decoding.drafts.base import Draft
from model.decoding.drafts.bs_spec import AutoBsSpec, Choice
from model.decoding.loop import Options, Output, Round, generate
from model.decoding.methods import NAMES, Source, autoregressive, make_draft
from model.decoding.rates import Rates
from model.decoding.sampling import Sampling
from model.formats.checks import check_int
from model.lm.footprint import HALF, plain_kv_numbers, plain_weights
from model.lm.prompts import load_prompts

#: How a token came about, and its colour.
ACCEPTED, REPLACED, BONUS, PROMPT = "green", "red", "blue", "default"


def marks(round_: Round | None, count: int) -> list[str]:
    """The colour of each of the first `count` tokens that a round emitted."""
    if round_ is None:
        return [PROMPT] * count
    last = REPLACED if round_.accepted < len(round_.drafted) else BONUS
    return ([ACCEPTED] * round_.accepted + [last])[:count]


class Writer:
    """Streams the text of one sequence; pieces of a character wait until it is whole."""

    def __init__(self, source: Source, console: Console) -> None:
        self.tokenizer, self.console = source.tokenizer, console
        self.tokens: list[int] = []
        self.shown = ""

    def __call__(self, sequence: int, tokens: tuple[int, ...], round_: Round | None) -> None:
        """Writes new tokens of sequence 0; a batch is written when it is done."""
        if sequence != 0 or self.tokenizer is None:
            return
        for token, colour in zip(tokens, marks(round_, len(tokens)), strict=True):
            self.tokens.append(token)
            whole = self.tokenizer.decode(self.tokens)
            if whole.endswith("\N{REPLACEMENT CHARACTER}"):
                continue
            new, self.shown = whole[len(self.shown) :], whole
            self.console.print(RichText(new, style=colour), end="", soft_wrap=True)


@dataclass
class Timed:
    """A run and the seconds from the last prompt's token to the end."""

    output: Output
    seconds: float


def timed(
    draft: Draft, prompts: Sequence[Sequence[int]], options: Options, writer: Writer | None = None
) -> Timed:
    """Runs `generate`; the prompt's pass is not in the time."""
    start = time.perf_counter()

    def listener(sequence: int, tokens: tuple[int, ...], round_: Round | None) -> None:
        nonlocal start
        if writer is not None:
            writer(sequence, tokens, round_)
        if round_ is None:
            start = time.perf_counter()

    output = generate(draft, prompts, options, listener)
    return Timed(output, time.perf_counter() - start)


def half_precision_bits(source: Source, prompts: Sequence[Sequence[int]], output: Output) -> int:
    """Bits that 16-bit autoregressive decoding of the same tokens loads, batched alike."""
    config = source.checkpoint.config
    steps = [len(text.tokens) - 1 for text in output.sequences]
    numbers = sum(
        plain_kv_numbers(config, len(prompt) + step + 1)
        for prompt, count in zip(prompts, steps, strict=True)
        for step in range(count)
    )
    return (max(steps) * plain_weights(config) + numbers) * HALF


def law_overlap(
    draft: Draft, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]
) -> float:
    """`alpha_tv`: mean of sum min(p, q) at temperature 1 over the positions of the texts."""
    laws = zip(*draft.teacher_forced(prompts, texts), strict=True)
    return float(torch.cat([overlap(target, drafted) for target, drafted in laws]).mean())


def report(
    source: Source,
    draft: Draft,
    prompts: Sequence[Sequence[int]],
    run: Timed,
    plain: Timed | None,
    alpha_tv: float | None,
    options: Options,
) -> dict[str, Any]:
    """All that is known of a run, as JSON. Rates, bits a token (decoding only) and speedups."""
    output = run.output
    decoded = output.new_tokens - len(
        output.sequences
    )  # the first ones come from the prompts' pass
    result: dict[str, Any] = {
        "model": source.name,
        "draft": draft.name,
        "gamma": options.gamma if draft.drafts else 0,
        "exact": getattr(draft, "exact", False),
        "seed": options.seed,
        "temperature": options.sampling.temperature,
        "prompt_tokens": [len(prompt) for prompt in prompts],
        "tokens": [text.tokens for text in output.sequences],
        "reasons": [text.reason for text in output.sequences],
        "rates": {**Rates.of(output.rounds).as_json(), "alpha_tv": alpha_tv},
        "target_passes": output.target_passes,
        "draft_passes": output.draft_passes,
        "seconds": run.seconds,
    }
    if source.tokenizer is not None:
        result["text"] = [source.tokenizer.decode(text.tokens) for text in output.sequences]
    if isinstance(draft, AutoBsSpec):
        result["pairs"] = [str(precision) for precision in draft.chosen]
    if decoded > 0:
        total = output.draft_loaded + output.target_loaded
        result["bits_per_token"] = {
            "weights": total.weights / decoded,
            "kv": total.kv / decoded,
            "weights_by_drafts": output.draft_loaded.weights / decoded,
            "kv_by_drafts": output.draft_loaded.kv / decoded,
        }
        bits = total.weights + total.kv
        half = half_precision_bits(source, prompts, output)
        result["modelled_speedup_over_16_bit"] = half / bits
        result["tokens_per_second"] = decoded / run.seconds
    if plain is not None and decoded > 0:
        loaded, count = plain.output.target_loaded, plain.output.new_tokens - len(prompts)
        if count > 0:
            result["modelled_speedup"] = (loaded.weights + loaded.kv) / count / (bits / decoded)
            result["measured_speedup"] = (plain.seconds / count) / (run.seconds / decoded)
        if options.sampling.greedy:
            same = [text.tokens for text in plain.output.sequences] == result["tokens"]
            result["equal_to_autoregressive"] = same
    return result


def show(console: Console, result: dict[str, Any]) -> None:
    """The report as a table."""
    table = Table(box=None, show_header=False, pad_edge=False)
    rates = result["rates"]
    path = "exact path" if result["exact"] else "fast path"
    gamma = "of the table" if "pairs" in result else result["gamma"]
    table.add_row("draft", f"{result['draft']}, gamma {gamma}, {path}")
    if "pairs" in result:
        table.add_row("pairs used", ", ".join(result["pairs"]))
    table.add_row("new tokens", ", ".join(str(len(tokens)) for tokens in result["tokens"]))
    table.add_row("ended by", ", ".join(result["reasons"]))
    table.add_row("passes", f"{result['target_passes']} target, {result['draft_passes']} draft")
    if rates["rounds"]:
        for name in ("alpha_cond", "accept_per_draft", "mean_accept_len"):
            table.add_row(name, f"{rates[name]:.4f}")
        if rates["alpha_tv"] is not None:
            table.add_row("alpha_tv", f"{rates['alpha_tv']:.4f}")
        table.add_row("accept_at", "  ".join(f"{share:.3f}" for share in rates["accept_at"]))
    if "bits_per_token" in result:
        bits = result["bits_per_token"]
        for name in ("weights", "kv"):
            table.add_row(
                f"bits loaded a token, {name}",
                f"{bits[name]:,.0f} (drafts {bits[name + '_by_drafts']:,.0f})",
            )
        over = result["modelled_speedup_over_16_bit"]
        table.add_row("modelled speedup over 16-bit AR", f"{over:.3f}")
        table.add_row("tokens a second, measured", f"{result['tokens_per_second']:.2f}")
    if "modelled_speedup" in result:
        table.add_row("modelled speedup over its own AR", f"{result['modelled_speedup']:.3f}")
        slower = " (an emulated draft costs a target's time)"
        measured = result["measured_speedup"]
        table.add_row(
            "measured speedup over its own AR",
            f"{measured:.3f}{slower if measured < 1 and rates['rounds'] else ''}",
        )
    if "equal_to_autoregressive" in result:
        equal = result["equal_to_autoregressive"]
        note = "" if result["exact"] or equal else " (only the exact path promises it)"
        table.add_row("tokens equal to AR", ("yes" if equal else "no") + note)
    console.print(table)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bsspec generate",
        description="Generate text by speculative decoding; print rates, bits and speedups.",
    )
    parser.add_argument("--model", default="smollm2", help="smollm2, or a Hugging Face folder")
    parser.add_argument(
        "--draft", default="W6mKV7m", help=f"a pair such as W6KV7 or W6mKV7m, {', '.join(NAMES)}"
    )
    parser.add_argument("--gamma", type=int, default=4, help="drafted tokens a round (default 4)")
    parser.add_argument("--prompt", action="append", help="text; again for a batch")
    parser.add_argument("--prompts", help="humaneval, gsm8k or a file, instead of --prompt")
    parser.add_argument("--limit", type=int, default=1, help="prompts to take of --prompts")
    parser.add_argument("--max-new", type=int, default=64, help="new tokens (default 64)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default)")
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--exact", action="store_true", help="the machine's integers, bit for bit")
    parser.add_argument("--plt", help="lookup table of --draft auto (from bsspec plt)")
    parser.add_argument("--device", default="cpu", help="of the fast path: cpu, cuda, mps")
    parser.add_argument("--threads", type=int, default=1, help="of the processor (default 1)")
    parser.add_argument("--no-compare", action="store_true", help="no run of AR, no alpha_tv")
    parser.add_argument("--ignore-end", action="store_true", help="go on at an end of text")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    return parser


def _texts(arguments: argparse.Namespace) -> list[str]:
    if (arguments.prompt is None) == (arguments.prompts is None):
        raise ValueError("give either --prompt TEXT or --prompts SET")
    if arguments.prompt is not None:
        return list(arguments.prompt)
    check_int("--limit", arguments.limit, 1, 1 << 31)
    return [prompt.text for prompt in load_prompts(arguments.prompts)[: arguments.limit]]


def _choice(path: str | None) -> Choice | None:
    if path is None:
        return None
    from model.calibration.plt import Plt

    return Plt.load(path).choose


def main(argv: Sequence[str] | None = None) -> int:
    """The command; 0, or an error for the caller to print."""
    arguments = _parser().parse_args(argv)
    texts = _texts(arguments)
    sampling = Sampling(
        temperature=arguments.temperature, top_k=arguments.top_k, top_p=arguments.top_p
    )
    choose = _choice(arguments.plt)
    torch.set_num_threads(check_int("--threads", arguments.threads, 1, 1024))
    progress = Console(stderr=True)
    with progress.status("loading the model") as status:
        source = Source.load(arguments.model)
        if source.tokenizer is None:
            raise ValueError(f"model {arguments.model} has no tokenizer")
        status.update("making the draft")
        draft = make_draft(
            arguments.draft,
            source,
            exact=arguments.exact,
            device=arguments.device,
            choose=choose,
        )
    ends = () if arguments.ignore_end else source.checkpoint.config.end_ids
    options = Options(
        gamma=arguments.gamma,
        sampling=sampling,
        max_new=arguments.max_new,
        end_ids=ends,
        seed=arguments.seed,
    )
    prompts = [source.tokenizer.encode(text).ids for text in texts]
    console = Console(highlight=False, width=max(100, Console().width))
    stream = not arguments.json and len(prompts) == 1
    if stream:
        console.print(RichText(texts[0], style="dim"), end="", soft_wrap=True)
    run = timed(draft, prompts, options, Writer(source, console) if stream else None)
    if stream:
        console.print()
    plain = alpha_tv = None
    if draft.drafts and not arguments.no_compare:
        with progress.status("the laws of target and draft, position by position"):
            alpha_tv = law_overlap(draft, prompts, [text.tokens for text in run.output.sequences])
        with progress.status("the same target without its draft, to compare"):
            plain = timed(autoregressive(draft), prompts, options)
    result = report(source, draft, prompts, run, plain, alpha_tv, options)
    if arguments.json:
        json.dump(result, sys.stdout, indent=1, allow_nan=False)
        print()
        return 0
    if not stream:
        for text, new in zip(texts, result["text"], strict=True):
            console.print(RichText(text, style="dim"), RichText(new), sep="", soft_wrap=True)
            console.rule()
    console.print()
    show(console, result)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
