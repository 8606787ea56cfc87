"""``make decode``: a language model decodes by self-speculation on the RTL of the whole chip.

``python -m sim.decode [--config tiny|small|paper] [--model pydoc_llama|smollm2|FOLDER]
[--prompt TEXT] [--tokens N] [--draft auto|none|W6KV7] [--gamma N] [--seed N] [--json FILE]
[--quick]``

The prompt is fed in steps of T_M rows, then rounds run whole on the chip. After every job all of
memory and every register must equal the functional simulator's; at the end the tokens must be
those of the golden exact path, with drafts and without. Random bytes lie beyond the committed
length all the time, new ones after every round.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hw.chip_config import CHIPS
from model.calibration.plt import Entry, Plt
from model.decoding.drafts.bs_spec import AutoBsSpec, BsSpec
from model.decoding.loop import Options, Text, generate
from model.decoding.rates import Rates
from model.formats.constants import P_FULL_MIN
from model.formats.plt_layout import ENTRIES
from model.lm.precision import Precision
from model.lm.stored import StoredModel
from model.machine.jobs import autoregressive_word
from sim.benches.decode import source_of
from sim.board.launch import build_board, run_module
from sim.build import SimulatorMissing
from sim.run import Outcome

#: What the short form decodes: a few rounds on the smallest chip.
QUICK = {"config": "tiny", "prompt": "def main(", "tokens": 6}
FULL = {"config": "small", "prompt": None, "tokens": 64}
#: Drafts that a table is chosen from.
DRAFTS = tuple(Precision.of(p, p) for p in (5, 6, 7, 8))


def calibrate(model: StoredModel, prompt: list[int], count: int, rows: int) -> tuple[Plt, str]:
    """A table whose entries are the draft with fewest planes a token, on this very text.

    A round loads ``gamma * p`` planes of each weight tile for drafts and all planes once; its
    tokens are those that the golden model commits.

    Parameters
    ----------
    model : StoredModel
    prompt : list of int
    count : int
        Tokens to try on.
    rows : int
        T_M: gamma is below it.

    Returns
    -------
    table, said : Plt, str
    """
    tried = []
    for precision in DRAFTS:
        for gamma in sorted({min(g, rows - 1) for g in (1, 3, 5, 7)}):
            draft = BsSpec(model, precision)
            text = generate(draft, [prompt], Options(max_new=count, gamma=gamma)).sequences[0]
            planes = sum(len(r.drafted) * precision.w.p + model.p_full for r in text.rounds)
            tried.append((planes / max(1, len(text.tokens) - 1), gamma, precision))
    best, gamma, precision = min(tried, key=lambda each: each[:2])
    said = f"{precision} gamma {gamma}: {best:.2f} planes a token instead of {model.p_full}"
    return Plt((Entry.of(precision, gamma),) * ENTRIES), said


def golden(
    model: StoredModel, prompt: list[int], count: int, table: Plt | None
) -> tuple[list[int], Text | None]:
    """Tokens of plain autoregressive decoding on the exact path, and the text with drafts."""
    plain = generate(BsSpec(model, None, exact=True), [prompt], Options(max_new=count))
    tokens = plain.sequences[0].tokens
    if table is None:
        return tokens, None
    draft = AutoBsSpec(model, table.choose, exact=True)
    return tokens, generate(draft, [prompt], Options(max_new=count)).sequences[0]


def show(console: Console, result: dict[str, Any], text: str | None) -> None:
    """What was measured, as tables."""
    counters, rates = result["counters"], result["rates"]
    table = Table(box=None, show_header=False, pad_edge=False)
    if text is not None:
        table.add_row("text", repr(text))
    table.add_row("tokens", f"{len(result['tokens'])}, equal to golden and plain autoregressive")
    if rates["rounds"]:
        table.add_row(
            "drafted, accepted",
            f"{rates['drafted']:,}, {rates['accepted']:,} in {rates['rounds']} rounds",
        )
    rounds = result["cycles_a_round"]
    if rounds:
        table.add_row("cycles a round", f"{sum(rounds) / len(rounds):,.0f}")
    busy, cycles = counters["ARRAY_BUSY"], counters["CYCLES"]
    table.add_row("cycles", f"{cycles:,} in jobs; array busy {100 * busy / cycles:.1f} %")
    for name in ("STALL_MEMORY", "STALL_SPECIAL", "STALL_RESULTS"):
        waits = name.removeprefix("STALL_").lower()
        table.add_row(f"waits for {waits}", f"{100 * counters[name] / cycles:.1f} %")
    table.add_row("compared", f"{result['jobs']} jobs, {result['compared']:,} bytes of memory")
    table.add_row("planted", f"{result['planted']:,} random bytes beyond the committed length")
    console.print(table)
    classes = Table("bytes of", "read or written", box=None, pad_edge=False)
    for name, count in counters.items():
        if name.startswith(("READ", "WRITE")) and count:
            classes.add_row(name.lower().replace("_", " "), f"{count:,}")
    console.print(classes)


def decode(arguments: argparse.Namespace, seed: int) -> tuple[Outcome, dict[str, Any] | None]:
    """Runs it; what the runner says, and what was measured if it passed."""
    chip = CHIPS[arguments.config]
    model = source_of(arguments.model)
    tokenizer = None
    if arguments.model == "pydoc_llama":
        from model.pydoc_llama import PROMPTS, tokens_of

        prompt = tokens_of(arguments.prompt or PROMPTS[0])
    else:
        from model.lm.checkpoint import load

        tokenizer = load(arguments.model)[1]
        prompt = tokenizer.encode(arguments.prompt or "The capital of France is").ids
    started = time.monotonic()
    table = None
    word = 0
    if arguments.draft == "auto":
        table, said = calibrate(model, prompt, min(arguments.tokens, 48), chip.core.t_m)
        print(f"lookup table: {said}", flush=True)
    elif arguments.draft == "none":
        word = autoregressive_word(P_FULL_MIN if model.p_full < P_FULL_MIN else model.p_full)
    else:
        entry = Entry.of(Precision.parse(arguments.draft), arguments.gamma)
        table = Plt((entry,) * ENTRIES)
    tokens, text = golden(model, prompt, arguments.tokens, table)
    if text is not None and text.tokens != tokens:
        raise RuntimeError("the golden model's text changes with drafts")
    print(f"golden: {len(tokens)} tokens, {time.monotonic() - started:.0f} s", flush=True)
    print("building the simulation (minutes, once) ...", flush=True)
    build = build_board(chip)
    longest = len(prompt) + arguments.tokens + 1
    options = {
        "model": arguments.model,
        "prompt": prompt,
        "max_new": arguments.tokens,
        "capacity": -(-longest // 64) * 64,
        "table": "" if table is None else table.image().hex(),
        "word": word,
        "expected": tokens,
        # Gamma is clipped by the chip's rows, which the golden model does not know.
        "rounds": None
        if text is None or max(e.gamma for e in table.entries) >= chip.core.t_m  # type: ignore[union-attr]
        else [[list(r.drafted), r.accepted] for r in text.rounds],
    }
    outcome = run_module(chip, "sim.benches.decode", seed=seed, options=options, build=build)
    if not outcome.passed:
        return outcome, None
    result = json.loads(outcome.parts[0]["measured"])
    rates = Rates.of(text.rounds if text is not None else []).as_json()
    return outcome, {**result, "tokens": tokens, "rates": rates, "seed": seed}


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="sim.decode", description=__doc__.split("\n")[0])
    parser.add_argument("--config", choices=list(CHIPS), help="small by default")
    parser.add_argument("--quick", action="store_true", help="a few tokens on tiny, for make test")
    parser.add_argument("--model", default="pydoc_llama", help="or smollm2, or a folder")
    parser.add_argument("--prompt", help="text; one of the model's own by default")
    parser.add_argument("--tokens", type=int, help="new ones (default 64)")
    parser.add_argument("--draft", default="auto", help="auto (lookup table), none, or as W6KV7")
    parser.add_argument("--gamma", type=int, default=5, help="of a named draft (default 5)")
    parser.add_argument("--seed", type=int, help="of what is random; drawn and printed")
    parser.add_argument("--json", type=Path, help="where the figures go")
    arguments = parser.parse_args(argv)
    for name, value in (QUICK if arguments.quick else FULL).items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().getrandbits(24)
    try:
        if arguments.tokens < 1:
            raise ValueError(f"--tokens must be at least 1, not {arguments.tokens}")
        outcome, result = decode(arguments, seed)
    except (ValueError, TypeError, OSError, RuntimeError, SimulatorMissing) as error:
        print(f"sim.decode: {error}", file=sys.stderr)
        return 2
    if result is None:
        print(f"sim.decode: {outcome.error}\n  log: {outcome.log}, seed {seed}", file=sys.stderr)
        return 1
    text = None
    if arguments.model == "pydoc_llama":
        from model.pydoc_llama import text_of

        text = text_of(result["tokens"])
    show(Console(), result, text)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    print(f"decode: passed, {outcome.seconds:.0f} s, seed {seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
