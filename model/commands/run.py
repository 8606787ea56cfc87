"""Generates text on the simulated chip: image, commands, registers, bytes.

    bsspec run --model smollm2 --draft W6KV7 --gamma 4 --prompt "The capital of France is"

Greedy text is decoded whole on the chip, round after round; with a temperature the chip gives
logits and the host accepts. Every number is that of the hardware, bit for bit, so the text is
that of `bsspec generate --exact`. Then come the rates, and the bytes that the chip's memory ports
would have moved, by class.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text as RichText

from model.calibration.plt import Plt
from model.commands.generate import Writer
from model.commands.image import build, capacity_of
from model.decoding.loop import Listener, Options, Round, Text, generate
from model.decoding.methods import Source
from model.decoding.rates import Rates
from model.decoding.sampling import Sampling
from model.formats.checks import check_int
from model.lm.checkpoint import load
from model.lm.precision import Precision
from model.machine.device import SimulatorDevice, finish
from model.machine.draft import MachineDraft
from model.machine.image import Image
from model.machine.jobs import autoregressive_word, precision_word
from model.machine.runtime import Counters, Host
from model.machine.shape import PRESETS, preset
from model.machine.simulator import Simulator


def decode(
    host: Host,
    prompts: Sequence[Sequence[int]],
    draft: str,
    options: Options,
    table: Plt | None,
    listener: Listener | None,
) -> list[Text]:
    """Decodes prompts with the draft called `draft`.

    Args:
        host: of a chip with an image loaded.
        draft: "none", "auto" (with a table), or a precision.
        table: the lookup table of "auto".

    Raises:
        ValueError: no such draft, or auto without a table.
    """
    if draft == "auto" and table is None:
        raise ValueError("draft auto needs a precision lookup table: --plt FILE")
    p_full = host.manifest.p_full
    precision = None if draft in ("none", "auto") else Precision.parse(draft).exact(p_full)
    if not options.sampling.greedy:
        choose = table.choose if table is not None and draft == "auto" else None
        machine = MachineDraft(host, precision, choose=choose)
        return generate(machine, prompts, options, listener).sequences
    if draft == "auto":
        assert table is not None
        finish(host.load_table(table.image()))
        word = 0
    elif precision is None:
        word = autoregressive_word(p_full)
    else:
        word = precision_word(precision, check_int("--gamma", options.gamma, 1, 255))
    return finish(
        host.generate(
            prompts,
            max_new=options.max_new,
            word=word,
            end_ids=options.end_ids,
            listener=listener,
        )
    ).sequences


def report(source: Source, texts: Sequence[Text], counters: Counters, prefill: Counters) -> Any:
    """All that is known of a run, as JSON; bytes of the prompts' pass apart."""
    tokens = [text.tokens for text in texts]
    decoded = sum(map(len, tokens)) - len(tokens)
    result: dict[str, Any] = {
        "model": source.name,
        "tokens": tokens,
        "reasons": [text.reason for text in texts],
        "rates": Rates.of([r for text in texts for r in text.rounds]).as_json(),
        "prefill_bytes": {**prefill.traffic, "READ_PLANES": prefill.planes},
        "prefill_total": prefill.total,
        "bytes": {**counters.traffic, "READ_PLANES": counters.planes},
        "total": counters.total,
        "events": counters.events,
        "decoded": decoded,
    }
    if source.tokenizer is not None:
        result["text"] = [source.tokenizer.decode(each) for each in tokens]
    return result


