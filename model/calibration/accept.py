"""Measures acceptance: the grid of the paper's Table III, and peers' drafts beside it.

    bsspec accept --model smollm2 --prompts humaneval --limit 20 --pairs all

Tasks (a draft on some prompts) are independent. They run on this machine's cores, or on a cluster
of `dask.distributed` (`--scheduler ADDRESS`); a task whose worker dies runs again elsewhere, with
the same result. Each result is appended to FOLDER/results.jsonl as it comes, so a run that was
stopped goes on where it ended when the same command is given again. At the end the table is
printed, and FOLDER/acceptance.json holds it in the form that `bsspec plt` and `bsspec tables` read.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from model.calibration import report
from model.calibration.files import json_text, write_whole
from model.calibration.measure import Acceptance, Settings, Task, run, summarise
from model.calibration.results import ResultFile
from model.decoding.drafts.quantspec import VARIANTS
from model.decoding.methods import Source, check_name
from model.formats.checks import check_choice, check_int
from model.formats.floats import to_codes
from model.lm.precision import Precision, grid
from model.lm.prompts import load_prompts

#: Peers that `--pairs peers` stands for.
PEERS = ("speq", *VARIANTS)

#: Runs of a task before its worker's deaths count as an error.
ATTEMPTS = 4

#: How long to wait for a scheduler.
CONNECT_SECONDS = 5


def drafts_of(text: str, reconstruct: str = "truncate") -> list[str]:
    """Names of drafts: "all" (25 pairs), "peers", or names separated by commas.

    Args:
        text: what the command was given.
        reconstruct: of "all": "truncate", "midpoint", or "both".

    Raises:
        ValueError: a name that occurs twice, or none at all.
    """
    check_choice("--reconstruct", reconstruct, ("truncate", "midpoint", "both"))
    names: list[str] = []
    for part in text.split(","):
        if part == "all":
            kinds = ("truncate", "midpoint") if reconstruct == "both" else (reconstruct,)
            for kind in kinds:
                # At 9 bits nothing is a midpoint: such a pair has one name.
                names += [str(pair.exact(9)) for pair in grid(reconstruct=kind)]
        elif part == "peers":
            names += PEERS
        elif part:
            names.append(part)
    names = list(dict.fromkeys(names)) if "all" in text.split(",") else names
    if not names:
        raise ValueError("--pairs must name at least one draft")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"--pairs must name each draft once, not {twice} twice")
    for name in names:
        check_name(name)
    return names


def tasks_of(
    drafts: Sequence[str], names: Sequence[str], prompts: Sequence[Sequence[int]], batch: int
) -> list[Task]:
    """Tasks of up to `batch` prompts each, draft by draft."""
    return [
        Task(
            draft,
            first,
            tuple(names[first : first + batch]),
            tuple(tuple(prompt) for prompt in prompts[first : first + batch]),
        )
        for draft in drafts
        for first in range(0, len(prompts), batch)
    ]


@contextmanager
def cluster(scheduler: str | None, workers: int) -> Iterator[Any]:
    """A client of an existing scheduler, or of `workers` processes on this machine.

    Raises:
        OSError: no scheduler answers at the address.
    """
    # Here, because importing distributed takes a second.
    import dask
    from distributed import Client, LocalCluster

    with dask.config.set({"distributed.scheduler.allowed-failures": ATTEMPTS - 1}):
        if scheduler is not None:
            with Client(scheduler, timeout=CONNECT_SECONDS) as client:
                yield client
        else:
            with (
                LocalCluster(
                    n_workers=workers, threads_per_worker=1, dashboard_address=":0"
                ) as local,
                Client(local) as client,
            ):
                yield client


def measure(
    client: Any,
    settings: Settings,
    tasks: Sequence[Task],
    file: ResultFile,
    done: Callable[[dict[str, Any]], None],
) -> None:
    """Runs the tasks that the file has no result of.

    Args:
        client: of dask.distributed.
        settings, tasks: what to run.
        file: takes each result as it comes.
        done: called with each result.

    Raises:
        RuntimeError: a task killed its worker again and again.
        Exception: whatever a task raised.
    """
    from distributed import as_completed

    missing = [task for task in tasks if task.key not in file.results]
    futures = client.map(
        run, [settings] * len(missing), missing, key=[task.key for task in missing], pure=False
    )
    for future in as_completed(futures):
        result = future.result()
        file.add(result)
        done(result)


def summary(
    settings: Settings, dataset: str, results: dict[str, dict[str, Any]], drafts: Sequence[str]
) -> tuple[dict[str, Acceptance], dict[str, Any]]:
    """Acceptance by draft, and the JSON that other commands read."""
    table = {
        draft: summarise([r for r in results.values() if r["draft"] == draft]) for draft in drafts
    }
    pairs = {name: a for name, a in table.items() if name.startswith("W")}
    peers = {name: a for name, a in table.items() if not name.startswith("W")}
    title = "SmolLM2-135M" if settings.model == "smollm2" else Path(settings.model).name

    def number(x: float) -> float | None:
        return x if math.isfinite(x) else None

    return table, {
        "source": "bsspec accept: measured",
        "settings": asdict(settings),
        "table_III": {title: {n: {dataset: number(a.rates.alpha_cond)} for n, a in pairs.items()}},
        "table_IV": {title: {n: number(a.rates.alpha_cond) for n, a in peers.items()}},
        "details": {
            name: {
                **a.rates.as_json(),
                "alpha_cond_interval": [number(x) for x in a.interval],
                "alpha_tv": number(a.alpha_tv),
                "alpha_tv_interval": [number(x) for x in a.tv_interval],
                "same_top": number(a.same_top),
                "prompts": a.prompts,
            }
            for name, a in table.items()
        },
    }


def show(console: Console, table: dict[str, Acceptance]) -> None:
    """Prints all rates, and acceptance by position."""
    form: dict[str, Any] = {"title_justify": "left", "box": None, "pad_edge": False}
    rates = Table("draft", title="acceptance, measured", padding=(0, 1, 0, 0), **form)
    for name in ("alpha_cond", "95 %", "alpha_tv", "95 % ", "accept_per_draft", "mean_accept_len"):
        rates.add_column(name, justify="right")
    by_position = Table("draft", title="accept_at[k]", **form)
    gamma = max((len(a.rates.accept_at) for a in table.values()), default=0)
    for k in range(1, gamma + 1):
        by_position.add_column(str(k), justify="right")
    for name, a in table.items():
        rates.add_row(
            name,
            f"{a.rates.alpha_cond:.4f}",
            f"{a.interval[0]:.3f}-{a.interval[1]:.3f}",
            f"{a.alpha_tv:.4f}",
            f"{a.tv_interval[0]:.3f}-{a.tv_interval[1]:.3f}",
            f"{a.rates.accept_per_draft:.4f}",
            f"{a.rates.mean_accept_len:.3f}",
        )
        by_position.add_row(name, *(f"{share:.3f}" for share in a.rates.accept_at))
    console.print(rates)
    console.print()
    console.print(by_position)


def show_grid(console: Console, table: dict[str, Acceptance]) -> None:
    """Prints alpha_cond of pairs as Table III has it: p_w down, p_kv across."""
    pairs = {name: Precision.parse(name) for name in table if name.startswith("W")}
    for midpoint in (False, True):
        chosen = {
            (pair.w.p, pair.kv.p): table[name].rates.alpha_cond
            for name, pair in pairs.items()
            if all(load.p == 9 or load.midpoint == midpoint for load in (pair.w, pair.kv))
        }
        if len(chosen) < 2:
            continue
        columns = sorted({kv for _, kv in chosen}, reverse=True)
        kind = "midpoint" if midpoint else "truncate"
        out = Table("", title=f"alpha_cond, {kind}", title_justify="left", box=None)
        for kv in columns:
            out.add_column(f"KV{kv}", justify="right")
        for w in sorted({w for w, _ in chosen}, reverse=True):
            cells = [f"{chosen[w, kv]:.4f}" if (w, kv) in chosen else "" for kv in columns]
            out.add_row(f"W{w}", *cells)
        console.print(out)
        console.print()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bsspec accept", description="Measure acceptance of drafts on real prompts."
    )
    parser.add_argument("--model", default="smollm2", help="smollm2, or a Hugging Face folder")
    parser.add_argument("--prompts", default="humaneval", help="humaneval, gsm8k, or a file")
    parser.add_argument("--limit", type=int, default=20, help="prompts (default 20; 0 for all)")
    parser.add_argument(
        "--pairs", default="all", help="all (25 pairs), peers, or drafts separated by commas"
    )
    parser.add_argument(
        "--reconstruct", default="truncate", help="of all: truncate (default), midpoint or both"
    )
    parser.add_argument("--gamma", type=int, default=7)
    parser.add_argument("--max-new", type=int, default=64, help="tokens a prompt (default 64)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--exact", action="store_true", help="the exact path")
    parser.add_argument("--no-tv", action="store_true", help="leave out alpha_tv")
    parser.add_argument("--batch", type=int, default=20, help="prompts of a task (default 20)")
    parser.add_argument("--device", default="cpu", help="of the fast path: cpu, cuda, mps")
    parser.add_argument("--workers", type=int, default=2, help="processes here (default 2)")
    parser.add_argument("--scheduler", help="address of a dask.distributed scheduler instead")
    parser.add_argument("--out", type=Path, default=Path("build/accept"), help="result folder")
    return parser


def _load(arguments: argparse.Namespace) -> tuple[list[str], list[list[int]], str]:
    """Names and tokens of the prompts, and a digest of them and of the model's weights."""
    chosen = load_prompts(arguments.prompts)
    check_int("--limit", arguments.limit, 0, 1 << 31)
    chosen = chosen[: arguments.limit or None]
    source = Source.load(arguments.model)
    if source.tokenizer is None:
        raise ValueError(f"model {arguments.model} has no tokenizer")
    prompts = [source.tokenizer.encode(prompt.text).ids for prompt in chosen]
    digest = hashlib.sha256(json.dumps(prompts).encode())
    tensors = [source.checkpoint.embedding, source.checkpoint.norm, source.checkpoint.head_weight]
    for tensor in [*tensors, *(w for block in source.checkpoint.blocks for w in block.values())]:
        digest.update(to_codes(tensor).numpy().data)
    return [prompt.id for prompt in chosen], prompts, digest.hexdigest()


