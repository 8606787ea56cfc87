"""Memory ports: the bus as a signature, what is refused, names and bits of what is emitted."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from amaranth.lib.wiring import In, Out

from hw.axi.arbiter import ReadArbiter
from hw.axi.bus import Axi, AxiRead, AxiWrite
from hw.axi.config import PRESETS, MemoryConfig, MemoryConfigError
from hw.axi.dma import ReadDma, order_depth
from hw.axi.layouts import burst_layout, placed_burst_layout, request_layout
from hw.axi.ports import MemoryPorts
from hw.axi.read import LineReader, ReadPort
from hw.axi.splitter import Splitter
from hw.axi.write import LineWriter
from hw.config import PRESETS as CORES
from hw.emit import emit, lint, waivers_text
from hw.library import flat_ports, port_name

pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")

FAMILY = (AxiRead, AxiWrite, Axi)


class TestSignature:
    @pytest.mark.parametrize("family", FAMILY)
    def test_equal_by_parameters(self, family: type[Axi]) -> None:
        assert family(port_bits=64) == family(port_bits=64, address_bits=40, id_bits=1)
        for other in ({"address_bits": 32}, {"id_bits": 4}):
            assert family(port_bits=64) != family(port_bits=64, **other)
        assert family(port_bits=64) != family(port_bits=128)

    def test_halves_are_not_equal(self) -> None:
        assert len({repr(family(port_bits=64)) for family in FAMILY}) == 3
        assert AxiRead(port_bits=64) != AxiWrite(port_bits=64)
        assert AxiRead(port_bits=64) != "AxiRead(port_bits=64, address_bits=40, id_bits=1)"

    def test_repr_is_a_call(self) -> None:
        for family in FAMILY:
            signature = family(port_bits=256, address_bits=34, id_bits=2)
            assert eval(repr(signature)) == signature

    def test_parameters_are_named(self) -> None:
        with pytest.raises(TypeError, match="positional"):
            AxiRead(64)  # type: ignore[misc]

    @pytest.mark.parametrize("bits", [0, 32, 65, 1024, -64])
    def test_width_is_checked(self, bits: int) -> None:
        with pytest.raises(ValueError, match=f"port_bits must be .* 512, not {bits}$"):
            AxiRead(port_bits=bits)

    @pytest.mark.parametrize(
        ("name", "value", "allowed"),
        [
            ("address_bits", 12, "13 to 64"),
            ("address_bits", 65, "13 to 64"),
            ("id_bits", 0, "1 to 16"),
            ("id_bits", 17, "1 to 16"),
        ],
    )
    def test_ranges_are_checked(self, name: str, value: int, allowed: str) -> None:
        with pytest.raises(ValueError, match=f"{name} must be {allowed}, not {value}$"):
            AxiWrite(port_bits=64, **{name: value})

    @pytest.mark.parametrize("value", ["64", 64.0, True, None])
    def test_kinds_are_checked(self, value: Any) -> None:
        for name in ("port_bits", "address_bits", "id_bits"):
            with pytest.raises(TypeError, match=f"{name} must be an integer"):
                Axi(**{"port_bits": 64, name: value})

    def test_channels(self) -> None:
        read, write, both = (family(port_bits=128, id_bits=3) for family in FAMILY)
        assert {**dict(read.members.items()), **dict(write.members.items())} == dict(
            both.members.items()
        )
        assert write.members["wstrb"] == Out(16)
        assert read.members["rdata"] == In(128)
        assert read.members["rid"] == write.members["bid"] == In(3)
        for name, member in both.members.items():
            backwards = name in ("arready", "awready", "wready") or name[0] in "rb"
            assert member.flow == (In if backwards and name not in ("rready", "bready") else Out)

    @pytest.mark.parametrize(("bits", "size"), [(64, 3), (128, 4), (256, 5), (512, 6)])
    def test_size(self, bits: int, size: int) -> None:
        assert Axi(port_bits=bits).size == size


class TestNames:
    def test_a_bus_has_one_underscore(self) -> None:
        assert port_name(("m0_axi", "araddr")) == "m0_axi_araddr"
        assert port_name(("memory", "m0_axi", "araddr")) == "memory__m0_axi_araddr"
        assert port_name(("axi", "wdata")) == "axi_wdata"

    def test_all_else_has_two(self) -> None:
        assert port_name(("lines", "payload")) == "lines__payload"
        assert port_name(("taxi", "payload")) == "taxi__payload"
        assert port_name(("stop",)) == "stop"

    def test_ports_of_the_presets(self) -> None:
        for name, config in PRESETS.items():
            names = [port for port, _, _ in flat_ports(MemoryPorts(config))]
            assert len(names) == len(set(names))
            assert sum(port.endswith("_axi_arvalid") for port in names) == config.ports, name
            # One port writes.
            assert [port for port in names if port.endswith("_awvalid")] == ["m0_axi_awvalid"]


class TestConfig:
    def test_presets(self) -> None:
        shapes = {name: (each.ports, each.port_bits) for name, each in PRESETS.items()}
        assert shapes == {"tiny": (1, 64), "small": (1, 512), "paper": (8, 512)}
        assert set(PRESETS) == set(CORES)

    @pytest.mark.parametrize(
        ("more", "burst_lines", "index_bits"),
        [
            ({}, 16, 9),
            ({"max_beats": 256, "writer_lines": 64}, 64, 9),
            ({"port_bits": 64, "max_beats": 256}, 32, 9),
            ({"port_bits": 128, "max_beats": 4, "ring_lines": 2}, 1, 2),
        ],
    )
    def test_derived(self, more: dict[str, int], burst_lines: int, index_bits: int) -> None:
        config = dataclasses.replace(PRESETS["small"], **more)
        assert (config.burst_lines, config.index_bits) == (burst_lines, index_bits)

    def test_every_reason_is_given(self) -> None:
        with pytest.raises(MemoryConfigError) as refused:
            MemoryConfig(
                name="bad", ports=3, port_bits=64, max_beats=12, ring_lines=48, outstanding=0
            )
        reasons = str(refused.value).splitlines()
        assert len(reasons) == 5
        for name in ("ports", "max_beats", "ring_lines", "outstanding"):
            assert any(f" {name} must be " in reason for reason in reasons), name

    def test_a_burst_fits(self) -> None:
        with pytest.raises(MemoryConfigError, match="must hold a burst of 64 lines, not 32"):
            dataclasses.replace(PRESETS["small"], max_beats=64)

    @pytest.mark.parametrize(("name", "value"), [("ports", "1"), ("name", 1), ("tag_bits", True)])
    def test_kinds(self, name: str, value: Any) -> None:
        with pytest.raises(TypeError, match=f"{name} must be a"):
            dataclasses.replace(PRESETS["tiny"], **{name: value})

    def test_the_order_of_all_bursts_fits(self) -> None:
        for config in PRESETS.values():
            assert order_depth(config) >= config.ports * config.outstanding


class TestLayouts:
    def test_widths(self) -> None:
        config = PRESETS["paper"]
        assert request_layout(config).size == 34 + 21 + 8
        assert burst_layout(config).size == 34 + 7 + 1 + 8
        assert placed_burst_layout(config).size == 34 + 7 + 8 + 12


class TestEmission:
    def test_deterministic_and_clean(self, tmp_path: Any) -> None:
        waivers = tmp_path / "waivers.vlt"
        waivers.write_text(waivers_text())
        for name in ("tiny", "paper"):
            config = PRESETS[name]
            first, second = (emit(CORES[name], MemoryPorts(config)) for _ in range(2))
            assert first.verilog == second.verilog
            assert lint(first, waivers) == ("clean", True)

    def test_a_module_each(self) -> None:
        emission = emit(CORES["paper"], MemoryPorts(PRESETS["paper"]))
        assert emission.children["bsspec_read_dma"]["bsspec_read_port_passing"] == 8
        labels = list(emission.modules.values())
        assert len(labels) == len(set(labels))

    @pytest.mark.parametrize(
        "make",
        [
            Splitter,
            LineReader,
            ReadDma,
            LineWriter,
            ReadArbiter,
            lambda config: ReadPort(config, axi_id=0, reserve=False),
        ],
    )
    @pytest.mark.parametrize("max_beats", [1, 256])
    def test_smallest_and_largest_bursts(self, make: Any, max_beats: int) -> None:
        config = MemoryConfig(
            name="edge",
            ports=2,
            port_bits=512,
            address_bits=64,
            max_beats=max_beats,
            outstanding=1,
            ring_lines=64,
            fifo_lines=2,
            writer_lines=64,
        )
        assert re.search(r"endmodule", emit(CORES["tiny"], make(config)).verilog)
