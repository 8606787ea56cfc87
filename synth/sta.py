"""Longest paths of mapped modules, composed over the hierarchy.

Delays and slopes come from the tables of the Liberty file, by linear interpolation; loads are pin
capacitances, no wires. A register-to-register path counts the clock-to-output time of the first
flip-flop, the gates, and the setup time of the last; the clock is ideal. A module is analysed once:
what its parent needs of it is the capacitance and the longest way to a register behind every input
bit, the latest arrival on every output bit, and the ways straight through.

Units: ns and pF.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from synth.errors import SynthError
from synth.liberty import Arc, Cell
from synth.netlist import Gate, Instance, Key, Net, Netlist, is_clock

NEVER = float("-inf")
RISE, FALL = 0, 1
_NOTHING: frozenset[str] = frozenset()

_COMBINATIONAL = ("combinational", "combinational_rise", "combinational_fall")
_SENSES = {
    "positive_unate": ((RISE, RISE), (FALL, FALL)),
    "negative_unate": ((FALL, RISE), (RISE, FALL)),
    "non_unate": ((RISE, RISE), (FALL, RISE), (RISE, FALL), (FALL, FALL)),
}
_DELAY, _SLOPE = ("cell_rise", "cell_fall"), ("rise_transition", "fall_transition")


@dataclass
class Output:
    """An output bit: latest arrival from a register, its slope, and ns a pF of further load."""

    arrival: float
    slope: float
    resistance: float
    start: str
    via: frozenset[str] = _NOTHING


@dataclass
class Model:
    """What a parent sees of a module."""

    load: dict[Key, float] = field(default_factory=dict)
    to_register: dict[Key, float] = field(default_factory=dict)
    outputs: dict[Key, Output] = field(default_factory=dict)
    through: dict[Key, dict[Key, float]] = field(default_factory=dict)


@dataclass
class Paths:
    """The longest path of a module by kind, in ns; None where there is none.

    Inside runs from register to register, in and out from and to the module's border, through from
    border to border; a path that goes on outside is longer and is found in the parent. Via names
    the submodules on the inside path (and all that may be behind the last of them).
    """

    inside: float | None
    into: float | None
    out: float | None
    through: float | None
    start: str = ""
    end: str = ""
    via: tuple[str, ...] = ()
    overloaded: int = 0

    @property
    def longest(self) -> float:
        return max(
            x for x in (self.inside, self.into, self.out, self.through, 0.0) if x is not None
        )


@dataclass
class _Edge:
    """One way from a net to another: (from edge, to edge, ns) for each that the gate has."""

    target: Net
    ways: list[tuple[int, int, float]]


_Node = tuple[list[Net], Net, Gate | Instance, dict[Net, float]]


class Analysis:
    """One module. `slope` is the transition assumed at its inputs and clocks, `load` what its
    outputs are assumed to drive."""

    def __init__(self, netlist: Netlist, models: dict[str, Model], slope: float, load: float):
        self.netlist, self.models, self.slope, self.outside = netlist, models, slope, load
        self.loads: dict[Net, float] = {}
        self.arrival: dict[Net, list[float]] = {}
        self.from_register: dict[Net, list[float]] = {}
        self.start: dict[Net, str] = {}
        self.slopes: dict[Net, list[float]] = {}
        self.resistance: dict[Net, float] = {}
        self.edges: dict[Net, list[_Edge]] = {}
        self.ends: dict[Net, list[tuple[float, str, str]]] = {}
        self.via: dict[Net, frozenset[str]] = {}
        self.border = set(netlist.outputs.values())
        self.overloaded = 0
        self._add_loads()
        self._launch()
        self._propagate()
        self._finish()

    # -- loads and starting points ---------------------------------------------------------------

    def _add_loads(self) -> None:
        for gate in self.netlist.gates:
            for pin, net in gate.pins.items():
                if not is_clock(gate.cell, pin):
                    capacitance = gate.cell.pins[pin].capacitance
                    self.loads[net] = self.loads.get(net, 0.0) + capacitance
        for instance in self.netlist.instances:
            model = self.models.get(instance.module, Model())
            for key, net in instance.pins.items():
                self.loads[net] = self.loads.get(net, 0.0) + model.load.get(key, 0.0)
        for net in self.netlist.outputs.values():
            self.loads[net] = self.loads.get(net, 0.0) + self.outside

    def _meet(self, net: Net, edge: int, arrival: float, launched: float, slope: float) -> None:
        """Keep the latest of what arrives at an edge of a net."""
        at = self.arrival.setdefault(net, [NEVER, NEVER])
        since = self.from_register.setdefault(net, [NEVER, NEVER])
        slopes = self.slopes.setdefault(net, [0.0, 0.0])
        at[edge] = max(at[edge], arrival)
        since[edge] = max(since[edge], launched)
        slopes[edge] = max(slopes[edge], slope)

    def _launch(self) -> None:
        for net in self.netlist.inputs.values():
            for edge in (RISE, FALL):
                self._meet(net, edge, 0.0, NEVER, self.slope)
        for gate in self.netlist.gates:
            if gate.cell.sequential:
                self._launch_flop(gate)
        for instance in self.netlist.instances:
            model = self.models.get(instance.module)
            for key, net in instance.pins.items():
                if key[0] in instance.outputs:
                    self._launch_instance(instance, model, key, net)

    def _launch_flop(self, gate: Gate) -> None:
        for pin, net in gate.pins.items():
            described = gate.cell.pins[pin]
            if described.direction != "output":
                continue
            load = self.loads.get(net, 0.0)
            for arc in described.arcs:
                if arc.kind not in ("rising_edge", "falling_edge"):
                    continue
                for edge in (RISE, FALL):
                    late, slope = _read_both(arc, edge, self.slope, load)
                    self._meet(net, edge, late, late, slope)
                self._resist(net, arc, self.slope, load)
            self.start[net] = gate.name
            self.overloaded += load > described.max_capacitance > 0

    def _launch_instance(self, instance: Instance, model: Model | None, key: Key, net: Net) -> None:
        output = model.outputs.get(key) if model else Output(0.0, self.slope, 0.0, instance.module)
        if output is None:
            return
        extra = output.resistance * (self.loads.get(net, 0.0) - self.outside)
        self.resistance[net] = output.resistance
        if output.arrival > NEVER:
            late = output.arrival + extra
            for edge in (RISE, FALL):
                self._meet(net, edge, late, late, output.slope)
            self.start[net] = f"{instance.name}.{output.start}"
            self.via[net] = output.via | {instance.module}

    def _resist(self, net: Net, arc: Arc, slope: float, load: float) -> None:
        """How much later the net gets a pF of load; asked for at the module's outputs alone."""
        if net not in self.border:
            return
        step = max(load, 0.001)
        rises = [
            (_read(arc, name, slope, load + step) - _read(arc, name, slope, load)) / step
            for name in _DELAY
        ]
        self.resistance[net] = max(self.resistance.get(net, 0.0), *rises)

    # -- forward, in topological order -----------------------------------------------------------

    def _propagate(self) -> None:
        waiting: list[int] = []
        users: dict[Net, list[int]] = {}
        nodes = [*self._gate_nodes(), *self._instance_nodes()]
        driven = {target for _, target, _, _ in nodes}
        for index, (sources, _, _, _) in enumerate(nodes):
            blocking = {net for net in sources if net in driven}
            waiting.append(len(blocking))
            for net in blocking:
                users.setdefault(net, []).append(index)
        left = dict.fromkeys(driven, 0)
        for _, target, _, _ in nodes:
            left[target] += 1
        ready = [index for index, count in enumerate(waiting) if count == 0]
        done = 0
        while ready:
            _, target, unit, through = nodes[ready.pop()]
            done += 1
            if isinstance(unit, Gate):
                self._through_gate(unit, target)
            else:
                self._through_instance(unit, target, through)
            left[target] -= 1
            if left[target] == 0:
                for user in users.get(target, ()):
                    waiting[user] -= 1
                    if waiting[user] == 0:
                        ready.append(user)
        if done < len(nodes):
            stuck = next(t for i, (_, t, _, _) in enumerate(nodes) if waiting[i] > 0)
            raise SynthError(f"{self.netlist.name}: a combinational loop through net {stuck}")

    def _gate_nodes(self) -> Iterable[_Node]:
        for gate in self.netlist.gates:
            if gate.cell.sequential or gate.cell.clock_gate:
                continue
            inputs = [n for p, n in gate.pins.items() if gate.cell.pins[p].direction == "input"]
            for pin, net in gate.pins.items():
                if gate.cell.pins[pin].direction == "output":
                    yield inputs, net, gate, {}

    def _instance_nodes(self) -> Iterable[_Node]:
        for instance in self.netlist.instances:
            model = self.models.get(instance.module)
            for key, ways in model.through.items() if model else ():
                if key in instance.pins:
                    net = instance.pins[key]
                    extra = self.resistance.get(net, 0.0) * (
                        self.loads.get(net, 0.0) - self.outside
                    )
                    nets = {
                        instance.pins[source]: delay + extra
                        for source, delay in ways.items()
                        if source in instance.pins
                    }
                    yield list(nets), net, instance, nets

    def _through_gate(self, gate: Gate, target: Net) -> None:
        load = self.loads.get(target, 0.0)
        pin = next(p for p, n in gate.pins.items() if n == target and p in gate.cell.outputs)
        described = gate.cell.pins[pin]
        self.overloaded += load > described.max_capacitance > 0
        for arc in described.arcs:
            source = gate.pins.get(arc.related)
            if source is None or source not in self.arrival or arc.kind not in _COMBINATIONAL:
                continue
            slopes, at, since = (
                self.slopes[source],
                self.arrival[source],
                self.from_register[source],
            )
            ways = []
            for before, after in _SENSES.get(arc.sense, _SENSES["non_unate"]):
                if at[before] == NEVER or _DELAY[after] not in arc.tables:
                    continue
                delay, slope = _read_both(arc, after, slopes[before], load)
                if since[before] + delay > max(self.from_register.get(target, [NEVER])):
                    self.start[target] = self.start.get(source, "")
                    self.via[target] = self.via.get(source, _NOTHING)
                self._meet(target, after, at[before] + delay, since[before] + delay, slope)
                ways.append((before, after, delay))
            self.edges.setdefault(source, []).append(_Edge(target, ways))
            self._resist(target, arc, max(slopes), load)

    def _through_instance(self, instance: Instance, target: Net, through: dict[Net, float]) -> None:
        for source, delay in through.items():
            if source not in self.arrival:
                continue
            late, since = max(self.arrival[source]), max(self.from_register[source])
            if since + delay > max(self.from_register.get(target, [NEVER])):
                self.start[target] = self.start.get(source, "")
                self.via[target] = self.via.get(source, _NOTHING) | {instance.module}
            for edge in (RISE, FALL):
                self._meet(target, edge, late + delay, since + delay, self.slope)
            ways = [(b, a, delay) for b in (RISE, FALL) for a in (RISE, FALL)]
            self.edges.setdefault(source, []).append(_Edge(target, ways))

    # -- end points ------------------------------------------------------------------------------

    def _finish(self) -> None:
        for gate in self.netlist.gates:
            if not (gate.cell.sequential or gate.cell.clock_gate):
                continue
            for pin, net in gate.pins.items():
                if gate.cell.pins[pin].direction == "input" and not is_clock(gate.cell, pin):
                    slope = max(self.slopes.get(net, [self.slope]))
                    need = _setup(gate.cell, pin, self.slope, slope)
                    self.ends.setdefault(net, []).append((need, gate.name, ""))
        for instance in self.netlist.instances:
            model = self.models.get(instance.module)
            for key, net in instance.pins.items():
                if key[0] in instance.outputs:
                    continue
                if model is None:
                    self.ends.setdefault(net, []).append((0.0, instance.name, ""))
                elif key in model.to_register:
                    end = (model.to_register[key], instance.name, instance.module)
                    self.ends.setdefault(net, []).append(end)

    def _walk(self, source: Net) -> dict[Net, list[float]]:
        """Arrival on every net behind `source`, counted from it, with the delays found before."""
        at: dict[Net, list[float]] = {source: [0.0, 0.0]}
        queue: list[tuple[float, Net]] = [(max(self.arrival[source]), source)]
        queued = {source}
        while queue:
            _, net = heappop(queue)
            queued.discard(net)
            here = at[net]
            for edge in self.edges.get(net, ()):
                there = at.setdefault(edge.target, [NEVER, NEVER])
                later = False
                for before, after, delay in edge.ways:
                    if here[before] + delay > there[after]:
                        there[after] = here[before] + delay
                        later = True
                if later and edge.target not in queued:
                    queued.add(edge.target)
                    heappush(queue, (max(self.arrival[edge.target]), edge.target))
        return at

    def result(self) -> tuple[Paths, Model]:
        """The longest paths, and the model of this module for its parent."""
        model = Model()
        paths = Paths(None, None, None, None, overloaded=self.overloaded)
        for net, ends in self.ends.items():
            since = max(self.from_register.get(net, [NEVER]))
            need, end, module = max(ends)
            if since > NEVER and (paths.inside is None or since + need > paths.inside):
                paths.inside, paths.start, paths.end = since + need, self.start.get(net, ""), end
                via = self.via.get(net, _NOTHING) | ({module} if module else _NOTHING)
                paths.via = tuple(sorted(via))
        by_net: dict[Net, list[Key]] = {}
        for key, net in self.netlist.outputs.items():
            by_net.setdefault(net, []).append(key)
            late = max(self.from_register.get(net, [NEVER]))
            if net in self.arrival:
                slope = max(self.slopes[net])
                resistance = self.resistance.get(net, 0.0)
                start, via = self.start.get(net, ""), self.via.get(net, _NOTHING)
                model.outputs[key] = Output(late, slope, resistance, start, via)
            if late > NEVER:
                paths.out = max(late, paths.out or 0.0)
        for key, net in self.netlist.inputs.items():
            model.load[key] = self.loads.get(net, 0.0)
            if net not in self.edges and net not in self.ends and net not in by_net:
                continue
            for reached, at in self._walk(net).items():
                late = max(at)
                if reached in self.ends:
                    need = late + max(self.ends[reached])[0]
                    model.to_register[key] = max(need, model.to_register.get(key, 0.0))
                for output in by_net.get(reached, ()):
                    model.through.setdefault(output, {})[key] = late
                    paths.through = max(late, paths.through or 0.0)
        if model.to_register:
            paths.into = max(model.to_register.values())
        return paths, model


