"""The tables of ``docs/formal.md``, made of what is proven."""

from __future__ import annotations

from sim.formal.program import ENDS
from sim.formal.streams import STREAMS


def streams_table() -> str:
    """Components whose streams keep the rule, how far, and what they are without."""
    lines = ["| proof | form | streams left out, and why |", "|---|---|---|"]
    for name, one in STREAMS.items():
        form = f"{one.bounded} cycles after reset" if one.bounded else "every cycle"
        free: dict[str, list[str]] = {}
        for stream, why in one.free.items():
            free.setdefault(why, []).append(f"`{stream}`")
        left = "; ".join(f"{', '.join(names)}: {why}" for why, names in free.items())
        lines.append(f"| `streams_{name}` | {form} | {left} |")
    return "\n".join(lines)


def surroundings_table() -> str:
    """What is assumed beside the stream rule, and what more is proven, by components."""
    lines = ["| proof | assumed of its surroundings | proven beside its streams |", "|---|---|---|"]
    for name, one in STREAMS.items():
        bench = one.build()
        own = [
            ", ".join(f"`{each}`" for each in names if each not in bench.of_streams)
            for names in (bench.rules, bench.checks)
        ]
        bench.rtlil()
        if any(own):
            lines.append(f"| `streams_{name}` | {' | '.join(own)} |")
    return "\n".join(lines)


def loops_table() -> str:
    """Loops of the program whose end is not seen by their form."""
    lines = ["| function | why its loop ends |", "|---|---|"]
    lines += [f"| {f'`{name}`' if name else 'the job'} | {why} |" for name, why in ENDS.items()]
    return "\n".join(lines)
