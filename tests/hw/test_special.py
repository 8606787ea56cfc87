"""Units of a slice: their parameters, and streams through instances."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from amaranth.hdl import Module
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hw.config import PRESETS, ConfigError
from hw.library import Library, Unique, instantiate
from hw.special.argmax import Argmax
from hw.special.floats import Rounder, Unpack
from hw.special.layouts import beat_layout
from hw.special.norm import RmsNorm
from hw.special.output import AttentionOutput
from hw.special.quantizer import Quantizer
from hw.special.residual import Residual
from hw.special.rope import Rope
from hw.special.scores import Scores
from hw.special.silu import Silu
from hw.special.softmax import Probabilities
from hw.special.squares import SquareSum, square_sum_bits
from hw.special.sums import AlignedSum
from hw.special.tables import SegmentTable
from model.formats.special_tables import exp2_table, reciprocal_table, rsqrt_table

pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")

UNITS = (Residual, Scores, Probabilities, AttentionOutput, Silu, Rope, Argmax)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("elements", [0, 3, 16])
def test_elements_are_checked(unit: type[Unique], elements: int) -> None:
    with pytest.raises(ValueError, match=f"elements must be 1, 2, 4 or 8, not {elements}"):
        unit(elements=elements)


@pytest.mark.parametrize("elements", ["2", 2.0, True])
def test_elements_are_an_integer(elements: object) -> None:
    with pytest.raises(TypeError, match="elements must be an integer"):
        Residual(elements=elements)


def test_configurations_name_the_elements() -> None:
    assert [PRESETS[name].special_elements for name in ("tiny", "small", "paper")] == [2, 2, 8]
    with pytest.raises(ConfigError, match="special_elements must be 1, 2, 4 or 8, not 3"):
        dataclasses.replace(PRESETS["tiny"], special_elements=3)


@pytest.mark.parametrize(
    ("component", "parameters", "message"),
    [
        (SegmentTable, {"function": "sine"}, "function must be one of exp2, recip, rsqrt"),
        (Unpack, {"mantissa_bits": 10, "normal": True}, "mantissa_bits must be 7 or 23"),
        (Rounder, {"width": 8, "spread": 9, "exponent_bits": 9}, "spread must be 1 to 8"),
        (AlignedSum, {"width": 8, "least": 8}, "least must be 0 to 7"),
        (Argmax, {"elements": 8, "index_bits": 2}, "index_bits must be 3 to 32, not 2"),
        (Quantizer, {"elements": 8, "p_full": 8, "longest": 64}, "p_full must be 9 to 16, not 8"),
        (
            Quantizer,
            {"elements": 8, "p_full": 9, "longest": 60},
            "multiple of elements, which is 8",
        ),
        (SquareSum, {"elements": 8, "longest": 63}, "longest must be 64 to 1048576, not 63"),
        (RmsNorm, {"elements": 3, "longest": 64}, "elements must be 1, 2, 4 or 8, not 3"),
    ],
)
def test_parameters_are_checked(
    component: type[Unique], parameters: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        component(**parameters)


def test_tables_have_the_widths_of_the_model() -> None:
    for name, table in (
        ("exp2", exp2_table()),
        ("recip", reciprocal_table()),
        ("rsqrt", rsqrt_table()),
    ):
        component = SegmentTable(function=name)
        assert len(component.index) == table.index_bits
        assert (len(component.value), table.base_bits) == (17, 16)


@pytest.mark.parametrize(("longest", "bits"), [(64, 38), (65, 39), (576, 42), (1 << 20, 52)])
def test_sums_of_squares_have_the_models_width(longest: int, bits: int) -> None:
    assert square_sum_bits(longest) == bits


def test_the_page_lists_every_module() -> None:
    text = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
    section = text[text.index("## Special functions") : text.index("## Configurations")]
    folder = Path(__file__).parents[2] / "hw" / "special"
    names = {path.name for path in folder.glob("*.py")} - {"__init__.py", "layouts.py"}
    assert {name for name in names if f"`{name}`" not in section} == set()


class _Two(Unique):
    """Two units in a row."""

    module_name = "two"
    label = "two"

    def __init__(self) -> None:
        self.shape = beat_layout(Residual.lane.operand_shape, 2, "last")
        results = beat_layout(Residual.lane.result_shape, 2, "last")
        super().__init__(
            {"a": In(stream.Signature(self.shape)), "b": Out(stream.Signature(results))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        units = [instantiate(m, f"unit_{i}", Residual, elements=2) for i in range(2)]
        m.d.comb += [
            units[0].operands.payload.eq(self.a.payload),
            units[0].operands.valid.eq(self.a.valid),
            self.a.ready.eq(units[0].operands.ready),
            units[1].operands.valid.eq(units[0].results.valid),
            units[0].results.ready.eq(units[1].operands.ready),
            self.b.payload.eq(units[1].results.payload),
            self.b.valid.eq(units[1].results.valid),
            units[1].results.ready.eq(self.b.ready),
        ]
        return m


def test_instances_have_streams() -> None:
    library = Library()
    library.add(_Two())
    assert library.children["two"] == {"bsspec_residual": 2}
    text = library.rtlil()
    for port in ("operands__valid", "operands__ready", "results__payload", "clear"):
        assert f"connect \\{port} " in text
