"""Emitted Verilog: deterministic, every module once, readable by other tools."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.sim import Simulator

from hw import emit as emission_module
from hw.chip_config import CHIPS
from hw.compute.lut import LutGenerator
from hw.config import PRESETS, ConfigError
from hw.emit import emit

TINY = PRESETS["tiny"]


@pytest.fixture(scope="module")
def tiny() -> emission_module.Emission:
    return emit(TINY)


def test_every_module_once_and_defined(tiny: emission_module.Emission) -> None:
    defined = re.findall(r"(?m)^module (\w+)\(", tiny.verilog)
    assert sorted(defined) == sorted(set(defined)) == sorted(tiny.modules)
    used = {child for children in tiny.children.values() for child in children}
    assert used == set(defined) - {tiny.top}


def test_lanes_are_counted(tiny: emission_module.Emission) -> None:
    assert tiny.children["bsspec_column"] == {"bsspec_lane": 16}
    assert tiny.children["bsspec_subarray"] == {"bsspec_column": 4}
    assert tiny.children["bsspec_array"]["bsspec_mpu"] == 2


def test_twice_the_same_bytes_under_any_hash_seed(
    tiny: emission_module.Emission, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for seed in ("1", "2"):
        subprocess.run(
            [sys.executable, "-m", "hw.emit", "--config", "tiny", "--out", out, "--no-check"],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert (out / "bsspec_tiny.v").read_text() == tiny.verilog
    names = sorted(path.name for path in out.iterdir())
    assert names == [f"bsspec_tiny.{end}" for end in ("core", "json", "ports.txt", "v", "vlt")]
    assert json.loads((out / "bsspec_tiny.json").read_text())["parameters"]["t_m"] == 2


def test_no_system_verilog(tiny: emission_module.Emission) -> None:
    words = set(re.findall(r"(?<![\\.\w$])[a-z_]\w*", tiny.verilog))
    assert not words & {"logic", "always_ff", "always_comb", "assert", "typedef", "struct"}


@pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs iverilog")
def test_icarus_takes_it_as_verilog_2005(tiny: emission_module.Emission, tmp_path: Path) -> None:
    path = tmp_path / "tiny.v"
    path.write_text(tiny.verilog)
    command = ["iverilog", "-g2005", "-s", tiny.top, "-o", str(tmp_path / "out"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_slang_elaborates_it(tiny: emission_module.Emission, tmp_path: Path) -> None:
    path = tmp_path / "tiny.v"
    path.write_text(tiny.verilog)
    assert emission_module.elaborate(path, tiny.top) == ("elaborates", True)
    path.write_text(tiny.verilog.replace("module bsspec_lane(", "module bsspec_other("))
    assert not emission_module.elaborate(path, tiny.top)[1]


def test_a_lint_complaint_is_seen(tiny: emission_module.Emission, tmp_path: Path) -> None:
    waivers = tmp_path / "waivers.vlt"
    waivers.write_text(emission_module.waivers_text())
    good = emit(TINY, LutGenerator(TINY))
    assert emission_module.lint(good, waivers) == ("clean", True)
    object.__setattr__(
        good, "verilog", good.verilog.replace("endmodule", "wire a = 2'd2;\nendmodule")
    )
    assert "WIDTH" in emission_module.lint(good, waivers)[0]


@pytest.mark.parametrize(
    ("config", "message"),
    [("huge", "must be tiny, small, paper"), ("none.toml", "cannot read configuration")],
)
def test_bad_calls_end_with_one_line(
    config: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert emission_module.main(["--config", config, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_components_also_run_in_amaranths_simulator() -> None:
    generator = LutGenerator(TINY)
    values = (5, -9, 120, 33)

    async def bench(ctx) -> None:  # type: ignore[no-untyped-def]
        for i, value in enumerate(values):
            ctx.set(generator.aligned[i], value)
        await ctx.delay(1e-9)
        for index in range(8):
            signs = [1, *(1 if (index >> i) & 1 else -1 for i in range(3))]
            total = sum(sign * value for sign, value in zip(signs, values, strict=True))
            assert ctx.get(generator.table.entries[index]) == total >> 1
            assert ctx.get(generator.table.odd) == total & 1

    simulator = Simulator(generator)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.slow
def test_a_chip(tmp_path: Path) -> None:
    """The same text each time; memories by hand; all files."""
    first, second = (emission_module.emit_chip(CHIPS["tiny"]) for _ in range(2))
    assert first.verilog == second.verilog
    found = {each.name: (each.instances, each.rows, each.width) for each in first.memories}
    # 64 planes of 512 bytes in 8 macros; 256 words of 16 BF16 elements for each of 2 rows.
    assert found["bsspec_mem_weight_ring"] == (8, 64, 512)
    assert found["bsspec_mem_bank"] == (2, 256, 256)
    written = [each for each in first.memories if each.written]
    assert {each.name for each in first.memories} - {each.name for each in written} == {
        "bsspec_rom_program"
    }
    assert first.memory_bits == sum(each.instances * each.rows * each.width for each in written)
    names = {path.name for path in emission_module.write(first, tmp_path)}
    assert "bsspec_chip_tiny.memories.txt" in names
    fields = json.loads((tmp_path / "bsspec_chip_tiny.json").read_text())
    assert (fields["ports"], fields["memory_bits"]) == (1, first.memory_bits)
    assert "m0_axi_araddr" in (tmp_path / "bsspec_chip_tiny.ports.txt").read_text()
    assert "toplevel: bsspec_chip" in (tmp_path / "bsspec_chip_tiny.core").read_text()


def test_a_chip_is_a_preset() -> None:
    with pytest.raises(ConfigError, match="a chip must be one of tiny, small, paper, not 'odd'"):
        emission_module.chip_named("odd")
