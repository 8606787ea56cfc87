"""The program of the control processor as a graph: where it can go, and where it has to wait.

What is said here holds whatever registers, memory and ports say: every branch may go either way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Set
from dataclasses import dataclass

from hw.control.assembler import Op
from sim.processor_model import fields_of

BRANCHES = frozenset({Op.IF_EQUAL, Op.IF_DIFFERENT, Op.IF_BELOW, Op.IF_NOT_BELOW})
#: Registers of expressions, and of where a function goes back to.
TEMPORARIES, LINK = range(1, 12), 31
#: A number by where it is: a register, a word of memory, an entry of a table there, or no place.
Variable = tuple[str, int] | tuple[str, int, int]
_TARGET = (1 << 12) - 1


@dataclass(frozen=True)
class Step:
    """An instruction: operation, registers, constant or None, where it goes."""

    op: Op
    target: int
    a: int
    b: int
    constant: int | None
    goes: int | None

    @property
    def calls(self) -> bool:
        """Whether it comes back."""
        return self.op is Op.CALL and self.target == LINK


def step_of(word: int) -> Step:
    """A word of the program."""
    op, target, a, b, uses, constant = fields_of(word)
    goes = constant & _TARGET if op in BRANCHES or op is Op.CALL else None
    return Step(op, target, a, b, constant if uses else None, goes)


class Flow:
    """The graph of a program.

    Parameters
    ----------
    program : tuple of int
    names : dict of int to str
        Functions by their first places.

    Attributes
    ----------
    steps : list of Step
    entries : dict of str to int
    bodies : dict of str to range
        From a function's first instruction to its RETURN.
    """

    def __init__(self, program: tuple[int, ...], names: dict[int, str]) -> None:
        self.steps = [step_of(word) for word in program]
        self.entries = {name: place for place, name in names.items()}
        self.bodies = {name: range(at, self._end(at) + 1) for name, at in self.entries.items()}

    def _end(self, place: int) -> int:
        return next(
            (i for i in range(place, len(self.steps)) if self.steps[i].op is Op.RETURN),
            len(self.steps) - 1,
        )

    @functools.cached_property
    def _owners(self) -> dict[int, str]:
        return {place: name for name, body in self.bodies.items() for place in body}

    def owner(self, place: int) -> str | None:
        """The function that a place belongs to; None for what runs the job."""
        return self._owners.get(place)

    def after(self, place: int) -> list[int]:
        """Where it may go on, in the same function or out of all of them; calls come back."""
        step = self.steps[place]
        if step.op is Op.RETURN:
            return []
        if step.op is Op.CALL and not step.calls:
            assert step.goes is not None
            return [step.goes]
        if step.op in BRANCHES:
            assert step.goes is not None
            return [place + 1, step.goes]
        return [place + 1]

    @functools.cached_property
    def before(self) -> dict[int, list[int]]:
        """Where a place is come to from, the reverse of :meth:`after`."""
        found: dict[int, list[int]] = {}
        for place in range(len(self.steps)):
            for following in self.after(place):
                found.setdefault(following, []).append(place)
        return found

    def reached(self) -> set[int]:
        """Places that can be come to from the first one."""

        def onward(place: int) -> list[int]:
            step = self.steps[place]
            called = [step.goes] if step.calls and step.goes is not None else []
            return [each for each in self.after(place) + called if each < len(self.steps)]

        return closure([0], onward)

    def callees(self, name: str) -> set[str]:
        """Functions that a function calls itself."""
        names = {at: each for each, at in self.entries.items()}
        found = set()
        for place in self.bodies[name]:
            step = self.steps[place]
            if step.calls and step.goes in names:
                found.add(names[step.goes])
        return found

    def loops(self) -> Iterator[frozenset[int]]:
        """Sets of places that can be come to from each other; calls are passed over."""
        yield from components(range(len(self.steps)), self.after)

    def written(self, name: str) -> set[int]:
        """Registers that a function and those that it calls write."""
        found: set[int] = set()
        for each in closure([name], self.callees):
            found |= {self.steps[i].target for i in self.bodies[each] if writes(self.steps[i])}
        return found

    def stored(self, name: str) -> set[int]:
        """Words of memory at known addresses that a function and those it calls write."""
        found: set[int] = set()
        for each in closure([name], self.callees):
            found |= {word for i in self.bodies[each] if (word := self.stores(i)) is not None}
        return found

    def stores(self, place: int) -> int | None:
        """The address that an instruction writes, if it is known."""
        step = self.steps[place]
        return step.constant if step.op is Op.STORE and step.a == 0 else None

    def counts(self, place: int) -> Variable | None:
        """The variable, in a register or in memory, that an instruction takes up or down by 1 or
        more; the variable is said by its kind and number."""
        step = self.steps[place]
        if step.op in (Op.ADD, Op.SUB) and step.constant and step.target == step.a != 0:
            return "register", step.target
        address = self.stores(place)
        if address is None or place < 2:
            return None
        adds, loads = self.steps[place - 1], self.steps[place - 2]
        if (
            adds.op in (Op.ADD, Op.SUB)
            and adds.target == step.b
            and adds.constant
            and (loads.op, loads.target, loads.a, loads.constant) == (Op.LOAD, adds.a, 0, address)
        ):
            return "word", address
        return None

    def read_for(self, place: int, register: int) -> Variable:
        """What a branch's register holds: itself, a constant, or what was loaded just before."""
        for i in range(place - 1, max(-1, place - 4), -1):
            step = self.steps[i]
            if register in TEMPORARIES and writes(step) and step.target == register:
                if step.op is Op.LOAD and step.constant is not None:
                    return ("table", step.a, step.constant) if step.a else ("word", step.constant)
                if step.op is Op.ADD and step.a == step.b == 0 and step.constant is not None:
                    return "constant", step.constant
                break
        return "register", register


