"""The register map: no overlap, and accesses that are refused."""

from __future__ import annotations

import pytest

from model.formats.registers import (
    ACCESSES,
    REGISTERS,
    TRAFFIC,
    WINDOW_BYTES,
    pack,
    table,
    unpack,
    writable,
)
from model.machine.shape import PRESETS
from model.machine.simulator import Simulator


@pytest.fixture
def simulator() -> Simulator:
    return Simulator(PRESETS["tiny"], 8192)


def test_offsets() -> None:
    end = 0
    for name, register in REGISTERS.items():
        assert register.offset >= end, name
        assert register.offset % (register.bits // 8) == 0, name
        assert register.access in ACCESSES
        end = register.end
    assert end <= WINDOW_BYTES


def test_fields() -> None:
    for name, register in REGISTERS.items():
        taken = 0
        for low, width, _ in register.fields.values():
            bits = ((1 << width) - 1) << low
            assert not bits & taken, name
            assert bits < 1 << register.bits
            taken |= bits
    assert unpack("CONTROL", pack("CONTROL", abort=1)) == {
        "start": 0, "abort": 1, "clear": 0, "clear_counters": 0
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"CONTROL has fields start, .*, not halt"):
        pack("CONTROL", halt=1)
    with pytest.raises(ValueError, match=r"CONFIG t_m must be 0..255, not 256"):
        pack("CONFIG", t_m=256)


def test_reset(simulator: Simulator) -> None:
    for name, register in REGISTERS.items():
        for entry in range(register.entries):
            wanted = PRESETS["tiny"].registers().get(name, register.reset)
            assert simulator.read_register(name, entry) == wanted


def test_what_the_host_writes(simulator: Simulator) -> None:
    for name, register in REGISTERS.items():
        if register.access == "write":
            for entry in range(register.entries):
                simulator.write_register(name, writable(name), entry)
                assert simulator.read_register(name, entry) == writable(name)
        elif register.access == "read":
            with pytest.raises(ValueError, match=f"{name} must be written within 0x0"):
                simulator.write_register(name, 0)
    for name, value in (("CONTROL", 16), ("BASE", 64), ("PLT", 1 << 32), ("IRQ_PENDING", 2)):
        with pytest.raises(ValueError, match=f"{name} must be written within"):
            simulator.write_register(name, value)
    for name, entry in (("NONE", 0), ("BASE", 11), ("ID", 1)):
        with pytest.raises(ValueError, match=rf"there is no register {name}\[{entry}\]"):
            simulator.read_register(name, entry)


def test_memory_has_an_end(simulator: Simulator) -> None:
    simulator.write(8191, b"x")
    assert simulator.read(8190, 2) == b"\0x"
    with pytest.raises(ValueError, match=r"address must be in a memory of 8192 bytes, not 8191\+2"):
        simulator.write(8191, b"xy")
    with pytest.raises(ValueError, match=r"not -1\+1"):
        simulator.read(-1, 1)


def test_table_names_everything() -> None:
    shown = table()
    for name in (*REGISTERS, *TRAFFIC):
        assert f" {name}" in shown
