"""Waveforms of the chip's protocols, drawn from what benches record; in docs/integration.md.

    python -m docs.wave_pictures [--out docs]

Runs three benches on preset `tiny` with waves (Verilator; the first run compiles the chip), finds
in each VCD the first place that shows what a picture is about, and writes one SVG each. The seed is
fixed, so the same design gives the same pictures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from docs.vcd import sampled
from docs.wave_svg import Line, svg
from hw.config import PRESETS
from model.formats.registers import REGISTERS
from sim.build import WAVES_FILE
from sim.registry import BENCHES
from sim.run import run_bench

SEED = 1
#: Cycles shown before what a picture is about, and after.
BEFORE, AFTER = 2, 3

#: Beats of a line of 64 bytes on the 64 bits of `tiny`.
BEATS = 8
#: Cycles without an address after which no burst is outstanding in the benches.
QUIET = 40

#: Values of every cycle by the signal's name.
Trace = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Show:
    """A signal of a picture: of a channel whose ``valid`` and ``ready`` are named, or of none.

    A signal with a text is drawn as a word, without one as a bit. Where its channel is not valid it
    means nothing, and a line in the middle is drawn.
    """

    name: str
    text: Callable[[int], str] | None = None
    channel: tuple[str, str] | None = None


@dataclass(frozen=True)
class Picture:
    """What is shown, and where it is found.

    Attributes
    ----------
    title : str
    bench : str
        Whose VCD it is from.
    scope : str
        Of all signals in the VCD.
    shows : tuple of Show
    find : callable
        First and last cycle of what the picture is about.
    """

    title: str
    bench: str
    scope: str
    shows: tuple[Show, ...]
    find: Callable[[Trace], tuple[int, int]]


def _channel(prefix: str, *words: tuple[str, Callable[[int], str] | None]) -> list[Show]:
    """The signals of an AXI channel: valid, ready, and what goes with them."""
    pair = (f"{prefix}valid", f"{prefix}ready")
    shows = [Show(pair[0], channel=pair), Show(pair[1])]
    return [*shows, *(Show(prefix + name, text, pair) for name, text in words)]


def _first(wanted: Iterator[int], what: str) -> int:
    for cycle in wanted:
        return cycle
    raise ValueError(f"the waves show no {what}")


def _taken(trace: Trace, prefix: str, start: int = 0, **words: int) -> Iterator[int]:
    """Cycles from ``start`` on in which a channel's word is taken that has these fields."""
    valid, ready = trace[f"{prefix}valid"], trace[f"{prefix}ready"]
    for cycle in range(start, len(valid)):
        fields = all(trace[prefix + name][cycle] == value for name, value in words.items())
        if valid[cycle] and ready[cycle] and fields:
            yield cycle


def _offset(name: str) -> int:
    return REGISTERS[name].offset


def _register(trace: Trace) -> tuple[int, int]:
    """The interrupt is taken back, and its register read."""
    write = _first(_taken(trace, "s_axi_aw", addr=_offset("IRQ_PENDING")), "write of IRQ_PENDING")
    return write, _first(_taken(trace, "s_axi_r", write), "answer to a read")


def _fetch(trace: Trace) -> tuple[int, int]:
    """A command is read that is not all zeros."""
    for start in _taken(trace, "m0_axi_ar", len=BEATS - 1):
        end = _first(_taken(trace, "m0_axi_r", start, last=1), "end of a read burst")
        if any(trace["m0_axi_rdata"][cycle] for cycle in range(start, end + 1)):
            return start, end
    raise ValueError("the waves show no read of a command")


def _write(trace: Trace) -> tuple[int, int]:
    """A burst by itself, all bytes left out of some of its beats."""
    valid, before = trace["axi_wvalid"], -QUIET
    for start in _taken(trace, "axi_aw"):
        alone, before = start - before >= QUIET and not valid[start - 1], start
        beats = list(islice(_taken(trace, "axi_w", start), trace["axi_awlen"][start] + 1))
        strobes = {trace["axi_wstrb"][cycle] for cycle in beats}
        if alone and 0 in strobes and strobes != {0} and not valid[beats[-1] + 1]:
            return start, _first(_taken(trace, "axi_b", beats[-1] + 1), "write response")
    raise ValueError("the waves show no write burst by itself")


def _job(trace: Trace) -> tuple[int, int]:
    """From CONTROL to the interrupt taken back."""
    irq = trace["interrupt"]
    start = _first(_taken(trace, "s_axi_aw", addr=_offset("CONTROL")), "write of CONTROL")
    rise = _first((cycle for cycle in range(start, len(irq)) if irq[cycle]), "interrupt")
    return start, _first((cycle for cycle in range(rise, len(irq)) if not irq[cycle]), "its end")


def _stream(trace: Trace) -> tuple[int, int]:
    """Words that follow each other, one that waits, a pause."""
    length = 14
    valid, ready = trace["lines__valid"], trace["lines__ready"]
    for start in range(BEFORE, len(valid) - length):
        here = [(valid[c], ready[c]) for c in range(start, start + length)]
        if here[0] == (1, 1) and all(here.count(kind) > 1 for kind in ((1, 1), (1, 0), (0, 1))):
            return start, start + length
    raise ValueError("the waves show no stream that waits")


