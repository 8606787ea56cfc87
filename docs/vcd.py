"""Reads signals from a VCD file as what a clock sees: their values at its rising edges."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def sampled(path: Path, clock: str, names: Iterable[str]) -> dict[str, list[int]]:
    """Values of signals in every cycle: what they are just before the clock's rising edge.

    Parameters
    ----------
    path : Path
        A VCD file.
    clock : str
        Name of the clock, scopes joined by points, as all names here.
    names : iterable of str

    Returns
    -------
    dict of str to list of int
        For each name a value a cycle; an X counts as 0.

    Raises
    ------
    ValueError
        If a name is not in the file.
    """
    wanted = [clock, *names]
    with path.open() as lines:
        codes = _codes(lines, set(wanted))
        missing = [name for name in wanted if name not in codes]
        if missing:
            raise ValueError(f"{path}: no signal {missing[0]!r}")
        now = dict.fromkeys(codes.values(), 0)
        samples: dict[str, list[int]] = {code: [] for code in now}
        # Of one time: they take effect together, after the edge has sampled.
        changes: dict[str, int] = {}
        tick = codes[clock]

        def settle() -> None:
            if changes.get(tick) == 1 and now[tick] == 0:
                for code, values in samples.items():
                    values.append(now[code])
            now.update(changes)
            changes.clear()

        for line in lines:
            first = line[0]
            if first == "#":
                settle()
            elif first in "01xzXZ":
                code = line[1:].rstrip()
                if code in now:
                    changes[code] = int(first == "1")
            elif first in "bB":
                bits, code = line[1:].split()
                if code in now:
                    changes[code] = int(bits.translate(_UNKNOWN), 2)
        settle()
    return {name: samples[codes[name]] for name in wanted if name != clock}


_UNKNOWN = str.maketrans("xzXZ", "0000")


def _codes(lines: Iterable[str], wanted: set[str]) -> dict[str, str]:
    """From the file's head: the short code of each wanted name."""
    scopes: list[str] = []
    codes = {}
    for line in lines:
        words = line.split()
        if not words:
            continue
        if words[0] == "$scope":
            scopes.append(words[2])
        elif words[0] == "$upscope":
            scopes.pop()
        elif words[0] == "$var":
            name = ".".join([*scopes, words[4]])
            if name in wanted:
                codes[name] = words[3]
        elif words[0] == "$enddefinitions":
            break
    return codes
