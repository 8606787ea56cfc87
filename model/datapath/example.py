"""A product small enough to redo by hand, with every step printed.

    python -m model.datapath.example [--p 5] [--reconstruct truncate] [--guard-bits 2]

Five activations meet two outputs. Four of them lie in the first tile, in one look-up table; the
fifth lies in the second tile and raises the running exponent. All other activations are zeros, so
they count nowhere. Guard bits are 2 rather than 8, to keep the integers short. The numbers are
those of `model.datapath.stepwise`; docs/number-format.md goes through them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from model.datapath.describe import describe_result
from model.datapath.fast import matmul
from model.datapath.steps import HALF, Stepwise, TileSteps, stepwise
from model.formats.bf16 import fields
from model.formats.bfp import RECONSTRUCTIONS, Bfp, quantize
from model.formats.constants import MU, P_MIN, TILE_K
from model.formats.floats import to_codes

#: k, activation, weights of the two outputs; all exact in BF16.
TERMS = (
    (0, 1.5, (0.8125, -0.296875)),
    (1, -0.62890625, (-1.25, 0.15625)),
    (2, 3.25, (1.625, -1.75)),
    (3, 0.049072265625, (-2.5, -0.01171875)),
    (TILE_K, 80.0, (0.59375, -0.75)),
)
K = TILE_K + 1
OUTPUTS = 2
GUARD_BITS = 2


class Operands(NamedTuple):
    """The product.

    Attributes:
        activations: bfloat16 (1, 65).
        weights: bfloat16 (65, 2).
        stored: the weights in BFP9; a group is the two outputs of one k.
    """

    activations: Tensor
    weights: Tensor
    stored: Bfp


def operands() -> Operands:
    """Activations and weights of the example."""
    activations = torch.zeros(1, K)
    weights = torch.zeros(K, OUTPUTS)
    for k, activation, row in TERMS:
        activations[0, k] = activation
        weights[k] = torch.tensor(row)
    return Operands(activations.bfloat16(), weights.bfloat16(), quantize(weights))


def describe(p: int = P_MIN, reconstruct: str = "truncate", guard_bits: int = GUARD_BITS) -> str:
    """Every step of the example as text.

    Raises:
        TypeError, ValueError: as in `stepwise`.
    """
    made = operands()
    steps = stepwise(
        made.activations,
        made.stored,
        p=p,
        reconstruct=reconstruct,
        align_guard_bits=guard_bits,
        acc_guard_bits=guard_bits,
    )
    lines = [
        f"p {p}, {'midpoint' if steps.midpoint else 'truncate'}, g {steps.g}, f {steps.f}",
        "",
        *_activations(made),
        "",
        *_weights(made, p),
    ]
    for tile in steps.tiles:
        lines += ["", *_tile(steps, tile)]
    lines += ["", *_results(made, steps, guard_bits)]
    return "\n".join(lines)


def _activations(made: Operands) -> Iterator[str]:
    yield "1. Activations: x = (-1)^s sig 2^(e - 134)"
    yield "     k               x  code  s  sig    e"
    parts = fields(made.activations[0])
    codes = to_codes(made.activations[0]).to(torch.int64)
    for k, x, _ in TERMS:
        yield (
            f"    {k:>2}  {x:>14}  {int(codes[k]):04x}  {int(parts.sign[k])}"
            f"  {int(parts.significand[k]):>3}  {int(parts.exponent[k]):>3}"
        )


def _weights(made: Operands, p: int) -> Iterator[str]:
    stored = made.stored
    cut = stored.p_full - p
    yield f"2. Weights: E = larger e of a row, mag = sig >> (E - e), q = mag >> {cut}"
    yield "     k  n             w  sig    e    E  s  mag  mag in binary    q  q in binary"
    parts = fields(made.weights)
    q = stored.load(p)
    for k, _, row in TERMS:
        for n, w in enumerate(row):
            magnitude = int(stored.magnitudes[k, n])
            yield (
                f"    {k:>2}  {n}  {w:>12}  {int(parts.significand[k, n]):>3}"
                f"  {int(parts.exponent[k, n]):>3}  {int(stored.exponents[k, 0]):>3}"
                f"  {int(stored.signs[k, n])}  {magnitude:>3}"
                f"  {magnitude:0{stored.p_full - 1}b}       {int(q[k, n]):>3}"
                f"  {int(q[k, n]):0{p - 1}b}"
            )


def _tile(steps: Stepwise, tile: TileSteps) -> Iterator[str]:
    first = tile.k_tile * TILE_K
    number = 3 + tile.k_tile
    x = int(tile.tile_exponent[0])
    live = [k for k, *_ in TERMS if first <= k < first + TILE_K]
    yield f"{number}. Tile {tile.k_tile}"
    yield f"   Align: eps = e + E, X = largest eps = {x}, a' = (-1)^s ((sig << g) >> (X - eps))"
    yield "     k    e    E  eps  X - eps    a'"
    for k in live:
        at = k - first
        eps = int(tile.folded[0, at])
        yield (
            f"    {k:>2}  {int(tile.activation_exponents[0, at]):>3}"
            f"  {int(tile.group_exponents[at]):>3}  {eps:>3}  {x - eps:>7}"
            f"  {int(tile.aligned[0, at]):>4}"
        )
    yield f"   Table of k {first} to {first + MU - 1}: T(v), bit i of v is 1 where a'_i has a minus"
    half = [int(entry) for entry in tile.lut_half[0, 0]]
    entries = [f"T({v}) {half[v]:>5}" for v in range(HALF)]
    yield "    " + "  ".join(entries[: HALF // 2])
    yield "    " + "  ".join(entries[HALF // 2 :])
    yield f"    T(8) to T(15) are not kept: T(v) = -T({2 * HALF - 1} - v)"
    for n in range(OUTPUTS):
        yield from _column(steps, tile, n)


def _column(steps: Stepwise, tile: TileSteps, n: int) -> Iterator[str]:
    sums = tile.plane_sums[0, :, n].tolist()
    yield f"   Output {n}: a look-up a plane, Horner's sum"
    yield "    plane   v (3210)   T(v)  twice the sum before, plus T(v)"
    total = 0
    for plane, value in enumerate(sums):
        v = int(tile.patterns[plane, 0, n])
        name = "sign" if plane == 0 else f"b{steps.p - 1 - plane}"
        before = f"2 x {total} " if plane else ""
        total = 2 * total + value
        yield f"    {name:<5}  {v:>2} ({v:04b})  {value:>5}  {before}{value:+} = {total}"
    tile_sum = int(tile.tile_sum[0, n])
    if not steps.midpoint:
        yield f"    truncate: less T(v) of the sign plane, {total} - ({sums[0]})"
    yield f"    I = {tile_sum}"
    r_before, r = int(tile.running_before[0]), int(tile.running[0])
    old, shifted = int(tile.accumulators_before[0, n]), int(tile.shifted_accumulators[0, n])
    addend = int(tile.addends[0, n])
    x = int(tile.tile_exponent[0])
    yield (
        f"    R {r_before or 'none'} -> {r}; A = ({old} >> {r - r_before if r_before else 0})"
        f" + (({tile_sum} << {steps.f}) >> {r - x}) = {shifted} + {addend}"
        f" = {int(tile.accumulators[0, n])}"
    )


def _results(made: Operands, steps: Stepwise, guard_bits: int) -> Iterator[str]:
    unit = int(steps.result_exponents[0, 0])
    number = 3 + len(steps.tiles)
    yield f"{number}. Results: y = A 2^(R - 260 - p - g - f) = A 2^{unit}, rounded once"
    for n in range(OUTPUTS):
        exact = int(steps.accumulators[0, n]) * 2.0**unit
        yield f"    output {n}: {exact!r}; {describe_result(steps, 0, n)}"
    yield "   The same product from other loads, in BF16, and in exact arithmetic:"
    loads = [(steps.p, way) for way in RECONSTRUCTIONS if steps.p < made.stored.p_full]
    for p, way in [*loads, (made.stored.p_full, "truncate")]:
        y = matmul(
            made.activations,
            made.stored,
            p=p,
            reconstruct=way,
            align_guard_bits=guard_bits,
            acc_guard_bits=guard_bits,
        )
        name = f"BFP{p}, all bits" if p == made.stored.p_full else f"BFP{p}, {way}"
        yield f"    {name:<18}" + "".join(f"{float(value):>14}" for value in y[0])
    exact_product = made.activations.double() @ made.weights.double()
    yield f"    {'exact':<18}" + "".join(f"{float(value):>14.8g}" for value in exact_product[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m model.datapath.example",
        description="Prints every step of a product that is small enough to redo by hand.",
    )
    parser.add_argument("--p", type=int, default=P_MIN, help="planes of the load (default 5)")
    parser.add_argument("--reconstruct", default="truncate", help="truncate or midpoint")
    parser.add_argument("--guard-bits", type=int, default=GUARD_BITS, help="g and f (default 2)")
    options = parser.parse_args(arguments)
    try:
        print(describe(options.p, options.reconstruct, options.guard_bits))
    except ValueError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
