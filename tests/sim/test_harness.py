"""The harness on a design made of plain Python: ports, X, and the rules of a stream."""

from __future__ import annotations

from typing import Any

import pytest
from amaranth.hdl import signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from cocotb.types import LogicArray

from hw.library import Unique
from sim import harness
from sim.harness import Bench, MismatchError

PAIR = data.StructLayout({"low": 4, "high": signed(4)})


class Part(Unique):
    """A component with a port of each kind."""

    module_name = "bsspec_part"
    label = "part"
    sequential = False
    _MustUse__silence = True  # made for its ports alone, never elaborated

    def __init__(self) -> None:
        super().__init__({"pair": In(PAIR), "count": In(5), "total": Out(signed(9))})


class Port:
    """Holds what is driven, as a cocotb handle would show it."""

    def __init__(self, name: str, width: int) -> None:
        self._name = name
        self.width = width
        self.value: Any = 0

    def __len__(self) -> int:
        return self.width


class Dut:
    """Ports by name."""

    def __init__(self, **widths: int) -> None:
        for name, width in widths.items():
            setattr(self, name, Port(name, width))


@pytest.fixture
def x_exists(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the simulator has X; a test may change it."""
    state = [False]
    monkeypatch.setattr(harness, "four_state", lambda: state[0])
    return state


@pytest.fixture
def bench(x_exists: list[bool]) -> Bench:
    return Bench(Dut(pair=8, count=5, total=9), 3, Part())


STREAM = {"clk": 1, "rst": 1, "s__valid": 1, "s__ready": 1, "s__payload": 6}


@pytest.fixture
def streams(x_exists: list[bool]) -> Bench:
    return Bench(Dut(**STREAM), 3)


def test_put_packs_by_shape(bench: Bench) -> None:
    bench.put(pair={"low": 3, "high": -2}, count=9)
    assert bench.port("pair").value == 0xE3
    assert bench.port("count").value == 9
    with pytest.raises(ValueError, match="5 bits is 0 to 31, not 32"):
        bench.put(count=32)


def test_what_has_no_meaning_is_noise(bench: Bench) -> None:
    seen = set()
    for _ in range(50):
        bench.put(pair={"low": 3, "high": None})
        assert bench.port("pair").value & 15 == 3
        seen.add(bench.port("pair").value >> 4)
    assert len(seen) > 8


def test_what_has_no_meaning_is_x_where_there_is_x(bench: Bench, x_exists: list[bool]) -> None:
    x_exists[0] = True
    bench.put(pair={"low": 3, "high": None}, count=None)
    assert str(bench.port("pair").value) == "XXXX0011"
    assert str(bench.port("count").value) == "XXXXX"


def test_get_and_expect_know_signs(bench: Bench) -> None:
    bench.port("total").value = LogicArray("111111101")
    assert bench.get("total") == -3
    bench.expect(total=-3)
    with pytest.raises(MismatchError, match=r"total: -3, not 3 in cycle 0"):
        bench.expect(total=3)
    bench.expect(total=None)


def test_expect_names_the_part(bench: Bench) -> None:
    bench.port("pair").value = 0xE3
    bench.expect(pair={"low": None, "high": -2})
    with pytest.raises(MismatchError, match=r"pair\.low: 3, not 4"):
        bench.expect(pair={"low": 4, "high": -2})


def test_x_counts_only_where_it_matters(bench: Bench) -> None:
    bench.port("pair").value = LogicArray("XXXX0011")
    bench.expect(pair={"low": 3, "high": None})
    with pytest.raises(MismatchError, match="pair is X in cycle 0: XXXX0011"):
        bench.expect(pair={"low": 3, "high": 0})
    with pytest.raises(MismatchError, match="low: 3, not 2"):
        bench.expect(pair={"low": 2, "high": None})
    with pytest.raises(MismatchError, match="pair is X"):
        bench.get("pair")


def test_a_source_sends_in_order(streams: Bench) -> None:
    source = streams.source("s")
    seen: list[int] = []
    source.observers.append(seen.append)
    source.send([5, 6])
    for ready in (0, 0, 1, 1, 1):
        streams.port("s__ready").value = ready
        source.drive()
        source.sample()
        source.settle()
    assert seen == [5, 6]
    assert not streams.port("s__valid").value
    streams.port("s__ready").value = LogicArray("X")
    source.send([7])
    source.drive()
    with pytest.raises(MismatchError, match="s__ready is X"):
        source.sample()


def test_a_sink_sees_broken_rules(streams: Bench) -> None:
    sink = streams.sink("s", stall=1.0)
    streams.port("s__valid").value, streams.port("s__payload").value = 1, 9
    sink.drive()
    sink.sample()
    streams.port("s__payload").value = 8
    with pytest.raises(MismatchError, match="payload changed before its transfer"):
        sink.sample()
    streams.port("s__valid").value = 0
    with pytest.raises(MismatchError, match="valid fell before its transfer"):
        sink.sample()


def test_a_sink_counts_transfers(streams: Bench) -> None:
    sink = streams.sink("s")
    seen: list[int] = []
    sink.observers.append(seen.append)
    for valid, word in ((0, 1), (1, 2), (1, 2), (0, 3)):
        streams.port("s__valid").value, streams.port("s__payload").value = valid, word
        sink.drive()
        sink.sample()
    assert seen == [2, 2]
    assert sink.count == 2
    streams.port("s__valid").value = 1
    streams.port("s__payload").value = LogicArray("00X001")
    with pytest.raises(MismatchError, match="s__payload is X"):
        sink.sample()