def _read(arc: Arc, name: str, slope: float, load: float) -> float:
    table = arc.tables.get(name)
    return table.at(slope, load) if table else 0.0


def _read_both(arc: Arc, edge: int, slope: float, load: float) -> tuple[float, float]:
    """(delay, slope) of an output edge; both tables mostly have the same axes."""
    delay, transition = arc.tables.get(_DELAY[edge]), arc.tables.get(_SLOPE[edge])
    if delay is None or transition is None:
        return _read(arc, _DELAY[edge], slope, load), slope
    place = delay.locate(slope, load)
    if transition.rows is delay.rows and transition.columns is delay.columns:
        return delay.read(place), transition.read(place)
    return delay.read(place), transition.at(slope, load)


def _setup(cell: Cell, pin: str, clock: float, slope: float) -> float:
    """The setup time of a data pin, 0 where the library gives none."""
    needs = [
        table.at(clock, slope)
        for arc in cell.pins[pin].arcs
        if arc.kind.startswith(("setup", "recovery"))
        for table in arc.tables.values()
    ]
    return max(needs, default=0.0)


def fo4(inverter: Cell) -> tuple[float, float]:
    """(delay, slope) in ns of an inverter that drives four like it, deep in a chain of them."""
    stages = 24
    way_in, way_out = inverter.inputs[0], inverter.outputs[0]
    chain = Netlist("fo4", inputs={("i", 0): 0}, outputs={})
    for stage in range(stages):
        chain.gates.append(Gate(f"g{stage}", inverter, {way_in: stage, way_out: stage + 1}))
        for other in range(3):
            spare = 1000 + 3 * stage + other
            chain.gates.append(Gate(f"l{spare}", inverter, {way_in: stage, way_out: spare}))
    analysis = Analysis(chain, {}, 0.0, 0.0)
    first, last = (max(analysis.arrival[net]) for net in (8, 20))
    return (last - first) / 12, max(analysis.slopes[20])
