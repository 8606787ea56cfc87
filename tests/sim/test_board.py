"""The board's memory alone: its knobs, its orders, and every rule that it holds a chip to."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from sim.axi_memory import CACHE, INCR, OKAY, PROT, SLVERR
from sim.board.board import Board, BoardBehaviour
from sim.board.control import ERRORS, FOLDER, WRITES, Control, Wake, header
from sim.board.wrapper import wrapper
from sim.build import MEMORY
from sim.harness import MismatchError

SIZE = 1 << 16
U32 = ctypes.c_uint32


@dataclass
class Address:
    """What a master says on an address channel."""

    address: int
    beats: int
    id: int = 0
    size: int = 3
    burst: int = INCR
    cache: int = CACHE
    prot: int = PROT

    def words(self) -> tuple[Any, ...]:
        """In the order of the wrapper's calls."""
        given = (self.beats - 1, self.size, self.burst, self.cache, self.prot)
        return (1, self.id, ctypes.c_uint64(self.address), *given)


@dataclass
class Data:
    """A beat of W."""

    data: bytes
    strobe: int = 0xFF
    last: int = 1


@dataclass
class Drive:
    """What a port's master drives in a cycle."""

    ar: Address | None = None
    aw: Address | None = None
    w: Data | None = None
    rready: int = 1
    bready: int = 1


def on(channel: str, given: Address | Data) -> Drive:
    """A drive of one channel alone."""
    drive = Drive()
    setattr(drive, channel, given)
    return drive


@dataclass
class Out:
    """What a port's master sees in a cycle."""

    arready: int = 0
    r: tuple[int, bytes, int, int] | None = None  # ID, data, response, last
    awready: int = 0
    wready: int = 0
    b: tuple[int, int] | None = None


@dataclass
class Ports:
    """The memory with the calls of the wrapper, one cycle at a time."""

    library: ctypes.CDLL
    board: Board
    seen: list[Out] = field(default_factory=list)
    lite: dict[str, int] = field(default_factory=dict)
    slave: dict[str, int] = field(default_factory=dict)

    def cycle(self, *drives: Drive) -> list[Out]:
        """A rising edge; what the masters see after it."""
        count = self.board.control.ports
        given = [*drives, *[Drive()] * count][:count]
        none = (0,) * 2 + (ctypes.c_uint64(0),) + (0,) * 5
        for p, each in enumerate(given):
            ar = each.ar.words() if each.ar else none
            self.library.board_reads(p, *ar, each.rready)
            aw = each.aw.words() if each.aw else none
            w = each.w or Data(bytes(64), 0, 0)
            self.library.board_writes(
                p,
                *aw,
                int(each.w is not None),
                w.data.ljust(64, b"\0"),
                ctypes.c_uint64(w.strobe),
                w.last,
                each.bready,
            )
        names = ("awready", "wready", "bvalid", "bresp", "arready", "rvalid", "rdata", "rresp")
        names_out = ("rst", "wake", "awvalid", "wvalid", "arvalid", "bready", "rready")
        outs = [U32() for _ in (*names_out, "address", "data", "strobe")]
        self.library.board_cycle(
            *(self.slave.get(name, 0) for name in (*names, "interrupt")),
            *(ctypes.byref(each) for each in outs),
        )
        self.lite = dict(
            zip((*names_out, "address", "data", "strobe"), (o.value for o in outs), strict=True)
        )
        self.seen = []
        for p in range(count):
            ready, valid, id_, resp, last = (U32() for _ in range(5))
            data = ctypes.create_string_buffer(64)
            refs = [ctypes.byref(each) for each in (ready, valid, id_)]
            self.library.board_read_out(p, *refs, data, ctypes.byref(resp), ctypes.byref(last))
            out = Out(arready=ready.value)
            if valid.value:
                content = data.raw[: self.board.control.port_bytes]
                out.r = (id_.value, content, resp.value, last.value)
            words = [U32() for _ in range(5)]
            self.library.board_write_out(p, *(ctypes.byref(each) for each in words))
            out.awready, out.wready, answers, id_b, response = (each.value for each in words)
            out.b = (id_b, response) if answers else None
            self.seen.append(out)
        return self.seen

    def fault(self) -> str:
        """What the memory complains of."""
        with pytest.raises(MismatchError) as caught:
            self.board.check()
        return str(caught.value)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The memory, compiled alone, with every warning an error."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    folder = tmp_path_factory.mktemp("memory")
    (folder / "control.h").write_text(header())
    target = folder / "memory.so"
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    command = ["g++", *flags, f"-I{folder}", str(MEMORY), "-o", str(target)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(target))


