"""Configurations: derived widths, refusals with their arithmetic, TOML files."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hw.config import PRESETS, Config, ConfigError, load
from model.datapath.bounds import acc_bits, lut_entry_bits, tile_sum_bits

PAPER = PRESETS["paper"]


def test_presets_are_the_machines_of_the_documents() -> None:
    shapes = {name: (c.t_m, c.lanes, c.fold, c.drain) for name, c in PRESETS.items()}
    assert shapes == {"tiny": (2, 4, 16, 1), "small": (8, 8, 8, 2), "paper": (32, 64, 1, 8)}


@pytest.mark.parametrize(
    ("max_k", "p_max", "bits"),
    [
        (64, 9, 40),
        (4096, 9, 46),
        (32768, 9, 49),
        (32768, 16, 56),
        (131072, 9, 51),
        (131072, 16, 58),
    ],
)
def test_accumulators_have_the_contracts_width(max_k: int, p_max: int, bits: int) -> None:
    config = dataclasses.replace(PAPER, max_k=max_k, p_max=p_max)
    assert config.acc_width == bits == acc_bits(max_k, p_max, 8, 8)


def test_other_widths_are_the_contracts() -> None:
    assert dataclasses.replace(PAPER, p_max=9).tile_sum_bits == 32 == tile_sum_bits(9, 8)
    assert PAPER.tile_sum_bits == 39 == tile_sum_bits(16, 8)
    # One bit less than a signed sum: the shared parity is kept once a table.
    assert PAPER.entry_bits == 18 == lut_entry_bits(8) - 1


def test_memory_bits_by_hand() -> None:
    # 32 MPUs x 3 contexts x 64 columns x 58 bits; 2 tiles of 4 rows with a 10-bit exponent each;
    # 8 rows of notes: 32 rows, 2 + 6 + 5 bits, two flags.
    assert PAPER.memory_bits == {
        "bsspec_mem_accumulators": 32 * 3 * 64 * 58,
        "bsspec_mem_results": 32 * 8 * (16 * 58 + 10),
        "bsspec_mem_result_notes": 8 * (32 + 2 + 6 + 5 + 2),
    }


def test_all_errors_at_once_with_their_arithmetic() -> None:
    with pytest.raises(ConfigError) as caught:
        Config(
            name="bad name",
            t_m=0,
            subarrays=3,
            fanout=10,
            mu=3,
            p_max=17,
            contexts=0,
            result_tiles=1,
            acc_bits=20,
            acc_columns=7,
            drain=4,
        )
    text = str(caught.value)
    for part in (
        "name must be",
        "t_m must be 1 to 256, not 0",
        "3 x 10 = 30 lanes",
        "acc_columns = 7 must divide the 30 lanes",
        "30 lanes / 7 acc_columns = 5 cycles",
        "drain = 4 must divide acc_columns = 7",
        "mu must be 2 or 4, not 3",
        "p_max must be 9 to 16, not 17",
        "contexts must be",
        "result_tiles must be",
        "acc_bits = 20 is below the bound: 131072 x 255",
    ):
        assert part in text


def test_more_sum_cycles_than_planes_are_refused() -> None:
    with pytest.raises(ConfigError, match="64 lanes / 8 acc_columns = 8 cycles"):
        dataclasses.replace(PAPER, acc_columns=8)


def test_drain_must_divide() -> None:
    with pytest.raises(ConfigError, match="drain = 3 must divide acc_columns = 16"):
        dataclasses.replace(PAPER, drain=3)


@pytest.mark.parametrize("value", [True, 2.0, "2", None])
def test_wrong_kinds_are_type_errors(value: object) -> None:
    with pytest.raises(TypeError, match="t_m must be an integer"):
        dataclasses.replace(PAPER, t_m=value)


def test_a_toml_file_changes_a_preset(tmp_path: Path) -> None:
    path = tmp_path / "wide.toml"
    path.write_text('preset = "small"\nt_m = 16\n')
    config = load(str(path))
    assert (config.name, config.t_m, config.lanes) == ("wide", 16, 8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t_m = ", "cannot read configuration"),
        ("rows = 3", "unknown parameters rows"),
        ('preset = "huge"', "preset must be one of"),
        ('preset = "tiny"\nt_m = "2"', "t_m must be an integer"),
        ("t_m = 2", "missing"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load(str(path))


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be tiny, small, paper or a path"):
        load("huge")
    with pytest.raises(ConfigError, match="cannot read"):
        load(str(tmp_path / "none.toml"))
