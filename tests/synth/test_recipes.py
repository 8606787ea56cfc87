"""Every recipe's netlist computes what its Verilog says, proven for all inputs."""

import pytest

from synth import flow, yosys
from synth.flow import Options
from synth.hierarchy import Module
from synth.recipes import FOR_AREA, FOR_SPEED

PIECE = """
module top(input signed [4:0] a, b, c, input [2:0] by, input [2:0] carry, input [3:0] one,
           input [15:0] word, output signed [6:0] sum, output signed [4:0] shifted,
           output [3:0] read, output less);
  assign sum = a + b - c + carry[0] + carry[1] + carry[2];
  assign shifted = a >>> by;
  assign read = ({4{one[0]}} & word[3:0]) | ({4{one[1]}} & word[7:4])
    | ({4{one[2]}} & word[11:8]) | ({4{one[3]}} & word[15:12]);
  assign less = a < b;
endmodule
"""


@pytest.mark.parametrize("name", ["sky130", "toy"])
@pytest.mark.parametrize("recipes", [FOR_AREA, FOR_SPEED], ids=["area", "speed"])
def test_netlists_are_equivalent(request, build, name, recipes):
    library = request.getfixturevalue(name)
    module = Module("top", PIECE)
    target = 1000.0 if library.has_timing else None
    found = flow.candidates(module, {"top": PIECE}, library, recipes, Options(), target, build)
    assert {each.recipe for each in found} == {recipe.name for recipe in recipes}
    for each in found:
        folder = each.netlist_path.parent
        script = f"""
        read_verilog module.v
        prep -top top
        rename top wanted
        read_liberty -ignore_miss_func {library.path}
        read_json {each.netlist_path.name}
        rename top mapped
        miter -equiv -flatten -make_assert wanted mapped both
        hierarchy -top both
        flatten
        opt_clean
        sat -verify -prove-asserts -set-def-inputs both
        """
        assert "no model found: SUCCESS!" in yosys.run(script, folder, f"prove-{each.recipe}")
