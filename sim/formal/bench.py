"""The surroundings of a component in a proof: free inputs, what they keep to, what must hold.

A proof starts in **any** state of the component's registers and memories: one cycle of reset
follows, and only then are properties asked for. So nothing rests on initial values that an FPGA
would give, and registers without a reset are free.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import (
    Assert,
    Assume,
    ClockDomain,
    Fragment,
    Module,
    ResetSignal,
    Signal,
    Value,
    ValueCastable,
)
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In, Out

from hw.axi.bus import Axi, AxiLite, AxiRead, AxiWrite
from hw.library import flat_ports
from hw.memory.fifo import Fifo
from sim.formal.cuts import Cut, cut

#: Prefixes of the signals that say whether a property, or a rule of the surroundings, holds.
CHECK, RULE = "holds_", "rule_"


class UnknownSignal(ValueError):
    """A signal that a proof names and the component does not have, or has twice."""


def as_value(value: Any) -> Value:
    """A value or a view as a value."""
    return value.as_value() if isinstance(value, ValueCastable) else Value.cast(value)


class Bench:
    """A component with free inputs.

    Parameters
    ----------
    dut : Component
        The component; its inputs become free, its submodules are those of the hardware.
    keep : collection of str or None
        Names of modules that stay inside; all others that the component instantiates are taken
        out (:mod:`sim.formal.cuts`). None keeps those without streams or, without ``out``, all.
    out : collection of str or None
        Names of modules without streams that are taken out.
    deaf : bool
        A broken copy: whatever the component offers, it believes it taken at once.

    Attributes
    ----------
    m : Module
        For registers of the proof. Their reset is that of the component.
    dut : Component
        Its members are read and compared as they are.
    checks, helpers : dict
        The properties, and what is proven beside them because the induction needs it.
    rules : list of str
        What the surroundings keep to.
    of_streams : set of str
        Of properties and rules, those that :meth:`streams` asked for.
    """

    def __init__(
        self,
        dut: Component,
        keep: Collection[str] | None = None,
        out: Collection[str] | None = None,
        *,
        deaf: bool = False,
    ) -> None:
        self.dut = dut
        self.deaf = deaf
        self.m = Module()
        self.m.domains.sync = domain = ClockDomain("sync", local=True)
        self.checks: dict[str, Signal] = {}
        self.helpers: dict[str, Signal] = {}
        self.rules: list[str] = []
        self.of_streams: set[str] = set()
        self.rows: dict[str, str] = {}
        self.cuts: list[Cut] = []
        self._modules = ""
        if keep is None and out is None:
            self._fragment = Fragment.get(dut, None)
        else:

            def stays(name: str, module: Component) -> bool:
                if keep is not None:
                    return name in keep
                streams = channels_of(module, lambda member, field: None)
                return name not in (out or ()) and not any(streams)

            self._fragment, self.cuts, self._modules = cut(dut, stays)
        self._ports: dict[str, tuple[Value, None]] = {
            name: (value, None) for name, member, value in flat_ports(dut) if member.flow == In
        }
        # A clock that is no port is a constant, and with it all registers: everything would hold.
        self._ports["clk"] = (domain.clk, None)
        for each in self.cuts:
            for name, value in each.outputs.items():
                self._ports[f"{each.name}.{name}"] = (value, None)
        self._signals: dict[str, dict[int, Signal]] = {}
        self._names(self._fragment, "")
        self.m.submodules.dut = self._fragment
        self.started = Signal(reset_less=True)
        self.m.d.comb += ResetSignal().eq(~self.started)
        self.m.d.sync += self.started.eq(1)

    def _names(self, fragment: Any, place: str) -> None:
        for statements in getattr(fragment, "statements", {}).values():
            for statement in statements:
                for signal in [*statement._lhs_signals(), *statement._rhs_signals()]:
                    found = self._signals.setdefault(place + signal.name, {})
                    found[id(signal)] = signal
        for child, name, _ in fragment.subfragments:
            self._names(child, f"{place}{name}.")

    def inside(self, name: str) -> Signal:
        """A signal inside the component, by its place and name: ``queue.stored``.

        Raises
        ------
        UnknownSignal
            If there is none of this name, or more than one.
        """
        found = self._signals.get(name, {})
        if len(found) != 1:
            raise UnknownSignal(f"the component has {len(found)} signals named {name!r}, not one")
        return next(iter(found.values()))

    def memory(self, place: str, depth: int, width: int) -> list[Signal]:
        """The rows of a :class:`~hw.memory.ram.Ram` inside, by its place: ``queue.ram``."""
        rows = []
        for i in range(depth):
            row = self.free(f"row_of_{place.replace('.', '_')}_{i}", width)
            self.rows[row.name] = f"dut.{place}.rows[{i}]"
            rows.append(row)
        return rows

    def cut(self, name: str) -> Cut:
        """A module that was taken out, by its instance's name.

        Raises
        ------
        UnknownSignal
            If there is none.
        """
        for each in self.cuts:
            if each.name == name:
                return each
        raise UnknownSignal(f"no module named {name!r} was taken out")

    def free(self, name: str, shape: Any) -> Signal:
        """A free input of the proof: any value in every cycle."""
        signal = Signal(shape, name=name)
        self._ports[name] = (signal, None)
        return signal

    def constant(self, name: str, shape: Any) -> Signal:
        """Any value, the same one in every cycle from reset on."""
        value = self.free(name, shape)
        self.assume(f"{name}_stays", value == self.past(value, f"{name}_before"), first=False)
        return value

    def past(self, value: Any, name: str) -> Signal:
        """``value`` one cycle ago; 0 in the first cycle after reset."""
        value = as_value(value)
        register = Signal(value.shape(), name=name)
        self.m.d.sync += register.eq(value)
        return register

    @property
    def running(self) -> Signal:
        """Whether there was a cycle since reset, so that :meth:`past` has a meaning."""
        if not hasattr(self, "_running"):
            self._running = Signal(name="running")
            self.m.d.sync += self._running.eq(1)
        return self._running

    def assume(self, name: str, value: Any, *, first: bool = True) -> None:
        """A rule that the surroundings keep; ``first``: in the first cycle after reset too."""
        self.rules.append(name)
        holds = Signal(name=RULE + name)
        since = self.started if first else self.running
        self.m.d.comb += [holds.eq(~since | as_value(value).bool()), Assume(holds)]

    def check(self, name: str, value: Any, *, helper: bool = False) -> None:
        """A property that must hold in every cycle after reset.

        ``helper``: it says how the component is built rather than what it does. It is proven like
        the others, so it may be used by the induction, but a broken copy must break another one.
        """
        if name in self.checks or name in self.helpers:
            raise ValueError(f"a property named {name!r} is there already")
        holds = Signal(name=CHECK + name)
        (self.helpers if helper else self.checks)[name] = holds
        self.m.d.comb += holds.eq(~self.started | as_value(value).bool())

    def _kept(self, valid: Any, ready: Any, payload: list[Any], name: str) -> Value:
        """Whether an offer that was not taken is still there, unchanged."""
        waiting = self.past(as_value(valid) & ~as_value(ready), f"{name}_waits")
        same: Value = as_value(valid)
        for i, each in enumerate(map(as_value, payload)):
            if len(each):
                same = same & (each == self.past(each, f"{name}_payload_{i}"))
        return ~waiting | same

    def channel(
        self,
        valid: Any,
        ready: Any,
        payload: list[Any],
        name: str,
        *,
        ours: bool,
        forgets: Any = 0,
    ) -> None:
        """The rule of a stream or an AXI channel; a property if the component is its source.

        After a cycle of ``forgets`` what was offered need not be there any more.
        """
        if ours and self.deaf:
            ready = self._unheard(as_value(ready), name)
        kept = self._kept(valid, as_value(ready) | as_value(forgets), payload, name)
        (self.check if ours else self.assume)(f"{name}_stays", kept)

    def _unheard(self, ready: Value, name: str) -> Signal:
        """An input is 1; what it should have been."""
        for port, (value, _) in list(self._ports.items()):
            if value is ready:
                del self._ports[port]
                self.m.d.comb += value.eq(1)
        return self.free(f"{name}_taken", 1)

    def streams(
        self, *, free: Collection[str] = (), forgets: Mapping[str, Value] | None = None
    ) -> list[str]:
        """The stream rule at every stream and AXI channel, as :meth:`channel` has it.

        Parameters
        ----------
        free : collection of str
            Those that need not keep it.
        forgets : mapping of str to Value, or None
            By streams of which the component is the source: after a cycle of it, what was offered
            need not be there any more.

        Returns
        -------
        names : list of str
            Streams and channels of which the component is the source, those that lead to modules
            which are taken out among them.
        """
        ours = []
        others = {*self.checks, *self.rules}
        never, forgets = Value.cast(0), forgets or {}
        found = [
            (each, forgets.get(each[0], never))
            for each in channels_of(self.dut, _member_of(self.dut))
        ]
        for cut_out in self.cuts:
            for name, source, *rest in channels_of(cut_out.component, cut_out.port):
                found.append(((f"{cut_out.name}_{name}", not source, *rest), cut_out.reset))
        unknown = {*free, *forgets} - {name for (name, *_), _ in found}
        if unknown:
            raise UnknownSignal(f"the component has no stream {', '.join(sorted(unknown))}")
        for (name, is_ours, valid, ready, payload), reset in found:
            if name in free:
                continue
            # What was offered before a reset is forgotten.
            self.channel(valid, ready, payload, name, ours=is_ours, forgets=reset)
            if is_ours:
                ours.append(name)
        for cut_out in self.cuts:
            if isinstance(cut_out.component, Fifo):
                valid, ready = (cut_out.port("i", each) for each in ("valid", "ready"))
                had_room = self.past(ready & ~valid, f"{cut_out.name}_had_room")
                self.assume(f"{cut_out.name}_has_room", ~had_room | ready | cut_out.reset)
                emptied = self.past(cut_out.reset, f"{cut_out.name}_emptied")
                gone = ~emptied | ~as_value(cut_out.port("o", "valid"))
                self.assume(f"{cut_out.name}_is_empty_after_reset", gone)
        self.of_streams |= {*self.checks, *self.rules} - others
        return ours

    def rtlil(self, *, helpers: bool = True) -> str:
        """The bench and the component as RTLIL, once; the top module is ``top``."""
        asked = [*self.checks.values(), *(self.helpers.values() if helpers else ())]
        self.m.d.comb += [Assert(holds) for holds in asked]
        text, _ = rtlil.convert_fragment(
            Fragment.get(self.m, None), self._ports, "top", emit_src=False
        )
        return self._modules + text


Channel = tuple[str, bool, Any, Any, list[Any]]


def channels_of(component: Component, port: Callable[[str, str], Any]) -> Iterator[Channel]:
    """The streams and AXI channels of a component.

    ``port`` gives a signal by the names of the member and of the field. Yields ``(name, whether
    the component is the source, valid, ready, payload)``.
    """
    for name, member in component.signature.members.items():
        if not member.is_signature:
            continue
        out = member.flow == Out
        if isinstance(member.signature, stream.Signature):
            yield name, out, port(name, "valid"), port(name, "ready"), [port(name, "payload")]
        elif isinstance(member.signature, AxiRead | AxiWrite | Axi | AxiLite):
            for channel in ("aw", "w", "b", "ar", "r"):
                fields = [each for each in member.signature.members if _of(each, channel)]
                if not fields:
                    continue
                valid, ready = (port(name, channel + end) for end in ("valid", "ready"))
                payload = [port(name, each) for each in fields]
                source = out == (channel in ("aw", "w", "ar"))
                yield f"{name}_{channel}", source, valid, ready, payload


def _member_of(component: Component) -> Callable[[str, str], Any]:
    return lambda name, field: getattr(getattr(component, name), field)


def _of(name: str, channel: str) -> bool:
    """Whether a signal is of the payload of an AXI channel."""
    rest = name.removeprefix(channel)
    return rest != name and rest in _FIELDS


#: What the channels of an AXI bus carry.
_FIELDS = {
    *("id", "addr", "len", "size", "burst", "cache", "prot"),
    *("data", "strb", "last", "resp"),
}
