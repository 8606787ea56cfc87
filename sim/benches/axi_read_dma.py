"""Bench of the stream reader: positions, frontier and ring space over all ports; its rate."""

from __future__ import annotations

import cocotb

from hw.axi.config import LINE_BYTES
from hw.axi.dma import ReadDma
from sim.axi import BASE_LINE, COUNTS, LINES, AxiBench, Rate, memory_of
from sim.axi_memory import DECERR, SLVERR, Behaviour
from sim.axi_stream import StreamModel
from sim.environment import Environment
from sim.harness import MOODS, MismatchError


def _start(
    dut: object, mood: str = "steady", number: int = 0, behaviour: Behaviour | None = None
) -> tuple[Environment, AxiBench, StreamModel]:
    env = Environment.get()
    component = ReadDma(memory_of(env.config))
    bench = AxiBench(dut, env, component, mood, env.seed + number, behaviour)
    return env, bench, StreamModel(bench)


@cocotb.test()
async def moods(dut: object) -> None:
    """Random requests in all moods, pauses; a reset in mid-stream, then more."""
    for number, mood in enumerate(MOODS):
        env, bench, model = _start(dut, mood, number)
        await bench.reset()
        for after_reset in (False, True):
            model.begin()
            bench.feed("requests", (bench.request() for _ in range(env.scale(6, 40))))
            for _ in range(2 if after_reset else 1):
                await model.cycles(bench.rng.randint(40, 200))
                if after_reset:
                    await bench.pause()
            if not after_reset:
                await bench.reset()
        await model.finish()
        bench.feed("requests", [bench.request(limit=4)])
        await bench.held_back("requests")
        await model.finish()
        if bench.memory.most_bursts > bench.config.outstanding:
            raise MismatchError(f"{bench.memory.most_bursts} bursts outstanding")
        bench.expect(error=0, idle=1)
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def counts(dut: object) -> None:
    """Requests of 1, 63, 64, 65 and 1000 lines that begin on the last lines of a page."""
    env, bench, model = _start(dut)
    await bench.reset()
    for count in env.scale(1, 0) * COUNTS[:4] or COUNTS:
        for first in (62, 63):
            bench.feed("requests", [{"line": BASE_LINE + first, "count": count, "tag": 1}])
    await model.finish()
    env.report("counts", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def ring_rests(dut: object) -> None:
    """Nothing is released: the ring is filled to its last burst and no further, and goes on."""
    env, bench, model = _start(dut)
    await bench.reset()
    model.resting = True
    burst, ring = bench.config.burst_lines, bench.config.ring_lines
    count = ring + 2 * burst
    for _ in range(3):
        bench.feed("requests", [{"line": BASE_LINE + 1, "count": count, "tag": 1}])
    still = 0
    while still < 60:
        before = bench.compared
        await model.cycle()
        still = 0 if bench.compared != before else still + 1
    if model.frontier != model.whole or not ring - burst < model.whole <= ring:
        raise MismatchError(f"{model.whole} lines came, the frontier is {model.frontier}")
    bench.expect(idle=1)
    model.resting = False
    await model.finish()
    env.report("rests", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def errors(dut: object) -> None:
    """One beat answered with an error, at every place of a burst that differs: sticky, its tag."""
    env, bench, model = _start(dut)
    await bench.reset()
    step = bench.config.port_bits // 8
    lines = bench.config.burst_lines
    beats = lines * bench.config.line_beats
    for code in (SLVERR, DECERR):
        for beat in sorted({0, beats // 2, beats - 1}):
            start = (BASE_LINE + 64) * LINE_BYTES + beat * step
            bench.memory.behaviour = Behaviour(
                latency=(10, 10), errors={(start, start + step): code}
            )
            for line, tag in ((0, 6), (64, 5), (64, 2)):
                bench.feed("requests", [{"line": BASE_LINE + line, "count": lines, "tag": tag}])
                await model.finish()
            bench.expect(error=1, error_tag=5)
            bench.put(clear=1)
            await model.cycle()
            bench.put(clear=0)
            await model.cycle()
            bench.expect(error=0)
    env.report("errors", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


async def _rate(dut: object, latency: tuple[int, int], least: float) -> None:
    env, bench, model = _start(dut, behaviour=Behaviour(latency=latency))
    config = bench.config
    await bench.reset()
    model.eager = True
    offered = config.ports / config.line_beats
    edge = 2 * config.ports * config.burst_lines
    count = max(env.scale(512, 4096), env.scale(8, 40) * edge)
    model.rate = Rate(bench, count, edge)
    for done in range(0, count, LINES // 2):
        lines = min(count - done, LINES // 2)
        bench.feed("requests", [{"line": BASE_LINE, "count": lines, "tag": 0}])
    await model.finish()
    late = f"latency {latency[0]}" + (f" to {latency[1]}" if latency[1] > latency[0] else "")
    env.report(
        "rate",
        transactions=bench.compared,
        cycles=bench.cycle_count,
        seed=env.seed,
        measured=model.rate.compare(offered, least, late),
    )


@cocotb.test()
async def rate_near(dut: object) -> None:
    """Memory near by that answers a beat a cycle on every port."""
    await _rate(dut, (10, 10), 0.98)


@cocotb.test()
async def rate_far(dut: object) -> None:
    """Memory 200 cycles away, or as far as a smaller ring hides."""
    config = memory_of(Environment.get().config)
    # The ring holds what is on its way, and a burst of each port that waits for the others.
    lines = min(
        config.ring_lines - 2 * config.ports * config.burst_lines,
        config.ports * (config.outstanding - 1) * config.burst_lines,
    )
    far = min(200, lines * config.line_beats // config.ports - 20)
    await _rate(dut, (far, far), 0.98)


@cocotb.test()
async def rate_jitter(dut: object) -> None:
    """Every burst with a latency of its own, up to half of that."""
    config = memory_of(Environment.get().config)
    lines = config.ring_lines - 2 * config.ports * config.burst_lines
    far = min(100, lines * config.line_beats // config.ports // 2)
    await _rate(dut, (5, max(6, far)), 0.8)
