"""Builds of emitted Verilog for a simulator, kept by content."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cocotb_tools.runner import Icarus, Runner, Verilator

from hw.tools import search_path
from sim.board.control import header
from sim.board.wrapper import TOP

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "sim"
SIMULATORS = ("verilator", "icarus")

#: Verilator: warnings of generated code that say nothing (see docs/benches.md), and C++ that is
#: compiled fast rather than optimised to the last, since most benches run for seconds.
_VERILATOR_FLAGS = [
    "-Wno-fatal",
    "-Wno-lint",
    "--timescale",
    "1ns/1ps",
    "--x-assign",
    "unique",
    "--x-initial",
    "unique",
    "--no-timing",
    "-O3",
    "--output-split",
    "20000",
    "-CFLAGS",
    "-O1",
    "--build-jobs",
    "2",
]

#: A word among the flags that goes to make: how to compile what runs in every cycle.
_FAST = "+OPT_FAST="
#: On a board too: tiny takes 19 to 22 us a cycle with any of -Os, -O1, -O2 and -O3 -march=native,
#: since it waits for its own code; -O1 compiles in two thirds of the time.
_BOARD_OPTIMISATION = "-O1"
#: The board's memory.
MEMORY = ROOT / "sim" / "board" / "memory.cpp"

os.environ["PATH"] = search_path()
# cocotb would rewrite the assert statements of every module that a bench imports, torch included.
os.environ.setdefault("COCOTB_REWRITE_ASSERTION_FILES", "")
# cocotb's runner would take make's option of this name for its own, in builds that have no waves.
os.environ.pop("WAVES", None)

#: Where a run with waves writes them, in its folder.
WAVES_FILE = "dump.vcd"


class _PortsPublicVerilator(Verilator):
    """cocotb's runner, but only what a control file names is public.

    Its own ``--public-flat-rw`` keeps every internal signal, which makes large designs
    impossible to compile; the benches use ports alone.
    """

    def _build_command(self) -> list[list[str]]:
        compile_step, make_step = super()._build_command()
        compile_step = [word for word in compile_step if word != "--public-flat-rw"]
        # What runs in every cycle can be optimised without what runs once.
        fast = [word[1:] for word in compile_step if word.startswith(_FAST)]
        compile_step = [word for word in compile_step if not word.startswith(_FAST)]
        return [compile_step, [*make_step, *fast]]


class _VcdIcarus(Icarus):
    """cocotb's runner, but its waves are VCD and lie in the run's folder, as Verilator's do."""

    def _test_command(self) -> list[list[str]]:
        (command,) = super()._test_command()
        waves = [f"+dumpfile_path={WAVES_FILE}", "-vcd"]
        return [[part for word in command for part in (waves if word == "-fst" else [word])]]


def make_runner(simulator: str) -> Runner:
    """The runner that builds and runs benches."""
    return _PortsPublicVerilator() if simulator == "verilator" else _VcdIcarus()


class SimulatorMissing(RuntimeError):
    """The simulator is not installed; the message says how to get it."""


def simulator_version(simulator: str) -> str:
    """First line of the simulator's version text.

    Raises
    ------
    SimulatorMissing
        If it is not on the PATH.
    """
    command, hint = {
        "verilator": (["verilator", "--version"], "make setup"),
        "icarus": (["iverilog", "-V"], "apt install iverilog"),
    }[simulator]
    if shutil.which(command[0]) is None:
        raise SimulatorMissing(f"{command[0]} is not installed: {hint}")
    out = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return out.splitlines()[0] if out else simulator


#: In simulation every memory watches its collision rule, but at time 0: there Verilator's ports are
#: random as all else, and a random clock may rise.
_MEMORY_END = re.compile(r"(?ms)^(module bsspec_mem_\w+\(.*?)^endmodule")
_COLLISION_CHECK = r"""\1  always @(posedge clk)
    if ($time != 0 && !rst && write_enable && read_enable && write_row == read_row) begin
      $display("%m: row %0d is read and written in one cycle", write_row);
      $finish;
    end
endmodule"""


#: Amaranth gives every register and memory an initial value. Silicon has none: what a reset does
#: not set is X in Icarus and random in Verilator. Only what a read-only memory holds stays.
_INITIAL_VALUE = re.compile(r"(?m)^(  reg (?:\[\d+:\d+\] )?\S+) = [^;]+;")
_INITIAL_BLOCK = re.compile(r"(?ms)^  initial begin\n.*?^  end\n")
_WRITABLE = re.compile(r"(?ms)^module (?!bsspec_rom_)\w+\(.*?^endmodule")


def without_initial_values(verilog: str) -> str:
    """Verilog text as silicon wakes up."""
    verilog = _WRITABLE.sub(lambda module: _INITIAL_BLOCK.sub("", module[0]), verilog)
    return _INITIAL_VALUE.sub(r"\1;", verilog)


def simulation_arguments(simulator: str, seed: int) -> list[str]:
    """Arguments of a simulation: random initial state, where the simulator has no X."""
    if simulator != "verilator":
        return []
    return ["+verilator+rand+reset+2", f"+verilator+seed+{seed % (1 << 30) + 1}"]


