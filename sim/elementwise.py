"""The common bench of the elementwise units: ragged rows in moods, status, reset, cycles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hw.special.elementwise import Elementwise
from sim.beats import BeatBench, beats, zeros_for_dead
from sim.environment import Environment
from sim.harness import MOODS, MismatchError
from sim.words import Array


class Case(NamedTuple):
    """Operands, and what the model makes of them.

    Attributes
    ----------
    operands, results : sequences
        One value of the operand's and the result's shape each.
    refused, overflow : boolean arrays
        Which elements raise a status bit.
    """

    operands: Sequence[Any]
    results: Sequence[Any]
    refused: Array
    overflow: Array


async def rows_in_moods(
    dut: object,
    env: Environment,
    component: Elementwise,
    make: Callable[[np.random.Generator, int], Case],
    *,
    ports: dict[str, Any] | None = None,
) -> None:
    """Ragged rows with dead elements, in every mood, and a reset in mid-row between two runs.

    Parameters
    ----------
    make : callable
        Random operands, so many, with what the model makes of them.
    ports : dict or None
        Constants of the unit.
    """
    for number, mood in enumerate(MOODS):
        seed = env.seed + number
        bench = BeatBench(dut, env, component, mood, seed)
        rng = np.random.default_rng(seed)
        bench.put(**(ports or {}))
        await bench.reset()
        for after_reset in (False, True):
            raised = {"refused": False, "overflow": False}
            for _ in range(env.scale(12, 60)):
                count = int(rng.choice([1, 2, 3, 7, 8, 9, 16, int(rng.integers(1, 70))]))
                case = make(rng, count)
                live = rng.random(count) < rng.choice([1.0, 0.7])
                bench.feed("operands", beats(case.operands, component.elements, live=live))
                bench.want(
                    "results", zeros_for_dead(beats(case.results, component.elements, live=live))
                )
                raised["refused"] |= bool((case.refused & live).any())
                raised["overflow"] |= bool((case.overflow & live).any())
            if not after_reset:
                for _ in range(30):
                    await bench.cycle()
                await bench.reset()
                bench.clear_streams()
            else:
                await bench.finish()
                await bench.expect_status(**raised)
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=seed)


async def every_case(
    dut: object,
    env: Environment,
    component: Elementwise,
    case: Case,
    part: str,
    *,
    ports: dict[str, Any] | None = None,
) -> None:
    """Operands as one row, back to back: a beat a cycle, with the latency that the lane states."""
    bench = BeatBench(dut, env, component)
    bench.put(**(ports or {}))
    await bench.reset()
    count = bench.feed("operands", beats(case.operands, component.elements))
    bench.want("results", zeros_for_dead(beats(case.results, component.elements)))
    took = await bench.finish()
    if took != count + component.lane.latency:
        raise MismatchError(
            f"{count} beats took {took} cycles, not {count + component.lane.latency}"
        )
    await bench.expect_status(refused=bool(case.refused.any()), overflow=bool(case.overflow.any()))
    env.report(part, transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


async def status_bits(
    dut: object,
    env: Environment,
    component: Elementwise,
    make: Callable[[list[Any]], Case],
    operands: Sequence[Any],
    *,
    ports: dict[str, Any] | None = None,
) -> None:
    """Each operand alone raises what the model says; the same one dead raises nothing."""
    bench = BeatBench(dut, env, component, "both")
    bench.put(**(ports or {}))
    await bench.reset()
    for operand in operands:
        case = make([operand])
        for live in (1, 0):
            row = beats(case.operands, component.elements)
            results = zeros_for_dead(beats(case.results if live else [0], component.elements))
            row[0]["live"] = results[0]["live"] = live
            bench.feed("operands", row)
            bench.want("results", results)
            await bench.finish(patient=True)
            await bench.expect_status(
                refused=bool(live and case.refused[0]), overflow=bool(live and case.overflow[0])
            )
    env.report("status", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)
