"""Areas of tiny designs, added up over the hierarchy, and what must make a report fail."""

import json
import re

import pytest

from synth import area, flow, libraries, report
from synth.area import Subject
from synth.errors import SynthError
from synth.flow import Options
from synth.hierarchy import Module

from .conftest import liberty_text

PARTS = """
module leaf(input a, input b, output y);
  assign y = ~(a & b);
endmodule

module pair(input clk, input a, input b, output y);
  wire p, q; reg r;
  leaf one(.a(a), .b(b), .y(p));
  leaf two(.a(p), .b(b), .y(q));
  always @(posedge clk) r <= q;
  assign y = r;
endmodule

module top(input clk, input [2:0] a, input b, output [2:0] y);
  pair first(.clk(clk), .a(a[0]), .b(b), .y(y[0]));
  pair second(.clk(clk), .a(a[1]), .b(b), .y(y[1]));
  leaf third(.a(a[2]), .b(b), .y(y[2]));
endmodule
"""

MEMORY = """
module bsspec_mem_rows(input clk, input we, input [3:0] w, input [3:0] r,
                       input [6:0] d, output reg [6:0] q);
  reg [6:0] rows [0:11];
  always @(posedge clk) begin
    if (we) rows[w] <= d;
    q <= rows[r];
  end
endmodule

module top(input clk, input we, input [3:0] w, input [3:0] r, input [6:0] d, output [6:0] q);
  bsspec_mem_rows mem(.clk(clk), .we(we), .w(w), .r(r), .d(d), .q(q));
endmodule
"""


def measure(verilog, library, build, **more):
    subject = Subject(name="t", verilog=verilog, top="top", **more)
    return area.measure(subject, library, Options(), jobs=1, build=build)


def test_hierarchy_adds_up(toy, build):
    result = measure(PARTS, toy, build)
    rows = {row.module: row for row in result.rows}
    assert {name: row.count for name, row in rows.items()} == {"leaf": 5, "pair": 2, "top": 1}
    assert rows["leaf"].own == 2.0
    assert rows["pair"].own == 6.0
    assert rows["pair"].each == 10.0
    assert result.area == 22.0 == rows["top"].each
    assert result.nand2 == 11.0
    assert sum(row.share for row in result.rows) == pytest.approx(1.0)


def test_path_crosses_modules(toy, build):
    result = measure(PARTS, toy, build)
    pair = next(row for row in result.rows if row.module == "pair")
    # From a: through two NANDs (20 ps, 1 fF and 1 fF load at 10 ps/fF), then 50 ps setup.
    assert pair.paths.into == pytest.approx(0.020 + 0.010 + 0.020 + 0.010 + 0.050)
    # The register drives what a module is assumed to drive: four inverters.
    assert pair.paths.out == pytest.approx(0.1 + 4 * 0.010)
    assert result.fo4_ns == pytest.approx(0.010 + 4 * 0.010)


def test_memory_is_counted_in_bits(sky130, build):
    result = measure(MEMORY, sky130, build, memory_bits=84)
    assert result.memory_bits == 84
    assert result.area == 0.0


def test_wrong_memory_bits_fail(sky130, build):
    with pytest.raises(SynthError, match="84 bits in the netlist, 85 by the configuration"):
        measure(MEMORY, sky130, build, memory_bits=85)


def test_memory_elsewhere_becomes_flip_flops(sky130, build):
    result = measure(MEMORY.replace("bsspec_mem_rows", "rows_of_words"), sky130, build)
    assert result.memory_bits == 0
    assert sum(row.flops for row in result.rows) == 12 * 7 + 7


@pytest.mark.parametrize("kind", ["$_DLATCH_P_", "$mem_v2", "$fa", "other_library_nand2"])
def test_unmapped_cell_fails(toy, kind):
    cells = {"a": {"type": "nand2"}, "b": {"type": kind}, "c": {"type": kind}}
    netlist = {"modules": {"top": {"cells": cells}}}
    with pytest.raises(SynthError, match=f"top: not mapped to toy: 2 x {re.escape(kind)}"):
        flow.check_mapped(Module("top", ""), netlist, toy, memory=False)


def test_assertions_and_prints_are_no_hardware(toy, build):
    text = """module top(input clk, a, output y);
      assign y = ~a;
      always @(posedge clk) begin assert (a); $display("%d", a); end
    endmodule"""
    assert measure(text, toy, build).area == 1.0


def test_latch_fails(toy, build):
    latch = "module top(input e, input d, output reg q); always @* if (e) q = d; endmodule"
    with pytest.raises(SynthError, match="D latches are not supported"):
        measure(latch, toy, build)


def test_unknown_cell_fails(toy, build):
    with pytest.raises(SynthError, match="mystery"):
        measure("module top(input a, output y); mystery m(.a(a), .y(y)); endmodule", toy, build)


def test_combinational_loop_fails(toy, build):
    loop = "module top(input a, output y); assign y = ~(a & y); endmodule"
    with pytest.raises(SynthError, match=r"problems in 'check -assert'"):
        measure(loop, toy, build)


def test_two_drivers_fail(toy, build):
    both = "module top(input a, b, output y); assign y = ~a; assign y = ~b; endmodule"
    with pytest.raises(SynthError, match=r"problems in 'check -assert'"):
        measure(both, toy, build)


def test_missing_top_is_named(toy, build):
    with pytest.raises(SynthError, match="no module 'top' in this Verilog; it has other"):
        measure("module other(input a, output y); assign y = a; endmodule", toy, build)


def test_a_cell_without_area_fails(tmp_path, build):
    path = tmp_path / "zero.lib"
    path.write_text(liberty_text())
    library = libraries.load(path)
    both = "module top(input a, b, output y); assign y = a & b; endmodule"
    with pytest.raises(SynthError, match="tri_big has no area"):
        measure(both, library, build)


def test_adders_are_small(sky130, build):
    """A bit of a ripple adder costs 6 NAND2 at most."""
    adder = "module top(input [15:0] a, b, output [16:0] y); assign y = a + b; endmodule"
    assert measure(adder, sky130, build).nand2 < 16 * 6.01


def test_breakdown_and_json(toy, build, tmp_path):
    parts = {"parts": {"gates": ["leaf"], "registers": ["pair"]}}
    result = measure(PARTS, toy, build, breakdown=parts, labels={"leaf": "a gate"})
    assert result.breakdown == {"parts": {"gates": 10.0, "registers": 12.0}}
    report.write(result, tmp_path / "area.json")
    read = json.loads((tmp_path / "area.json").read_text())
    assert read["area"] == 22.0
    assert read["rows"][0]["component"] == "a gate"
    with pytest.raises(SynthError, match="no module 'none'"):
        measure(PARTS, toy, build, breakdown={"parts": {"gates": ["none"]}})


def test_second_run_is_the_same(toy, build):
    assert measure(PARTS, toy, build) == measure(PARTS, toy, build)


def test_wide_nets_are_repeated(sky130, build):
    """One net into 40 submodules: three repeaters, each of at most 16 pins."""
    ports = ", ".join(f"output y{i}" for i in range(40))
    leaves = "\n".join(f"leaf l{i}(.a(a), .y(y{i}));" for i in range(40))
    text = f"""module leaf(input a, output y); assign y = ~a; endmodule
    module top(input a, {ports}); {leaves} endmodule"""
    result = measure(text, sky130, build)
    top = next(row for row in result.rows if row.module == "top")
    assert top.repeaters == 3
    assert top.own == pytest.approx(3 * 3.7536)
