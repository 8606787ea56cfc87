"""Calibrates a precision lookup table: the draft with the highest modelled speedup in each entry.

    bsspec plt --acceptance paper|FILE --model NAME [--dataset GSM8K] [--gamma 7|best|1..16|3,4,7]
               [--cost paper|machine] [--reconstruct truncate|midpoint|best] [--out FOLDER]

Prints the 16 entries, each calibrated at the upper end of its total lengths, and the best draft by
batch and sequence length. With --out it writes plt.json, plt.csv and plt.bin, which read back to
the same table, and batches.csv. The search and its order: `model.calibration.search`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from model.calibration.cost import Cost, PaperCost
from model.calibration.files import json_text, write_whole
from model.calibration.machine import ROWS, MachineCost
from model.calibration.measured import MEAN, load_measured
from model.calibration.models import Shape, find_shape
from model.calibration.paper import GAMMA, paper_tables
from model.calibration.plt import Entry, Plt
from model.calibration.report import Section, console, csv_text, short
from model.calibration.search import RECONSTRUCT, Best, best_draft, candidates
from model.formats.checks import check_int
from model.formats.plt_layout import ENTRIES, GAMMA_MAX, longest
from model.lm.config import ModelConfig
from model.lm.precision import Precision

#: Batches and sequence lengths of the second table.
BATCHES = (1, 4, 8, 32)
SEQUENCES = tuple(1 << log2 for log2 in range(11, 21))

#: gammas of "best".
BEST_GAMMAS = range(1, 17)

COSTS = ("paper", "machine")


class Calibration(NamedTuple):
    """What a search gave.

    Attributes:
        cost: the cost model.
        batch: sequences that an entry's total length is spread over.
        entries: the best draft of each entry.
        batches: the best draft by (batch, sequence).
    """

    cost: Cost
    batch: int
    entries: list[Best]
    batches: dict[tuple[int, int], Best]

    @property
    def table(self) -> Plt:
        """The lookup table."""
        return Plt(tuple(Entry.of(best.precision, best.gamma) for best in self.entries))


def calibrate(
    cost: Cost,
    rates: dict[Precision, float],
    gammas: Sequence[int],
    *,
    batch: int = 1,
    batches: Sequence[int] = BATCHES,
    sequences: Sequence[int] = SEQUENCES,
) -> Calibration:
    """Searches every entry, and every batch and sequence length.

    Args:
        cost: the cost model.
        rates: acceptance by draft.
        gammas: those to try.
        batch: sequences of an entry; with the paper's cost it makes no difference.
        batches, sequences: of the second table.

    Raises:
        TypeError, ValueError: an argument, by name.
    """
    check_int("batch", batch, 1, longest(0))
    entries = [
        best_draft(cost, rates, gammas, batch, longest(place) // batch) for place in range(ENTRIES)
    ]
    table = {
        (count, length): best_draft(cost, rates, gammas, count, length)
        for count in batches
        for length in sequences
    }
    return Calibration(cost, batch, entries, table)


def parse_gammas(text: str) -> list[int]:
    """The gammas of "7", "best" (1 to 16), "1..16" or "3,4,7", rising.

    Raises:
        ValueError: written otherwise, or not in 1..255.
    """
    if text == "best":
        return list(BEST_GAMMAS)
    allowed = "a number, best, a range such as 1..16 or a list such as 3,4,7"
    gammas: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,4})(?:\.\.(\d{1,4}))?", part, re.ASCII)
        if match is None:
            raise ValueError(f"--gamma must be {allowed}, not {text!r}")
        low, high = int(match[1]), int(match[2] or match[1])
        if not 1 <= low <= high <= GAMMA_MAX:
            raise ValueError(f"--gamma must be rising numbers in 1..{GAMMA_MAX}, not {text!r}")
        gammas |= set(range(low, high + 1))
    return sorted(gammas)


def entries_section(found: Calibration, title: str) -> Section:
    """The 16 entries as a table."""
    rows, records = [], []
    table = found.table
    for place, (best, entry) in enumerate(zip(found.entries, table.entries, strict=True)):
        total = longest(place)
        reach = "no end" if place == ENTRIES - 1 else short(total)
        alone = _alone(found.cost, found.batch, total // found.batch)
        rows.append([str(place), reach, *_cells(best), f"{alone:.3f}", f"{entry.word:08x}"])
        records.append(
            {"index": place, "total_length": total, **_record(best), "target_alone": alone}
        )
    columns = ("entry", "B S\nup to", "draft", "gamma", "alpha", "speedup", "target\nalone", "word")
    note = (
        "speedup: modelled, over 16-bit autoregressive decoding; alone: the target without a draft"
    )
    return Section("plt", title, columns, rows, records, [note])


def batches_section(found: Calibration) -> Section:
    """The best draft by batch and sequence length as a table."""
    counts = sorted({count for count, _ in found.batches})
    lengths = sorted({length for _, length in found.batches})
    rows = []
    for length in lengths:
        cells = [found.batches[count, length] for count in counts]
        rows.append([short(length), *(f"{b.precision} {b.gamma} {b.speedup:.3f}" for b in cells)])
    records = [
        {"batch": count, "sequence": length, **_record(found.batches[count, length])}
        for count in counts
        for length in lengths
    ]
    columns = ("S", *(f"batch {count}\ndraft gamma speedup" for count in counts))
    title = "Best draft, gamma and modelled speedup by batch and sequence length S"
    return Section("batches", title, columns, rows, records)


def _cells(best: Best) -> list[str]:
    return [str(best.precision), str(best.gamma), f"{best.alpha:.4f}", f"{best.speedup:.3f}"]


def _record(best: Best) -> dict[str, Any]:
    return {**best._asdict(), "precision": str(best.precision)}


def _alone(cost: Cost, batch: int, sequence: int) -> float:
    return cost.speedup(Precision.full(cost.p_full), 0, 0.0, batch, sequence)


def write(
    folder: Path, found: Calibration, about: dict[str, Any], entries: Section, batches: Section
) -> list[Path]:
    """Writes the table in its three forms and the second table; returns the paths.

    Raises:
        ValueError: a form that does not read back to the same table.
    """
    table = found.table
    content = {
        **about,
        "entries": table.as_json(),
        "choices": list(entries.records),
        "batches": list(batches.records),
    }
    texts: dict[str, str | bytes] = {
        "plt.json": json_text(content),
        "plt.csv": table.as_csv(),
        "plt.bin": table.image(),
        "batches.csv": csv_text(batches.records),
    }
    paths = [write_whole(folder / name, text) for name, text in texts.items()]
    for path in paths[:3]:
        if Plt.load(path) != table:
            raise ValueError(f"{path} does not read back to the table that was written")
    return paths


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bsspec plt",
        description="Calibrates a precision lookup table from acceptance rates and a cost model.",
        epilog="Pairs are tried by falling p_w, then falling p_kv, truncated before midpoint, with"
        " rising gamma; a later one must be strictly better.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--acceptance", default="paper", metavar="paper|FILE", help="rates (default: paper)")
    add("--model", required=True, help="a model of the paper, smollm2, or a Hugging Face folder")
    add("--acceptance-of", metavar="NAME", help="whose rates (default: the model's own)")
    add(
        "--dataset", help=f"a data set, or {MEAN} (default: GSM8K, or the mean where it is missing)"
    )
    add("--gamma", default=str(GAMMA), help="7, best (1..16), 1..16 or 3,4,7 (default: 7)")
    add("--t-v", type=float, help="T_V / T_T of the paper's cost (default: 1)")
    add("--exponents", action="store_true", help="paper's cost with p + 8/64 bits a number")
    add("--cost", choices=COSTS, default="paper", help="cost model (default: paper)")
    add("--rows", type=int, help=f"rows of the machine's array (default: {ROWS})")
    add("--batch", type=int, default=1, help="sequences of an entry (default: 1; machine's cost)")
    add("--reconstruct", choices=RECONSTRUCT, default="truncate", help="default: truncate")
    add("--out", type=Path, metavar="FOLDER", help="write plt.json, plt.csv, plt.bin, batches.csv")
    return parser


def _cost(arguments: argparse.Namespace, config: ModelConfig) -> Cost:
    if arguments.cost == "machine":
        if arguments.t_v is not None or arguments.exponents:
            raise ValueError("--t-v and --exponents go with --cost paper: the machine's follow")
        return MachineCost(config, rows=ROWS if arguments.rows is None else arguments.rows)
    if arguments.rows is not None:
        raise ValueError("--rows goes with --cost machine")
    t_v = 1.0 if arguments.t_v is None else arguments.t_v
    return PaperCost(config, t_v=t_v, exponents=arguments.exponents)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    arguments = _parser().parse_args(argv)
    shape: Shape = find_shape(arguments.model)
    cost = _cost(arguments, shape.config)
    if arguments.acceptance == "paper":
        source = paper_tables().results
    else:
        source = load_measured(Path(arguments.acceptance))
    acceptance = source.of_model(arguments.acceptance_of or shape.name)
    dataset = arguments.dataset or acceptance.usual()
    rates = candidates(acceptance.of_set(dataset), arguments.reconstruct)
    gammas = parse_gammas(arguments.gamma)
    found = calibrate(cost, rates, gammas, batch=arguments.batch)
    about = {
        "model": shape.name,
        "acceptance": acceptance.source,
        "acceptance_of": acceptance.name,
        "dataset": dataset,
        "gammas": gammas,
        "reconstruct": arguments.reconstruct,
        "cost": cost.name,
        "batch": arguments.batch,
        "shape": asdict(shape.config),
    }
    title = (
        f"PLT of {shape.name}: acceptance {acceptance.source} ({acceptance.name}, {dataset}),"
        f" gamma {arguments.gamma}, {arguments.reconstruct}, cost {cost.name}"
    )
    entries, batches = entries_section(found, title), batches_section(found)
    out = console()
    for section in (entries, batches):
        section.show(out)
    if arguments.out is not None:
        for path in write(arguments.out, found, about, entries, batches):
            out.print(f"wrote {path}", soft_wrap=True)
    return 0