def _hex(value: int) -> str:
    return f"{value:x}"


def _low(value: int) -> str:
    """The lowest 16 bits of a datum."""
    return f"..{value & 0xFFFF:04x}"


_CHIP = "bsspec_board"
PICTURES = {
    "waves-register": Picture(
        "AXI4-Lite: IRQ_PENDING is written, then read",
        "chip_registers",
        _CHIP,
        (
            *_channel("s_axi_aw", ("addr", _hex)),
            *_channel("s_axi_w", ("data", _hex)),
            *_channel("s_axi_b", ("resp", _hex)),
            *_channel("s_axi_ar", ("addr", _hex)),
            *_channel("s_axi_r", ("data", _hex), ("resp", _hex)),
            Show("interrupt"),
        ),
        _register,
    ),
    "waves-read": Picture(
        "AXI4 read: a command, a line of 64 bytes in beats of 8",
        "chip_registers",
        _CHIP,
        (
            *_channel("m0_axi_ar", ("id", _hex), ("addr", _hex), ("len", _hex)),
            *_channel("m0_axi_r", ("id", _hex), ("data", _low), ("resp", _hex), ("last", None)),
        ),
        _fetch,
    ),
    "waves-write": Picture(
        "AXI4 write: two lines of 64 bytes in beats of 8; a strobe of 0 leaves a beat out",
        "axi_write",
        "bsspec_line_writer",
        (
            *_channel("axi_aw", ("addr", _low), ("len", _hex)),
            *_channel("axi_w", ("data", _low), ("strb", _hex), ("last", None)),
            *_channel("axi_b", ("resp", _hex)),
        ),
        _write,
    ),
    "waves-job": Picture(
        "A job of one HALT: started by CONTROL, ended by the interrupt",
        "chip_registers",
        _CHIP,
        (
            *_channel("s_axi_aw", ("addr", _hex)),
            *_channel("s_axi_w", ("data", _hex)),
            *_channel("m0_axi_ar", ("addr", _hex)),
            *_channel("m0_axi_r", ("last", None)),
            Show("interrupt"),
        ),
        _job,
    ),
    "waves-stream": Picture(
        "A stream inside the chip: lines of a read port",
        "axi_read",
        "bsspec_read_port_passing",
        (
            Show("lines__valid", channel=("lines__valid", "lines__ready")),
            Show("lines__ready"),
            Show("lines__payload", _low, ("lines__valid", "lines__ready")),
        ),
        _stream,
    ),
}


def draw(picture: Picture, trace: Trace) -> str:
    """The picture as SVG.

    Parameters
    ----------
    picture : Picture
    trace : mapping
        Values of its signals, by name without the scope.

    Raises
    ------
    ValueError
        If the trace does not show what the picture is about.
    """
    start, end = picture.find(trace)
    cycles = range(max(0, start - BEFORE), end + AFTER + 1)
    lines = []
    for show in picture.shows:
        values: list[int | None] = [trace[show.name][cycle] for cycle in cycles]
        taken: set[int] = set()
        if show.channel:
            valid, ready = (trace[name] for name in show.channel)
            taken = {i for i, cycle in enumerate(cycles) if valid[cycle] and ready[cycle]}
            if show.name not in show.channel:
                values = [
                    value if valid[cycle] else None
                    for cycle, value in zip(cycles, values, strict=True)
                ]
        lines.append(Line(show.name, values, show.text, taken))
    return svg(picture.title, lines)


def record(bench: str) -> Path:
    """Runs a bench with waves.

    Returns
    -------
    Path
        Of its VCD.

    Raises
    ------
    RuntimeError
        If the bench fails.
    """
    outcome = run_bench(BENCHES[bench], PRESETS["tiny"], seed=SEED, quick=True, waves=True)
    if not outcome.passed:
        raise RuntimeError(f"bench {bench}: {outcome.error}")
    return Path(outcome.log).parent / WAVES_FILE


def traces() -> dict[str, Trace]:
    """For every picture the values of its signals, from new runs of the benches."""
    found: dict[str, Trace] = {}
    for bench in dict.fromkeys(picture.bench for picture in PICTURES.values()):
        path = record(bench)
        mine = {name: each for name, each in PICTURES.items() if each.bench == bench}
        (scope,) = {each.scope for each in mine.values()}
        names = {name for each in mine.values() for name in signals(each)}
        values = sampled(path, f"{scope}.clk", [f"{scope}.{name}" for name in sorted(names)])
        trace = {name.removeprefix(f"{scope}."): each for name, each in values.items()}
        found |= dict.fromkeys(mine, trace)
    return found


def signals(picture: Picture) -> set[str]:
    """All signals that a picture needs."""
    return {name for show in picture.shows for name in (show.name, *(show.channel or ()))}


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m docs.wave_pictures", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder (default docs)")
    out = parser.parse_args(argv).out
    try:
        for name, trace in traces().items():
            path = out / f"{name}.svg"
            path.write_text(draw(PICTURES[name], trace))
            print(path)
    except (RuntimeError, ValueError) as error:
        print(f"docs.wave_pictures: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
