"""Resources of tiny designs in two families, counted by hand from the data sheets."""

from __future__ import annotations

from pathlib import Path

import pytest

from synth import fpga
from synth.area import Subject
from synth.errors import SynthError
from synth.families import BLOCKS, CARRIES, FAMILIES, FLOPS, LUTS, MULTIPLIERS, RAM_LUTS, RESOURCES
from synth.hierarchy import Module

from .test_flow import PARTS


def memory(rows: int, width: int, address: int) -> str:
    """Two memories of the kind that the design has, under a top of wires."""
    ports = f"input clk, we, re, input [{address - 1}:0] w, r, input [{width - 1}:0] d"
    return f"""
    module bsspec_mem_rows({ports}, output reg [{width - 1}:0] q);
      reg [{width - 1}:0] rows [0:{rows - 1}];
      always @(posedge clk) begin
        if (we) rows[w] <= d;
        if (re) q <= rows[r];
      end
    endmodule
    module top({ports}, output [{width - 1}:0] q, s);
      bsspec_mem_rows one(.clk(clk), .we(we), .re(re), .w(w), .r(r), .d(d), .q(q));
      bsspec_mem_rows two(.clk(clk), .we(we), .re(re), .w(r), .r(w), .d(d), .q(s));
    endmodule
    """


def measure(verilog: str, family: str, build: Path, bits: int | None = None) -> fpga.Report:
    subject = Subject(name="t", verilog=verilog, top="top", memory_bits=bits)
    return fpga.measure(subject, FAMILIES[family], jobs=1, build=build)


def used(report: fpga.Report) -> dict[str, int]:
    return {kind: count for kind, count in report.total.items() if count}


@pytest.mark.parametrize("family", FAMILIES)
def test_hierarchy_adds_up(family: str, build: Path) -> None:
    """Five NANDs, a LUT each; two flip-flops."""
    report = measure(PARTS, family, build)
    rows = {row.module: row for row in report.rows}
    assert {name: row.count for name, row in rows.items()} == {"leaf": 5, "pair": 2, "top": 1}
    assert used(report) == {LUTS: 5, FLOPS: 2}
    assert (rows["pair"].each[LUTS], rows["pair"].own[LUTS], rows["pair"].own[FLOPS]) == (2, 0, 1)
    for device, limits in FAMILIES[family].devices.items():
        assert report.devices[device][LUTS] == 5 / limits[LUTS]


def test_arithmetic(build: Path) -> None:
    """A sum of 8 bits is 8 LUTs and two CARRY4; a product of 16 by 16 bits fits a multiplier."""
    adder = "module top(input [7:0] a, b, output [7:0] y); assign y = a + b; endmodule"
    assert used(measure(adder, "xilinx", build)) == {LUTS: 8, CARRIES: 2}
    product = "module top(input [15:0] a, b, output [31:0] y); assign y = a * b; endmodule"
    for family in FAMILIES:
        assert used(measure(product, family, build)) == {MULTIPLIERS: 1}


def test_memories_become_block_rams(build: Path) -> None:
    """512 rows of 72 bits: one of 36 kbit in Xilinx; two of 36 bits wide in ECP5."""
    text = memory(512, 72, 9)
    for family in FAMILIES:
        report = measure(text, family, build, bits=2 * 512 * 72)
        assert used(report) == {BLOCKS: 2 * 2}
        assert report.memory_bits == 2 * 512 * 72
        assert [row.stored for row in report.rows] == [True, False]


def test_small_memories_become_luts(build: Path) -> None:
    """16 rows of 6 bits, and the register of the read port: a RAM32M, or two of 16 by 4."""
    text = memory(16, 6, 4)
    assert used(measure(text, "xilinx", build)) == {RAM_LUTS: 2 * 4, FLOPS: 2 * 6}
    assert used(measure(text, "ecp5", build)) == {RAM_LUTS: 2 * 2 * 6, FLOPS: 2 * 6}


def test_memory_bits_must_agree(build: Path) -> None:
    with pytest.raises(SynthError, match="memories: 192 bits in the netlist, 191 by the config"):
        measure(memory(16, 6, 4), "xilinx", build, bits=191)


def test_wires_named_like_bits(build: Path) -> None:
    """What the emitter writes: a wire `a[0]` beside a wire `a` of two bits."""
    text = r"""module top(input clk, input [1:0] x, y, output [1:0] z);
      reg [1:0] a; wire \a[0] ; wire \a[1] ;
      assign \a[0] = a[1] ^ y[0]; assign \a[1] = a[0] & y[1];
      always @(posedge clk) a <= x;
      assign z = {\a[1] , \a[0] };
    endmodule"""
    for family in FAMILIES:
        assert used(measure(text, family, build)) == {LUTS: 2, FLOPS: 2}


def test_unknown_cells_fail(build: Path) -> None:
    family = FAMILIES["xilinx"]
    with pytest.raises(SynthError, match="top: not mapped to Xilinx 7 series: 2 x LDCE"):
        fpga.resources(Module("top", "", {"part": 3}), {"part": 3, "LDCE": 2}, family)
    latch = "module top(input e, input d, output reg q); always @* if (e) q = d; endmodule"
    with pytest.raises(SynthError, match="LDCE"):
        measure(latch, "xilinx", build)


def test_tables(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fpga.show(measure(memory(512, 72, 9), "xilinx", build), FAMILIES["xilinx"])
    said = capsys.readouterr().out
    assert "RAMB18" in said
    assert "of XC7K325T: LUTs 0.0%, flip-flops 0.0%, DSP48E1 0.0%, RAMB18 0.4%" in said


def test_families_name_known_resources() -> None:
    for family in FAMILIES.values():
        named = [*family.cells.values(), *family.devices.values(), family.names]
        assert {kind for each in named for kind in each} <= set(RESOURCES)
