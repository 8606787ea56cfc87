"""Bench of the register window: host and processor at once, compared with the simulator."""

from __future__ import annotations

import itertools
from typing import Any

import cocotb
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiResp

from hw.control.window import RegisterWindow
from model.formats import registers
from model.formats.commands import Status
from model.formats.registers import REGISTERS, WINDOW_BYTES
from model.machine.shape import MachineShape, preset
from sim.axi_lite import LiteMaster, Write
from sim.axi_memory import OKAY, SLVERR
from sim.chips import chip_of
from sim.environment import Environment
from sim.harness import MOODS, Bench, MismatchError
from sim.window import PLACES, Act, Checker, Golden, Processor

CONTROL = {name: registers.pack("CONTROL", **{name: 1}) for name in REGISTERS["CONTROL"].fields}
OFFSET = {name: register.offset for name, register in REGISTERS.items()}


class _WindowBench(Bench):
    def __init__(self, dut: Any, mood: str = "steady", number: int = 0, **chances: float) -> None:
        env = Environment.get()
        chip = chip_of(env.config)
        super().__init__(dut, env.seed + number, RegisterWindow(chip))
        self.env = env
        # Of a preset the shape that software has; a chip that is none has what it is made of.
        shape = (
            preset(chip.name)
            if chip.name in ("tiny", "small", "paper")
            else MachineShape(
                t_m=chip.core.t_m,
                bank_words=chip.bank_words,
                sequences=chip.sequences,
                p_max=chip.core.p_max,
                head_tiles_max=chip.head_tiles_max,
                max_k=chip.core.max_k,
                tiles_per_block=chip.block_tiles,
            )
        )
        self.golden = Golden(shape)
        chances = {"often": 0.0, "stops": 0.0} | chances
        self.processor = Processor(self, self.golden, env.seed + number, **chances)
        gap, stall = MOODS[mood]
        self.master = LiteMaster(self, "s_axi", env.seed + number, gap=gap, stall=stall)
        self.checker = Checker(self, self.golden, self.processor)
        self.agents = [self.processor, self.master, self.checker]

    async def end(self, limit: int = 100_000) -> None:
        """Until the host has all its answers."""
        await self.run(lambda: not self.master.waiting, limit=limit)

    async def stop(self, status: Status = Status.OK) -> None:
        """The job stops."""
        self.processor.acts.append(Act(stop=int(status)))
        await self.run(lambda: not self.golden.simulator.busy, limit=10)

    async def host_write(self, name: str, data: int, wanted: int = OKAY, strobe: int = 0xF) -> None:
        """A write alone, and its response."""
        await self.access(Write(OFFSET[name], data, strobe), wanted)

    async def access(self, write: Write, wanted: int) -> None:
        """The same at any address."""
        responses: list[int] = []
        self.master.on_write = responses.append
        self.master.write(write)
        await self.end()
        if responses != [wanted]:
            raise MismatchError(f"{write} is answered {responses}, not {wanted}")

    def random_write(self) -> Write:
        """A write anywhere, mostly of what may be written."""
        rng = self.rng
        kind = rng.random()
        strobe = 0xF if rng.random() < 0.9 else rng.randrange(15)
        if kind < 0.35:
            bits = rng.choice((1, 1, 2, 3, 4, 8, 5, 12, 13, rng.randrange(16)))
            return Write(OFFSET["CONTROL"], bits | rng.choice((0, 0x100)), strobe)
        if kind < 0.5:
            name = rng.choice(("IRQ_ENABLE", "IRQ_PENDING"))
            return Write(OFFSET[name], rng.choice((0, 1, rng.getrandbits(32))), strobe)
        address = rng.randrange(WINDOW_BYTES // 4) * 4
        if kind < 0.8:
            address = rng.choice(
                [at for at in PLACES if REGISTERS[PLACES[at].name].access[0] == "w"]
            )
        if rng.random() < 0.05:
            address |= rng.randrange(1, 4)
        return Write(address, rng.getrandbits(32), strobe)

    def random_read(self, near: int) -> int:
        """A read anywhere: of what was just written, of all registers, of all offsets."""
        kind = self.rng.random()
        if kind < 0.3:
            return near
        if kind < 0.5:
            return OFFSET[self.rng.choice(("STATUS", "IRQ_PENDING", "IRQ_ENABLE", "CONTROL"))]
        if kind < 0.8:
            return self.rng.choice(list(PLACES))
        return self.rng.randrange(WINDOW_BYTES)

    def ask(self, count: int) -> None:
        """Queues random writes and reads."""
        for _ in range(count):
            write = self.random_write()
            self.master.write(write)
            self.master.read(self.random_read(write.address))

    def report(self, part: str, measured: str = "") -> None:
        """To the runner."""
        self.env.report(
            part,
            transactions=self.checker.answers + self.checker.reads,
            cycles=self.cycle_count,
            seed=self.env.seed,
            measured=measured,
        )


@cocotb.test()
async def random_accesses(dut: Any) -> None:
    """Both sides at random in all moods, the processor rare and busy; resets in mid-access."""
    for number, (mood, often) in enumerate(itertools.product(MOODS, (0.1, 0.6))):
        bench = _WindowBench(dut, mood, number, often=often, stops=0.03)
        for _ in range(bench.env.scale(1, 3)):
            await bench.reset()
            bench.ask(100)
            for _ in range(bench.rng.randint(1030, 1200)):
                await bench.cycle()
        await bench.reset()
        bench.ask(bench.env.scale(250, 2500))
        await bench.end()
        golden = bench.golden
        why = ", ".join(f"{what} {count}" for what, count in sorted(golden.refused.items()))
        bench.report(f"{mood} {often}", f"{golden.done} writes done, refused: {why}")


@cocotb.test()
async def every_offset(dut: Any) -> None:
    """Each word of the window, read, written and read again, while idle and while a job runs."""
    bench = _WindowBench(dut, often=0.3)
    await bench.reset()
    for busy in (False, True):
        if busy:
            await bench.host_write("CONTROL", CONTROL["start"])
        step = bench.env.scale(3, 1)
        offsets = [*range(0, 0x400, 4), *range(0x400, WINDOW_BYTES, 4 * step)]
        bench.rng.shuffle(offsets)
        for offset in offsets:
            if offset == OFFSET["CONTROL"]:
                continue
            bench.master.read(offset)
            bench.master.write(Write(offset, bench.rng.getrandbits(32)))
            await bench.end()
            bench.master.read(offset)
            await bench.end()
    await bench.stop()
    bench.report("offsets")


@cocotb.test()
async def every_refusal(dut: Any) -> None:
    """Each kind of access that is refused, one by one, and its neighbour that is not."""
    bench = _WindowBench(dut, "both")
    await bench.reset()
    for strobe in range(15):
        await bench.host_write("FIRST_COMMAND", 5, SLVERR, strobe)
        await bench.host_write("CONTROL", CONTROL["start"], SLVERR, strobe)
        await bench.host_write("IRQ_ENABLE", 1, SLVERR, strobe)
    for bit in range(2):
        await bench.access(Write(OFFSET["FIRST_COMMAND"] + (1 << bit), 5), SLVERR)
    for name, register in REGISTERS.items():
        await bench.host_write(name, 0, SLVERR if register.access == "read" else OKAY)
    # Aborts while idle do nothing.
    await bench.host_write("CONTROL", CONTROL["abort"])
    await bench.host_write("CONTROL", CONTROL["start"] | CONTROL["abort"])
    for name in ("start", "clear", "clear_counters"):
        await bench.host_write("CONTROL", CONTROL[name], SLVERR)
        await bench.host_write("CONTROL", CONTROL[name] | CONTROL["abort"], SLVERR)
    for name, register in REGISTERS.items():
        if register.access == "write":
            await bench.host_write(name, 1, OKAY if name == "IRQ_ENABLE" else SLVERR)
    await bench.host_write("IRQ_PENDING", 1)
    await bench.host_write("CONTROL", 0)
    await bench.host_write("CONTROL", CONTROL["abort"])
    await bench.stop(Status.ABORTED)
    # What stopped with an error has to be cleared, with the start or before it.
    counters = CONTROL["clear_counters"]
    for more in (0, CONTROL["abort"], counters):
        await bench.host_write("CONTROL", CONTROL["start"] | more, SLVERR)
    await bench.host_write("CONTROL", CONTROL["clear"] | CONTROL["start"] | counters)
    await bench.stop(Status.NUMBER)
    await bench.host_write("CONTROL", counters)
    await bench.host_write("CONTROL", CONTROL["start"], SLVERR)
    await bench.host_write("CONTROL", CONTROL["clear"])
    await bench.host_write("CONTROL", CONTROL["start"])
    await bench.stop()
    await bench.host_write("CONTROL", CONTROL["start"])
    await bench.stop()
    wanted = {"address", "strobe", "read False", "write True", "CONTROL True", "CONTROL False"}
    if set(bench.golden.refused) != wanted:
        raise MismatchError(f"refused was only {sorted(bench.golden.refused)}")
    bench.report("refusals")


@cocotb.test()
async def orders_and_latencies(dut: Any) -> None:
    """AW long before W and after it; answers that nobody takes; cycles from access to answer."""
    bench = _WindowBench(dut)
    await bench.reset()
    await bench.run(lambda: bench.processor.ready, limit=2000)
    await bench.cycle()
    master = bench.master
    for late in ("w", "aw"):
        master.blocked = {late}
        master.write(Write(OFFSET["FIRST_COMMAND"], 7), Write(OFFSET["SIZE"], 8))
        for _ in range(20):
            await bench.cycle()
        if bench.checker.answers:
            raise MismatchError(f"a write was answered without {late}")
        master.blocked = set()
        await bench.end()
        bench.checker.answers = 0
    # Reads go on while nobody takes a write's answer, and the other way round.
    for stuck, others in (("b", master.read), ("r", master.write)):
        master.blocked = {stuck}
        answers = bench.checker.answers
        master.write(Write(OFFSET["PLT"], 1), Write(OFFSET["PLT"], 2), Write(OFFSET["PLT"], 3))
        master.read(OFFSET["PLT"], OFFSET["STATUS"], OFFSET["SIZE"])
        for _ in range(40):
            await bench.cycle()
        if bench.checker.answers != answers + 4:
            raise MismatchError(f"{others.__name__}s wait for {stuck}")
        master.blocked = set()
        await bench.end()
    measured = []
    for name, writes, wanted in (
        ("PLT", True, 2),
        ("IRQ_ENABLE", True, 2),
        ("ID", True, 2),
        ("PLT", False, 3),
        ("STATUS", False, 2),
    ):
        if writes:
            master.write(Write(OFFSET[name], 0))
        else:
            master.read(OFFSET[name])
        started = bench.cycle_count
        await bench.end()
        took = bench.cycle_count - 1 - started
        if took != wanted:
            raise MismatchError(f"{name} took {took} cycles, not {wanted}")
        measured.append(f"{name} {took}")
    bench.report("orders", ", ".join(measured))


@cocotb.test()
async def resets(dut: Any) -> None:
    """A reset at every point of an access: half a write, an answer not taken, counters waiting."""
    bench = _WindowBench(dut)
    cuts = []
    for after in range(1, bench.env.scale(3, 6)):
        cuts += [({"w"}, after), ({"aw"}, after), ({"b", "r"}, after), (set(), after)]
    for blocked, after in [*cuts, (set(), 40)]:
        await bench.reset()
        await bench.run(lambda: bench.processor.ready, limit=2000)
        bench.master.blocked = blocked
        bench.master.read(OFFSET["PLT"], OFFSET["STATUS"])
        control = CONTROL["clear_counters"] | CONTROL["start"]
        bench.master.write(Write(OFFSET["CONTROL"], control), Write(OFFSET["PLT"], 1))
        for _ in range(after):
            await bench.cycle()
        bench.master.blocked = set()
        await bench.reset()
        # Nothing of it is left, and everything works.
        await bench.host_write("SIZE", bench.rng.getrandbits(32))
        await bench.host_write("CONTROL", control)
        await bench.stop()
        bench.master.read(OFFSET["SIZE"], OFFSET["STATUS"], OFFSET["IRQ_PENDING"])
        await bench.end()
    bench.report("resets", f"{len(cuts) + 1} of them")


@cocotb.test()
async def turns(dut: Any) -> None:
    """The processor leaves one cycle in two: neither reads nor writes of the host starve."""
    bench = _WindowBench(dut)
    await bench.reset()
    await bench.run(lambda: bench.processor.ready, limit=2000)
    count = bench.env.scale(50, 400)
    rng = bench.rng
    kinds = {"reads": 0, "writes": 0}

    def count_one(kind: str) -> None:
        kinds[kind] += 1

    bench.master.on_write = lambda _: count_one("writes")
    bench.master.on_read = lambda *_: count_one("reads")
    for _ in range(count):
        bench.master.write(Write(OFFSET["PLT"] + 4 * rng.randrange(16), rng.getrandbits(32)))
        bench.master.read(OFFSET["PLT"] + 4 * rng.randrange(16))
    started = bench.cycle_count
    while bench.master.waiting:
        if len(bench.processor.acts) < 2:
            at = OFFSET["COMMAND_INDEX"] // 4
            acts = [Act(read=OFFSET["PLT"] // 4), Act(write=(at, rng.getrandbits(32)))]
            bench.processor.acts += [rng.choice(acts), Act()]
        await bench.cycle()
        if abs(kinds["reads"] - kinds["writes"]) > 2 and min(kinds.values()) < count - 5:
            raise MismatchError(f"the host's accesses are not served in turn: {kinds}")
    took = bench.cycle_count - started
    if took > 4 * count + 20:
        raise MismatchError(f"{2 * count} accesses took {took} cycles")
    bench.report("turns", f"{2 * count} accesses in {took} cycles, every other one free")


@cocotb.test()
async def second_opinion(dut: Any) -> None:
    """The master of cocotbext-axi, with its pauses, under the same checker."""
    bench = _WindowBench(dut, often=0.4)
    bench.agents.remove(bench.master)
    await bench.reset()
    master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axi"), dut.clk, dut.rst)
    rng = bench.rng
    for channel in (
        master.write_if.aw_channel,
        master.write_if.w_channel,
        master.write_if.b_channel,
        master.read_if.ar_channel,
        master.read_if.r_channel,
    ):
        channel.set_pause_generator(
            itertools.cycle([rng.random() < 0.3 for _ in range(rng.randint(50, 99))])
        )
    words = [rng.getrandbits(32) for _ in range(16)]

    async def host() -> None:
        data = b"".join(word.to_bytes(4, "little") for word in words)
        if (await master.write(OFFSET["PLT"], data)).resp != AxiResp.OKAY:
            raise MismatchError("a table was refused")
        if (await master.read(OFFSET["PLT"], 64)).data != data:
            raise MismatchError("a table came back changed")
        if (await master.write(OFFSET["PLT"], b"x")).resp != AxiResp.SLVERR:
            raise MismatchError("a byte was written")
        for offset in rng.sample(range(0, WINDOW_BYTES, 4), bench.env.scale(60, 600)):
            response = (await master.read(offset, 4)).resp
            if (response == AxiResp.OKAY) != (offset in PLACES):
                raise MismatchError(f"read of {offset:#05x} is answered {response}")
        if (await master.read_dword(OFFSET["ID"])) != registers.ID:
            raise MismatchError("ID is another")

    task = cocotb.start_soon(host())
    await bench.run(task.done, limit=100_000)
    await task
    bench.report("opinion")
