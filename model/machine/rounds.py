"""ROUND: drafting and verification, whole on the chip.

The steps are those of "A round" in docs/chip.md, in that order.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from typing import Protocol

from model.formats import plt_layout
from model.formats.commands import END_IDS, TRACE_LINES, Region, Status
from model.formats.registers import pack
from model.lm.precision import Precision
from model.machine.checks import check_list, need, precision_of
from model.machine.encode import Segment
from model.machine.memory import Memory
from model.machine.state import Sequence, State
from model.machine.trace import Entry

Fields = Mapping[str, int]


class Runner(Protocol):
    """What a round needs of the machine."""

    state: State
    memory: Memory
    plt: list[int]
    trace_next: int
    events: Counter[str]

    def run_list(self, fields: Fields) -> Iterator[None]:
        """Runs the list of a CALL or ROUND on the rows."""

    def token_at(self, sequence: int, position: int) -> int:
        """A token of TOKENS; Fault where it is none of the vocabulary."""

    def put_tokens(self, sequence: int, position: int, tokens: list[int]) -> None:
        """Writes tokens to TOKENS."""


def state_word(sequence: Sequence) -> int:
    """The bits of STATE."""
    return pack("STATE", live=sequence.live, end=sequence.end, limit=sequence.limited)


def run_rounds(machine: Runner, fields: Fields) -> Iterator[None]:
    """Runs a ROUND command; yields before each command of its lists."""
    state = machine.state
    need(fields["end_ids"] <= END_IDS, Status.TOKEN, f"{fields['end_ids']} end_ids")
    check_list(fields, machine.memory)
    live = state.live
    for s in live:
        state.sequences[s].pending = machine.token_at(s, state.sequences[s].length)
    if fields["trace"]:
        machine.trace_next = fields["trace_entry"]
    done = 0
    while state.live and (fields["rounds"] == 0 or done < fields["rounds"]):
        yield from _round(machine, fields, done)
        done += 1
    state.set_rows([], [])


def _round(machine: Runner, fields: Fields, number: int) -> Iterator[None]:
    state, live = machine.state, machine.state.live
    total = sum(state.sequences[s].length for s in live)
    word = fields["precision"]
    if not plt_layout.unpack(word)["valid"]:
        need(word == 0, Status.PRECISION, f"word {word:#010x}")
        word = machine.plt[plt_layout.index(max(total, 1))]
    draft, gamma = precision_of(word, state.the_model.p_full)
    if fields["trace"]:
        machine.memory.check(
            Region.TRACE, machine.trace_next * TRACE_LINES, len(live) * TRACE_LINES
        )
    if fields["gamma_limit"]:
        gamma = min(gamma, fields["gamma_limit"])
    gamma = min(gamma, state.shape.t_m // len(live) - 1)
    gammas = {s: min(gamma, state.sequences[s].limit - state.sequences[s].length - 2) for s in live}
    drafted: dict[int, list[int]] = {s: [] for s in live}
    for step in range(max(gammas.values())):
        segments, tokens = [], []
        for s in live:
            if step < gammas[s]:
                segments.append(Segment(s, state.sequences[s].length + step, 1))
                tokens.append(drafted[s][-1] if step else state.sequences[s].pending)
        best = yield from _step(machine, fields, draft, segments, tokens)
        for segment, token in zip(segments, best, strict=True):
            drafted[segment.sequence].append(token)
    segments, tokens = [], []
    for s in live:
        segments.append(Segment(s, state.sequences[s].length, gammas[s] + 1))
        tokens += [state.sequences[s].pending, *drafted[s]]
    full = Precision.full(state.the_model.p_full)
    best = yield from _step(machine, fields, full, segments, tokens)
    first = 0
    for s in live:
        targets = best[first : first + gammas[s] + 1]
        first += gammas[s] + 1
        entry = _judge(machine, fields, s, drafted[s], targets)
        if fields["trace"]:
            named = {"round": number, "word": word, "total": total}
            content = Entry({**named, **entry}, tuple(drafted[s])).pack()
            place = machine.trace_next * len(content)
            machine.memory.write("WRITE_TRACE", Region.TRACE, place, content)
            machine.trace_next += 1
    machine.events["ROUNDS"] += 1


def _step(
    machine: Runner,
    fields: Fields,
    precision: Precision,
    segments: list[Segment],
    tokens: list[int],
) -> Generator[None, None, list[int]]:
    """Runs the list on rows; returns their argmaxes."""
    state = machine.state
    state.precision = precision
    state.set_rows(segments, tokens)
    yield from machine.run_list(fields)
    machine.events["STEPS"] += 1
    best = [token for token in state.argmax if token is not None]
    need(len(best) == len(tokens), Status.ROWS, "the list has no HEAD of all rows")
    return best


def _judge(
    machine: Runner, fields: Fields, s: int, drafted: list[int], targets: list[int]
) -> dict[str, int]:
    """Accepts drafted tokens, commits them, and ends the sequence where it must end."""
    sequence = machine.state.sequences[s]
    accepted = 0
    while accepted < len(drafted) and drafted[accepted] == targets[accepted]:
        accepted += 1
    new = targets[: accepted + 1]
    length = sequence.length
    machine.put_tokens(s, length + 1, new)
    sequence.length += len(new)
    sequence.pending = new[-1]
    ends = [fields[f"end_id_{i}"] for i in range(fields["end_ids"])]
    found = next((i for i, token in enumerate(new) if token in ends), None)
    emitted = len(new) if found is None else found + 1
    sequence.count = length + 1 + emitted
    sequence.end = found is not None
    sequence.limited = found is None and sequence.count >= sequence.limit
    sequence.live = not (sequence.end or sequence.limited)
    machine.events["DRAFTED"] += len(drafted)
    machine.events["ACCEPTED"] += accepted
    return {
        "sequence": s,
        "length": length,
        "drafted": len(drafted),
        "accepted": accepted,
        "token": new[-1],
        "emitted": emitted,
        "state": state_word(sequence),
    }


def words(tokens: list[int]) -> bytes:
    """Tokens as memory holds them."""
    return struct.pack(f"<{len(tokens)}I", *tokens)
