"""Parts of the cycle model alone: counts, queues, memory, against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from simpy import Environment

from model.machine.cycles.memory import (
    ADDRESS,
    ANSWER,
    EXPONENTS,
    FRONTIER,
    LINE,
    ReadPorts,
    Ring,
    WideStream,
    Writer,
)
from model.machine.cycles.timing import Timing
from model.machine.cycles.waiting import Level, Pipe, until

TIMING = Timing(
    t_m=2,
    fold=2,
    drain=4,
    result_groups=2,
    ports=2,
    line_beats=4,
    burst_lines=8,
    outstanding=2,
    fifo_lines=4,
    ring_lines=32,
    pieces=4,
    latency=10,
)


def ran(env: Environment, steps: Generator[Any, Any, Any]) -> tuple[Any, int]:
    """What a process returns, and when."""
    value = env.run(until=env.process(steps))
    return value, int(env.now)


def test_a_level_wakes_those_that_wait_for_less() -> None:
    env = Environment()
    level, woken = Level(env), []

    def wait(value: int) -> Generator[Any, Any, None]:
        yield from level.reaches(value)
        woken.append((value, int(env.now)))

    for value in (3, 1, 2):
        env.process(wait(value))
    level.rise_at(5, 2)
    level.rise_at(9)
    env.run()
    assert woken == [(1, 5), (2, 5), (3, 9)]


def test_a_pipe_shows_an_entry_late_and_holds_up_who_fills_it() -> None:
    env = Environment()
    pipe: Pipe[str] = Pipe(env, room=1, latency=2)
    seen, put = [], []

    def fill() -> Generator[Any, Any, None]:
        for entry in "abc":
            yield from pipe.put(entry)
            put.append((entry, int(env.now)))

    def drain() -> Generator[Any, Any, None]:
        for _ in "abc":
            entry = yield from pipe.head()
            seen.append((entry, int(env.now)))
            yield env.timeout(5)
            pipe.take()

    env.process(fill())
    env.process(drain())
    env.run()
    assert seen == [("a", 2), ("b", 9), ("c", 16)]
    assert put == [("a", 0), ("b", 7), ("c", 14)]
    assert pipe.empty


def test_until_the_past_is_now() -> None:
    env = Environment(initial_time=7)
    assert ran(env, until(env, 3)) == (None, 7)
    assert ran(env, until(env, 12)) == (None, 12)


def test_bursts_of_a_port_follow_each_other() -> None:
    env = Environment()
    ports = ReadPorts(env, TIMING)

    def ask() -> Generator[Any, Any, list[tuple[int, int]]]:
        found = []
        for _ in range(2):
            found.append((yield from ports.burst(0, 8, 0)))
        return found

    (first, second), now = ran(env, ask())
    answer = ADDRESS + TIMING.latency + 1
    # A line of four beats, eight lines; then eight more without a gap.
    assert first == (answer + 4 - 1 + LINE, answer + 32 - 1 + LINE)
    assert second == (first[0] + 32, first[1] + 32)
    assert now == 0


def test_a_port_has_so_many_bursts_on_the_bus_and_the_loader_its_own() -> None:
    env = Environment()
    ports = ReadPorts(env, TIMING)
    times = []

    def ask() -> Generator[Any, Any, None]:
        for _ in range(3):
            yield from ports.burst(0, 8, 0)
            times.append(int(env.now))

    ran(env, ask())
    answer = ADDRESS + TIMING.latency + 1
    assert times == [0, 0, answer + 32]
    _, now = ran(env, ports.burst(0, 1))
    assert now == answer + 32


@pytest.mark.parametrize("ports", [1, 2])
def test_the_stream_is_as_fast_as_its_ports(ports: int) -> None:
    env = Environment()
    timing = Timing(**{**TIMING.__dict__, "ports": ports, "ring_lines": 1 << 20, "outstanding": 8})
    stream = WideStream(env, timing, ReadPorts(env, timing))
    lines = 1024

    def run() -> Generator[Any, Any, int]:
        yield from stream.request(0, lines)
        time = yield from stream.when(lines)
        return int(time)

    time, _ = ran(env, run())
    start = 1 + ADDRESS + timing.latency + 1
    # The second port's first burst is dealt a cycle later.
    assert time == start + lines * 4 // ports - 1 + LINE + FRONTIER + (ports - 1)


def test_ports_that_want_the_same_macro_take_turns() -> None:
    ring = Ring(Timing(**{**TIMING.__dict__, "line_beats": 1, "fifo_lines": 2}))
    assert ring.take(0, 10, 8, 0) == (10 + LINE, 17 + LINE, 18)
    # Behind the other one by a cycle in every macro; its queue evens that out.
    assert ring.take(1, 10, 8, 0) == (11 + LINE, 18 + LINE, 18)
    # Exponents have a macro of their own, where one waits for another.
    assert ring.take(0, 18, 1, EXPONENTS) == (18 + LINE, 18 + LINE, 19)
    assert ring.take(1, 18, 1, EXPONENTS) == (19 + LINE, 19 + LINE, 19)


def test_the_stream_waits_for_room_in_the_ring() -> None:
    env = Environment()
    timing = Timing(**{**TIMING.__dict__, "outstanding": 8})
    stream = WideStream(env, timing, ReadPorts(env, timing))
    stream.released.rise_at(500, 8)

    def run() -> Generator[Any, Any, tuple[int, int]]:
        yield from stream.request(0, 40)
        before = yield from stream.when(32)
        after = yield from stream.when(40)
        return int(before), int(after)

    (before, after), _ = ran(env, run())
    assert before < 200
    assert after == 500 + ADDRESS + timing.latency + 1 + 32 - 1 + LINE + FRONTIER


def test_what_is_written_is_answered_in_order() -> None:
    env = Environment()
    writer = Writer(env, TIMING)
    assert writer.idle
    assert writer.write(3, there=5) == 7 + 12
    assert writer.write(1, there=0) == 19 + 4
    assert not writer.idle
    env.run(until=23 + TIMING.latency + ANSWER)
    assert not writer.idle
    env.run(until=23 + TIMING.latency + ANSWER + 1)
    assert writer.idle
