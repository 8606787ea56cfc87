"""Fast form == stepwise form == tile machine == reference, bit for bit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model.datapath import TileMachine, matmul, matmul_with_status, products, stepwise
from model.datapath.bounds import acc_bound
from model.formats.bf16 import from_codes
from model.formats.bfp import Bfp, is_midpoint, quantize
from model.formats.floats import to_codes
from tests.model import reference
from tests.model.cases import BASE_SEED, MOODS, Case, make

FORMATS = ("bf16", "fp32")


def fast_codes(activations: Tensor, bfp: Bfp, fmt: str, load: dict[str, object]) -> Tensor:
    return to_codes(matmul(activations, bfp, out=fmt, **load)).to(torch.int64)  # type: ignore[arg-type]


def machine_codes(
    activations: Tensor, bfp: Bfp, p: int, reconstruct: str, g: int, f: int
) -> dict[str, Tensor]:
    """Through the tile machine, tile by tile: codes by format, (M, N)."""
    m, (k, n) = len(activations), bfp.shape
    codes: dict[str, list[Tensor]] = {fmt: [] for fmt in FORMATS}
    machine = TileMachine(m, contexts=2, align_guard_bits=g, acc_guard_bits=f)
    loaded = bfp.load(p)
    for n_tile, left in enumerate(range(0, n, 64)):
        columns = slice(left, min(n, left + 64))
        for top in range(0, k, 64):
            rows = slice(top, min(k, top + 64))
            height, width = rows.stop - top, columns.stop - left
            tile = torch.zeros(2, 64, 64, dtype=torch.int64)
            tile[0, :height, :width] = bfp.signs[rows, columns]
            tile[1, :height, :width] = loaded[rows, columns]
            machine.tile(
                torch.nn.functional.pad(activations[:, rows], (0, 64 - height)),
                torch.nn.functional.pad(bfp.exponents[rows, n_tile], (0, 64 - height)),
                tile[0],
                tile[1],
                p=p,
                midpoint=is_midpoint(reconstruct, p, bfp.p_full),
                first=top == 0,
                context=n_tile % 2,
            )
        for fmt in FORMATS:
            codes[fmt].append(machine.result(n_tile % 2, p=p, fmt=fmt).codes[:, :width])
    return {fmt: torch.cat(parts, dim=1) for fmt, parts in codes.items()}


def check_forms(case: Case, p: int, reconstruct: str, g: int, f: int, sample: int = 5) -> None:
    """All forms agree on all results, and the reference on some columns of each row."""
    m, n = len(case.activations), case.bfp.shape[1]
    load: dict[str, object] = {
        "p": p,
        "reconstruct": reconstruct,
        "align_guard_bits": g,
        "acc_guard_bits": f,
    }
    by_machine = machine_codes(case.activations, case.bfp, p, reconstruct, g, f)
    steps = [
        stepwise(case.activations, case.bfp, n_tile=tile, **load)  # type: ignore[arg-type]
        for tile in range(-(-n // 64))
    ]
    fast = {fmt: fast_codes(case.activations, case.bfp, fmt, load) for fmt in FORMATS}
    for fmt in FORMATS:
        by_step = torch.cat([step.result(fmt).codes for step in steps], dim=1)[:, :n]
        assert torch.equal(fast[fmt], by_step), fmt
        assert torch.equal(fast[fmt], by_machine[fmt]), fmt
    matrix = reference.Matrix(
        case.bfp.exponents.tolist(), case.bfp.signs.tolist(), case.bfp.magnitudes.tolist()
    )
    codes = to_codes(case.activations).tolist()
    for row in range(m):
        for i in range(sample):
            column = (row * 7 + i * 31) % n
            total, running = reference.product(
                codes[row],
                matrix,
                column,
                p_full=case.bfp.p_full,
                p=p,
                reconstruct=reconstruct,
                g=g,
                f=f,
            )
            assert int(steps[column // 64].accumulators[row, column % 64]) == total
            assert int(steps[column // 64].running[row]) == (running or 0)
            for fmt in FORMATS:
                expected = reference.result(total, running, p=p, g=g, f=f, fmt=fmt)
                assert int(fast[fmt][row, column]) == expected, (row, column, fmt)


@given(
    seed=st.integers(0, 1 << 30),
    mood=st.sampled_from(MOODS),
    m=st.integers(1, 3),
    k=st.one_of(st.integers(1, 200), st.sampled_from([64, 128, 192])),
    n=st.one_of(st.integers(1, 140), st.sampled_from([64, 65])),
    p_full=st.integers(9, 16),
    cut=st.integers(0, 11),
    rounding=st.sampled_from(["truncate", "nearest"]),
    reconstruct=st.sampled_from(["truncate", "midpoint"]),
    g=st.integers(0, 12),
    f=st.integers(0, 12),
)
@settings(deadline=None, max_examples=300)
def test_all_forms(
    seed: int,
    mood: str,
    m: int,
    k: int,
    n: int,
    p_full: int,
    cut: int,
    rounding: str,
    reconstruct: str,
    g: int,
    f: int,
) -> None:
    case = make(seed, mood, m, k, n, p_full=p_full, rounding=rounding)
    check_forms(case, max(5, p_full - cut), reconstruct, g, f, sample=2)


@pytest.mark.parametrize("seed", range(BASE_SEED, BASE_SEED + 2))
@pytest.mark.parametrize("mood", MOODS)
def test_moods(mood: str, seed: int) -> None:
    """Every mood at the default guard bits, both presets, draft and target."""
    for p_full, p, reconstruct in ((9, 9, "truncate"), (9, 5, "midpoint"), (16, 16, "truncate")):
        check_forms(make(seed, mood, 4, 330, 70, p_full=p_full), p, reconstruct, 8, 8, sample=3)


@pytest.mark.parametrize("p", range(2, 17))
def test_every_precision(p: int) -> None:
    """All loads of all p_full that allow it, the model's own study range included."""
    for p_full in range(max(9, p), 17):
        for reconstruct in ("truncate", "midpoint"):
            check_forms(make(p, "normal", 1, 128, 64, p_full=p_full), p, reconstruct, 8, 8, 1)


