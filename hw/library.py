"""Modules that are elaborated once and instantiated by name.

Amaranth elaborates every submodule anew; the 32,768 lanes of the ``paper`` preset would take
hours and hundreds of megabytes. Here a :class:`Unique` component has a fixed module name, a
:class:`Library` collects the RTLIL of each name once, and a parent holds nothing but instances.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import (
    Array,
    ClockSignal,
    Fragment,
    Instance,
    Module,
    ResetInserter,
    ResetSignal,
    Signal,
    Value,
    ValueCastable,
)
from amaranth.hdl._ir import PortDirection
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

_active: ContextVar[Library | None] = ContextVar("library", default=None)


class Unique(wiring.Component):
    """A component that is emitted once, as ``module_name``, and instantiated by that name.

    Subclasses set ``module_name`` (unique within one configuration) and ``label`` (the
    component's name in reports), and say with ``sequential`` whether they have a clock.
    """

    module_name: str
    label: str
    sequential: bool = True


class Library:
    """The unique modules of one design: RTLIL, component labels and instance counts.

    Attributes
    ----------
    modules : dict
        Component of every module name, children before parents.
    children : dict
        For every module name, how often it instantiates each other module.
    """

    def __init__(self) -> None:
        self.modules: dict[str, Unique] = {}
        self.children: dict[str, dict[str, int]] = {}
        self._rtlil: dict[str, str] = {}
        self._made: dict[Any, Unique] = {}
        self._stack: list[str] = []

    def get(self, component_class: type[Unique], *args: Any, **kwargs: Any) -> Unique:
        """The one component of this class and parameters."""
        key = (component_class, args, tuple(sorted(kwargs.items())))
        if key not in self._made:
            self._made[key] = component_class(*args, **kwargs)
        return self._made[key]

    def add(self, component: Unique) -> None:
        """Elaborates ``component`` and all that it instantiates, each name once."""
        name = component.module_name
        if self._stack:
            counts = self.children[self._stack[-1]]
            counts[name] = counts.get(name, 0) + 1
        if name in self.children:
            if self.modules.get(name, component) is not component:
                raise ValueError(f"two different components are both named {name!r}")
            return
        self.children[name] = {}
        self._stack.append(name)
        try:
            with recording(self):
                ports = _ports(component)
                fragment = Fragment.get(component, None)
                text, _ = rtlil.convert_fragment(fragment, ports, name, emit_src=False)
        finally:
            self._stack.pop()
        self.modules[name] = component
        self._rtlil[name] = text

    def text(self, name: str) -> str:
        """RTLIL of a module."""
        return self._rtlil[name]

    def rtlil(self) -> str:
        """RTLIL of all modules, children before parents."""
        return "\n".join(self._rtlil[name] for name in self.modules)


@contextmanager
def recording(library: Library) -> Iterator[None]:
    """In it, what is elaborated instantiates modules of ``library``."""
    token = _active.set(library)
    try:
        yield
    finally:
        _active.reset(token)


def port_name(path: tuple[str | int, ...]) -> str:
    """Name of a port: the parts joined by two underscores, those of an AXI bus by one.

    A member whose name ends in ``axi`` is such a bus (:mod:`hw.axi.bus`); its ports then have the
    conventional names, like ``m0_axi_araddr``.
    """
    *places, signal = map(str, path)
    between = "_" if places and places[-1].split("_")[-1] == "axi" else "__"
    return between.join(["__".join(places), signal] if places else [signal])


def flat_ports(component: Any) -> list[tuple[str, Any, Value]]:
    """``(name, member, value)`` of all ports, named by :func:`port_name`."""
    flat = []
    for path, member, value in component.signature.flatten(component):
        if isinstance(value, ValueCastable):
            value = value.as_value()
        flat.append((port_name(path), member, value))
    return flat


def _ports(component: Unique) -> dict[str, tuple[Value, PortDirection]]:
    return {
        name: (value, PortDirection.Input if member.flow == In else PortDirection.Output)
        for name, member, value in flat_ports(component)
    }


def packed(shape: Any, *, name: str, **kwargs: Any) -> Any:
    """A signal of a shape whose fields get no names of their own in the emitted text.

    An array of 64 x 16 look-ups would add four thousand aliases to each module that it passes.
    """
    if isinstance(shape, data.Layout):
        return data.View(shape, Signal(shape.size, name=name, **kwargs))
    return Signal(shape, name=name, **kwargs)


def part_of(value: Value, number: Value, width: int) -> Value:
    """The ``number``-th ``width`` bits of a value, by a multiplexer."""
    return Array(value[i : i + width] for i in range(0, len(value), width))[number]


def instantiate(
    m: Module,
    name: str,
    component_class: type[Unique],
    *args: Any,
    reset: Value | None = None,
    **kwargs: Any,
) -> Any:
    """Places a component into ``m`` as instance ``name`` and returns its interface.

    ``reset`` resets it too, beside the domain's own reset.

    Under an active :class:`Library` the component is made and emitted once, and this is an
    instance of its module; without one (Amaranth's own simulator) it is made and becomes a
    submodule. The returned object has the members of the component, to be driven and read by the
    parent.
    """
    library = _active.get()
    if library is None:
        component = component_class(*args, **kwargs)
        m.submodules[name] = component if reset is None else ResetInserter(reset)(component)
        return component
    component = library.get(component_class, *args, **kwargs)
    library.add(component)
    interface = SimpleNamespace()
    ports: dict[str, Any] = {}
    for path, member, _ in component.signature.flatten(component):
        port = port_name(path)
        value = packed(member.shape, name=f"{name}__{port}")
        # A stream is a namespace of its own: interface.beats.valid.
        place = interface
        for part in path[:-1]:
            place = vars(place).setdefault(part, SimpleNamespace())
        setattr(place, path[-1], value)
        ports[("i_" if member.flow == In else "o_") + port] = Value.cast(value)
    if component.sequential:
        ports["i_clk"] = ClockSignal()
        ports["i_rst"] = ResetSignal() if reset is None else ResetSignal() | reset
    m.submodules[name] = Instance(component.module_name, **ports)
    return interface
