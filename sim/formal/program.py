"""The program of the control processor has no dead end, and flushes only what is silent.

What is proven is said of every path of the graph (:mod:`sim.formal.flow`), for every program that
:func:`~hw.control.program.program_of` makes for the presets.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from hw.chip_config import CHIPS
from hw.control.assembler import Op
from hw.control.ports import Flag, Host, Idle, Push, fields_of
from hw.control.program.main import build
from sim.formal.engine import Outcome
from sim.formal.flow import BRANCHES, LINK, Flow, closure, components, is_counted, is_wait, writes

#: Functions with a loop whose end is not seen by its form, and why it ends. None: the job's own.
ENDS = {
    None: "the host's jobs, one after the other; a job looks at ABORT before each command",
    "inverse": "powers of two pass a number that has 48 bits",
    "MODEL": "a sum grows by `group`, which was checked not to be 0, up to T_M",
    "round": "a sum grows by the live sequences, of which there is one at least, up to T_M",
    "read_tokens": "each line has a token at least, as its first one is below 16",
    "write_tokens": "each line has a token at least, as its first one is below 16",
    "ATTEND": "rows of a segment go to passes, one at least each; ABORT is looked at before each",
    "finish_attention": "each turn scatters a pass",
    "ROUND": "each round takes every live sequence a token on at least, up to its limit",
    "judge": "the counter moves on or leaps to its end",
    "trace": "an inner loop counts 16 tokens a line, up to 48",
    "list": "the line becomes the next one; ABORT is looked at before each",
}

#: Ports at which the processor may have to wait until a number is taken.
WAITING = frozenset(
    {
        *(Push.MATRIX, Push.PASS, Push.JOB, Push.LOAD, Push.MOVE),
        *(Push.KEYS, Push.CLOSED, Push.TEXT_WORD, Push.TEXT),
    }
)


def calls_return(flow: Flow) -> bool:
    """None calls itself, and each goes back to where it was called from.

    A function that calls others keeps its return address in a word of its own, as the first thing
    it does, and takes it from there as the last; nothing else writes that word or the register.
    """
    for name, body in flow.bodies.items():
        if name in closure(flow.callees(name), flow.callees):
            return False
        first, last = flow.steps[body[0]], flow.steps[body[-1]]
        if last.op is not Op.RETURN or last.a != LINK:
            return False
        sets = [i for i in body if writes(flow.steps[i]) and flow.steps[i].target == LINK]
        if not sets:
            continue
        takes = flow.steps[body[-2]]
        kept = flow.stores(body[0])
        if first.b != LINK or kept is None or (takes.op, takes.a) != (Op.LOAD, 0):
            return False
        if takes.constant != kept or takes.target != LINK:
            return False
        if any(not flow.steps[i].calls for i in sets if i != body[-2]):
            return False
        if sum(flow.stores(i) == kept for i in range(len(flow.steps))) != 1:
            return False
    return all(
        flow.steps[i].calls
        for i in range(len(flow.steps))
        if flow.owner(i) is None and writes(flow.steps[i]) and flow.steps[i].target == LINK
    )


def places_exist(flow: Flow) -> bool:
    """Calls go to functions; all else goes on in its function, or out of all of them: a fault."""
    entries = set(flow.entries.values())
    for place, step in enumerate(flow.steps):
        if step.calls and step.goes not in entries:
            return False
        for following in flow.after(place):
            if following >= len(flow.steps):
                return False
            owner = flow.owner(following)
            if owner not in (None, flow.owner(place)):
                return False
            if owner is None and flow.owner(place) and following == place + 1:
                return False
    return True


def idle_place(flow: Flow) -> int:
    """Where the program looks for a job of the host."""
    looks = [i for i, step in enumerate(flow.steps) if reads(flow, i, Flag.HOST, Host.BUSY)]
    return min(i for i in looks if flow.owner(i) is None and flow.steps[i + 2].goes != i)


def reads(flow: Flow, place: int, flag: Flag, bit: int) -> bool:
    """Whether here a bit of a flag is read, and then branched on."""
    here = flow.steps[place : place + 3]
    return (
        [each.op for each in here[:2]] == [Op.IN, Op.AND]
        and here[2].op in BRANCHES
        and (here[0].a, here[0].constant) == (0, flag)
        and here[1].constant == 1 << bit
    )


def no_dead_end(flow: Flow) -> bool:
    """From every place the program can come to where it waits for a job."""

    def back(place: int) -> list[int]:
        return flow.before.get(place, [])

    # A call comes back if its function can, so whoever reaches an end goes on behind the call.
    ends = [i for i, step in enumerate(flow.steps) if step.op is Op.RETURN]
    goes_on = closure([idle_place(flow), *ends], back)
    return goes_on == set(range(len(flow.steps)))


def open_loops(flow: Flow) -> list[str | None]:
    """Functions by their loops that neither count nor wait for a port."""
    return [
        flow.owner(min(loop))
        for loop in flow.loops()
        if not is_wait(flow, loop) and not is_counted(flow, loop)
    ]


def waits(flow: Flow) -> Iterator[frozenset[int]]:
    """Innermost loops that look at ports."""
    for loop in flow.loops():
        yield from _innermost(flow, loop)


def _innermost(flow: Flow, loop: frozenset[int]) -> Iterator[frozenset[int]]:
    if is_wait(flow, loop):
        yield loop
        return
    head = min(loop)
    for inner in components(sorted(loop - {head}), flow.after):
        yield from _innermost(flow, inner)


def waits_have_a_way_out(flow: Flow) -> bool:
    """A loop that waits is left by what it reads."""
    for loop in waits(flow):
        outs = [i for i in loop if any(each not in loop for each in flow.after(i))]
        if not outs or any(flow.steps[i].op not in BRANCHES for i in outs):
            return False
    return True


def no_branch_is_decided(flow: Flow) -> bool:
    """Nothing is below 0, and no number differs from itself: no branch asks for that."""
    below = (Op.IF_BELOW, Op.IF_NOT_BELOW)
    for step in flow.steps:
        if step.op in BRANCHES:
            zero = step.constant is not None and step.constant >> 12 == 0
            if (zero and step.op in below) or (step.constant is None and step.a == step.b):
                return False
    return True


def fault_path(flow: Flow, stop: int) -> list[int]:
    """Places from where a fault stops memory to where the host is told."""
    steps = flow.steps
    begins = [
        i + 1
        for i in range(len(steps) - 1)
        if steps[i + 1].op is Op.OUT
        and steps[i + 1].constant == stop
        and (steps[i].op, steps[i].a, steps[i].constant, steps[i].target)
        == (Op.ADD, 0, 1, steps[i + 1].b)
    ]
    if len(begins) != 1:
        return []

    def onward(place: int) -> list[int]:
        told = steps[place].op is Op.OUT and steps[place].constant == Push.STOPPED
        return [] if told else flow.after(place)

    return sorted(closure(begins, onward))


def flushed_when_silent(flow: Flow, stop: int) -> bool:
    """FLUSH follows at once on MEMORY being idle, with ``stop`` set and nothing in between."""
    steps = flow.steps
    flushes = [i for i, s in enumerate(steps) if s.op is Op.OUT and s.constant == Push.FLUSH]
    path = fault_path(flow, stop)
    if len(flushes) != 1 or not path or path[0] > flushes[0]:
        return False
    flush = flushes[0]
    before = range(path[0], flush)
    straight = [steps[i].op for i in before] == [Op.OUT, Op.IN, Op.AND, Op.IF_DIFFERENT]
    if not straight:
        return False
    looks, masks, branch = before[1:]
    return (
        (steps[looks].a, steps[looks].constant) == (0, Flag.IDLE)
        and steps[masks].constant == 1 << Idle.MEMORY
        and steps[branch].goes == looks
        and (steps[branch].constant or 0) >> 12 == 1 << Idle.MEMORY
        and flow.before[flush] == [branch]
        and sorted(flow.before[looks]) == [path[0], branch]
    )


def a_fault_waits_for_memory_alone(flow: Flow, stop: int) -> bool:
    """Behind a fault the program gives numbers only to ports that take them at once."""
    path = fault_path(flow, stop)
    waiting = [loop for loop in waits(flow) if loop <= set(path)]
    return (
        bool(path)
        and len(waiting) == 1
        and not any(flow.steps[i].calls for i in path)
        and not any(flow.steps[i].op is Op.OUT and flow.steps[i].constant in WAITING for i in path)
    )


class ProgramProof:
    """What holds of the program for a preset.

    Attributes
    ----------
    name : str
    quick : bool
        Part of the quick form.
    """

    deaf = None
    deep = False
    quick = True

    def __init__(self, config: str) -> None:
        self.config = config
        self.name = f"program_{config}"

    def run(self, folder: Path, *, hunt: int = 0, deaf: bool = False) -> Outcome:
        """Looks at all paths."""
        started = time.monotonic()
        config = CHIPS[self.config]
        made = build(config)
        flow = Flow(made.p.assemble(), made.p.names)
        stop = fields_of(config)["stop"].number
        checks = {
            "places_exist": lambda: places_exist(flow),
            "all_is_reached": lambda: flow.reached() == set(range(len(flow.steps))),
            "calls_return": lambda: calls_return(flow),
            "no_dead_end": lambda: no_dead_end(flow),
            "loops_end": lambda: sorted(map(str, open_loops(flow))) == sorted(map(str, ENDS)),
            "no_branch_is_decided": lambda: no_branch_is_decided(flow),
            "waits_have_a_way_out": lambda: waits_have_a_way_out(flow),
            "flushed_when_silent": lambda: flushed_when_silent(flow, stop),
            "a_fault_waits_for_memory_alone": lambda: a_fault_waits_for_memory_alone(flow, stop),
        }
        failing = sorted(name for name, check in checks.items() if not check())
        return Outcome(
            self.name,
            f"program, {self.config}: {len(flow.steps)} instructions, all paths",
            len(checks),
            0,
            0,
            "fails" if failing else "proven",
            failing,
            seconds=time.monotonic() - started,
        )
