"""The search for the best draft: every pair, every gamma, in a fixed order.

Pairs are tried by falling p_w, then falling p_kv, truncated before midpoint (of the weights, then
of the cache), and each with rising gamma. A later one is taken only if its modelled speedup is
strictly higher. So of equals the one with more bits is kept, then the truncated, then the one with
fewer drafted tokens, and the same file gives the same table everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from model.calibration.cost import Cost
from model.formats.checks import check_choice, check_int
from model.formats.plt_layout import GAMMA_MAX
from model.lm.precision import Precision

#: Which drafts a search may take: none with a midpoint, only those with midpoints wherever bits
#: are cut off, or all that were measured.
RECONSTRUCT = ("truncate", "midpoint", "best")


class Best(NamedTuple):
    """A draft and what the cost model says of it.

    Attributes:
        precision: of the draft.
        gamma: drafted tokens a round.
        alpha: its acceptance rate.
        speedup: modelled, over 16-bit autoregressive decoding.
    """

    precision: Precision
    gamma: int
    alpha: float
    speedup: float


def order(precision: Precision) -> tuple[int, int, bool, bool]:
    """The key by which drafts are tried."""
    w, kv = precision.w, precision.kv
    return (-w.p, -kv.p, w.midpoint, kv.midpoint)


def candidates(
    rates: Mapping[Precision, float], reconstruct: str = "truncate", p_full: int = 9
) -> dict[Precision, float]:
    """The drafts that a search may take, in its order.

    Args:
        rates: acceptance by draft.
        reconstruct: one of RECONSTRUCT.
        p_full: bits of the target.

    Raises:
        ValueError: another reconstruct; a draft with more bits than the target; none is left.
    """
    check_choice("reconstruct", reconstruct, RECONSTRUCT)
    kept: dict[Precision, float] = {}
    for pair in sorted(rates, key=order):
        exact = pair.exact(p_full)
        whole = Precision.of(exact.w.p, exact.kv.p, reconstruct) if reconstruct != "best" else exact
        if exact == whole.exact(p_full):
            kept[exact] = rates[pair]
    if not kept:
        raise ValueError(f"no draft of {len(rates)} measured ones is {reconstruct}")
    return kept


def best_draft(
    cost: Cost,
    rates: Mapping[Precision, float],
    gammas: Sequence[int],
    batch: int,
    sequence: int,
) -> Best:
    """The draft with the highest modelled speedup.

    Args:
        cost: the cost model.
        rates: acceptance by draft, as `candidates` gives them.
        gammas: those to try, rising, 1..255.
        batch, sequence: sequences and tokens of each.

    Raises:
        TypeError, ValueError: no draft, no gamma, or a gamma that is none, by name.
    """
    if not rates or not gammas:
        raise ValueError("rates and gammas must not be empty")
    found: Best | None = None
    for precision, alpha in sorted(rates.items(), key=lambda item: order(item[0])):
        for gamma in sorted(gammas):
            check_int("gamma", gamma, 1, GAMMA_MAX)
            speedup = cost.speedup(precision, gamma, alpha, batch, sequence)
            if found is None or speedup > found.speedup:
                found = Best(precision, gamma, alpha, speedup)
    assert found is not None
    return found