def writes(step: Step) -> bool:
    """Whether an instruction writes its target."""
    return step.op not in (Op.STORE, Op.OUT, Op.RETURN, *BRANCHES) and step.target != 0


def closure(start: Collection, onward: Callable) -> set:  # type: ignore[type-arg]
    """All that can be come to."""
    found, ahead = set(start), list(start)
    while ahead:
        for each in onward(ahead.pop()):
            if each not in found:
                found.add(each)
                ahead.append(each)
    return found


def components(
    places: Collection[int], after: Callable[[int], list[int]]
) -> Iterator[frozenset[int]]:
    """Strongly connected components that have a cycle (Tarjan, without recursion)."""
    inside = set(places)
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in places:
        if root in index:
            continue
        work = [(root, iter([each for each in after(root) if each in inside]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            place, ahead = work[-1]
            for each in ahead:
                if each not in index:
                    index[each] = low[each] = len(index)
                    stack.append(each)
                    on_stack.add(each)
                    work.append((each, iter([one for one in after(each) if one in inside])))
                    break
                if each in on_stack:
                    low[place] = min(low[place], index[each])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[place])
                if low[place] == index[place]:
                    found = set()
                    while True:
                        each = stack.pop()
                        on_stack.discard(each)
                        found.add(each)
                        if each == place:
                            break
                    if len(found) > 1 or place in after(place):
                        yield frozenset(found)


def is_counted(flow: Flow, loop: Set[int]) -> bool:
    """Whether a loop must end: a variable that it only counts is compared on the way out.

    Without the instructions that count, what is left of the loop must be loops of which the same
    holds. The loop changes the variable in no other way, and the number that it is compared with
    not at all.
    """
    names = {at: each for each, at in flow.entries.items()}
    for place in loop:
        step = flow.steps[place]
        if step.op not in BRANCHES or all(each in loop for each in flow.after(place)):
            continue
        operands = [flow.read_for(place, step.a)]
        if step.constant is None and step.b:
            operands.append(flow.read_for(place, step.b))
        for variable in operands:
            counting = {each for each in loop if flow.counts(each) == variable}
            others = [each for each in operands if each != variable]
            if not counting or any(_changes(flow, each, loop, names, set()) for each in others):
                continue
            if _changes(flow, variable, loop, names, counting):
                continue
            rest = components(sorted(loop - counting), flow.after)
            if all(is_wait(flow, each) or is_counted(flow, each) for each in rest):
                return True
    return False


def _changes(
    flow: Flow, variable: Variable, loop: Set[int], names: dict[int, str], but: Set[int]
) -> bool:
    """Whether a loop, or what it calls, changes a variable other than at these places."""
    kind, number, *rest = variable
    if kind == "constant":
        return False
    for place in loop - but:
        step = flow.steps[place]
        if step.calls and step.goes is not None:
            name = names[step.goes]
            # Tables are changed by those that are called as they like.
            changed = flow.written(name) if kind == "register" else flow.stored(name)
            found = kind == "table" or number in changed
        elif kind == "word":
            found = flow.stores(place) == number
        else:
            found = writes(step) and step.target == number
            if kind == "table" and step.op is Op.STORE and step.a:
                found = step.constant == rest[0]
        if found:
            return True
    return False


def is_wait(flow: Flow, loop: Set[int]) -> bool:
    """Whether a loop only looks at ports, and changes nothing."""
    ops = {flow.steps[place].op for place in loop}
    return Op.IN in ops and not ops & {Op.STORE, Op.OUT, Op.CALL, Op.RETURN}
