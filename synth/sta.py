"""Longest paths of mapped modules, composed over the hierarchy.

Delays and slopes come from the tables of the Liberty file, by linear interpolation; loads are pin
capacitances, no wires. A register-to-register path counts the clock-to-output time of the first
flip-flop, the gates, and the setup time of the last; the clock is ideal. A module is analysed once:
what its parent needs of it is the capacitance and the longest way to a register behind every input
bit, the latest arrival on every output bit, and the ways straight through.

Units: ns and pF.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

from synth.arcs import COMBINATIONAL, DELAY, FALL, RISE, SENSES, read, read_both, setup
from synth.errors import SynthError
from synth.liberty import Arc
from synth.models import NEVER, NOTHING, Model, Output, Paths
from synth.netlist import Gate, Instance, Key, Net, Netlist, is_clock


@dataclass
class _Edge:
    """One way from a net to another: (from edge, to edge, ns) for each that the gate has."""

    target: Net
    ways: list[tuple[int, int, float]]
    via: frozenset[str] = NOTHING


_Node = tuple[list[Net], Net, Gate | Instance, dict[Net, float]]


class Analysis:
    """One module. `slope` is the transition assumed at its inputs and clocks, `load` what its
    outputs are assumed to drive."""

    def __init__(self, netlist: Netlist, models: dict[str, Model], slope: float, load: float):
        self.netlist, self.models, self.slope, self.outside = netlist, models, slope, load
        self.loads: dict[Net, float] = {}
        self.from_register: dict[Net, list[float]] = {}
        self.from_border: dict[Net, list[float]] = {}
        self.start: dict[Net, str] = {}
        self.slopes: dict[Net, list[float]] = {}
        self.resistance: dict[Net, float] = {}
        self.edges: dict[Net, list[_Edge]] = {}
        self.ends: dict[Net, list[tuple[float, str, frozenset[str]]]] = {}
        self.via: dict[Net, frozenset[str]] = {}
        self.border = set(netlist.outputs.values())
        self.order: dict[Net, int] = {}  # of driven nets, topological
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

    def _meet(self, net: Net, edge: int, launched: float, entered: float, slope: float) -> None:
        """Keep the latest of what arrives at an edge of a net, from registers and from outside."""
        if net not in self.slopes:
            self.slopes[net] = [0.0, 0.0]
            self.from_register[net] = [NEVER, NEVER]
            self.from_border[net] = [NEVER, NEVER]
        since, entry, slopes = self.from_register[net], self.from_border[net], self.slopes[net]
        if launched > since[edge]:
            since[edge] = launched
        if entered > entry[edge]:
            entry[edge] = entered
        if slope > slopes[edge]:
            slopes[edge] = slope

    def _launch(self) -> None:
        for net in self.netlist.inputs.values():
            for edge in (RISE, FALL):
                self._meet(net, edge, NEVER, 0.0, self.slope)
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
                    late, slope = read_both(arc, edge, self.slope, load)
                    self._meet(net, edge, late, NEVER, slope)
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
                self._meet(net, edge, late, NEVER, output.slope)
            self.start[net] = f"{instance.name}.{output.start}"
            self.via[net] = output.via | {instance.module}

    def _resist(self, net: Net, arc: Arc, slope: float, load: float) -> None:
        """How much later the net gets a pF of load; asked for at the module's outputs alone."""
        if net not in self.border:
            return
        step = max(load, 0.001)
        rises = [
            (read(arc, name, slope, load + step) - read(arc, name, slope, load)) / step
            for name in DELAY
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
                self.order[target] = len(self.order)
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
            if source is None or source not in self.slopes or arc.kind not in COMBINATIONAL:
                continue
            slopes, since = self.slopes[source], self.from_register[source]
            entry = self.from_border[source]
            ways = []
            for before, after in SENSES.get(arc.sense, SENSES["non_unate"]):
                if since[before] == entry[before] == NEVER or DELAY[after] not in arc.tables:
                    continue
                delay, slope = read_both(arc, after, slopes[before], load)
                if since[before] + delay > max(self.from_register.get(target, [NEVER])):
                    self.start[target] = self.start.get(source, "")
                    self.via[target] = self.via.get(source, NOTHING)
                self._meet(target, after, since[before] + delay, entry[before] + delay, slope)
                ways.append((before, after, delay))
            self.edges.setdefault(source, []).append(_Edge(target, ways))
            self._resist(target, arc, max(slopes), load)

    def _through_instance(self, instance: Instance, target: Net, through: dict[Net, float]) -> None:
        for source, delay in through.items():
            if source not in self.slopes:
                continue
            since, entry = max(self.from_register[source]), max(self.from_border[source])
            if since + delay > max(self.from_register.get(target, [NEVER])):
                self.start[target] = self.start.get(source, "")
                self.via[target] = self.via.get(source, NOTHING) | {instance.module}
            for edge in (RISE, FALL):
                self._meet(target, edge, since + delay, entry + delay, self.slope)
            ways = [(b, a, delay) for b in (RISE, FALL) for a in (RISE, FALL)]
            edge_via = frozenset((instance.module,))
            self.edges.setdefault(source, []).append(_Edge(target, ways, edge_via))

    # -- end points ------------------------------------------------------------------------------

    def _finish(self) -> None:
        for gate in self.netlist.gates:
            if not (gate.cell.sequential or gate.cell.clock_gate):
                continue
            for pin, net in gate.pins.items():
                if gate.cell.pins[pin].direction == "input" and not is_clock(gate.cell, pin):
                    slope = max(self.slopes.get(net, [self.slope]))
                    need = setup(gate.cell, pin, self.slope, slope)
                    self.ends.setdefault(net, []).append((need, gate.name, NOTHING))
        for instance in self.netlist.instances:
            model = self.models.get(instance.module)
            for key, net in instance.pins.items():
                if key[0] in instance.outputs:
                    continue
                if model is None:
                    self.ends.setdefault(net, []).append((0.0, instance.name, NOTHING))
                elif key in model.to_register:
                    behind = model.to_register_via[key] | {instance.module}
                    end = (model.to_register[key], instance.name, behind)
                    self.ends.setdefault(net, []).append(end)

    def _walk(self, source: Net) -> tuple[dict[Net, list[float]], dict[Net, frozenset[str]]]:
        """Arrival on every net behind `source`, counted from it, with the delays found before, and
        the modules on the way."""
        at: dict[Net, list[float]] = {source: [0.0, 0.0]}
        via: dict[Net, frozenset[str]] = {source: NOTHING}
        queue: list[tuple[int, Net]] = [(self.order.get(source, -1), source)]
        queued = {source}
        while queue:
            _, net = heappop(queue)
            here = at[net]
            for edge in self.edges.get(net, ()):
                there = at.setdefault(edge.target, [NEVER, NEVER])
                for before, after, delay in edge.ways:
                    if here[before] + delay > there[after]:
                        if here[before] + delay > max(there):
                            via[edge.target] = via[net] | edge.via
                        there[after] = here[before] + delay
                if edge.target not in queued:  # in topological order: each net is left once
                    queued.add(edge.target)
                    heappush(queue, (self.order[edge.target], edge.target))
        return at, via

    def paths(self) -> Paths:
        """The longest path of each kind."""
        found = Paths(None, None, None, None, overloaded=self.overloaded)
        for net, ends in self.ends.items():
            if net not in self.slopes:
                continue
            need, end, behind = max(ends, key=lambda each: each[0])
            since = max(self.from_register[net]) + need
            if since > NEVER and (found.inside is None or since > found.inside):
                found.inside, found.start, found.end = since, self.start.get(net, ""), end
                found.via = tuple(sorted(self.via.get(net, NOTHING) | behind))
            found.into = _later(found.into, max(self.from_border[net]) + need)
        for net in self.border & self.slopes.keys():
            found.out = _later(found.out, max(self.from_register[net]))
            found.through = _later(found.through, max(self.from_border[net]))
        return found

    def model(self) -> Model:
        """What a parent needs of this module."""
        found = Model()
        by_net: dict[Net, list[Key]] = {}
        for key, net in self.netlist.outputs.items():
            by_net.setdefault(net, []).append(key)
            if net in self.slopes:
                found.outputs[key] = Output(
                    arrival=max(self.from_register[net]),
                    slope=max(self.slopes[net]),
                    resistance=self.resistance.get(net, 0.0),
                    start=self.start.get(net, ""),
                    via=self.via.get(net, NOTHING),
                )
        for key, net in self.netlist.inputs.items():
            found.load[key] = self.loads.get(net, 0.0)
            if net not in self.edges and net not in self.ends and net not in by_net:
                continue
            arrivals, via = self._walk(net)
            for reached, at in arrivals.items():
                late = max(at)
                if late == NEVER:
                    continue
                if reached in self.ends:
                    need, _, behind = max(self.ends[reached], key=lambda end: end[0])
                    if late + need > found.to_register.get(key, NEVER):
                        found.to_register[key] = late + need
                        found.to_register_via[key] = via[reached] | behind
                for output in by_net.get(reached, ()):
                    found.through.setdefault(output, {})[key] = late
        return found


def _later(known: float | None, time: float) -> float | None:
    return known if time == NEVER else max(time, known or 0.0)
