"""Runs the products that :mod:`sim.product` has written down; compares nothing itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import cocotb
import numpy as np

from hw.compute import layouts
from hw.config import TILE, Config
from sim import words
from sim.environment import Environment
from sim.harness import Bench, MismatchError, Sink
from sim.words import Array


def _pad(values: Array, rows: int, columns: int) -> Array:
    return np.pad(values, ((0, rows - values.shape[0]), (0, columns - values.shape[1])))


class _Job:
    """One product's arrays, padded to whole tiles and passes."""

    def __init__(self, config: Config, folder: Path, number: int, settings: dict[str, int]) -> None:
        self.config = config
        self.settings = settings
        with np.load(folder / f"{number}.npz") as stored:
            activations, exponents = stored["activations"], stored["exponents"]
            signs, magnitudes = stored["signs"], stored["magnitudes"]
        self.m, k = activations.shape
        self.n = signs.shape[1]
        self.passes = -(-self.m // config.t_m)
        self.k_tiles, self.n_tiles = -(-k // TILE), -(-self.n // TILE)
        rows, columns = self.k_tiles * TILE, self.n_tiles * TILE
        self.activations = _pad(activations, self.passes * config.t_m, rows)
        self.exponents = _pad(exponents, rows, self.n_tiles)
        self.signs = _pad(signs.astype(np.int64), rows, columns)
        self.magnitudes = _pad(magnitudes.astype(np.int64), rows, columns)

    def order(self) -> Iterator[tuple[int, int]]:
        """Output tiles as ``(pass, n_tile)``: the weight tile stays for all passes."""
        for n_tile in range(self.n_tiles):
            for number in range(self.passes):
                yield number, n_tile

    def mask(self, number: int) -> int:
        """Row mask of a pass: the last may be partly empty."""
        rows = min(self.config.t_m, self.m - number * self.config.t_m)
        return (1 << rows) - 1


def _reached(results: Sink, count: int) -> bool:
    return results.count >= count


@cocotb.test()
async def products(dut: object) -> None:
    """Every product, back to back."""
    env = Environment.get()
    config = env.config
    folder = Path(env.options["folder"])
    jobs = json.loads((folder / "jobs.json").read_text())
    bench = Bench(dut, 0)
    streams = {
        name: bench.source(name)
        for name in ("tiles", "activations", "exponents", "planes", "scales")
    }
    results = bench.sink("results")
    bench.port("clear").value = 0
    await bench.reset()
    layout = layouts.results_layout(config)
    for number, settings in enumerate(jobs):
        job = _Job(config, folder, number, settings)
        got: list[int] = []
        cycles: list[int] = []

        def note_plane(_word: int, seen: list[int] = cycles) -> None:
            seen.append(bench.cycle_count)

        results.observers = [got.append]
        streams["planes"].observers = [note_plane]
        planes: dict[tuple[int, int], list[int]] = {}
        for row_pass, n_tile in job.order():
            if row_pass == 0:
                planes.clear()
            rows = slice(row_pass * config.t_m, (row_pass + 1) * config.t_m)
            columns = slice(n_tile * TILE, (n_tile + 1) * TILE)
            for k_tile in range(job.k_tiles):
                inputs = slice(k_tile * TILE, (k_tile + 1) * TILE)
                streams["tiles"].send(
                    [
                        words.tile_word(
                            config,
                            **settings,
                            first=int(k_tile == 0),
                            last=int(k_tile == job.k_tiles - 1),
                            rows=job.mask(row_pass),
                        )
                    ]
                )
                groups = job.activations[rows, inputs].reshape(config.t_m, 4, -1)
                streams["activations"].send(words.from_array(groups[:, g]) for g in range(4))
                streams["exponents"].send(
                    words.from_array(part) for part in job.exponents[inputs, n_tile].reshape(4, -1)
                )
                key = (k_tile, n_tile)
                if key not in planes:
                    planes[key] = words.plane_words(
                        config,
                        job.signs[inputs, columns],
                        job.magnitudes[inputs, columns],
                        settings["p"],
                    )
                streams["planes"].send(planes[key])
        beats = job.passes * job.n_tiles * (TILE // config.drain)
        busy = job.passes * job.n_tiles * job.k_tiles * settings["p"] * config.fold
        last = results.count + beats
        await bench.run(partial(_reached, results, last), limit=2 * busy + 100 * beats + 1000)
        codes = np.zeros((job.passes * config.t_m, job.n_tiles * TILE), np.uint32)
        overflow = False
        expected = iter(job.order())
        for beat, word in enumerate(got):
            fields = words.unpack(layout, word)
            column = beat % (TILE // config.drain) * config.drain
            if column == 0:
                row_pass, n_tile = next(expected)
            if fields["column"] != column or fields["rows"] != job.mask(row_pass):
                raise MismatchError(f"result {beat} of product {number} is out of order")
            overflow |= bool(fields["overflow"] & fields["rows"])
            rows = slice(row_pass * config.t_m, (row_pass + 1) * config.t_m)
            start = n_tile * TILE + column
            codes[rows, start : start + config.drain] = fields["codes"]
        np.savez(
            folder / f"result-{number}.npz",
            codes=codes[: job.m, : job.n],
            cycles=cycles[-1] - cycles[0] + 1,
            overflow=overflow,
        )