def _public_ports(verilog: str, top: str) -> str:
    """A control file that makes the ports of ``top`` accessible."""
    text = verilog[verilog.index(f"module {top}(") :]
    text = text[: text.index("\nendmodule")]
    # A name that is a keyword of Verilog, like "table", is written with a backslash before it.
    ports = re.findall(r"(?m)^  (?:input|output) (?:\[\d+:\d+\] )?\\?(\w+)\s*;", text)
    lines = [f'public_flat_rw -module "{top}" -var "{port}"' for port in ports]
    return "\n".join(["`verilator_config", *lines, ""])


@dataclass(frozen=True)
class Build:
    """A compiled design.

    Attributes
    ----------
    directory : Path
    top : str
    simulator : str
    waves : bool
    """

    directory: Path
    top: str
    simulator: str
    waves: bool


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _keep_results(directory: Path) -> None:
    """Removes what compiling left behind, a hundred megabytes a design; ccache has it anyway."""
    leftovers = {".cpp", ".h", ".o", ".a", ".d", ".gch", ".dat"}
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.suffix in leftovers:
            path.unlink()


def compile_design(
    verilog: str,
    top: str,
    *,
    simulator: str = "verilator",
    waves: bool = False,
    hierarchical: tuple[str, ...] = (),
    board: str = "",
) -> Build:
    """Compiles Verilog text, or finds the same text compiled before.

    Parameters
    ----------
    verilog : str
        All modules.
    top : str
        Module under test.
    simulator : str
        ``verilator`` or ``icarus``.
    waves : bool
        Build so that a run can write waves (VCD).
    hierarchical : tuple of str
        Modules that Verilator compiles once and links many times.
    board : str
        SystemVerilog of a board around it, whose memory is compiled with it; then the board is on
        top (:mod:`sim.board.wrapper`).

    Raises
    ------
    SimulatorMissing
        If the simulator is not installed.
    RuntimeError
        If the build fails; the message names the log.
    ValueError
        If there is a board, but the simulator is not Verilator.
    """
    if board and simulator != "verilator":
        raise ValueError(f"a board needs verilator, not {simulator}")
    version = simulator_version(simulator)
    verilog = without_initial_values(verilog)
    verilog = _MEMORY_END.sub(_COLLISION_CHECK, verilog)
    for module in hierarchical:
        verilog = re.sub(
            rf"(?ms)^(module {module}\(.*?\);)", r"\1 /*verilator hier_block*/", verilog, count=1
        )
    flags = list(_VERILATOR_FLAGS) if simulator == "verilator" else []
    if simulator == "verilator":
        if waves:
            flags += ["--trace-structs"]
        if hierarchical:
            flags += ["--hierarchical"]
    files = {}
    if board:
        top = TOP
        files = {"board.sv": board, "control.h": header(), "memory.cpp": MEMORY.read_text()}
        at = flags.index("-CFLAGS")
        flags[at : at + 2] = [f"{_FAST}{_BOARD_OPTIMISATION}"]
        flags[flags.index("--no-timing")] = "--timing"
    public = _public_ports(board or verilog, top)
    key = hashlib.sha256(
        "\0".join([verilog, public, version, str(waves), *flags, *files.values()]).encode()
    ).hexdigest()[:16]
    directory = BUILD / f"{top}-{simulator}-{key}"
    done = directory / "done"
    with _locked(BUILD / f"{directory.name}.lock"):
        if not done.exists():
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
            source = directory / "design.v"
            source.write_text(verilog)
            sources = [source]
            if simulator == "verilator":
                sources.insert(0, directory / "public.vlt")
                sources[0].write_text(public)
            for name, text in files.items():
                (directory / name).write_text(text)
            if board:
                sources.append(directory / "board.sv")
                flags.append(str(directory / "memory.cpp"))
            log = directory / "build.log"
            if ccache := shutil.which("ccache", path=str(ROOT / ".venv" / "bin")):
                os.environ.setdefault("OBJCACHE", ccache)
                os.environ.setdefault("CCACHE_DIR", str(ROOT / "build" / "ccache"))
                os.environ.setdefault("CCACHE_SLOPPINESS", "pch_defines,time_macros")
                os.environ.setdefault("CCACHE_NOHASHDIR", "1")
                os.environ.setdefault("CCACHE_BASEDIR", str(ROOT))
            try:
                make_runner(simulator).build(
                    sources=sources,
                    hdl_toplevel=top,
                    build_dir=directory,
                    build_args=flags,
                    waves=waves,
                    always=True,
                    log_file=log,
                    timescale=("1ns", "1ps") if simulator == "icarus" else None,
                )
            except (SystemExit, subprocess.CalledProcessError, RuntimeError) as error:
                raise RuntimeError(f"{simulator} cannot build {top}: see {log}") from error
            _keep_results(directory)
            done.touch()
    return Build(directory, top, simulator, waves)
