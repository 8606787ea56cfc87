"""Modules that are emitted once."""

from __future__ import annotations

import pytest
from amaranth.hdl import Module
from amaranth.lib.wiring import In, Out

from hw.library import Library, Unique, instantiate


class _Leaf(Unique):
    label = "leaf"
    sequential = False

    def __init__(self, width: int, name: str = "leaf") -> None:
        self.module_name = name
        super().__init__({"a": In(width), "b": Out(width)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.b.eq(~self.a)
        return m


class _Parent(Unique):
    module_name = "parent"
    label = "parent"

    def __init__(self, widths: tuple[int, ...]) -> None:
        self.widths = widths
        super().__init__({"a": In(8), "b": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        value = self.a
        for number, width in enumerate(self.widths):
            leaf = instantiate(m, f"leaf_{number}", _Leaf, width)
            m.d.comb += leaf.a.eq(value)
            value = leaf.b
        m.d.comb += self.b.eq(value)
        return m


def test_instances_share_a_module() -> None:
    library = Library()
    library.add(_Parent((8, 8, 8)))
    assert list(library.modules) == ["leaf", "parent"]
    assert library.children["parent"] == {"leaf": 3}
    assert library.rtlil().count("module \\leaf") == 1


def test_one_name_for_two_components_is_refused() -> None:
    with pytest.raises(ValueError, match="two different components are both named 'leaf'"):
        Library().add(_Parent((8, 4)))
