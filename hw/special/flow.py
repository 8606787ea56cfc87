"""Control of the stream units: stages that move together, and sticky status bits."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal, Value

from hw.library import packed


class Stages:
    """Register stages between a stream in and a stream out, all moved by ``advance``.

    They stand still only while the last one holds something that is not taken, so one beat a
    cycle passes, and ``valid`` does not wait for ``ready``.

    Parameters
    ----------
    m : Module
    entering : one bit
        Whether something enters the first stage when the stages move.
    ready : one bit
        Whether what is in the last stage is taken.
    count : int
    """

    def __init__(self, m: Module, *, entering: Value, ready: Value, count: int) -> None:
        self.m = m
        self.count = count
        self.advance = Signal(name="advance")
        self.valid = [Signal(name=f"valid_{i}") for i in range(1, count + 1)]
        m.d.comb += self.advance.eq(~self.valid[-1] | ready)
        with m.If(self.advance):
            for before, after in zip([entering, *self.valid], self.valid, strict=False):
                m.d.sync += after.eq(before)

    def register(self, name: str, shape: Any, value: Any) -> Any:
        """``value`` one stage later."""
        register = packed(shape, name=name, reset_less=True)
        with self.m.If(self.advance):
            self.m.d.sync += register.eq(value)
        return register

    def follow(self, name: str, shape: Any, value: Any, stages: int | None = None) -> Any:
        """``value`` as many stages later; all of them by default."""
        for stage in range(1, (self.count if stages is None else stages) + 1):
            value = self.register(f"{name}_{stage}", shape, value)
        return value


def sticky(m: Module, status: Any, clear: Value, **raised: Value) -> None:
    """Drives ``status`` with bits that stay until ``clear``; one that is raised then stays too."""
    held = Signal(status.shape(), name="held_status")
    m.d.comb += status.eq(held)
    for name, value in raised.items():
        m.d.sync += held[name].eq((held[name] & ~clear) | value)
    for name in set(dict(held.shape())) - set(raised):
        m.d.comb += held[name].eq(0)


class Queue:
    """A short queue in registers.

    Whoever pushes sees to it that there is room; ``head`` has no meaning while ``count`` is 0.

    Parameters
    ----------
    m : Module
    name : str
    shape : of an entry
    depth : int

    Attributes
    ----------
    push, entry : driven by the user
    pop : driven by the user, only while something is there
    head, count : the oldest entry, and how many there are
    """

    def __init__(self, m: Module, name: str, shape: Any, depth: int) -> None:
        self.push = Signal(name=f"{name}_push")
        self.pop = Signal(name=f"{name}_pop")
        self.entry = packed(shape, name=f"{name}_entry")
        self.count = Signal(range(depth + 1), name=f"{name}_count")
        entries = [packed(shape, name=f"{name}_{i}", reset_less=True) for i in range(depth)]
        self.head = entries[0]
        place = Signal(range(depth + 1), name=f"{name}_place")
        m.d.comb += place.eq(self.count - self.pop)
        m.d.sync += self.count.eq(self.count + self.push - self.pop)
        for i, each in enumerate(entries):
            with m.If(self.push & (place == i)):
                m.d.sync += each.eq(self.entry)
            if i + 1 < depth:
                with m.Elif(self.pop):
                    m.d.sync += each.eq(entries[i + 1])
