"""A mapped module as gates, instances and nets, read from the JSON that Yosys writes."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from synth.liberty import Cell
from synth.yosys import read_json

#: A net's number; constants are text and have no net.
Net = int
#: A port and its bit.
Key = tuple[str, int]


@dataclass
class Gate:
    """One library cell and the nets of its pins; pins on constants are left out."""

    name: str
    cell: Cell
    pins: dict[str, Net]


@dataclass
class Instance:
    """One submodule, or a memory: the nets of each port bit."""

    name: str
    module: str
    pins: dict[Key, Net]
    outputs: frozenset[str] = frozenset()


@dataclass
class Netlist:
    """A module: its port bits' nets by direction, its gates and its instances."""

    name: str
    inputs: dict[Key, Net] = field(default_factory=dict)
    outputs: dict[Key, Net] = field(default_factory=dict)
    gates: list[Gate] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)

    def cell_counts(self) -> Counter[str]:
        return Counter(gate.cell.name for gate in self.gates)

    def next_net(self) -> Net:
        """A number above every net that is there."""
        nets = [*self.inputs.values(), *self.outputs.values()]
        nets += [net for gate in self.gates for net in gate.pins.values()]
        nets += [net for instance in self.instances for net in instance.pins.values()]
        return max(nets, default=1) + 1


def read(path: Path, name: str, cells: dict[str, Cell]) -> Netlist:
    """The module `name` of a netlist whose every gate is one of `cells`."""
    module = read_json(path)["modules"][name]
    found = Netlist(name)
    for port, each in module["ports"].items():
        side = found.inputs if each["direction"] == "input" else found.outputs
        side.update({(port, i): bit for i, bit in enumerate(each["bits"]) if isinstance(bit, int)})
    names = _names(module)
    for label, each in module["cells"].items():
        bits = {
            (port, i): bit
            for port, nets in each["connections"].items()
            for i, bit in enumerate(nets)
            if isinstance(bit, int)
        }
        if each["type"] in cells:
            pins = {port: bit for (port, _), bit in bits.items()}
            cell = cells[each["type"]]
            if cell.sequential:  # a flip-flop goes by the name of the signal that it holds
                held = (names.get(pins.get(port, -1)) for port in cell.outputs)
                label = next((name for name in held if name), label)
            found.gates.append(Gate(label, cell, pins))
        else:
            ways = each.get("port_directions", {})
            outputs = frozenset(port for port, way in ways.items() if way == "output")
            found.instances.append(Instance(label, each["type"], bits, outputs))
    return found


def _names(module: dict) -> dict[Net, str]:
    """The shortest name that the source gave each net, with the bit where there are several."""
    names: dict[Net, str] = {}
    for name, each in module["netnames"].items():
        if name.startswith("$") or each.get("hide_name"):
            continue
        for i, bit in enumerate(each["bits"]):
            label = f"{name}[{i}]" if len(each["bits"]) > 1 else name
            if isinstance(bit, int) and (bit not in names or len(label) < len(names[bit])):
                names[bit] = label
    return names


def sinks(netlist: Netlist) -> Iterator[tuple[Net, Gate | Instance, str | Key]]:
    """Every pin that a net must drive, but for clock pins, which are the clock tree's job."""
    for gate in netlist.gates:
        for pin, net in gate.pins.items():
            if gate.cell.pins[pin].direction == "input" and not is_clock(gate.cell, pin):
                yield net, gate, pin
    for instance in netlist.instances:
        taken: set[Net] = set()
        for key, net in instance.pins.items():
            if key[0] in instance.outputs:
                continue
            if instance.module.startswith("$mem"):  # one pin a signal: enables are drawn per bit
                if net in taken or key[0].endswith("_CLK"):
                    continue
                taken.add(net)
            yield net, instance, key


def is_clock(cell: Cell, pin: str) -> bool:
    """Whether a clock enters here: of a flip-flop, or of a gate for clocks."""
    return cell.pins[pin].clock or (cell.clocked_on or "").strip("!() '") == pin


def add_repeaters(
    netlist: Netlist,
    buffer: Cell,
    fanout: int,
    weights: dict[str, dict[Key, int]],
) -> int:
    """Put buffers where a net would drive more than `fanout` pins; returns how many.

    `weights` has, for each submodule, how many pins each of its input bits drives inside. ABC sees
    one module at a time, so a net that only goes from one submodule to many others is repeated
    here. Clocks get none: they belong to the clock tree, which no area here includes.
    """
    users: dict[Net, list[tuple[Gate | Instance, str | Key, int]]] = {}
    for net, user, pin in sinks(netlist):
        weight = 1
        if isinstance(user, Instance) and isinstance(pin, tuple):
            weight = weights.get(user.module, {}).get(pin, 1)
        if weight:
            users.setdefault(net, []).append((user, pin, weight))
    way_in, way_out = buffer.inputs[0], buffer.outputs[0]
    fresh, added = netlist.next_net(), 0
    for net, each in users.items():
        while sum(weight for _, _, weight in each) > fanout and len(each) > 1:
            parts = _share(each, fanout)
            each = []
            for part in parts:
                gate = Gate(f"$repeater${fresh}", buffer, {way_in: net, way_out: fresh})
                netlist.gates.append(gate)
                for user, pin, _ in part:
                    user.pins[pin] = fresh  # type: ignore[index]
                each.append((gate, way_in, 1))
                fresh, added = fresh + 1, added + 1
    return added


def _share(users: list, fanout: int) -> list[list]:
    """The users in as few even parts as keep each within the fan-out."""
    total = sum(weight for _, _, weight in users)
    goal = math.ceil(total / math.ceil(total / fanout))
    parts: list[list] = [[]]
    filled = 0
    for user in users:
        if parts[-1] and filled + user[2] > goal:
            parts.append([])
            filled = 0
        parts[-1].append(user)
        filled += user[2]
    return parts


def port_weights(netlist: Netlist) -> dict[Key, int]:
    """How many pins each input bit drives inside; 0 where only clocks hang on it."""
    loads = Counter(net for net, _, _ in sinks(netlist))
    return {key: loads[net] for key, net in netlist.inputs.items()}
