"""Acceptance rates by their names, from the rounds of a run.

    alpha_cond        accepted / tested, tested = accepted + rounds that rejected a token
    accept_per_draft  accepted / drafted
    mean_accept_len   1 + accepted / rounds: tokens a round
    accept_at[k]      share of rounds with at least k accepted, k = 1, 2, ..; of the rounds that
                      drafted k or more
    alpha_tv          mean of sum min(p, q) at teacher-forced positions (`model.calibration`)

`alpha_cond` is what the paper tabulates (its Table III). A round that was cut short (by a limit of
tokens or of context) counts with what it drafted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import nan
from typing import Any

from model.decoding.loop import Round


@dataclass(frozen=True)
class Rates:
    """Counts of rounds, and the rates that follow. A rate with nothing to divide by is NaN.

    Attributes:
        rounds: that drafted at least one token.
        drafted, accepted: tokens.
        rejections: rounds that rejected a token.
        reached: reached[k - 1] = rounds with at least k accepted.
        offered: offered[k - 1] = rounds with at least k drafted.
    """

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    rejections: int = 0
    reached: tuple[int, ...] = ()
    offered: tuple[int, ...] = ()

    @staticmethod
    def of(rounds: Iterable[Round]) -> Rates:
        """Counts the rounds that drafted something."""
        counts = [(len(r.drafted), r.accepted) for r in rounds if r.drafted]
        gamma = max((drafted for drafted, _ in counts), default=0)
        steps = range(1, gamma + 1)
        return Rates(
            rounds=len(counts),
            drafted=sum(drafted for drafted, _ in counts),
            accepted=sum(accepted for _, accepted in counts),
            rejections=sum(accepted < drafted for drafted, accepted in counts),
            reached=tuple(sum(accepted >= k for _, accepted in counts) for k in steps),
            offered=tuple(sum(drafted >= k for drafted, _ in counts) for k in steps),
        )

    def __add__(self, other: object) -> Rates:
        """The counts of both."""
        if not isinstance(other, Rates):
            return NotImplemented
        return Rates(
            self.rounds + other.rounds,
            self.drafted + other.drafted,
            self.accepted + other.accepted,
            self.rejections + other.rejections,
            _added(self.reached, other.reached),
            _added(self.offered, other.offered),
        )

    @property
    def tested(self) -> int:
        """Drafted tokens that were judged."""
        return self.accepted + self.rejections

    @property
    def alpha_cond(self) -> float:
        """accepted / tested."""
        return _ratio(self.accepted, self.tested)

    @property
    def accept_per_draft(self) -> float:
        """accepted / drafted."""
        return _ratio(self.accepted, self.drafted)

    @property
    def mean_accept_len(self) -> float:
        """1 + accepted / rounds."""
        return 1 + _ratio(self.accepted, self.rounds)

    @property
    def accept_at(self) -> list[float]:
        """Share of rounds with at least k accepted, of those that drafted k."""
        return [_ratio(r, o) for r, o in zip(self.reached, self.offered, strict=True)]

    def as_json(self) -> dict[str, Any]:
        """Counts and rates under their names; None for a rate that is NaN."""
        return {
            "rounds": self.rounds,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "rejections": self.rejections,
            "reached": list(self.reached),
            "offered": list(self.offered),
            "alpha_cond": _number(self.alpha_cond),
            "accept_per_draft": _number(self.accept_per_draft),
            "mean_accept_len": _number(self.mean_accept_len),
            "accept_at": self.accept_at,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Rates:
        """The counts of `as_json`."""
        return Rates(
            data["rounds"],
            data["drafted"],
            data["accepted"],
            data["rejections"],
            tuple(data["reached"]),
            tuple(data["offered"]),
        )


def _number(rate: float) -> float | None:
    """JSON has no NaN."""
    return None if rate != rate else rate


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else nan


def _added(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    size = max(len(a), len(b))
    padded = [(*x, *([0] * (size - len(x)))) for x in (a, b)]
    return tuple(x + y for x, y in zip(*padded, strict=True))
