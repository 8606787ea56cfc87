"""What the build does to emitted text before a simulator sees it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hw.chip import Chip
from hw.chip_config import CHIPS
from hw.control.processor import Processor
from hw.emit import Emission, emit
from hw.library import flat_ports
from sim import build
from sim.board.wrapper import TOP, wrapper
from sim.registry import BENCHES, TINY

pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")


def test_public_ports_are_those_of_the_top() -> None:
    text = """
module inner(a);
  input a;
  wire a;
endmodule

module top(clk, \\table , out);
  input clk;
  wire clk;
  input [7:0] \\table ;
  output signed_ish;
  output [3:0] out;
  reg [3:0] out = 4'h0;
endmodule
"""
    control = build._public_ports(text, "top")
    assert re.findall(r'-var "(\w+)"', control) == ["clk", "table", "signed_ish", "out"]
    assert '-module "inner"' not in control


@pytest.fixture(scope="module")
def core() -> Emission:
    """The smallest core."""
    return emit(TINY)


def _check_ports(design: Emission) -> None:
    control = build._public_ports(design.verilog, design.top)
    ports = {port for port, _, _ in design.ports}
    assert ports <= set(re.findall(r'-var "(\w+)"', control))


def test_every_port_is_public(core: Emission) -> None:
    _check_ports(core)
    _check_ports(emit(TINY, BENCHES["lane"].make(TINY)))


def test_no_register_has_an_initial_value(core: Emission) -> None:
    text = core.verilog
    bare = build.without_initial_values(text)
    assert len(re.findall(r"(?m)^  reg ", bare)) == len(re.findall(r"(?m)^  reg ", text))
    assert not re.search(r"(?m)^  reg .*=", bare)
    assert "initial" not in bare
    # Nothing else is gone.
    kept = [line for line in text.splitlines() if line.startswith(("  assign", "  always"))]
    assert [line for line in bare.splitlines() if line.startswith(("  assign", "  always"))] == kept


def test_a_read_only_memory_keeps_its_words() -> None:
    text = emit(TINY, Processor((5, 6, 7))).verilog
    bare = build.without_initial_values(text)
    assert bare.count("  initial begin") == 1
    assert re.findall(r"(?m)^    words\[(\d+)\] = 53'h0*(\w+);", bare) == [
        ("0", "5"),
        ("1", "6"),
        ("2", "7"),
    ]
    assert "rows[0] =" in text
    assert "rows[0] =" not in bare
    assert not re.search(r"(?m)^  reg .*=", bare)


def test_every_memory_watches_its_rule(core: Emission) -> None:
    text = build._MEMORY_END.sub(build._COLLISION_CHECK, core.verilog)
    assert text.count("is read and written in one cycle") == len(
        re.findall(r"(?m)^module bsspec_mem_", text)
    )


@pytest.mark.parametrize("simulator", build.SIMULATORS)
def test_initial_state_follows_the_seed(simulator: str) -> None:
    arguments = build.simulation_arguments(simulator, 1 << 40 | 5)
    assert (arguments == []) == (simulator == "icarus")
    if arguments:
        assert 0 < int(arguments[1].rsplit("+", 1)[1]) < 1 << 31


def test_a_missing_simulator_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(build.SimulatorMissing, match="apt install iverilog"):
        build.simulator_version("icarus")
    with pytest.raises(build.SimulatorMissing, match="make setup"):
        build.simulator_version("verilator")


@pytest.mark.parametrize("name", list(CHIPS))
def test_a_board_connects_every_port(name: str, tmp_path: Path) -> None:
    """Verilator takes the board of each preset, and misses no pin of the chip."""
    chip = Chip(CHIPS[name])
    chip._MustUse__silence = True  # made for its ports alone, never elaborated
    ports = [
        (port, "input" if member.flow.name == "In" else "output", len(value))
        for port, member, value in flat_ports(chip)
    ]
    names = ", ".join(["clk", "rst", *(port for port, _, _ in ports)])
    lines = [f"module bsspec_chip({names});", "  input clk;", "  input rst;"]
    lines += [f"  {way} [{bits - 1}:0] {port};" for port, way, bits in ports]
    (tmp_path / "chip.v").write_text("\n".join([*lines, "endmodule", ""]))
    text = wrapper(ports)
    (tmp_path / "board.sv").write_text(text)
    assert text.count("board_reads(") == 1 + CHIPS[name].ports
    assert text.count("board_writes(") == 2
    command = ["verilator", "--lint-only", "--timing", "-Wall", "-Wno-fatal", "--top-module", TOP]
    command += [str(tmp_path / "board.sv"), str(tmp_path / "chip.v")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    wrong = re.findall(
        r"%Warning-(PIN\w+|UNDRIVEN|IMPLICIT|MULTIDRIVEN)[^\n]*board.sv[^\n]*", done.stderr
    )
    assert not wrong


def test_a_board_needs_verilator() -> None:
    with pytest.raises(ValueError, match="a board needs verilator, not icarus"):
        build.compile_design("", "top", simulator="icarus", board="module board; endmodule")


def test_a_board_is_compiled_as_what_runs_long(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stop(RuntimeError):
        pass

    words: list[list[str]] = []

    def execute(self: object, commands: list[list[str]], **_: object) -> None:
        words.extend(commands)
        raise Stop

    monkeypatch.setattr(build._PortsPublicVerilator, "_execute", execute)
    text = "module bsspec_board(wake);\n  output wake;\nendmodule\n"
    with pytest.raises(RuntimeError, match="cannot build bsspec_board"):
        build.compile_design("module chip(a);\n  input a;\nendmodule\n", "chip", board=text)
    compile_step, make_step = words
    assert "--timing" in compile_step
    assert "--no-timing" not in compile_step
    assert "-O1" not in compile_step
    assert any(word.endswith("/memory.cpp") for word in compile_step)
    assert make_step[-1].startswith("OPT_FAST=-O")
