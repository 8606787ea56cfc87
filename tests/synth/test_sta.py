"""Longest paths against hand-made sums, and against ABC's own analysis."""

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from synth import sta
from synth.fo4 import fo4
from synth.netlist import Gate, Netlist

from .conftest import CLOCK_TO_Q, SETUP


def chain(toy, gates):
    """A flip-flop, inverters, a flip-flop."""
    cells = toy.cells
    found = Netlist("chain", inputs={("ck", 0): 0}, outputs={("q", 0): 100 + gates + 1})
    found.gates.append(Gate("first", cells["dff"], {"ck": 0, "d": 99, "q": 100}))
    for i in range(gates):
        found.gates.append(Gate(f"i{i}", cells["inv"], {"a": 100 + i, "y": 101 + i}))
    last = {"ck": 0, "d": 100 + gates, "q": 101 + gates}
    found.gates.append(Gate("last", cells["dff"], last))
    return found


def test_register_to_register(toy):
    analysis = sta.Analysis(chain(toy, 3), {}, 0.01, 0.002)
    paths, model = analysis.paths(), analysis.model()
    steps = (CLOCK_TO_Q + 0.010) + 3 * (0.010 + 0.010) + SETUP
    assert paths.inside == pytest.approx(steps)
    assert (paths.start, paths.end) == ("first", "last")
    assert paths.out == pytest.approx(CLOCK_TO_Q + 0.020)
    assert model.outputs["q", 0].resistance == pytest.approx(10.0)


def test_loop_is_refused(toy):
    inverter = toy.cells["inv"]
    loop = Netlist("loop")
    loop.gates += [Gate("a", inverter, {"a": 1, "y": 2}), Gate("b", inverter, {"a": 2, "y": 1})]
    with pytest.raises(sta.SynthError, match="a combinational loop"):
        sta.Analysis(loop, {}, 0.0, 0.0)


def test_fo4_by_hand(toy):
    delay, slope = fo4(toy.cells["inv"])
    assert delay == pytest.approx(0.010 + 4 * 0.010)
    assert slope == pytest.approx(0.01)


def fo4_by_abc(library, stages):
    """ABC's own delay of a chain of inverters that drive four each, in ps."""
    spec = find_spec("pyosys")
    abc = Path(next(iter(spec.submodule_search_locations))) / "yosys-abc"
    inverter = library.cells[library.inverter]
    a, y = inverter.inputs[0], inverter.outputs[0]
    wires, lines, outs = [f"n{i}" for i in range(stages + 1)], [], ["o"]
    for i in range(stages):
        lines.append(f"{inverter.name} g{i}(.{a}(n{i}), .{y}(n{i + 1}));")
        for j in range(3):
            outs.append(f"l{i}_{j}")
            lines.append(f"{inverter.name} d{i}_{j}(.{a}(n{i}), .{y}(l{i}_{j}));")
    text = f"module c(i, {', '.join(outs)}); input i; output {', '.join(outs)};\n"
    text += f"wire {', '.join(wires)};\n{inverter.name} s(.{a}(i), .{y}(n0));\n"
    text += "\n".join(lines) + f"\n{inverter.name} e(.{a}(n{stages}), .{y}(o));\nendmodule\n"
    path = library.path.parent / f"chain{stages}.v"
    path.write_text(text)
    commands = f"read_lib -w {library.path}; read_verilog -m {path}; topo; stime -p"
    output = subprocess.run([abc, "-c", commands], capture_output=True, text=True, check=True)
    return float(re.findall(r"Delay = *([\d.]+) ps", output.stdout)[-1])


def test_fo4_agrees_with_abc(toy):
    measured = (fo4_by_abc(toy, 20) - fo4_by_abc(toy, 10)) / 10
    assert 1000 * fo4(toy.cells["inv"])[0] == pytest.approx(measured, rel=0.01)