@pytest.mark.parametrize("g", range(13))
@pytest.mark.parametrize("f", [0, 1, 8, 12])
def test_every_guard_bit(g: int, f: int) -> None:
    check_forms(make(g, "any_code", 1, 192, 64), 7, "midpoint", g, f, sample=2)
    check_forms(make(f, "falling", 2, 192, 64), 9, "truncate", g, f, sample=2)


def single(activations: list[int], weights: list[int], tiles: int) -> Case:
    """One live k a tile, given as codes; the weight's column 0 holds them, the rest is zero."""
    a, w = torch.zeros(1, 64 * tiles, dtype=torch.int64), torch.zeros(64 * tiles, 64).long()
    for tile, (activation, weight) in enumerate(zip(activations, weights, strict=True)):
        a[0, 64 * tile], w[64 * tile, 0] = activation, weight
    values = from_codes(w)
    return Case(from_codes(a), values, quantize(values))


LARGEST, LEAST = 0x7F7F, 0x0001


@pytest.mark.parametrize("sign", [0, 0x8000])
@pytest.mark.parametrize("order", ["up", "down"])
def test_a_shift_of_506_is_a_floor(sign: int, order: str) -> None:
    """The least product beside the largest: shifted out to 0, or to -1 where it is negative."""
    a = [LEAST | sign, LARGEST]
    w = [LEAST, LARGEST]
    if order == "down":
        a, w = a[::-1], w[::-1]
    case = single(a, w, 2)
    steps = stepwise(case.activations, case.bfp, p=9)
    assert [int(tile.tile_exponent[0]) for tile in steps.tiles] == (
        [2, 508] if order == "up" else [508, 2]
    )
    small = steps.tiles[1].shifted_accumulators if order == "up" else steps.tiles[1].addends
    assert int(small[0, 0]) == (-1 if sign else 0)
    check_forms(case, 9, "truncate", 8, 8)


@pytest.mark.parametrize("distance", [1, 7, 8, 9, 16, 17, 30, 61, 62, 63, 64, 65, 200])
@pytest.mark.parametrize("sign", [0, 0x8000])
def test_floors_at_every_distance(distance: int, sign: int) -> None:
    """A small tile before and after a large one, in both signs: where the floors begin to lose."""
    large, small = (100 + distance) << 7 | 0x7F if distance < 155 else 0x7F7F, 100 << 7 | 0x55
    low = max(1, 254 - distance) << 7 | 0x55 if distance >= 155 else small
    for codes in ([low | sign, large], [large, low | sign], [low | sign, large, low | sign]):
        check_forms(single(codes, [0x3F81] * len(codes), len(codes)), 9, "truncate", 8, 8)


def test_a_tile_that_cancels_still_moves_the_exponent() -> None:
    a = torch.zeros(1, 128).bfloat16()
    a[0, 0], a[0, 64], a[0, 65] = 2.0**-40, 1.0, -1.0
    w = torch.zeros(128, 64).bfloat16()
    w[0], w[64], w[65] = -1.0, 1.0, 1.0
    case = Case(a, w, quantize(w))
    steps = stepwise(a, case.bfp, p=9)
    assert int(steps.tiles[1].tile_sum[0, 0]) == 0
    assert int(steps.running[0]) == 127 + 127
    assert int(steps.accumulators[0, 0]) == -1  # floor, not zero
    check_forms(case, 9, "truncate", 8, 8)


