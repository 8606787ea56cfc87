"""Pure functions of speculative sampling. Random numbers are passed in.

Words: `p` is the target's law of the next token, `q` the draft's, `x` a drafted token, `u` a
uniform number in [0, 1).

    accept    x if u q(x) < p(x), strictly: a token with p(x) = 0 is never accepted
    residual  (p - q)+ / sum (p - q)+, the law of the token that replaces a rejected one;
              p itself where nothing is left (p = q)
    bonus     a token from p, when all drafted tokens were accepted

All laws are float64 numpy vectors from one function, `probs`; so acceptance, residual and sampling
speak of the same numbers.

Sources: Leviathan et al., "Fast Inference from Transformers via Speculative Decoding" (2023);
Chen et al., "Accelerating Large Language Model Decoding with Speculative Sampling" (2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from model.datapath.special import argmax
from model.formats.checks import at, check_int


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a token is chosen from logits.

    Attributes:
        temperature: 0 for greedy; logits are divided by it.
        top_k: only the k most likely tokens; 0 for all. Ties at the k-th keep the lower index.
        top_p: only the fewest most likely tokens whose probabilities reach it; 1 for all.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise TypeError(f"{name} must be a number, not {value!r}")
        if not 0.0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be 0 or more, not {self.temperature}")
        check_int("top_k", self.top_k, 0, 1 << 31)
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must be in (0, 1], not {self.top_p}")

    @property
    def greedy(self) -> bool:
        """The most likely token is taken, and no random number."""
        return self.temperature == 0


class Random(Protocol):
    """Where random numbers come from; `numpy.random.Generator` is one."""

    def random(self) -> float:
        """The next number, uniform in [0, 1)."""


def probs(logits: Tensor, sampling: Sampling) -> np.ndarray:
    """The law of the next token: float64 (vocabulary,), summing to 1 up to rounding.

    Greedy gives all weight to the largest logit, the lowest index on a tie.

    Args:
        logits: float32 (vocabulary,).
        sampling: temperature, top-k, top-p, applied in this order.

    Raises:
        ValueError: NaN or +Inf among the logits, or nothing but -Inf, by index.
    """
    if sampling.greedy:
        law = np.zeros(len(logits))
        law[greedy(logits)] = 1.0
        return law
    scores = logits.to(torch.float64).cpu().numpy()
    _check(scores)
    # The maximum comes off first: a tiny temperature must not make infinities of scores.
    with np.errstate(over="ignore"):  # minus infinity, whose law is 0
        law = np.exp((scores - scores.max()) / sampling.temperature)
    if 0 < sampling.top_k < len(law):
        order = np.argsort(-scores, kind="stable")
        law[order[sampling.top_k :]] = 0.0
    law /= law.sum()
    if sampling.top_p < 1:
        order = np.argsort(-law, kind="stable")
        before = np.cumsum(law[order]) - law[order]
        law[order[before >= sampling.top_p]] = 0.0
        law /= law.sum()
    return law


def greedy(logits: Tensor) -> int:
    """The largest logit's index, the lowest on a tie; ValueError for NaN or +Inf, by index."""
    token = int(argmax(logits))
    _check(logits[token : token + 1].cpu().numpy(), token)
    return token


def _check(scores: np.ndarray, first: int = 0) -> None:
    wrong = np.isnan(scores) | (scores == np.inf)
    if wrong.any():
        index = int(wrong.argmax())
        raise ValueError(
            f"{at('logits', (first + index,))} must be a number below +Inf, not {scores[index]}"
        )
    if scores.max() == -np.inf:
        raise ValueError("logits must have a finite member, not -Inf throughout")


def sample(law: np.ndarray, u: float) -> int:
    """The token at u of a law's cumulative sum; never one of probability 0.

    Args:
        law: non-negative weights, not all 0; they need not sum to 1.
        u: in [0, 1).
    """
    cumulative = np.cumsum(law)
    token = int(np.searchsorted(cumulative, u * cumulative[-1], side="right"))
    # u times the total may round up to the total: the last possible token is meant.
    return token if token < len(law) else int(np.flatnonzero(law)[-1])


def accepts(p: np.ndarray, q: np.ndarray, x: int, u: float) -> bool:
    """Whether a drafted token stays: u q(x) < p(x)."""
    return bool(u * q[x] < p[x])


def residual(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Weights (p - q)+ of the token that replaces a rejected one; p where they are all 0."""
    rest = np.maximum(p - q, 0)
    return rest if rest.any() else p


def judge(
    p: list[np.ndarray],
    q: list[np.ndarray],
    drafted: list[int],
    sampling: Sampling,
    random: Random,
) -> tuple[int, int]:
    """Judges the drafted tokens of a round.

    Args:
        p: the target's laws at the drafted positions and the one behind, gamma + 1.
        q: the draft's laws that the tokens were sampled from, gamma.
        drafted: the tokens, gamma.
        sampling: greedy takes no random number.
        random: one number a tested token, and one for the token that follows.

    Returns:
        How many drafted tokens are accepted, and the token that follows them: the replacement of
        the first rejected one, or the bonus.
    """
    for k, x in enumerate(drafted):
        if not accepts(p[k], q[k], x, 0.5 if sampling.greedy else random.random()):
            return k, draw(residual(p[k], q[k]), sampling, random)
    return len(drafted), draw(p[len(drafted)], sampling, random)


def draw(law: np.ndarray, sampling: Sampling, random: Random) -> int:
    """A token of a law; greedy takes no random number."""
    return sample(law, 0.0 if sampling.greedy else random.random())