def show(console: Console, result: dict[str, Any]) -> None:
    """The report as two tables."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row("new tokens", ", ".join(str(len(tokens)) for tokens in result["tokens"]))
    table.add_row("ended by", ", ".join(result["reasons"]))
    rates = result["rates"]
    table.add_row("rounds", f"{rates['rounds']:,}")
    table.add_row("drafted, accepted", f"{rates['drafted']:,}, {rates['accepted']:,}")
    if rates["rounds"]:
        table.add_row("mean_accept_len", f"{rates['mean_accept_len']:.4f}")
    console.print(table)
    console.print()
    moved = Table(box=None, pad_edge=False)
    moved.add_column("bytes")
    for name in ("prompts", "decoding", "a token"):
        moved.add_column(name, justify="right")
    decoded = max(result["decoded"], 1)

    def row(name: str, first: int, later: int) -> None:
        if first or later:
            moved.add_row(name, f"{first:,}", f"{later:,}", f"{later / decoded:,.0f}")

    for name, count in result["bytes"].items():
        if name != "READ_PLANES":
            row(name.lower().replace("_", " "), result["prefill_bytes"][name], count)
    for plane, count in enumerate(result["bytes"]["READ_PLANES"]):
        row(f"read plane {plane}", result["prefill_bytes"]["READ_PLANES"][plane], count)
    for name, count in result["total"].items():
        row(f"{name.lower()}, all", result["prefill_total"][name], count)
    console.print(moved)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bsspec run",
        description="Generate text on the simulated chip; print acceptance and bytes by class.",
    )
    parser.add_argument("--model", default="smollm2", help="smollm2, or a Hugging Face folder")
    parser.add_argument("--image", help="folder of bsspec image; laid out anew without")
    parser.add_argument("--draft", default="W6mKV7m", help="none, auto, or a pair such as W6KV7")
    parser.add_argument("--gamma", type=int, default=4, help="drafted tokens a round (default 4)")
    parser.add_argument("--prompt", action="append", help="text; again for a batch")
    parser.add_argument("--max-new", type=int, default=32, help="new tokens (default 32)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plt", help="lookup table of --draft auto (from bsspec plt)")
    parser.add_argument("--chip", default="small", help=f"{', '.join(PRESETS)} (default small)")
    parser.add_argument("--capacity", type=int, help="positions of a sequence")
    parser.add_argument("--bits", type=int, default=9, help="of a stored number, 9..16")
    parser.add_argument("--ignore-end", action="store_true", help="go on at an end of text")
    parser.add_argument("--threads", type=int, default=1, help="of the processor (default 1)")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    return parser


def _image(arguments: argparse.Namespace, source: Source) -> Image:
    config = source.checkpoint.config
    if arguments.image is None:
        return build(
            config,
            arguments.model,
            preset(arguments.chip),
            capacity_of(config, arguments.capacity),
            len(arguments.prompt),
            arguments.bits,
        )
    image = Image.load(arguments.image)
    if image.manifest.config != config:
        raise ValueError(f"{arguments.image} must be an image of model {arguments.model}")
    return image


def main(argv: Sequence[str] | None = None) -> int:
    """The command; 0, or an error for the caller to print."""
    arguments = _parser().parse_args(argv)
    if not arguments.prompt:
        raise ValueError("give --prompt TEXT, again for a batch")
    torch.set_num_threads(check_int("--threads", arguments.threads, 1, 1024))
    table = None if arguments.plt is None else Plt.load(arguments.plt)
    progress = Console(stderr=True)
    with progress.status("loading the model"):
        source = Source(arguments.model, *load(arguments.model))
    if source.tokenizer is None:
        raise ValueError(f"model {arguments.model} has no tokenizer")
    image = _image(arguments, source)
    simulator = Simulator(image.manifest.shape, image.manifest.base + image.manifest.size)
    host = Host(SimulatorDevice(simulator), image.manifest)
    finish(host.load(image))
    options = Options(
        gamma=arguments.gamma,
        sampling=Sampling(temperature=arguments.temperature),
        max_new=arguments.max_new,
        end_ids=() if arguments.ignore_end else source.checkpoint.config.end_ids,
        seed=arguments.seed,
    )
    prompts = [source.tokenizer.encode(text).ids for text in arguments.prompt]
    console = Console(highlight=False, width=max(100, Console().width))
    stream = not arguments.json and len(prompts) == 1
    writer = Writer(source, console) if stream else None
    prefill: list[Counters] = []
    status = progress.status("the prompts' pass")
    waiting = len(prompts)
    start = time.perf_counter()

    def listener(sequence: int, tokens: tuple[int, ...], round_: Round | None) -> None:
        nonlocal waiting
        if round_ is None:
            waiting -= 1
            if waiting == 0:  # the chip has done nothing since the prompts' pass
                prefill.append(finish(host.counters(clear=True)))
                status.stop()
        if writer is not None:
            writer(sequence, tokens, round_)

    if stream:
        console.print(RichText(arguments.prompt[0], style="dim"), end="", soft_wrap=True)
    if not stream:
        status.start()
    texts = decode(host, prompts, arguments.draft, options, table, listener)
    seconds = time.perf_counter() - start
    result = report(source, texts, finish(host.counters()), prefill[0])
    if arguments.json:
        json.dump(result, sys.stdout, indent=1, allow_nan=False)
        print()
        return 0
    if stream:
        console.print()
    else:
        for text, new in zip(arguments.prompt, result["text"], strict=True):
            console.print(RichText(text, style="dim"), RichText(new), sep="", soft_wrap=True)
            console.rule()
    console.print()
    show(console, result)
    console.print(f"\nsimulated in {seconds:.1f} s; a simulator's time says nothing of the chip's")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
