"""``make vectors``: files of golden vectors through quantisation, both golden forms and the RTL.

``python -m sim.vectors [--quick] FILE ...`` prints a line a file and exits non-zero on any
difference. The form of a file is described in :mod:`model.datapath.vectors`.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time

import torch

from hw.config import P_MIN, TILE, Config
from model.datapath.vectors import Vector, check_model, compare, load_vector
from model.formats.bfp import is_midpoint, partial_load
from sim.build import SimulatorMissing
from sim.product import Product, run
from sim.registry import TINY


def config_for(vector: Vector) -> Config:
    """The smallest array that a vector's guard bits, p_full and K need."""
    needed = -(-vector.k // TILE) * TILE
    p_max = max(9, vector.p_full)
    return dataclasses.replace(
        TINY,
        name=f"g{vector.align_guard_bits}f{vector.acc_guard_bits}p{p_max}",
        p_max=p_max,
        align_guard_bits=vector.align_guard_bits,
        acc_guard_bits=vector.acc_guard_bits,
        max_k=max(4096, needed),
        contexts=1,
    )


def products(vector: Vector) -> list[Product]:
    """A vector's product in both result formats."""
    magnitudes = partial_load(vector.magnitudes, vector.p_full, vector.p)
    return [
        Product(
            activations=vector.activations.view(torch.int16).numpy().view("u2"),
            exponents=vector.exponents.numpy(),
            signs=vector.signs.numpy(),
            magnitudes=magnitudes.numpy(),
            p=vector.p,
            midpoint=is_midpoint(vector.reconstruct, vector.p, vector.p_full),
            fp32=fmt == "fp32",
        )
        for fmt in ("bf16", "fp32")
    ]


def check_rtl(vectors: list[Vector]) -> list[list[str]]:
    """Differences of the RTL, a list for each vector; all vectors need one configuration."""
    config = config_for(vectors[0])
    jobs = [product for vector in vectors for product in products(vector)]
    ran = run(config, jobs)
    found = []
    for number, vector in enumerate(vectors):
        differences = []
        for offset, fmt in enumerate(("bf16", "fp32")):
            codes = torch.from_numpy(ran[2 * number + offset].codes.astype("int64"))
            differences += compare(f"RTL {fmt}", vector.expected[fmt], codes)
        found.append([str(difference) for difference in differences])
    return found


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="sim.vectors", description=__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--quick", action="store_true", help="RTL of one configuration only")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    loaded: list[tuple[str, Vector]] = []
    failed = 0
    for path in arguments.files:
        try:
            loaded.append((path, load_vector(path)))
        except (OSError, ValueError) as error:
            failed += 1
            print(f"{path}: cannot be read: {error}")
    groups: dict[Config, list[tuple[str, Vector]]] = {}
    for path, vector in loaded:
        groups.setdefault(config_for(vector), []).append((path, vector))
    for config, members in sorted(groups.items(), key=lambda item: -len(item[1])):
        started = time.monotonic()
        on_rtl = [vector for _, vector in members if vector.p >= P_MIN]
        note = f"RTL {config.name}"
        if arguments.quick and config != max(groups, key=lambda c: len(groups[c])):
            on_rtl, note = [], "RTL not in the quick form"
        rtl: dict[int, list[str]] = {}
        try:
            if on_rtl:
                print(f"[{config.name}] {len(on_rtl)} vectors on the RTL ...", flush=True)
                rtl = dict(zip(map(id, on_rtl), check_rtl(on_rtl), strict=True))
        except (RuntimeError, SimulatorMissing) as error:
            rtl = {id(vector): [f"RTL: {error}"] for vector in on_rtl}
        for path, vector in members:
            differences = [str(d) for d in check_model(vector)] + rtl.get(id(vector), [])
            failed += bool(differences)
            where = note if vector.p >= P_MIN else f"p {vector.p} is for the model alone"
            verdict = "; ".join(differences) if differences else "equal"
            print(
                f"{path}: M {vector.m} K {vector.k} N {vector.n}, p {vector.p}/{vector.p_full}"
                f" {vector.reconstruct}: {verdict} (quantisation, "
                f"{'image, ' if vector.image is not None else ''}fast, stepwise, {where})"
            )
        print(f"[{config.name}] {time.monotonic() - started:.0f} s", flush=True)
    total = len(arguments.files)
    print(f"vectors: {total - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
