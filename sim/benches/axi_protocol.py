"""Bench of all memory ports at once: behind our memory, and behind one that we did not write.

``second_opinion`` binds the ``AxiRam`` of cocotbext-axi to the same ports. It samples at the rising
edge and drives after it, which goes with the clock of the harness: that one looks just before.
"""

from __future__ import annotations

import itertools
from typing import Any

import cocotb
from cocotbext.axi import AxiBus, AxiRam, AxiRamRead, AxiReadBus
from cocotbext.axi.sparse_memory import SparseMemory

from hw.axi.config import LINE_BYTES, READER_ID
from hw.axi.ports import MemoryPorts
from sim.axi import BASE, BASE_LINE, LINES, AxiBench, memory_of
from sim.axi_memory import Behaviour
from sim.axi_stream import StreamModel
from sim.environment import Environment
from sim.harness import MOODS, MismatchError
from sim.words import unpack

#: The stream reads the first lines, the line reader too; the writer writes behind them.
HALF = LINES // 2


class PortsBench(AxiBench):
    """All masters: lines read are checked, lines written must be in memory at the end."""

    def __init__(
        self,
        dut: Any,
        env: Environment,
        mood: str = "steady",
        number: int = 0,
        behaviour: Behaviour | None = None,
    ) -> None:
        component = MemoryPorts(memory_of(env.config))
        super().__init__(dut, env, component, mood, env.seed + number, behaviour)
        self.stream = StreamModel(self, "stream_")
        for name in ("read_requests", "write_requests", "write_lines"):
            self.feed(name, [])
        self.want("read_lines", [])
        self.into["read_requests"].observers.append(self._read)
        self.wanted = bytearray(self.content)

    def _read(self, word: int) -> None:
        request = unpack(self._shapes["read_requests__payload"], word)
        last = request["line"] + request["count"] - 1
        for line in range(request["line"], last + 1):
            row = {"data": self.line(line), "error": 0, "last": int(line == last)}
            self.want("read_lines", [{**row, "tag": request["tag"]}])

    def ask(self, count: int) -> None:
        """Random requests to all masters, those of the writer in the upper half of memory."""
        for _ in range(count):
            for name in ("stream_requests", "read_requests", "write_requests"):
                request = self.request(limit=70)
                request["line"] -= HALF * (request["line"] - BASE_LINE >= HALF - 70)
                request["line"] = max(request["line"], BASE_LINE)
                if name == "write_requests":
                    request["line"] += HALF
                    self.write_lines(request)
                self.feed(name, [request])

    def write_lines(self, request: dict[str, int]) -> None:
        """Random lines and strobes for a request of the writer."""
        for line in range(request["line"], request["line"] + request["count"]):
            data, strobe = self.rng.getrandbits(512), self.rng.getrandbits(LINE_BYTES)
            self.feed("write_lines", [{"data": data, "strobe": strobe}])
            start = line * LINE_BYTES - BASE
            for byte, value in enumerate(data.to_bytes(LINE_BYTES, "little")):
                if strobe >> byte & 1:
                    self.wanted[start + byte] = value

    @property
    def done(self) -> bool:
        """Whether all masters have done what they were asked for."""
        waits = any(source.queue for source in self.sources) or self.expected["read_lines"]
        return not waits and self.stream.done and not self.bit(self.port("write_busy"))

    async def all_done(self) -> None:
        """Until then; a thousand cycles without a line or a write are too many."""
        for _ in range(400):
            if self.done:
                return
            await self.stream.cycles(100)
        raise MismatchError("no end: something hangs")


@cocotb.test()
async def together(dut: object) -> None:
    """All masters in all moods, beats of both readers interleaved on port 0; pauses."""
    for number, mood in enumerate(MOODS):
        env = Environment.get()
        bench = PortsBench(dut, env, mood, number)
        half = BASE + HALF * LINE_BYTES
        bench.memory.count_in(low=(BASE, half), high=(half, half + HALF * LINE_BYTES))
        await bench.reset()
        bench.ask(env.scale(5, 30))
        for _ in range(2):
            await bench.stream.cycles(bench.rng.randint(50, 150))
            await bench.pause()
        await bench.all_done()
        if bench.content != bench.wanted:
            raise MismatchError("memory is not what was written")
        if bench.memory.read_bytes["high"] or bench.memory.written_bytes["low"]:
            raise MismatchError("a master was where it was not sent")
        bench.expect(stream_error=0, write_error=0, idle=1)
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def alone(dut: object) -> None:
    """One master after the other: what is idle and busy is that of all."""
    env = Environment.get()
    bench = PortsBench(dut, env)
    await bench.reset()
    for name in ("stream_requests", "read_requests", "write_requests"):
        request = {"line": BASE_LINE, "count": 3, "tag": 1}
        if name == "write_requests":
            request["line"] += HALF
            bench.write_lines(request)
        bench.feed(name, [request])
        await bench.all_done()
    env.report("alone", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def shares(dut: object) -> None:
    """Both readers want port 0, whose addresses are slow: neither waits for two of the other."""
    env = Environment.get()
    bench = PortsBench(dut, env, behaviour=Behaviour(latency=(5, 5), slow=0.97))
    bench.stream.eager = True
    await bench.reset()
    # Requests of a line each, so that neither waits for data or for room.
    for name, each in (("stream_requests", bench.config.ports), ("read_requests", 1)):
        for i in range(20 * each):
            bench.feed(name, [{"line": BASE_LINE + i, "count": 1, "tag": 1}])
    await bench.all_done()
    ids = [each[2] for each in bench.memory.addresses if each[0] == "m0_axi"]
    both = ids[: max(i for i, each in enumerate(ids) if each == READER_ID)]
    runs = [(axi_id, len(list(group))) for axi_id, group in itertools.groupby(both)]
    # Port 0 has its turn of the stream once in as many bursts as there are ports.
    if max(length for axi_id, length in runs if axi_id != READER_ID) > 1:
        raise MismatchError(f"the line reader waits for {runs}")
    if bench.config.ports == 1 and max(length for _, length in runs[1:]) > 1:
        raise MismatchError(f"the stream waits for {runs}")
    env.report("shares", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)


@cocotb.test()
async def second_opinion(dut: Any) -> None:
    """The same masters behind the memory of cocotbext-axi, with its pauses."""
    env = Environment.get()
    bench = PortsBench(dut, env, "both", 9)
    bench.agents.clear()
    await bench.reset()
    store = SparseMemory(1 << bench.config.address_bits)
    store.write(BASE, bytes(bench.content))
    rng = bench.rng
    rams: list[Any] = [AxiRam(AxiBus.from_prefix(dut, "m0_axi"), dut.clk, dut.rst, mem=store)]
    channels = [rams[0].read_if.ar_channel, rams[0].read_if.r_channel]
    channels += [rams[0].write_if.aw_channel, rams[0].write_if.w_channel]
    channels += [rams[0].write_if.b_channel]
    for i in range(1, bench.config.ports):
        bus = AxiReadBus.from_prefix(dut, f"m{i}_axi")
        rams.append(AxiRamRead(bus, dut.clk, dut.rst, mem=store))
        channels += [rams[-1].ar_channel, rams[-1].r_channel]
    for channel in channels:
        channel.set_pause_generator(
            itertools.cycle([rng.random() < 0.3 for _ in range(rng.randint(50, 99))])
        )
    bench.ask(env.scale(6, 30))
    await bench.all_done()
    if store.read(BASE, len(bench.wanted)) != bytes(bench.wanted):
        raise MismatchError("memory is not what was written")
    env.report("opinion", transactions=bench.compared, cycles=bench.cycle_count, seed=env.seed)
