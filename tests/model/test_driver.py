"""Drivers in C and Python, each on the functional simulator behind words of a window."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys

import pytest

from model.driver import FOLDER
from model.driver.mapped import MappedDevice, MappedWindow
from model.formats.commands import Region, Status
from model.formats.registers import REGISTERS
from model.lm.precision import Precision
from model.machine.device import finish
from model.machine.encode import model_command, step_lines
from model.machine.jobs import precision_word
from model.machine.runtime import Host
from model.machine.simulator import Simulator
from tests.model.machine.chip import Chip, prompts_of

WORD = precision_word(Precision.parse("W6KV7"), 3)


class WordWindow:
    """The simulator's registers, word by word; the upper word of a pair comes last."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.low: dict[tuple[str, int], int] = {}
        self.places = {
            register.offset + entry * register.stride + 4 * half: (name, entry, half)
            for name, register in REGISTERS.items()
            for entry in range(register.entries)
            for half in range(register.bits // 32)
        }

    def read(self, offset: int) -> int:
        name, entry, half = self.places[offset]
        return self.simulator.read_register(name, entry) >> 32 * half & 0xFFFF_FFFF

    def write(self, offset: int, value: int) -> None:
        name, entry, half = self.places[offset]
        if REGISTERS[name].bits == 64:
            if half == 0:
                self.low[name, entry] = value
                return
            value = value << 32 | self.low.pop((name, entry))
        self.simulator.write_register(name, value, entry)
        if name == "CONTROL":
            self.simulator.wait()


def memory_of(chip: Chip) -> memoryview:
    return memoryview(chip.simulator.machine.memory.data)


def test_python() -> None:
    chip = Chip.of()
    prompts = prompts_of(97, (30, 9))
    expected = finish(chip.host.generate(prompts, max_new=12, word=WORD))
    other = Chip.of()
    device = MappedDevice(WordWindow(other.simulator), memory_of(other))
    found = finish(Host(device, other.image.manifest).generate(prompts, max_new=12, word=WORD))
    assert [t.tokens for t in found.sequences] == [t.tokens for t in expected.sequences]
    with pytest.raises(ValueError, match=r"address must be in 0x0\.\.0x\w+, not"):
        finish(device.read(1 << 40, 4))
    with pytest.raises(ValueError, match=r"there is no register ODD\[0\]"):
        finish(device.read_register("ODD"))


def test_mapped_window() -> None:
    buffer = bytearray(4096)
    window = MappedWindow(memoryview(buffer))
    window.write(0x24, 0x0102_0304)
    assert window.read(0x24) == 0x0102_0304
    assert buffer[0x24:0x28] == (0x0102_0304).to_bytes(4, "little")


READ = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)
WRITE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)
COPY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t)
WAIT = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Bus(ctypes.Structure):
    _fields_ = (("read", READ), ("write", WRITE), ("copy_in", COPY), ("copy_out", COPY),
                ("wait", WAIT), ("context", ctypes.c_void_p))  # fmt: skip


class Model(ctypes.Structure):
    _fields_ = (
        ("base", ctypes.c_uint64 * 11),
        ("lines", ctypes.c_uint32 * 11),
        ("model_command", ctypes.c_uint32 * 16),
        *((name, ctypes.c_uint32) for name in ("jobs", "layers", "capacity", "rows")),
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("driver")
    command = [sys.executable, "-m", "model.formats.c_header"]
    header = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (folder / "bsspec.h").write_text(header)
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler is not None, "the driver needs a C compiler"
    target = folder / "driver.so"
    subprocess.run(
        [compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-shared", "-fPIC",
         f"-I{folder}", str(FOLDER / "bsspec_driver.c"), "-o", str(target)],
        check=True,
    )  # fmt: skip
    return ctypes.CDLL(str(target))


def test_c(library: ctypes.CDLL) -> None:
    chip = Chip.of()
    prompts = prompts_of(97, (30,))
    expected = finish(chip.host.generate(prompts, max_new=12, word=WORD)).sequences[0].tokens
    other = Chip.of()
    manifest, memory = other.image.manifest, memory_of(other)
    window = WordWindow(other.simulator)

    def copy_in(_: object, address: int, place: int, count: int) -> None:
        memory[address : address + count] = ctypes.string_at(place, count)

    def copy_out(_: object, address: int, place: int, count: int) -> None:
        ctypes.memmove(place, bytes(memory[address : address + count]), count)

    bus = Bus(
        READ(lambda _, offset: window.read(offset)),
        WRITE(lambda _, offset, value: window.write(offset, value)),
        COPY(copy_in), COPY(copy_out), WAIT(lambda _: None), None,
    )  # fmt: skip
    command = model_command(manifest)
    words = [int.from_bytes(command[i : i + 4], "little") for i in range(0, 64, 4)]
    regions = [manifest.regions[region] for region in Region]
    model = Model(
        (ctypes.c_uint64 * 11)(*(extent.base for extent in regions)),
        (ctypes.c_uint32 * 11)(*(extent.lines for extent in regions)),
        (ctypes.c_uint32 * 16)(*words),
        manifest.jobs, step_lines(manifest).layers[1], manifest.capacity, manifest.shape.t_m,
    )  # fmt: skip
    assert library.bsspec_begin(ctypes.byref(bus), ctypes.byref(model)) == 0
    prompt = (ctypes.c_uint32 * 30)(*prompts[0])
    both = ctypes.byref(bus), ctypes.byref(model)
    assert library.bsspec_prefill(*both, prompt, 30) == 0
    length, count = ctypes.c_uint32(30), ctypes.c_uint32()
    status = library.bsspec_rounds(
        *both, ctypes.byref(length), 42, WORD, None, 0, ctypes.byref(count)
    )
    assert status == 0
    assert count.value == 42
    tokens = (ctypes.c_uint32 * 12)()
    library.bsspec_tokens(*both, 30, 12, tokens)
    assert list(tokens) == expected
    assert library.bsspec_prefill(*both, prompt, 0) == -2
    # A token that is none stops the job, and the next one runs.
    prompt[0] = 97
    assert library.bsspec_prefill(*both, prompt, 30) == Status.TOKEN
    prompt[0] = 5
    assert library.bsspec_prefill(*both, prompt, 30) == 0
    model.rows += 1
    assert library.bsspec_begin(*both) == -2
