"""Draws the lines of a waveform, cycle by cycle, as text and as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

#: Pixels: of a row, of the levels in it, of a slanted edge, of a letter at the size of the text.
ROW, HIGH, LOW, EDGE, LETTER = 26, 5, 19, 3, 6.7
FONT = 11
#: A run of cycles without a change that is longer than this is cut to its first and its last one.
LONGEST_RUN = 4
STROKE, MUTED, BUS, TRANSFER = "#1f3b57", "#9aa7b3", "#e3eefa", "#d5efd0"


@dataclass
class Line:
    """A signal of a picture.

    Attributes
    ----------
    name : str
    values : list of (int or None)
        A value a cycle; None where it means nothing, since its ``valid`` is 0.
    text : callable or None
        What is written into a value; None for a single bit.
    transfers : set of int
        Cycles in which it is taken.
    """

    name: str
    values: list[int | None]
    text: Callable[[int], str] | None = None
    transfers: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Column:
    """A cycle of a picture, or some without a change that are left out (``cut`` above 0)."""

    cycle: int
    cut: int = 0


def columns(lines: Sequence[Line]) -> list[Column]:
    """All cycles, long runs without a change cut."""
    count = len(lines[0].values)
    still = [
        cycle > 0
        and all(
            line.values[cycle] == line.values[cycle - 1] and not line.transfers & {cycle - 1, cycle}
            for line in lines
        )
        for cycle in range(count)
    ]
    found: list[Column] = []
    cycle = 0
    while cycle < count:
        found.append(Column(cycle))
        end = cycle + 1
        while end < count and still[end]:
            end += 1
        if end - cycle > LONGEST_RUN:
            found += [Column(cycle + 1, end - cycle - 2), Column(end - 1)]
            cycle = end
        else:
            cycle += 1
    return found


@dataclass
class _Span:
    """Neighbouring columns in which a line has one value."""

    first: int
    last: int
    value: int | None


def _spans(line: Line, shown: Sequence[Column]) -> list[_Span]:
    spans: list[_Span] = []
    for place, column in enumerate(shown):
        value = line.values[column.cycle]
        # Words that are taken are words of their own, even if they are alike.
        again = column.cycle - 1 in line.transfers and line.text is not None
        if spans and spans[-1].value == value and not (again and value is not None):
            spans[-1].last = place
        else:
            spans.append(_Span(place, place, value))
    return spans


def _width(lines: Sequence[Line], shown: Sequence[Column]) -> int:
    """Of a column, so that every text fits where it stands."""
    needed = 24.0
    for line in lines:
        if line.text is None:
            continue
        for span in _spans(line, shown):
            if span.value is not None:
                letters = len(line.text(span.value))
                needed = max(needed, (letters * LETTER + 8) / (span.last - span.first + 1))
    return round(needed + 0.5)


def svg(title: str, lines: Sequence[Line]) -> str:
    """The picture: the clock, then a row a line; cycles counted from 0."""
    shown = columns(lines)
    width = _width(lines, shown)
    left = round(max(len(line.name) for line in lines) * LETTER) + 16
    right, height = left + width * len(shown), ROW * (len(lines) + 3) + 4
    full = max(right + 8, round(len(title) * LETTER * 1.15) + 16)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {full} {height}" width="{full}"'
        f' height="{height}" font-family="monospace" font-size="{FONT}">',
        f'<rect width="{full}" height="{height}" fill="white"/>',
        f'<text x="6" y="17" font-size="{FONT + 1}" font-weight="bold">{escape(title)}</text>',
        _text(6, ROW + 17, "cycle", MUTED, "start"),
    ]
    for place, column in enumerate(shown):
        x = left + place * width
        out.append(_path(f"M{x} {ROW + 4}V{height - 4}", "#eeeeee"))
        said = f"+{column.cut}" if column.cut else str(column.cycle)
        out.append(_text(x + width / 2, ROW + 17, said, MUTED))
    out.append(_text(6, 2 * ROW + 16, "clk", "black", "start"))
    out += _clock(shown, left, width, 2 * ROW)
    for row, line in enumerate(lines, 3):
        y = row * ROW
        out.append(_text(6, y + 16, line.name, "black", "start"))
        for place, column in enumerate(shown):
            if column.cycle in line.transfers:
                x = left + place * width
                out.append(
                    f'<rect x="{x}" y="{y + 2}" width="{width}" height="{ROW - 4}"'
                    f' fill="{TRANSFER}"/>'
                )
        draw = _bit if line.text is None else _bus
        out += draw(line, _spans(line, shown), left, width, y)
    for place, column in enumerate(shown):
        if column.cut:
            x = left + place * width + width // 2 - 3
            out.append(
                f'<rect x="{x}" y="{2 * ROW}" width="6" height="{height - 2 * ROW}" fill="white"/>'
            )
    # Texts last: nothing may lie over them.
    texts = [each for each in out if each.startswith("<text")]
    shapes = [each for each in out if not each.startswith("<text")]
    return "\n".join([*shapes, *texts, "</svg>", ""])


def _text(x: float, y: float, said: str, colour: str, anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="{colour}" text-anchor="{anchor}">{escape(said)}</text>'


def _path(steps: str, colour: str = STROKE, fill: str = "none") -> str:
    return f'<path d="{steps}" stroke="{colour}" fill="{fill}"/>'


def _clock(shown: Sequence[Column], left: int, width: int, y: int) -> list[str]:
    """High in the first half of a cycle; a cut has none."""
    steps = [f"M{left} {y + LOW}"]
    for place, column in enumerate(shown):
        x = left + place * width
        if column.cut:
            steps.append(f"H{x + width}")
        else:
            steps.append(f"V{y + HIGH}H{x + width / 2:g}V{y + LOW}H{x + width}")
    return [_path("".join(steps))]


def _bit(line: Line, spans: Sequence[_Span], left: int, width: int, y: int) -> list[str]:
    levels = {0: y + LOW, 1: y + HIGH, None: y + (HIGH + LOW) // 2}
    out, steps = [], ""
    before: int | None = None
    for span in spans:
        level = levels[span.value]
        start, end = left + span.first * width, left + (span.last + 1) * width
        if span.value is None:
            out.append(_path(f"M{start} {level}H{end}", MUTED))
        elif steps and before is not None:
            steps += f"L{start + EDGE} {level}H{end}"
        else:
            steps += f"M{start} {level}H{end}"
        before = span.value
    return [*out, *([_path(steps)] if steps else [])]


def _bus(line: Line, spans: Sequence[_Span], left: int, width: int, y: int) -> list[str]:
    assert line.text is not None
    out = []
    top, bottom, middle = y + HIGH, y + LOW, y + (HIGH + LOW) // 2
    for span in spans:
        start, end = left + span.first * width, left + (span.last + 1) * width
        if span.value is None:
            out.append(_path(f"M{start} {middle}H{end}", MUTED))
            continue
        out.append(
            _path(
                f"M{start} {middle}L{start + EDGE} {top}H{end - EDGE}L{end} {middle}"
                f"L{end - EDGE} {bottom}H{start + EDGE}Z",
                fill=BUS,
            )
        )
        out.append(_text((start + end) / 2, y + 16, line.text(span.value), "black"))
    return out
