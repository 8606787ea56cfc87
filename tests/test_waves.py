"""Waveform pictures: a VCD by hand, sampled and drawn; those in the docs are up to date."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import wave_pictures
from docs.vcd import sampled
from docs.wave_svg import Column, Line, columns, svg
from sim.build import SimulatorMissing

ROOT = Path(__file__).parents[1]

# A clock of period 10. `valid` and `word` follow the edges at 5, 15 and so on.
BY_HAND = """$timescale 1ns $end
$scope module TOP $end
$var wire 1 ! clk $end
$scope module unit $end
$var wire 1 ! clk $end
$var wire 1 # valid $end
$var wire 4 $ word [3:0] $end
$upscope $end
$scope module other $end
$var wire 1 % valid $end
$upscope $end
$upscope $end
$enddefinitions $end
#0
0!
0#
bxxxx $
1%
#5
1!
1#
b101 $
#10
0!
#15
1!
b1x10 $
#20
0!
#25
1!
0#
#30
0!
#35
1!
"""


def test_values_are_those_before_the_edge(tmp_path: Path) -> None:
    path = tmp_path / "a.vcd"
    path.write_text(BY_HAND)
    found = sampled(path, "TOP.clk", ["TOP.unit.valid", "TOP.unit.word"])
    assert found == {"TOP.unit.valid": [0, 1, 1, 0], "TOP.unit.word": [0, 5, 10, 10]}


def test_a_signal_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "a.vcd"
    path.write_text(BY_HAND)
    with pytest.raises(ValueError, match=r"no signal 'TOP\.word'"):
        sampled(path, "TOP.clk", ["TOP.word"])


def test_long_runs_are_cut() -> None:
    line = Line("a", [0, 1, 1, 1, 1, 1, 1, 1, 0, 0])
    assert columns([line]) == [Column(0), Column(1), Column(2, 5), Column(7), Column(8), Column(9)]
    # A transfer in it is no run, nor is another line that changes.
    busy = Line("b", [0] * 10, transfers={4})
    assert columns([line, busy]) == [Column(cycle) for cycle in range(10)]


def boxes(text: str) -> list[str]:
    return re.findall(r'fill="black" text-anchor="middle">([^<]*)<', text)


def test_words_in_a_picture() -> None:
    """A word that waits is one box; two equal ones, each taken, are two; none without valid."""
    word = Line("word", [None, 7, 7, 7, None], lambda value: f"{value:x}", {2, 3})
    drawn = svg("a < b", [Line("valid", [0, 1, 1, 1, 0], None, {2, 3}), word])
    assert boxes(drawn) == ["7", "7"]
    assert "a &lt; b" in drawn


def test_texts_fit() -> None:
    """A column is as wide as the longest text that stands in one."""
    values: list[int | None] = [1, 2, 3]
    drawn = svg("t", [Line("word", values, lambda value: "x" * (8 * value))])
    places = [float(x) for x in re.findall(r'<text x="([\d.]+)"[^>]*>x+<', drawn)]
    assert places[1] - places[0] >= 24 * 6.7


class TestDocs:
    PAGE = (ROOT / "docs/integration.md").read_text()

    def test_every_picture_is_on_the_page(self) -> None:
        shown = re.findall(r"\]\((waves-\w+)\.svg\)", self.PAGE)
        there = {path.stem for path in (ROOT / "docs").glob("waves-*.svg")}
        assert set(shown) == set(wave_pictures.PICTURES) == there

    @pytest.mark.slow
    def test_they_are_what_the_benches_record(self) -> None:
        try:
            traces = wave_pictures.traces()
        except SimulatorMissing as error:
            pytest.skip(str(error))
        for name, picture in wave_pictures.PICTURES.items():
            drawn = wave_pictures.draw(picture, traces[name])
            assert drawn == (ROOT / f"docs/{name}.svg").read_text(), name
