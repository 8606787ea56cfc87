"""The cycle model of a chip: its own program, on a model of the processor, drives the parts of
:mod:`model.machine.cycles`.

What is computed comes from the functional simulator; how long it takes, from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from simpy import Environment, Event

from hw.chip_config import ChipConfig
from hw.control.assembler import Op
from hw.control.ports import Flag, Host, Idle, Push, fields_of
from hw.control.program import program_of
from hw.control.register_rows import row_of
from hw.issue.pieces import pieces_waiting
from hw.special.slice import Op as SliceOp
from hw.transfers.layouts import Kind, Target
from model.formats.commands import LINE_BYTES
from model.formats.registers import REGISTERS
from model.machine.cycles import Parts, Timing
from model.machine.cycles.transfers import Load
from model.machine.cycles.waiting import Steps
from model.machine.device import SimulatorDevice
from model.machine.simulator import Simulator
from sim.processor_model import ProcessorModel

_GATES = 16
#: What the array does in a cycle, by the names of :class:`~model.machine.cycles.Stalls` and of the
#: chip's counters.
STALLS = {
    "busy": "ARRAY_BUSY",
    "memory": "STALL_MEMORY",
    "special": "STALL_SPECIAL",
    "results": "STALL_RESULTS",
}


def timing_of(chip: ChipConfig, *, latency: int) -> Timing:
    """What the cycle model knows of a chip.

    Parameters
    ----------
    chip : ChipConfig
    latency : int
        Of the memory, as :class:`~sim.axi_memory.Behaviour` counts it.
    """
    core, memory = chip.core, chip.memory
    return Timing(
        t_m=core.t_m,
        fold=core.fold,
        drain=core.drain,
        result_groups=core.result_rows // core.acc_rows,
        ports=chip.ports,
        line_beats=memory.line_beats,
        burst_lines=memory.burst_lines,
        outstanding=memory.outstanding,
        fifo_lines=memory.fifo_lines,
        ring_lines=memory.ring_lines,
        pieces=pieces_waiting(chip),
        latency=latency,
    )


class CycleModel:
    """A chip that takes time and computes nothing.

    Parameters
    ----------
    chip : ChipConfig
    latency : int
        Of the memory.
    read : callable
        ``read(address, count)`` gives bytes of memory: of commands and tokens.
    winner : callable
        ``winner(row)`` gives the argmax of a row of the last HEAD.

    Attributes
    ----------
    window : dict
        Words of the registers by row; what the host writes goes in here.
    parts : Parts
    """

    def __init__(
        self,
        chip: ChipConfig,
        *,
        latency: int,
        read: Callable[[int, int], bytes],
        winner: Callable[[int], int] = lambda row: 0,
    ) -> None:
        self.chip, self.read, self.winner = chip, read, winner
        self.env = Environment()
        self.parts = Parts(
            self.env, timing_of(chip, latency=latency), {int(op): op.name for op in SliceOp}
        )
        self.window: dict[int, int] = {}
        self._names = {field.number: name for name, field in fields_of(chip).items()}
        self._kept = dict.fromkeys(self._names.values(), 0)
        self._processor = ProcessorModel(program_of(chip))
        self._busy = self._clears = False
        self._stopped: Event = self.env.event()
        self._began = self._cycles = 0
        self.forgets = 0
        process = self.env.process(self._run())
        assert process.is_alive
        self.env.run(until=self.env.now + 20_000)

    def write_register(self, name: str, value: int, entry: int = 0) -> None:
        """What the host writes into the window."""
        for i in range(REGISTERS[name].bits // 32):
            self.window[row_of(name, entry) + i] = value >> 32 * i & 0xFFFF_FFFF

    def job(self) -> int:
        """Runs the job from the window's FIRST_COMMAND on; its cycles."""
        self._busy, self._stopped = True, self.env.event()
        self._began = int(self.env.now)
        self.env.run(until=self._stopped)
        self._busy = False
        cycles = int(self.env.now) - self._began
        # The program waits for the host's next job.
        self.env.run(until=self.env.now + 100)
        return cycles

    # The processor -----------------------------------------------------------------------------

    def _run(self) -> Steps[None]:
        env, model, late = self.env, self._processor, 0
        while True:
            what = model.now()
            number = 0
            if what.op is Op.OUT:
                name = self._names.get(what.port)
                if name is None or name == "gates":
                    yield env.timeout(late)
                    late = 0
                if name is None:
                    yield from self._push(Push(what.port), what.stored)
                elif name == "gates":
                    gates = self.parts.array.gates
                    gates.rise((what.stored - gates.value) % _GATES)
                else:
                    self._kept[name] = what.stored
            elif what.op is Op.IN:
                yield env.timeout(late)
                late = 0
                number = self._flag(what.port)
            elif what.op is Op.LOAD:
                late += 1
                if not what.in_scratch:
                    number = self.window.get(what.row, 0)
            elif what.op is Op.STORE and not what.in_scratch:
                self.window[what.row] = what.stored & 0xFFFF_FFFF
            model.step(number)
            late += 1

    def _push(self, push: Push, value: int) -> Steps[None]:
        parts, kept = self.parts, self._kept
        if push is Push.LOAD:
            load = Load(Target(kept["load_target"]).name, kept["line"], kept["count"])
            if load.target == "SCRATCH":
                content = self.read(load.line * LINE_BYTES, load.count * LINE_BYTES)
                for i in range(0, len(content), 4):
                    word = int.from_bytes(content[i : i + 4], "little")
                    self._processor.scratch[kept["word"] + i // 4] = word
            yield from parts.load(load)
        elif push is Push.MOVE:
            yield from parts.move(Kind(kept["kind"]).name, kept)
        elif push is Push.TEXT:
            parts.writer.write(1, int(self.env.now))
        elif push in (Push.FLUSH,):
            raise RuntimeError("the job has stopped with a fault")
        elif push is Push.STOPPED:
            self._stopped.succeed()
            self._busy = False
        elif push is Push.FORGET:
            self.forgets += 1
        elif push in (Push.MATRIX, Push.PASS, Push.JOB, Push.KEYS, Push.CLOSED):
            gates = parts.array.gates.value
            ahead = (kept["gate"] - gates + _GATES // 2) % _GATES - _GATES // 2
            yield from parts.push(push.name, kept | {"gate": gates + ahead})

    def _flag(self, port: int) -> int:
        parts = self.parts
        if port >= Flag.WINNERS:
            return self.winner(port - Flag.WINNERS)
        flag = Flag(port)
        if flag is Flag.IDLE:
            idle = {
                Idle.SETTLED: parts.settled,
                Idle.LOADER: parts.loader.idle,
                Idle.MOVER: parts.mover.idle,
                Idle.WRITES: parts.writer.idle,
                Idle.KEYS: parts.keys.idle,
                Idle.MEMORY: True,
            }
            return sum(1 << each for each, value in idle.items() if value)
        if flag is Flag.SEEN:
            return (1 << self.chip.core.t_m) - 1 if self.env.now >= parts.epilogue.winners else 0
        if flag is Flag.HOST:
            return int(self._busy) << Host.BUSY
        counts = {
            Flag.LOADS: parts.loader.done.value,
            Flag.MOVES: parts.mover.done.value,
            Flag.PASSES: parts.epilogue.passes.value,
        }
        if flag in counts:
            return counts[flag] & 0xFF
        return int(self.env.now) - self._began if flag is Flag.CYCLES else 0


class TimedDevice(SimulatorDevice):
    """The functional simulator as a device whose jobs take the cycle model's time.

    Parameters
    ----------
    simulator : Simulator
    chip : ChipConfig
        Of the same shape.
    latency : int
        Of the memory.

    Attributes
    ----------
    model : CycleModel
    jobs : list of int
        Cycles of each job that was timed.
    timed : bool
        Whether jobs are timed; those that are not take no time.
    """

    def __init__(self, simulator: Simulator, chip: ChipConfig, *, latency: int) -> None:
        super().__init__(simulator)
        self._heads: list[Mapping[int, int]] = []
        simulator.machine.operations.heard = self._heads.append
        self.model = CycleModel(chip, latency=latency, read=simulator.read, winner=self._winner)
        self.jobs: list[int] = []
        self.timed = True
        self._started = False

    def _winner(self, row: int) -> int:
        return self._heads[self.model.forgets].get(row, 0)

    async def write_register(self, name: str, value: int, entry: int = 0) -> None:
        """Writes a register."""
        await super().write_register(name, value, entry)
        if REGISTERS[name].access == "write":
            self.model.write_register(name, value, entry)
        self._started = self._started or self.simulator.busy

    async def wait(self) -> None:
        """Runs the job to its end, then its time."""
        await super().wait()
        if self._started and self.timed:
            self.jobs.append(self.model.job())
        self.model.forgets = len(self._heads)
        self._started = False
