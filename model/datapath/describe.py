"""Text of the stepwise form: what an engineer prints beside a wave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from model.formats.constants import MU, TILE_N

if TYPE_CHECKING:
    from model.datapath.steps import Stepwise, TileSteps


def describe_tile(steps: Stepwise, tile: TileSteps, row: int, column: int) -> str:
    """Every step of one tile for one row and one column, as a table of text."""
    n = steps.n_tile * TILE_N + column
    luts = tile.lut_half.shape[1]
    x = int(tile.tile_exponent[row])
    lines = [
        f"tile {tile.k_tile}, row {row}, column {column} (n {n}), p {steps.p}, "
        f"{'midpoint' if steps.midpoint else 'truncate'}, g {steps.g}, f {steps.f}",
        f"  tile exponent X {x or 'none, tile skipped'}",
        "  lut     k   e_k   E_k  eps_k     a'_k  T(0..7), v_3 = +1",
    ]
    for lut in range(luts):
        entries = " ".join(str(v) for v in tile.lut_half[row, lut].tolist())
        for i in range(MU):
            k = lut * MU + i
            lines.append(
                f"  {lut if i == 0 else '':>3} {tile.k_tile * luts * MU + k:>5} "
                f"{int(tile.activation_exponents[row, k]):>5} {int(tile.group_exponents[k]):>5} "
                f"{int(tile.folded[row, k]) or '-':>6} {int(tile.aligned[row, k]):>8}"
                + (f"  {entries}" if i == 0 else "")
            )
    lines.append("  plane      sum  look-ups T(v), v in hexadecimal")
    for plane in range(steps.p):
        looked_up = " ".join(
            f"{int(v):x}:{int(value)}"
            for v, value in zip(
                tile.patterns[plane, :, column], tile.lookups[row, plane, :, column], strict=True
            )
        )
        name = "sign" if plane == 0 else f"b{steps.p - 1 - plane}"
        lines.append(f"  {name:>5} {int(tile.plane_sums[row, plane, column]):>8}  {looked_up}")
    sign_sum = int(tile.plane_sums[row, 0, column])
    less = "" if steps.midpoint else f", less the sign plane's {sign_sum}"
    lines += [
        f"  tile sum I {int(tile.tile_sum[row, column])}{less}",
        f"  R {int(tile.running_before[row]) or 'none'} -> {int(tile.running[row]) or 'none'}",
        f"  A {int(tile.accumulators_before[row, column])} "
        f"shifted to {int(tile.shifted_accumulators[row, column])} "
        f"plus {int(tile.addends[row, column])} "
        f"is {int(tile.accumulators[row, column])}",
    ]
    return "\n".join(lines)


def describe_result(steps: Stepwise, row: int, column: int) -> str:
    """The result of one row and one column in both formats."""
    codes = {fmt: int(steps.result(fmt).codes[row, column]) for fmt in ("bf16", "fp32")}
    return (
        f"result A {int(steps.accumulators[row, column])} * "
        f"2^{int(steps.result_exponents[row, column])}: "
        f"BF16 {codes['bf16']:04x}, FP32 {codes['fp32']:08x}"
    )
