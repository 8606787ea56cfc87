"""The tile machine: contexts, masks, flags, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from model.datapath import TileMachine, TileTrace
from model.formats.bf16 import from_codes
from model.formats.floats import to_codes
from tests.model import reference
from tests.model.cases import BASE_SEED, MOODS, make

ROWS = 3


def tile_of(seed: int, mood: str = "normal", p: int = 9) -> dict[str, Any]:
    """Arguments of one tile."""
    case = make(seed, mood, ROWS, 64, 64)
    return {
        "activations": case.activations,
        "exponents": case.bfp.exponents[:, 0],
        "signs": case.bfp.signs,
        "magnitudes_q": case.bfp.load(p),
        "p": p,
    }


def state(machine: TileMachine) -> tuple[list[int], list[int]]:
    return machine.running.reshape(-1).tolist(), machine.accumulators.reshape(-1).tolist()


@pytest.mark.parametrize("mood", MOODS)
@pytest.mark.parametrize("midpoint", [False, True])
def test_trace_against_the_reference(mood: str, midpoint: bool) -> None:
    """Every intermediate value of three tiles, for each row and some columns."""
    machine = TileMachine(ROWS, align_guard_bits=6, acc_guard_bits=5)
    columns = (0, 13, 63)
    expected = [[reference.Accumulator(5) for _ in columns] for _ in range(ROWS)]
    for index in range(3):
        p = (9, 5, 7)[index]
        tile = tile_of(BASE_SEED + index, mood, p)
        trace = machine.tile(**tile, midpoint=midpoint, first=index == 0)
        codes = to_codes(tile["activations"]).tolist()
        for row in range(ROWS):
            x, aligned = reference.aligned_tile(codes[row], tile["exponents"].tolist(), 6)
            assert int(trace.tile_exponent[row]) == (x or 0)
            assert trace.aligned[row].tolist() == aligned
            for column, accumulator in zip(columns, expected[row], strict=True):
                q, s = tile["magnitudes_q"][:, column], tile["signs"][:, column]
                c = [(2 * int(q[k]) + midpoint) * (-1) ** int(s[k]) for k in range(64)]
                total = sum(a * b for a, b in zip(aligned, c, strict=True))
                assert int(trace.sums[row, column]) == total
                if x is not None:
                    accumulator.add(total, x)
                assert int(trace.accumulators[row, column]) == accumulator.total
                assert int(trace.running[row]) == (accumulator.running or 0)
    for fmt in ("bf16", "fp32"):
        shifts = torch.arange(64) - 30
        got = machine.result(p=7, fmt=fmt, column_exponents=shifts).codes
        for row in range(ROWS):
            for column, accumulator in zip(columns, expected[row], strict=True):
                assert int(got[row, column]) == reference.result(
                    accumulator.total,
                    accumulator.running,
                    p=7,
                    g=6,
                    f=5,
                    fmt=fmt,
                    column_exponent=int(shifts[column]),
                )


def test_codes_and_numbers_are_the_same_activations() -> None:
    tile = tile_of(1, "any_code")
    machines = [TileMachine(ROWS) for _ in range(3)]
    codes = to_codes(tile["activations"])
    for machine, activations in zip(
        machines, (tile["activations"], codes, codes.to(torch.int64)), strict=True
    ):
        machine.tile(**{**tile, "activations": activations}, first=True)
    assert state(machines[0]) == state(machines[1]) == state(machines[2])


def test_contexts_do_not_touch_each_other() -> None:
    """Three products whose tiles are interleaved, against one after the other."""
    together = TileMachine(ROWS, contexts=3)
    order = [(context, index) for index in range(4) for context in range(3)]
    order = [order[i] for i in np.random.default_rng(BASE_SEED).permutation(len(order))]
    done = [0, 0, 0]
    for context, _ in order:
        tile = tile_of(10 * context + done[context], "rising")
        together.tile(**tile, first=done[context] == 0, context=context)
        done[context] += 1
    for context in range(3):
        alone = TileMachine(ROWS)
        for index in range(4):
            alone.tile(**tile_of(10 * context + index, "rising"), first=index == 0)
        assert torch.equal(together.accumulators[context], alone.accumulators[0])
        assert torch.equal(together.running[context], alone.running[0])
        assert torch.equal(together.result(context, p=9).codes, alone.result(p=9).codes)


def test_first_forgets_what_was_there() -> None:
    machine, fresh = TileMachine(ROWS), TileMachine(ROWS)
    machine.tile(**tile_of(1, "extreme"), first=True)
    machine.tile(**tile_of(2), first=True)
    fresh.tile(**tile_of(2), first=True)
    assert state(machine) == state(fresh)


def test_without_first_a_new_machine_starts_from_nothing() -> None:
    machine, fresh = TileMachine(ROWS), TileMachine(ROWS)
    machine.tile(**tile_of(2))
    fresh.tile(**tile_of(2), first=True)
    assert state(machine) == state(fresh)


def test_the_same_job_twice_and_after_reset() -> None:
    machine = TileMachine(ROWS)
    states = []
    for turn in range(3):
        if turn == 2:
            machine.tile(**tile_of(9))  # something unfinished
            machine.reset()
        for index in range(3):
            machine.tile(**tile_of(index, "falling"), first=index == 0)
        states.append(state(machine))
    assert states[0] == states[1] == states[2]


class TestMask:
    def test_a_masked_row_adds_nothing(self) -> None:
        machine, other = TileMachine(ROWS), TileMachine(ROWS)
        for one in (machine, other):
            one.tile(**tile_of(1), first=True)
        before = machine.accumulators[0].clone(), machine.running[0].clone()
        other.tile(**tile_of(2, "rising"))
        trace = machine.tile(**tile_of(2, "rising"), row_mask=torch.tensor([True, False, True]))
        assert torch.equal(machine.accumulators[0, 1], before[0][1])
        assert int(machine.running[0, 1]) == int(before[1][1])
        assert (int(trace.tile_exponent[1]), int(trace.sums[1].abs().sum())) == (0, 0)
        for row in (0, 2):
            assert torch.equal(machine.accumulators[0, row], other.accumulators[0, row])

    def test_first_starts_masked_rows_anew(self) -> None:
        machine = TileMachine(ROWS)
        machine.tile(**tile_of(1), first=True)
        machine.tile(**tile_of(2), first=True, row_mask=torch.tensor([0, 1, 1]))
        assert int(machine.running[0, 0]) == 0
        assert not machine.accumulators[0, 0].any()
        assert not machine.result(p=9).codes[0].any()

    def test_a_masked_row_is_not_looked_at(self) -> None:
        tile = tile_of(1)
        tile["activations"] = tile["activations"].clone()
        tile["activations"][1] = float("nan")
        machine = TileMachine(ROWS)
        machine.tile(**tile, first=True, row_mask=torch.tensor([True, False, True]))
        assert not machine.refused

    def test_all_rows_masked(self) -> None:
        tile = tile_of(1)
        tile["exponents"] = torch.full((64,), 255)
        machine = TileMachine(ROWS)
        trace = machine.tile(**tile, first=True, row_mask=torch.zeros(ROWS, dtype=torch.bool))
        assert not trace.refused.any()
        assert state(machine) == state(TileMachine(ROWS))


class TestFlags:
    @pytest.mark.parametrize("code", [0x7F80, 0xFF80, 0x7FC1, 0xFFFF])
    def test_refused_activations(self, code: int) -> None:
        bad, zero = tile_of(1), tile_of(1)
        codes = to_codes(bad["activations"]).to(torch.int64)
        codes[2, 5] = code
        bad["activations"] = codes
        zero["activations"] = codes.clone()
        zero["activations"][2, 5] = 0
        machine, other = TileMachine(ROWS), TileMachine(ROWS)
        trace = machine.tile(**bad, first=True)
        other.tile(**zero, first=True)
        assert trace.refused.tolist() == [False, False, True]
        assert state(machine) == state(other)
        assert (machine.refused, other.refused) == (True, False)
        machine.tile(**tile_of(2), first=True)
        assert machine.refused  # sticky
        machine.reset()
        assert not machine.refused

    def test_refused_exponents(self) -> None:
        bad, zero = tile_of(1), tile_of(1)
        bad["exponents"] = bad["exponents"].clone()
        bad["exponents"][7] = 255
        zero["exponents"] = zero["exponents"].clone()
        zero["exponents"][7] = 0
        machine, other = TileMachine(ROWS), TileMachine(ROWS)
        trace = machine.tile(**bad, first=True)
        other.tile(**zero, first=True)
        assert trace.refused.all()
        assert machine.refused
        assert state(machine) == state(other)

    def test_overflow_by_row_and_sticky(self) -> None:
        tile = tile_of(1)
        tile["activations"] = tile["activations"].clone()
        tile["activations"][1] = from_codes(torch.tensor(0x7F7F))
        tile["exponents"] = torch.full((64,), 254)
        machine = TileMachine(ROWS)
        machine.tile(**tile, first=True)
        shifts = torch.full((64,), -100)
        overflow = machine.result(p=9, column_exponents=shifts).overflow
        assert overflow.tolist() == [False, True, False]
        assert machine.overflow
        machine.result(p=9, column_exponents=torch.full((64,), -400))
        assert machine.overflow


def test_midpoint_is_literal_at_full_precision() -> None:
    machines = [TileMachine(ROWS, p_max=9) for _ in range(2)]
    traces = [
        machine.tile(**tile_of(1), first=True, midpoint=midpoint)
        for machine, midpoint in zip(machines, (False, True), strict=True)
    ]
    signs: Tensor = 1 - 2 * tile_of(1)["signs"].to(torch.int64)
    assert torch.equal(traces[1].sums - traces[0].sums, traces[0].aligned @ signs)


def test_a_trace_does_not_change_later() -> None:
    machine = TileMachine(ROWS)
    trace: TileTrace = machine.tile(**tile_of(1), first=True)
    kept = trace.accumulators.clone()
    machine.tile(**tile_of(2, "rising"))
    assert torch.equal(trace.accumulators, kept)


class TestRefusals:
    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            ({"p": 1}, ValueError, r"p must be in 2..9, not 1"),
            ({"p": 10}, ValueError, r"p must be in 2..9, not 10"),
            ({"context": 2}, ValueError, r"context must be in 0..1, not 2"),
            ({"activations": torch.zeros(2, 64)}, TypeError, "activations must be a tensor of int"),
            (
                {"activations": torch.zeros(2, 64).bfloat16()},
                ValueError,
                r"activations must have shape \(3, 64\), not \(2, 64\)",
            ),
            (
                {"activations": torch.full((3, 64), 1 << 16)},
                ValueError,
                r"activations\[0, 0\] must be in 0..65535, not 65536",
            ),
            (
                {"exponents": torch.full((64,), 256)},
                ValueError,
                r"exponents\[0\] must be in 0..255",
            ),
            (
                {"exponents": torch.ones(63).long()},
                ValueError,
                r"exponents must have shape \(64,\)",
            ),
            ({"signs": torch.full((64, 64), 2)}, ValueError, r"signs\[0, 0\] must be in 0..1"),
            (
                {"magnitudes_q": torch.full((64, 64), 16), "p": 5},
                ValueError,
                r"magnitudes_q\[0, 0\] must be in 0..15, not 16",
            ),
            ({"row_mask": torch.ones(2)}, ValueError, r"row_mask must have shape \(3,\)"),
            ({"row_mask": torch.full((3,), 2)}, ValueError, r"row_mask\[0\] must be in 0..1"),
        ],
    )
    def test_tiles(self, change: dict[str, Any], error: type[Exception], message: str) -> None:
        machine = TileMachine(ROWS, contexts=2, p_max=9)
        machine.tile(**tile_of(1), first=True)
        before = state(machine)
        with pytest.raises(error, match=message):
            machine.tile(**{**tile_of(2), **change}, first=True)
        assert state(machine) == before  # nothing half-written

    def test_results(self) -> None:
        machine = TileMachine(ROWS, p_max=9)
        with pytest.raises(ValueError, match=r"p must be in 2..9, not 16"):
            machine.result(p=16)
        with pytest.raises(ValueError, match="format must be 'bf16' or 'fp32', not 'f'"):
            machine.result(p=9, fmt="f")
        with pytest.raises(ValueError, match=r"column_exponents must have shape \(64,\)"):
            machine.result(p=9, column_exponents=torch.zeros(63, dtype=torch.int64))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"rows": 0}, "rows must be in 1"),
            ({"contexts": 0}, "contexts must be in 1"),
            ({"align_guard_bits": 17}, r"align_guard_bits must be in 0..16, not 17"),
            ({"p_max": 8}, r"p_max must be in 9..16, not 8"),
            ({"max_k": 0}, "max_k must be in 1"),
            ({"max_k": 1 << 40}, "max_k must be in 1"),
        ],
    )
    def test_machines(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            TileMachine(**{"rows": ROWS, **arguments})

    def test_more_k_than_the_accumulator_holds(self) -> None:
        machine = TileMachine(ROWS, contexts=2, max_k=100)
        machine.tile(**tile_of(1), first=True)
        machine.tile(**tile_of(2))  # the last, padded
        machine.tile(**tile_of(3), first=True, context=1)
        with pytest.raises(ValueError, match="context 0 must sum at most max_k = 100"):
            machine.tile(**tile_of(4))
        machine.tile(**tile_of(4), context=1)
        machine.tile(**tile_of(4), first=True)
