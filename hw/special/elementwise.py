"""Units that do the same to every element of a beat: lanes side by side, one stream in, one out."""

from __future__ import annotations

from typing import Any, ClassVar

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hw.library import Unique, instantiate
from hw.special.flow import Stages, sticky
from hw.special.layouts import STATUS, beat_layout, check_elements


class Lane(Unique):
    """Arithmetic of one element: registers that all move by ``advance``.

    Subclasses name the shape of their operand and result, and after how many ``advance`` the result
    is there.

    Members
    -------
    advance
    operand
        Read with each ``advance``.
    refused
        The operand is Inf or NaN, or has one in it; combinational.
    result, overflow
        ``latency`` advances later. A lane that cannot overflow gives 0.
    more
        What a class names in ``shared``, the same for all lanes; held by whoever drives it.
    """

    operand_shape: ClassVar[Any]
    result_shape: ClassVar[Any]
    latency: ClassVar[int]
    shared: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__(
            {
                "advance": In(1),
                "operand": In(self.operand_shape),
                "refused": Out(1),
                "result": Out(self.result_shape),
                "overflow": Out(1),
                **{name: In(shape) for name, shape in self.shared.items()},
            }
        )

    def register(self, m: Module, name: str, shape: Any, value: Any) -> Any:
        """``value`` one stage later."""
        register = Signal(shape, name=name, reset_less=True)
        with m.If(self.advance):
            m.d.sync += register.eq(value)
        return register


class Elementwise(Unique):
    """A row of lanes between two streams.

    Throughput: one beat a cycle. Latency: that of the lane, counted from the cycle in which a beat
    is taken to the one in which its result is valid. Order is kept.

    Parameters
    ----------
    elements : int
        Elements of a beat: 1, 2, 4 or 8.

    Members
    -------
    operands : stream of beats of the lane's operand
        ``last`` ends a row; marks are passed on.
    results : stream of beats of the lane's result
        Dead elements are 0.
    status, clear
        Sticky bits (:data:`~hw.special.layouts.STATUS`), set in the cycle after the transfer of the
        beat that raises them: ``refused`` of operands, ``overflow`` of results.
    more
        What the lane names in ``shared``: constants of a row, which may change only while nothing
        is on its way.
    """

    lane: ClassVar[type[Lane]]
    marks: ClassVar[tuple[str, ...]] = ("last",)

    def __init__(self, *, elements: int) -> None:
        self.elements = check_elements(elements)
        super().__init__(
            {
                "operands": In(
                    stream.Signature(beat_layout(self.lane.operand_shape, elements, *self.marks))
                ),
                "results": Out(
                    stream.Signature(beat_layout(self.lane.result_shape, elements, *self.marks))
                ),
                "status": Out(STATUS),
                "clear": In(1),
                **{name: In(shape) for name, shape in self.lane.shared.items()},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat, result = self.operands.payload, self.results.payload
        stages = Stages(
            m, entering=self.operands.valid, ready=self.results.ready, count=self.lane.latency
        )
        m.d.comb += [
            self.operands.ready.eq(stages.advance),
            self.results.valid.eq(stages.valid[-1]),
            result.live.eq(stages.follow("live", self.elements, beat.live)),
        ]
        for mark in self.marks:
            m.d.comb += result[mark].eq(stages.follow(mark, 1, beat[mark]))
        refused = Signal(self.elements)
        overflow = Signal(self.elements)
        for i in range(self.elements):
            lane = instantiate(m, f"lane_{i}", self.lane)
            m.d.comb += [
                lane.advance.eq(stages.advance),
                lane.operand.eq(beat.values[i]),
                result.values[i].eq(masked(lane.result, result.live[i])),
                refused[i].eq(lane.refused & beat.live[i]),
                overflow[i].eq(lane.overflow & result.live[i]),
            ]
            m.d.comb += [getattr(lane, name).eq(getattr(self, name)) for name in self.lane.shared]
        sticky(
            m,
            self.status,
            self.clear,
            refused=self.operands.valid & stages.advance & refused.any(),
            overflow=self.results.valid & self.results.ready & overflow.any(),
        )
        return m


def masked(value: Any, live: Value) -> Value:
    """The bits of ``value``, zeros unless ``live``."""
    bits = Value.cast(value).as_unsigned()
    return bits & live.replicate(len(bits))
