"""Modules taken out of a component: what they drive is free, within the rules that they keep.

A proof about a component then holds whatever these modules do at their ports, as long as their
streams keep the stream rule, which is proven of each of them on its own. That is no circle: what
one component does in a cycle rests on what the others do in that cycle along wires without a loop,
and else on cycles before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from amaranth.hdl import Fragment, Instance, ResetSignal, Value

from hw.library import Library, Unique, port_name, recording


@dataclass(frozen=True)
class Cut:
    """A module that was taken out.

    Attributes
    ----------
    name : str
        Of the instance.
    component : Unique
    ports : dict of str to Value
        What it is connected to, by the names of its ports.
    outputs : dict of str to Value
        Those of them that it drives.
    reset : Value
        Whether it is reset, beside all others.
    """

    name: str
    component: Unique
    ports: dict[str, Value]
    outputs: dict[str, Value]
    reset: Value

    def port(self, member: str, field: str) -> Value:
        """A signal of a stream or a bus, by the names of the member and of the field."""
        return self.ports[port_name((member, field))]


def cut(component: Unique, stays: Callable[[str, Unique], bool]) -> tuple[Fragment, list[Cut], str]:
    """A component without the modules that it instantiates.

    Parameters
    ----------
    component : Unique
    stays : callable
        ``stays(name, module)``: whether a module stays, with all that is in it.

    Returns
    -------
    fragment : Fragment
        The component; instances of what was kept are in it.
    cuts : list of Cut
    text : str
        RTLIL of the modules that are kept.
    """
    library = Library()
    with recording(library):
        fragment = Fragment.get(component, None)
    keep = {name for name, module in library.modules.items() if stays(name, module)}
    cuts: list[Cut] = []
    _take_out(fragment, library, keep, cuts)
    text = "\n".join(library.text(name) for name in _with_children(library, keep))
    return fragment, cuts, text


def _with_children(library: Library, names: Collection[str]) -> list[str]:
    wanted = set(names)
    for name in reversed(library.modules):
        if name in wanted:
            wanted |= set(library.children[name])
    return [name for name in library.modules if name in wanted]


def _take_out(
    fragment: Fragment, library: Library, keep: Collection[str], cuts: list[Cut], place: str = ""
) -> None:
    kept = []
    for child, name, source in fragment.subfragments:
        full = f"{place}{name}"
        if not isinstance(child, Instance) or child.type in keep:
            if not isinstance(child, Instance):
                _take_out(child, library, keep, cuts, f"{full}.")
            kept.append((child, name, source))
            continue
        ports = {port: Value.cast(value) for port, (value, _) in child.ports.items()}
        outputs = {port: ports[port] for port, (_, kind) in child.ports.items() if kind == "o"}
        reset = ports.get("rst", Value.cast(0))
        own = isinstance(reset, ResetSignal)
        cuts.append(
            Cut(full, library.modules[child.type], ports, outputs, Value.cast(0) if own else reset)
        )
    fragment.subfragments[:] = kept
