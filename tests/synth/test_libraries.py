"""The default library and what is found in any other."""

import pytest

from synth import liberty, libraries
from synth.boolean import truth_table
from synth.errors import SynthError

from .conftest import liberty_text


def test_default_library_has_the_published_areas(sky130):
    areas = {name.split("__")[1]: cell.area for name, cell in sky130.cells.items()}
    assert areas["nand2_1"] == pytest.approx(3.7536)
    assert areas["dfxtp_1"] == pytest.approx(20.0192)
    assert areas["xor2_1"] == pytest.approx(8.7584)
    assert sky130.nand2.endswith("__nand2_1")
    assert sky130.inverter.endswith("__inv_1")
    assert not sky130.has_timing
    assert len(sky130.cells) > 250


@pytest.mark.parametrize(
    ("cell", "inputs", "function"),
    [
        ("a21boi_1", ["A1", "A2", "B1_N"], "!((A1 & A2) | !B1_N)"),
        ("mux4_1", ["A0", "A1", "A2", "A3", "S0", "S1"], "S1'(S0'A0+S0 A1)+S1(S0'A2+S0 A3)"),
        ("o2bb2a_1", ["A1_N", "A2_N", "B1", "B2"], "!(A1_N & A2_N) & (B1 | B2)"),
        ("nor4bb_1", ["A", "B", "C_N", "D_N"], "!(A | B | !C_N | !D_N)"),
        ("maj3_1", ["A", "B", "C"], "A B + A C + B C"),
        ("mux2i_1", ["A0", "A1", "S"], "!(S' A0 + S A1)"),
        ("xnor3_1", ["A", "B", "C"], "!(A ^ B ^ C)"),
    ],
)
def test_default_library_functions(sky130, cell, inputs, function):
    found = sky130.cells[f"sky130_fd_sc_hd__{cell}"]
    assert sorted(found.inputs) == sorted(inputs)
    written = found.pins[found.outputs[0]].function
    assert truth_table(written, inputs) == truth_table(function, inputs)


def test_full_adder_of_the_default_library(sky130):
    adder = sky130.cells["sky130_fd_sc_hd__fa_1"]
    pins = ["A", "B", "CIN"]
    assert truth_table(adder.pins["SUM"].function, pins) == truth_table("A^B^CIN", pins)
    assert truth_table(adder.pins["COUT"].function, pins) == truth_table("A B+A CIN+B CIN", pins)


def test_flops_of_the_default_library(sky130):
    enabled = sky130.cells["sky130_fd_sc_hd__edfxtp_1"]
    pins = ["D", "DE", "IQ"]
    assert truth_table(enabled.next_state, pins) == truth_table("DE D + DE' IQ", pins)
    assert enabled.clocked_on == "CLK"


def test_toy_library(toy):
    assert (toy.nand2, toy.inverter, toy.buffer) == ("nand2", "inv", "buf")
    assert toy.has_timing
    assert toy.cells["dff"].sequential == "ff"


def test_missing_file_is_named(tmp_path):
    with pytest.raises(SynthError, match=r"LIB=.*none.lib: no such file"):
        libraries.find(str(tmp_path / "none.lib"))


def test_not_liberty(tmp_path):
    path = tmp_path / "bad.lib"
    path.write_text("library (x) { cell (a) { area 3 } }")
    with pytest.raises(SynthError, match="not Liberty near"):
        libraries.load(path)


def test_without_nand(tmp_path):
    path = tmp_path / "few.lib"
    path.write_text(liberty_text(without=("nand2",)))
    with pytest.raises(SynthError, match="no 2-input NAND"):
        libraries.load(path)


def test_units_become_nanoseconds_and_picofarads():
    text = liberty_text().replace('"1ns"', '"10ps"').replace("(1, pf)", "(2, ff)")
    inverter = liberty.Reader(liberty.parse(text)).cells()["inv"]
    assert inverter.pins["a"].capacitance == pytest.approx(0.001 * 0.002)
    table = inverter.pins["y"].arcs[0].tables["cell_rise"]
    assert table.columns == pytest.approx((0.0, 0.0002))
    assert table.at(0.0, 0.0) == pytest.approx(0.010 * 0.01)


def test_table_is_linear_between_and_beyond():
    table = liberty.Table((0.0, 1.0), (0.0, 2.0), ((0.0, 2.0), (10.0, 16.0)))
    assert table.at(0.5, 1.0) == pytest.approx(7.0)
    assert table.at(2.0, 0.0) == pytest.approx(20.0)
    assert table.at(0.0, 4.0) == pytest.approx(4.0)