def main(argv: Sequence[str] | None = None) -> int:
    """The command; 0, or an error for the caller to print."""
    arguments = _parser().parse_args(argv)
    settings = Settings(
        model=arguments.model,
        gamma=check_int("--gamma", arguments.gamma, 1, 1 << 16),
        max_new=check_int("--max-new", arguments.max_new, 2, 1 << 20),
        temperature=arguments.temperature,
        seed=arguments.seed,
        exact=arguments.exact,
        teacher_forced=not arguments.no_tv,
        device=arguments.device,
    )
    batch = check_int("--batch", arguments.batch, 1, 1 << 16)
    workers = check_int("--workers", arguments.workers, 1, 1024)
    drafts = drafts_of(arguments.pairs, arguments.reconstruct)
    dataset = {"humaneval": "HumanEval", "gsm8k": "GSM8K"}.get(
        arguments.prompts, Path(arguments.prompts).stem
    )
    console = report.console()
    with Console(stderr=True).status("loading model and prompts"):
        names, prompts, digest = _load(arguments)
    tasks = tasks_of(drafts, names, prompts, batch)
    noted = {**asdict(settings), "prompts": arguments.prompts, "batch": batch, "digest": digest}
    del noted["device"], noted["model"]  # where it ran, and where the digested weights lay
    file = ResultFile(arguments.out / "results.jsonl", noted)
    wanted = {task.key for task in tasks}
    kept = len(wanted & file.results.keys())
    if kept:
        console.print(f"{kept} of {len(tasks)} tasks have their result already")
    start, tokens = time.perf_counter(), 0
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task(f"0 of {len(tasks) - kept} tasks")
        finished = 0

        def done(result: dict[str, Any]) -> None:
            nonlocal tokens, finished
            finished += 1
            tokens += sum(prompt["tokens"] for prompt in result["prompts"])
            elapsed = time.perf_counter() - start
            left = elapsed / finished * (len(tasks) - kept - finished)
            progress.update(
                bar,
                description=f"{finished} of {len(tasks) - kept} tasks, {tokens / elapsed:.1f} "
                f"tokens/s, about {left / 60:.0f} min left ({result['draft']})",
            )

        if kept < len(tasks):
            with cluster(arguments.scheduler, workers) as client:
                measure(client, settings, tasks, file, done)
    file.close()
    results = {key: result for key, result in file.results.items() if key in wanted}
    table, data = summary(settings, dataset, results, drafts)
    write_whole(arguments.out / "acceptance.json", json_text(data))
    show_grid(console, table)
    show(console, table)
    seconds = sum(result["seconds"] for result in results.values())
    count = sum(prompt["tokens"] for r in results.values() for prompt in r["prompts"])
    console.print(
        f"\n{len(results)} tasks, {count:,} tokens, {seconds:.0f} s of work "
        f"({count / seconds:.1f} tokens a second and worker); "
        f"{arguments.out / 'acceptance.json'}"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