def test_dead_terms_do_not_align() -> None:
    """A huge activation on an all-zero group, and a huge group under a zero activation."""
    case = make(1, "normal", 2, 64, 64)
    a, w = case.activations.clone(), case.weights.clone()
    a[:, 0], w[0] = 2.0**120, 0.0
    a[:, 1], w[1] = -0.0, 2.0**120
    bfp = quantize(w)
    expected = matmul(
        torch.cat([a[:, 2:], a[:, :2] * 0], 1), quantize(torch.cat([w[2:], w[:2]])), p=9
    )
    assert torch.equal(matmul(a, bfp, p=9), expected)
    check_forms(Case(a, w, bfp), 9, "truncate", 8, 8)


@pytest.mark.parametrize("mood", MOODS)
@pytest.mark.parametrize("g", [0, 8])
def test_no_row_depends_on_another(mood: str, g: int) -> None:
    """Alone, among 8 and among 32, and in another order: the same bits."""
    case = make(BASE_SEED + 3, mood, 32, 200, 130)
    for p, reconstruct in ((9, "truncate"), (6, "midpoint")):
        load: dict[str, object] = {"p": p, "reconstruct": reconstruct, "align_guard_bits": g}
        among_32 = fast_codes(case.activations, case.bfp, "fp32", load)
        among_8 = [fast_codes(part, case.bfp, "fp32", load) for part in case.activations.split(8)]
        alone = [fast_codes(row, case.bfp, "fp32", load) for row in case.activations.split(1)]
        assert torch.equal(torch.cat(among_8), among_32)
        assert torch.equal(torch.cat(alone), among_32)
        order = torch.randperm(32, generator=torch.Generator().manual_seed(4))
        shuffled = fast_codes(case.activations[order], case.bfp, "fp32", load)
        assert torch.equal(shuffled, among_32[order])


def test_rows_of_both_routes_in_one_batch() -> None:
    """Rows with outliers among rows without, over many spans of output tiles."""
    normal, outlier = make(5, "normal", 12, 1100, 700), make(5, "outlier", 12, 1100, 700)
    a = normal.activations.clone()
    a[3::4] = outlier.activations[3::4]
    mixed = matmul_with_status(a, normal.bfp, p=8, out="fp32")[0]
    for row in range(12):
        alone = matmul(a[row : row + 1], normal.bfp, p=8, out="fp32")
        assert torch.equal(mixed[row : row + 1], alone)
    check_forms(Case(a[2:5], normal.weights, normal.bfp), 8, "truncate", 8, 8, sample=1)


@pytest.mark.parametrize("mood", ["normal", "outlier", "any_code"])
def test_a_k_of_several_products(mood: str) -> None:
    """More k than one matrix product of the fast form sums, and a ragged last tile."""
    case = make(BASE_SEED + 6, mood, 2, 2 * products.PRODUCT_K + 100, 3)
    check_forms(case, 9, "truncate", 8, 8, sample=1)


@pytest.mark.parametrize("p_full", [9, 16])
def test_all_maximum_at_a_large_k(p_full: int) -> None:
    """Every activation and weight the largest: the accumulator meets its bound exactly."""
    k = 2048
    top = (1 << (p_full - 1)) - 1
    bfp = Bfp.from_parts(
        torch.full((k, 1), 254),
        (torch.arange(64) % 2).expand(k, 64),
        torch.full((k, 64), top),
        p_full=p_full,
    )
    a = from_codes(torch.full((2, k), LARGEST))
    a[1] = -a[1]
    machine = TileMachine(2, p_max=p_full, max_k=k)
    for first in range(0, k, 64):
        rows = slice(first, first + 64)
        trace = machine.tile(
            a[:, rows],
            bfp.exponents[rows, 0],
            bfp.signs[rows],
            bfp.load(p_full)[rows],
            p=p_full,
            first=first == 0,
        )
    bound = acc_bound(k, p_full, 8, 8)
    assert trace.accumulators[0, :2].tolist() == [bound, -bound]
    assert trace.accumulators[1, :2].tolist() == [-bound, bound]
    assert bound.bit_length() + 1 <= machine.acc_bits
    small = Bfp.from_parts(
        torch.full((k, 1), 1), bfp.signs, bfp.magnitudes, p_full=p_full
    )  # the same, where the result is finite
    check_forms(Case(a, a, small), p_full, "truncate", 8, 8, sample=2)
    result, status = matmul_with_status(a, bfp, p=p_full)
    assert status.overflow
    assert torch.isinf(result).all()
