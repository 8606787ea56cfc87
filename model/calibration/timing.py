"""Times of passes on this machine, and which factor keeps a draft from paying.

    T_T      a target pass that feeds one token a sequence
    T_D      a draft pass that feeds one token
    T_V(g)   a target pass that feeds g + 1 tokens;  t_v = T_V / T_T

Passes are timed at a fixed committed length, each kind in turn, round after round, and the median
of each is taken: machines are shared, and a drift meets all kinds alike.

Sources: the BS-Spec paper, Eq. 1; "Lossless but Not Free" (2026) for the decomposition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from model.calibration.cost import omega, relative_time
from model.decoding.drafts.base import Draft

#: Rounds that are timed at least.
ROUNDS = 5


@dataclass(frozen=True)
class PassTimes:
    """Seconds of passes over one sequence.

    Attributes:
        target: T_T.
        draft: T_D; None where there is no draft.
        verify: T_V(gamma), by gamma.
    """

    target: float
    draft: float | None
    verify: dict[int, float]

    def t_v(self, gamma: int) -> float:
        """T_V(gamma) / T_T: 1 where verification is as quick as one token, gamma + 1 where it is
        not parallel at all."""
        return self.verify[gamma] / self.target

    @property
    def t_d(self) -> float:
        """T_D / T_T; 0 where there is no draft."""
        return 0.0 if self.draft is None else self.draft / self.target


def _synchronise(device: str) -> None:
    kind = torch.device(device).type
    if kind == "cuda":
        torch.cuda.synchronize()
    elif kind == "mps":
        torch.mps.synchronize()


def time_passes(
    draft: Draft,
    prompt: Sequence[int],
    gammas: Sequence[int],
    *,
    device: str = "cpu",
    rounds: int = ROUNDS,
) -> PassTimes:
    """Times target, draft and verifying passes behind a committed prompt.

    Args:
        draft: begun anew.
        prompt: committed before the clock starts; its last token is what passes feed.
        gammas: verifying passes to time.
        device: waited for before the clock is read.
        rounds: of each kind, after one that is not counted.
    """
    draft.start(1, len(prompt) + max(gammas) + 1)
    draft.verify([prompt], last_only=True)
    draft.commit([prompt])
    token = prompt[-1]

    def drafting() -> None:
        draft.draft([[token]])
        draft.commit([[]])  # what was drafted is forgotten, so each pass stands at one length

    kinds: dict[str | int, Callable[[], object]] = {"target": lambda: draft.verify([[token]])}
    if draft.drafts:
        kinds["draft"] = drafting
    for gamma in gammas:
        kinds[gamma] = lambda count=gamma + 1: draft.verify([[token] * count])  # type: ignore[misc]
    taken: dict[str | int, list[float]] = {kind: [] for kind in kinds}
    for turn in range(rounds + 1):
        for kind, call in kinds.items():
            _synchronise(device)
            start = time.perf_counter()
            call()
            _synchronise(device)
            if turn:
                taken[kind].append(time.perf_counter() - start)
    return PassTimes(
        target=median(taken["target"]),
        draft=median(taken["draft"]) if draft.drafts else None,
        verify={gamma: median(taken[gamma]) for gamma in gammas},
    )


#: Factors of Eq. 1, and what each would be at its best.
FACTORS = ("draft cost", "acceptance", "verification")


@dataclass(frozen=True)
class Verdict:
    """Whether a draft pays at a gamma, and what matters most.

    Attributes:
        predicted: speedup of Eq. 1 from the measured parts.
        without: the same with one factor at its best: a draft that costs nothing, one that is
            always right, a verification that costs one token's pass.
        decides: the factor whose best would help most.
    """

    predicted: float
    without: dict[str, float]
    decides: str


def judge_factors(times: PassTimes, gamma: int, alpha: float) -> Verdict:
    """Eq. 1 with each factor in turn at its best.

    Args:
        times: measured.
        gamma: one of the timed ones.
        alpha: `alpha_cond` at this gamma.
    """
    t_d, t_v = times.t_d, times.t_v(gamma)

    def gain(alpha: float, t_d: float, t_v: float) -> float:
        return float(1 / relative_time(gamma, alpha, t_d, t_v))

    without = {
        "draft cost": omega(gamma, alpha) / t_v,
        "acceptance": gain(1.0, t_d, t_v),
        "verification": gain(alpha, t_d, min(t_v, 1.0)),
    }
    return Verdict(gain(alpha, t_d, t_v), without, max(without, key=lambda name: without[name]))
