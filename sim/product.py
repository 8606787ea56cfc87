"""Whole matrix products on the RTL: tiled, padded, in passes over the rows.

The product is what ``model.datapath.matmul`` computes; here it goes through the simulated array
and comes back as codes, with the cycles that it took. Used by ``make vectors`` and ``make demo``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hw.config import TILE, Config
from hw.emit import emit
from sim.build import BUILD, Build, compile_design, make_runner
from sim.environment import Environment
from sim.registry import BENCHES
from sim.words import Array


@dataclass
class Product:
    """Activations times a weight at one precision, as the array takes it.

    Attributes
    ----------
    activations : (M, K) uint16
        BF16 codes.
    exponents : (K, ceil(N / 64)) uint8
    signs : (K, N) 0 or 1
    magnitudes : (K, N)
        The ``p - 1`` bits that a load of p planes brings.
    p : int
    midpoint : bool
        Literally: at full precision it must be false.
    fp32 : bool
        FP32 results rather than BF16.
    """

    activations: Array
    exponents: Array
    signs: Array
    magnitudes: Array
    p: int
    midpoint: bool = False
    fp32: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, K, N."""
        m, k = self.activations.shape
        return m, k, self.signs.shape[1]

    def tile_count(self, config: Config) -> int:
        """Tiles that the array runs for it, all passes together."""
        m, k, n = self.shape
        return -(-m // config.t_m) * -(-k // TILE) * -(-n // TILE)


@dataclass
class Ran:
    """What came back.

    Attributes
    ----------
    codes : (M, N) uint32
        Result codes, BF16 in the low 16 bits.
    cycles : int
        From the first accepted plane to the last, inclusive.
    overflow : bool
    """

    codes: Array
    cycles: int
    overflow: bool


class _Watcher:
    """Tells of results as the simulation writes them down, one after the other."""

    def __init__(self, folder: Path, count: int, on_done: Callable[[int], None]) -> None:
        self._paths = deque((n, folder / f"result-{n}.npz") for n in range(count))
        self._on_done = on_done
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _look(self) -> None:
        while self._paths and self._paths[0][1].exists():
            self._on_done(self._paths.popleft()[0])

    def _watch(self) -> None:
        while not self._stop.wait(0.5):
            self._look()

    def __enter__(self) -> _Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()


def build(config: Config) -> Build:
    """The simulated array of a configuration."""
    spec = BENCHES["array"]
    design = emit(config, spec.make(config))
    return compile_design(design.verilog, design.top, hierarchical=spec.hierarchical)


def run(
    config: Config,
    products: Sequence[Product],
    *,
    built: Build | None = None,
    on_done: Callable[[int], None] | None = None,
) -> list[Ran]:
    """Runs products one after the other on one array.

    ``on_done`` is called with the number of each product as it ends.

    Raises
    ------
    ValueError
        If a product's K is beyond what the accumulators hold.
    RuntimeError
        If the simulation does not come to an end; the message names its log.
    """
    for number, product in enumerate(products):
        k = product.shape[1]
        if k > config.max_k:
            raise ValueError(
                f"product {number}: K must be at most max_k = {config.max_k} of configuration"
                f" {config.name}, not {k}"
            )
    built = built or build(config)
    runs = BUILD / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="product-", dir=runs))
    jobs = []
    for number, product in enumerate(products):
        np.savez(
            folder / f"{number}.npz",
            activations=product.activations,
            exponents=product.exponents,
            signs=product.signs,
            magnitudes=product.magnitudes,
        )
        jobs.append({"p": product.p, "midpoint": int(product.midpoint), "fp32": int(product.fp32)})
    (folder / "jobs.json").write_text(json.dumps(jobs))
    environment = Environment(
        config, 0, False, folder / "report.jsonl", {"folder": str(folder), "count": len(jobs)}
    )
    log = folder / "run.log"
    watcher = _Watcher(folder, len(jobs), on_done) if on_done else contextlib.nullcontext()
    with watcher, contextlib.suppress(SystemExit):
        make_runner("verilator").test(
            test_module="sim.benches.product",
            hdl_toplevel=built.top,
            hdl_toplevel_lang="verilog",
            build_dir=built.directory,
            test_dir=folder,
            extra_env={
                "COCOTB_ANSI_OUTPUT": "0",
                "OMP_NUM_THREADS": "1",
                **environment.to_env(),
            },
            results_xml=folder / "results.xml",
            log_file=log,
        )
    results = []
    for number in range(len(jobs)):
        path = folder / f"result-{number}.npz"
        if not path.exists():
            raise RuntimeError(f"the simulation ended early: see {os.path.relpath(log)}")
        with np.load(path) as stored:
            results.append(Ran(stored["codes"], int(stored["cycles"]), bool(stored["overflow"])))
    shutil.rmtree(folder, ignore_errors=True)
    return results