@pytest.fixture
def make(library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes the ports of a memory of random bytes, out of reset."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    made: list[Ports] = []

    def ports(count: int = 1, bits: int = 64, seed: int = 1) -> Ports:
        board = Board(
            tmp_path, memory_bytes=SIZE, ports=count, port_bits=bits, max_beats=64, seed=seed
        )
        board.memory[:] = random.Random(seed).randbytes(SIZE)
        made.append(Ports(library, board))
        made[-1].cycle()  # the files are found
        while not made[-1].seen[0].arready:
            made[-1].cycle()
        return made[-1]

    yield ports
    for each in made:
        each.board.control.magic = 0
        each.cycle()


def read(ports: Ports, address: int, beats: int, *, limit: int = 1000) -> tuple[bytes, list[int]]:
    """A burst on port 0: bytes, and the cycle of each beat behind its address."""
    out = ports.seen[0]
    start, got, when = None, b"", []
    for now in range(limit):
        drive = Drive(ar=Address(address, beats)) if start is None else Drive()
        if drive.ar and out.arready:
            start = now
        if out.r:
            got += out.r[1]
            assert start is not None
            when.append(now - start)
            if out.r[3]:
                ports.cycle(drive)
                return got, when
        out = ports.cycle(drive)[0]
        ports.board.check()
    raise AssertionError("no last beat")


def write(
    ports: Ports, address: int, data: bytes, strobe: int = 0xFF, *, ahead: bool = False
) -> int:
    """A burst on port 0 of 8-byte beats, data before their address if told; the response."""
    beats = [data[i : i + 8] for i in range(0, len(data), 8)]
    asked, sent = False, 0
    for _ in range(1000):
        out = ports.seen[0]
        drive = Drive()
        if not asked and (not ahead or sent == len(beats)):
            drive.aw = Address(address, len(beats))
        if sent < len(beats):
            drive.w = Data(beats[sent], strobe, int(sent == len(beats) - 1))
        if out.b:
            ports.cycle(drive)
            return out.b[1]
        asked = asked or bool(drive.aw and out.awready)
        sent += bool(drive.w and out.wready)
        ports.cycle(drive)
        ports.board.check()
    raise AssertionError("no response")


@pytest.mark.parametrize("latency", [0, 1, 7])
def test_reads_are_answered_after_the_latency_one_beat_a_cycle(make: Any, latency: int) -> None:
    ports = make()
    ports.board.behave(BoardBehaviour(latency=(latency, latency)))
    got, when = read(ports, 0x400, 16)
    assert got == ports.board.memory[0x400:0x480]
    assert when == list(range(1 + latency, 17 + latency))
    (counters,) = ports.board.counters
    assert (counters["read_bursts"], counters["read_beats"], counters["read_bytes"]) == (1, 16, 128)
    assert counters["most_reads"] == 1


def test_a_port_may_be_slower_than_another(make: Any) -> None:
    ports = make(2)
    ports.board.behave(BoardBehaviour(latency=(3, 3), port_latency=(0, 5)))
    ask = Drive(ar=Address(0, 8))
    ports.cycle(ask, ask)
    first: list[int | None] = [None, None]
    for now in range(1, 20):
        for p, out in enumerate(ports.seen):
            if out.r and first[p] is None:
                first[p] = now
        ports.cycle()
    assert first == [4, 9]


def test_a_512_bit_port(make: Any) -> None:
    ports = make(1, 512)
    ports.cycle(Drive(ar=Address(0xFC0, 1, size=6)))
    assert ports.seen[0].r == (0, ports.board.memory[0xFC0:0x1000], OKAY, 1)
    ports.cycle(Drive(aw=Address(0x40, 1, size=6), w=Data(bytes(range(64)), (1 << 63) | 1, 1)))
    assert ports.board.memory[0x40] == 0
    assert ports.board.memory[0x7F] == 63


@pytest.mark.parametrize("ahead", [False, True])
def test_writes_follow_their_strobes(make: Any, ahead: bool) -> None:
    ports = make()
    expected = bytearray(ports.board.memory[:])
    data = random.Random(7).randbytes(64)
    assert write(ports, 0x1000, data, strobe=0b1010_0110, ahead=ahead) == OKAY
    for i in range(64):
        if 0b1010_0110 >> (i % 8) & 1:
            expected[0x1000 + i] = data[i]
    assert ports.board.memory[:] == bytes(expected)
    (counters,) = ports.board.counters
    assert (counters["write_bursts"], counters["write_beats"], counters["write_bytes"]) == (
        1,
        8,
        32,
    )


@pytest.mark.parametrize("late", [False, True])
def test_late_writes_are_there_with_their_answer(make: Any, late: bool) -> None:
    ports = make()
    ports.board.behave(BoardBehaviour(latency=(20, 20), late_writes=late))
    old, data = ports.board.memory[0x80:0xC0], bytes(64)
    ports.cycle(Drive(aw=Address(0x80, 8)))
    for beat in range(8):
        ports.cycle(Drive(w=Data(data[:8], last=int(beat == 7))))
    assert (ports.board.memory[0x80:0xC0] == old) == late
    while ports.seen[0].b is None:
        ports.cycle()
    assert ports.board.memory[0x80:0xC0] == data


def traffic(ports: Ports, seed: int, bursts: int = 150) -> dict[str, Any]:
    """Random reads of two IDs on every port, checked against memory; what was seen."""
    rng = random.Random(seed)
    count = ports.board.control.ports
    want: list[dict[int, list[tuple[bytes, int]]]] = [defaultdict(list) for _ in range(count)]
    left = [bursts] * count
    asked: list[Address | None] = [None] * count
    ready = [1] * count
    swaps = beats = cycles = 0
    previous: list[tuple[int, int]] = [(0, 1)] * count
    while any(left) or any(each for w in want for each in w.values()):
        drives = []
        for p, out in enumerate(ports.seen):
            ready[p] = int(rng.random() < 0.9)
            if asked[p] is None and left[p] and rng.random() < 0.8:
                lines = rng.randint(1, 4)
                asked[p] = Address(rng.randrange(SIZE // 4096) * 4096, 8 * lines, rng.randint(0, 1))
            drives.append(Drive(ar=asked[p], rready=ready[p]))
            if out.r and ready[p]:
                id_, data, response, last = out.r
                assert response == OKAY
                assert want[p][id_].pop(0) == (data, last)
                before, ended = previous[p]
                swaps += before != id_ and not ended
                previous[p] = (id_, last)
                beats += 1
            given = asked[p]
            if given and out.arready:
                for i in range(given.beats):
                    at = given.address + 8 * i
                    last = int(i == given.beats - 1)
                    want[p][given.id].append((ports.board.memory[at : at + 8], last))
                asked[p] = None
                left[p] -= 1
        ports.cycle(*drives)
        ports.board.check()
        cycles += 1
        assert cycles < 100_000
    return {"swaps": swaps, "beats": beats, "cycles": cycles}


@pytest.mark.parametrize("swap", [0.0, 0.5])
def test_an_id_is_in_order_and_two_interleave_if_told(make: Any, swap: float) -> None:
    ports = make(3, seed=5)
    ports.board.behave(BoardBehaviour(latency=(0, 40), swap=swap, stall=0.2, slow=0.3), seed=11)
    seen = traffic(ports, 3)
    assert (seen["swaps"] > 100) == (swap > 0)
    assert sum(each["read_beats"] for each in ports.board.counters) == seen["beats"]
    assert all(each["most_reads"] > 2 for each in ports.board.counters)


def test_the_oldest_burst_is_answered_first(make: Any) -> None:
    # All are due long before the first one ends.
    ports = make()
    ports.board.behave(BoardBehaviour(latency=(3, 3)))
    asked = [0, 0, 1, 0, 1, 1, 0, 0]
    left, ended = list(asked), []
    while len(ended) < len(asked):
        out = ports.seen[0]
        if out.r and out.r[3]:
            ended.append(out.r[0])
        ar = Address(0, 64, left[0]) if left else None
        if ar and out.arready:
            left.pop(0)
        ports.cycle(Drive(ar=ar, rready=1))
        ports.board.check()
    assert ended == asked


def test_the_same_seed_does_the_same(make: Any) -> None:
    runs = []
    for seed in (4, 4, 5):
        ports = make(2)
        ports.board.behave(BoardBehaviour(latency=(0, 40), swap=0.5, stall=0.2), seed=seed)
        runs.append(traffic(ports, 3))
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize("rate", [1.0, 5.5, 12.0])
def test_the_rate_is_that_of_all_ports_together(make: Any, rate: float) -> None:
    ports = make(2)
    ports.board.behave(BoardBehaviour(rate=rate))
    for _ in range(20):
        ports.cycle(*[Drive(ar=Address(0, 64))] * 2)
    first = ports.board.counters
    for _ in range(800):
        ports.cycle()
    last = ports.board.counters
    moved = [b["read_bytes"] - a["read_bytes"] for a, b in zip(first, last, strict=True)]
    assert abs(sum(moved) - 800 * rate) <= 16
    assert abs(moved[0] - moved[1]) <= 16


def test_the_rate_holds_for_writes(make: Any) -> None:
    ports = make()
    ports.board.behave(BoardBehaviour(rate=2.0))
    before = ports.board.control.cycles
    for i in range(4):
        write(ports, 64 * i, bytes(64))
    assert 128 - 8 <= ports.board.control.cycles - before <= 128 + 16


@pytest.mark.parametrize(
    ("channel", "seen"), [("ar", "arready"), ("aw", "awready"), ("w", "wready")]
)
def test_a_ready_stands_still_as_often_as_told(make: Any, channel: str, seen: str) -> None:
    ports = make()
    ports.board.behave(BoardBehaviour(stalls={channel: 0.25}))
    count = dict.fromkeys(("arready", "awready", "wready"), 0)
    for _ in range(4000):
        out = ports.cycle()[0]
        for name in count:
            count[name] += getattr(out, name)
    others = {name: n for name, n in count.items() if name != seen}
    assert set(others.values()) == {4000}
    assert 2850 < count[seen] < 3150


def test_addresses_wait(make: Any) -> None:
    ports = make()
    ports.board.behave(BoardBehaviour(slow=0.5, stall=0.5))
    found = [ports.cycle()[0] for _ in range(4000)]
    assert 900 < sum(out.arready for out in found) < 1100
    assert 1850 < sum(out.wready for out in found) < 2150


@pytest.mark.parametrize("channel", ["r", "b"])
def test_answers_stand_still_as_often_as_told(make: Any, channel: str) -> None:
    ports = make()
    ports.board.behave(BoardBehaviour(stalls={channel: 0.75}))
    begun = ports.board.control.cycles
    for i in range(40):
        if channel == "r":
            read(ports, 0, 8)
        else:
            write(ports, 64 * i, bytes(64))
    took = ports.board.control.cycles - begun
    least = {"r": 40 * 8 * 3, "b": 40 * (8 + 3)}[channel]
    assert least < took < 2 * least


def test_errors_by_address_and_kind(make: Any) -> None:
    ports = make()
    ports.board.behave(
        BoardBehaviour(
            read_errors={(0x108, 0x110): SLVERR, (0x200, 0x208): 3},
            write_errors={(0x100, 0x108): SLVERR},
            errors={(0x400, 0x440): 3},
        )
    )

    def responses(address: int) -> list[int]:
        found: list[int] = []
        ports.cycle(Drive(ar=Address(address, 8)))
        while len(found) < 8:
            if ports.seen[0].r:
                found.append(ports.seen[0].r[2])
            ports.cycle()
        return found

    assert responses(0x100) == [0, SLVERR, 0, 0, 0, 0, 0, 0]
    assert responses(0x200) == [3, 0, 0, 0, 0, 0, 0, 0]
    assert responses(0x400) == [3] * 8
    assert [write(ports, at, bytes(64)) for at in (0x100, 0x200, 0x400, 0x440)] == [2, 0, 3, 0]
    ports.board.behave(BoardBehaviour())
    assert responses(0x400) == [0] * 8


READ = Address(0x1000, 8)
#: What each rule says about an address that breaks it.
REFUSED = {
    "fixed": (replace(READ, burst=0), "kind 0, size 3"),
    "wrap": (replace(READ, burst=2), "kind 2"),
    "narrow": (replace(READ, size=2), "size 2"),
    "wide": (replace(READ, size=4), "size 4"),
    "cacheable": (replace(READ, cache=3), "cache 3"),
    "device": (replace(READ, cache=0), "cache 0"),
    "privileged": (replace(READ, prot=1), "prot 1"),
    "part of a line": (replace(READ, beats=4), "4 beats from 0x1000 is not of whole lines"),
    "across lines": (replace(READ, address=0x1008), "is not of whole lines"),
    "long": (replace(READ, beats=72), "of 72 beats"),
    "page": (replace(READ, address=0x1FC0, beats=16), "0x1fc0 crosses 4 KiB"),
    "beyond": (replace(READ, address=SIZE), "0x10000 is outside of memory"),
    "far beyond": (replace(READ, address=(1 << 64) - 64), "is outside of memory"),
}


@pytest.mark.parametrize("channel", ["ar", "aw"])
@pytest.mark.parametrize("rule", list(REFUSED))
def test_addresses_that_break_a_rule(make: Any, channel: str, rule: str) -> None:
    address, said = REFUSED[rule]
    ports = make(2)
    ports.cycle(Drive(), on(channel, READ))
    ports.board.check()
    ports.cycle(Drive(), on(channel, address))
    text = ports.fault()
    assert said in text
    assert text.startswith(f"m1_axi: {channel} ")
    assert text.endswith(f"in cycle {ports.board.control.cycles - 1}")


@pytest.mark.parametrize("channel", ["ar", "aw"])
@pytest.mark.parametrize("change", ["id", "address", "beats", "prot"])
def test_an_address_stays(make: Any, channel: str, change: str) -> None:
    ports = make()
    ports.board.behave(BoardBehaviour(stalls={channel: 1.0}))
    ports.cycle()
    ports.cycle(on(channel, READ))
    ports.cycle(on(channel, READ))
    ports.board.check()
    other = replace(READ, **{change: getattr(READ, change) + 1})
    ports.cycle(on(channel, other))
    assert f"the {channel} payload changed before its transfer" in ports.fault()


@pytest.mark.parametrize("channel", ["ar", "aw", "w"])
def test_valid_stays(make: Any, channel: str) -> None:
    ports = make()
    ports.board.behave(BoardBehaviour(stalls={channel: 1.0}))
    ports.cycle()
    given = Data(bytes(8)) if channel == "w" else READ
    ports.cycle(on(channel, given))
    ports.board.check()
    ports.cycle(Drive())
    assert f"{channel}valid fell before its transfer" in ports.fault()


@pytest.mark.parametrize(
    "other", [Data(b"\1" + bytes(7)), Data(bytes(8), strobe=0x7F), Data(bytes(8), last=0)]
)
def test_data_stay(make: Any, other: Data) -> None:
    ports = make()
    ports.board.behave(BoardBehaviour(stalls={"w": 1.0}))
    ports.cycle()
    ports.cycle(Drive(w=Data(bytes(8))))
    ports.cycle(Drive(w=other))
    assert "the w payload changed before its transfer" in ports.fault()


@pytest.mark.parametrize("last", [3, 8])
def test_wlast_is_in_the_last_beat(make: Any, last: int) -> None:
    ports = make()
    ports.cycle(Drive(aw=READ))
    for beat in range(8):
        ports.cycle(Drive(w=Data(bytes(8), last=int(beat == last))))
    value, place = (1, 4) if last == 3 else (0, 8)
    assert f"wlast is {value} in beat {place} of 8" in ports.fault()


def test_writes_stay_where_they_are_allowed(make: Any) -> None:
    ports = make()
    ports.board.allow_writes((0x100, 0x144), (0x2000, 0x3000))
    write(ports, 0x2000, bytes(64))
    write(ports, 0x100, bytes(64))
    write(ports, 0x140, bytes(64), strobe=0)
    with pytest.raises(MismatchError, match="a write to 0x144, where none is allowed"):
        write(ports, 0x140, bytes(64))
    other = make()
    other.board.allow_writes((0, 0x140))
    other.board.allow_writes()
    write(other, 0x140, bytes(64))


def test_after_a_fault_nothing_moves(make: Any) -> None:
    ports = make()
    ports.cycle(Drive(ar=replace(READ, burst=0)))
    first = ports.fault()
    before = ports.board.memory[:]
    ports.cycle(Drive(aw=replace(READ, burst=0), w=Data(bytes(8))))
    assert ports.fault() == first
    assert ports.board.memory[:] == before


def test_a_reset_forgets_what_is_outstanding(make: Any) -> None:
    ports = make()
    ports.board.behave(BoardBehaviour(latency=(30, 30)))
    ports.cycle(Drive(ar=READ, aw=READ))
    ports.board.behave(BoardBehaviour(stalls={"ar": 1.0}))
    ports.cycle()
    ports.cycle(Drive(ar=READ))
    ports.board.control.reset_asked = 3
    held = []
    for drive in [Drive(ar=READ), *[Drive()] * 5]:
        ports.cycle(drive)
        held.append(ports.lite["rst"])
    assert held == [1, 1, 1, 0, 0, 0]
    ports.board.behave(BoardBehaviour())
    for _ in range(100):
        (out,) = ports.cycle()
        assert out.r is None
        assert out.b is None
    ports.board.check()
    assert read(ports, 0x1000, 8)[0] == ports.board.memory[0x1000:0x1040]


def test_an_access_waits_for_each_channel(make: Any) -> None:
    ports = make()
    block = ports.board.control
    block.access_write, block.access_address, block.access_data = 1, 0x20, 0x1234
    block.access_strobe = 0xF
    block.access_asked += 1
    block.wake_mask = Wake.ACCESS
    wake = ports.lite["wake"]
    ports.cycle()
    shown = {n: ports.lite[n] for n in ("awvalid", "wvalid", "arvalid", "bready", "rready")}
    assert shown == {"awvalid": 1, "wvalid": 1, "arvalid": 0, "bready": 1, "rready": 0}
    assert [ports.lite[n] for n in ("address", "data", "strobe")] == [0x20, 0x1234, 0xF]
    ports.slave = {"wready": 1}
    ports.cycle()
    assert (ports.lite["awvalid"], ports.lite["wvalid"]) == (1, 0)
    ports.slave = {"awready": 1}
    ports.cycle()
    assert (ports.lite["awvalid"], ports.lite["wake"]) == (0, wake)
    ports.slave = {"bvalid": 1, "bresp": SLVERR}
    ports.cycle()
    assert (block.access_response, block.access_done) == (SLVERR, block.access_asked)
    assert (ports.lite["bready"], ports.lite["wake"], block.woken) == (0, 1 - wake, Wake.ACCESS)
    block.access_write = 0
    block.access_asked += 1
    ports.slave = {}
    ports.cycle()
    assert (ports.lite["arvalid"], ports.lite["rready"], ports.lite["awvalid"]) == (1, 1, 0)
    ports.slave = {"arready": 1, "rvalid": 1, "rdata": 77}
    ports.cycle()
    assert (block.access_response, block.access_result) == (OKAY, 77)


@pytest.mark.parametrize("wake", [Wake.INTERRUPT, Wake.CYCLE, Wake.TIME, Wake.FAULT])
def test_what_wakes(make: Any, wake: Wake) -> None:
    ports = make()
    block = ports.board.control
    block.wake_cycle = (1 << 64) - 1 if wake != Wake.CYCLE else block.cycles + 50
    block.wake_time = block.milliseconds + (20 if wake == Wake.TIME else 1 << 40)
    block.wake_mask = Wake.INTERRUPT | Wake.CYCLE | Wake.TIME | Wake.FAULT
    before = ports.lite["wake"]
    for _ in range(50):
        ports.cycle()
        if wake != Wake.TIME:
            assert ports.lite["wake"] == before
    if wake == Wake.INTERRUPT:
        ports.slave = {"interrupt": 1}
    for _ in range(100_000 if wake == Wake.TIME else 1):
        ports.cycle(Drive(ar=replace(READ, burst=0)) if wake == Wake.FAULT else Drive())
        if ports.lite["wake"] != before:
            break
    assert ports.lite["wake"] != before
    assert block.woken == wake
    assert block.wake_mask == 0


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"latency": (3, 2)}, "latency must be"),
        ({"latency": (-1, 2)}, "latency must be"),
        ({"rate": 0.0}, "rate must be"),
        ({"swap": 1.5}, "swap must be 0 to 1, not 1.5"),
        ({"stall": -0.5}, "stall of ar must be"),
        ({"stalls": {"x": 0.5}}, "stalls must name ar, r, aw, w, b"),
        ({"port_latency": (0,) * 9}, "port_latency"),
        ({"errors": {(i, i + 1): 2 for i in range(ERRORS + 1)}}, "errors must be 16"),
    ],
)
def test_knobs_out_of_range(make: Any, knobs: dict[str, Any], said: str) -> None:
    ports = make()
    before = bytes(ports.board.control)
    with pytest.raises(ValueError, match=said):
        ports.board.behave(BoardBehaviour(**knobs))
    assert bytes(ports.board.control) == before
    with pytest.raises(ValueError, match="64 ranges at most, not 65"):
        ports.board.allow_writes(*[(0, 1)] * (WRITES + 1))


@pytest.mark.parametrize("given", [{"memory_bytes": 0}, {"ports": 0}, {"ports": 9}])
def test_sizes_out_of_range(tmp_path: Path, given: dict[str, int]) -> None:
    sizes = {"memory_bytes": 64, "ports": 1, "port_bits": 64, "max_beats": 64, "seed": 0, **given}
    with pytest.raises(ValueError, match=f"{next(iter(given))} must be"):
        Board(tmp_path, **sizes)
    assert not list(tmp_path.iterdir())


def test_the_header_has_every_field() -> None:
    text = header()
    assert all(f" {name}" in text for name, *_ in Control._fields_)
    assert all(f"WAKE_{each.name} = {each.value};" in text for each in Wake)


def test_a_wrapper_needs_memory_ports() -> None:
    with pytest.raises(ValueError, match="m0_axi"):
        wrapper([("a", "input", 1)])
