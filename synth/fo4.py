"""The delay of an inverter that drives four like it: the yardstick of every path."""

from synth.liberty import Cell
from synth.netlist import Gate, Netlist
from synth.sta import Analysis


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
    first, last = (max(analysis.from_border[net]) for net in (8, 20))
    return (last - first) / 12, max(analysis.slopes[20])
