"""Jobs: the command lists that a host writes for each thing it wants done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from model.formats.commands import END_IDS, SEGMENTS, Opcode, pack
from model.formats.plt_layout import pack as pack_word
from model.lm.precision import Precision
from model.machine.encode import Segment, model_command, step_lines
from model.machine.layout import JOB_LINES, Manifest


class Live(NamedTuple):
    """A sequence before a ROUND.

    Attributes:
        sequence: which one.
        length: its committed tokens.
        limit: tokens, the pending one included, at which it ends.
    """

    sequence: int
    length: int
    limit: int


#: Commands from a first one to HALT.
Job = list[bytes]


def precision_word(precision: Precision | None, gamma: int = 0) -> int:
    """The word of a precision and a gamma; 0, not valid, for None."""
    if precision is None:
        return 0
    w, kv = precision.w, precision.kv
    fields = {"p_w": w.p, "p_kv": kv.p, "midpoint_w": w.midpoint, "midpoint_kv": kv.midpoint}
    return pack_word({**{k: int(v) for k, v in fields.items()}, "gamma": gamma, "valid": 1})


def _call(lines: tuple[int, int]) -> bytes:
    return pack(Opcode.CALL, {"list": lines[0], "count": lines[1]})


def rows_commands(segments: Sequence[Segment], precision: Precision | None) -> list[bytes]:
    """ROWS of any number of segments; all planes where the precision is None."""
    commands = []
    for first in range(0, len(segments), SEGMENTS):
        named = segments[first : first + SEGMENTS]
        fields = {
            "append": int(first > 0),
            "segments": len(named),
            "precision": precision_word(precision),
        }
        for i, segment in enumerate(named):
            fields |= {
                f"sequence_{i}": segment.sequence,
                f"count_{i}": segment.rows,
                f"start_{i}": segment.start,
            }
        commands.append(pack(Opcode.ROWS, fields))
    return commands


def chunks(rows: int, wanted: Mapping[int, tuple[int, int]]) -> list[tuple[list[Segment], bool]]:
    """Cuts tokens that are to be fed into steps.

    Args:
        rows: most rows of a step.
        wanted: (start, count) of each sequence.

    Returns:
        Segments of each step, and whether they end their sequences. First come whole steps of one
        sequence each, all but the last; then the last ones, as many in a step as fit.
    """
    steps: list[tuple[list[Segment], bool]] = []
    last: list[Segment] = []
    for sequence, (start, count) in wanted.items():
        if count == 0:
            continue
        whole = (count - 1) // rows
        for i in range(whole):
            steps.append(([Segment(sequence, start + i * rows, rows)], False))
        last.append(Segment(sequence, start + whole * rows, count - whole * rows))
    packed: list[list[Segment]] = []
    room = 0
    for segment in last:
        if segment.rows > room:
            packed.append([])
            room = rows
        packed[-1].append(segment)
        room -= segment.rows
    return [*steps, *((segments, True) for segments in packed)]


def prefill_jobs(manifest: Manifest, wanted: Mapping[int, tuple[int, int]]) -> list[Job]:
    """Jobs that feed prompts, whose tokens are in TOKENS, and put each one's first token behind.

    Args:
        wanted: (start, count) of each sequence.
    """
    lines = step_lines(manifest)
    ends = [
        _call(lines.norm),
        _call(lines.head(logits=False, last_only=True)),
        pack(Opcode.COMMIT, {"append": 1}),
    ]
    parts = []
    for segments, final in chunks(manifest.shape.t_m, wanted):
        part = [*rows_commands(segments, None), _call(lines.layers)]
        parts.append([*part, *ends] if final else part)
    return _jobs(manifest, parts)


def _jobs(manifest: Manifest, parts: Sequence[list[bytes]]) -> list[Job]:
    """Jobs of parts that must not be cut, each with MODEL and HALT."""
    jobs: list[Job] = []
    for part in parts:
        if not jobs or len(jobs[-1]) + len(part) + 1 > JOB_LINES:
            jobs.append([model_command(manifest)])
        jobs[-1] += part
    return [[*job, pack(Opcode.HALT, {})] for job in jobs]


def round_job(
    manifest: Manifest,
    live: Sequence[Live],
    *,
    rounds: int,
    word: int = 0,
    gamma_limit: int = 0,
    end_ids: Sequence[int] = (),
    trace_entry: int | None = None,
) -> Job:
    """A job of rounds.

    Args:
        live: sequences that take part; all others rest.
        rounds: most rounds, 0 for until all have ended.
        word: precision and gamma; 0 for the lookup table.
        gamma_limit: most drafted tokens, 0 for the word's.
        end_ids: tokens that end a text, 4 at most.
        trace_entry: entry of the first round; None for no trace.

    Raises:
        ValueError: more end-of-text ids.
    """
    if len(end_ids) > END_IDS:
        raise ValueError(f"end_ids must be at most {END_IDS}, not {len(end_ids)}")
    first, count = step_lines(manifest).whole
    fields = {
        "trace": int(trace_entry is not None),
        "list": first,
        "count": count,
        "precision": word,
        "gamma_limit": gamma_limit,
        "rounds": rounds,
        "end_ids": len(end_ids),
        "trace_entry": trace_entry or 0,
        **{f"end_id_{i}": token for i, token in enumerate(end_ids)},
    }
    return [
        model_command(manifest),
        *(pack(Opcode.SEQUENCE, {"live": 1, **sequence._asdict()}) for sequence in live),
        pack(Opcode.ROUND, fields),
        pack(Opcode.HALT, {}),
    ]


def autoregressive_word(p_full: int) -> int:
    """The word of rounds without drafts."""
    return precision_word(Precision.full(p_full), 0)


def logits_job(
    manifest: Manifest,
    segments: Sequence[Segment],
    precision: Precision | None = None,
    *,
    head: bool = True,
    last_only: bool = False,
) -> Job:
    """A job of one step that writes logits, or none of them with `head` False."""
    lines = step_lines(manifest)
    calls = [_call(lines.layers)]
    if head:
        calls += [_call(lines.norm), _call(lines.head(logits=True, last_only=last_only))]
    rows = rows_commands(segments, precision)
    return [model_command(manifest), *rows, *calls, pack(Opcode.HALT, {})]
