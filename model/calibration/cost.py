"""The cost model of the paper: speedup of a draft from its acceptance rate and what it loads.

Names are those of the paper's section III and of docs/calibration.md:

    alpha     share of tested draft tokens that are accepted
    gamma     drafted tokens a round
    Omega     expected tokens of a round: 1 + alpha + .. + alpha^gamma
    T_T, T_D  time of a target pass over one position, of a draft pass
    T_V       time of the pass that verifies gamma + 1 positions; t_v = T_V / T_T
    B S       batch times sequence length: cached tokens of all sequences
    R_w, R_kv shares of weights and cache in what a pass at one precision for both loads

Time is taken to be proportional to the bits loaded (the memory-bound regime). The functions are
plain arithmetic: given Fractions they return Fractions. `model.calibration.machine` counts what
this project's machine loads beyond that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, TypeVar

from model.formats.checks import check_int, check_p_full
from model.formats.constants import GROUP
from model.formats.plt_layout import GAMMA_MAX
from model.lm.config import ModelConfig, parameters
from model.lm.footprint import HALF, plain_kv_numbers
from model.lm.precision import Precision

#: Bits that an exponent adds to each number of its group, where exponents are counted.
EXPONENT_SHARE = Fraction(8, GROUP)

#: Largest B S that is taken: beyond any machine, a mistaken argument's.
LONGEST = 1 << 40

Number = TypeVar("Number", float, Fraction)


def check_number(
    name: str, value: object, low: float, high: float, *, above: bool = False
) -> float:
    """Returns `value`, a number in low..high; `above` leaves `low` itself out.

    Raises:
        TypeError: no int, float or Fraction (a bool is none).
        ValueError: outside, or NaN.
    """
    if not isinstance(value, (int, float, Fraction)) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, not {value!r}")
    inside = (low < value if above else low <= value) and value <= high
    if not inside or math.isinf(value):
        if high == math.inf:
            allowed = f"finite and {'above' if above else 'at least'} {low:g}"
        else:
            allowed = f"in {'(' if above else '['}{low:g}, {high:g}]"
        raise ValueError(f"{name} must be {allowed}, not {value}")
    return value  # type: ignore[return-value]  # a Fraction passes for a float


def check_total(total_length: object) -> int:
    """Returns `total_length`, an int in 1..2^40; TypeError or ValueError otherwise."""
    return check_int("total_length", total_length, 1, LONGEST)


def omega(gamma: int, alpha: Number) -> Number:
    """Expected tokens of a round, (1 - alpha^(gamma+1)) / (1 - alpha); gamma + 1 at alpha 1.

    It is added up power by power, which is the same and loses nothing near alpha 1.

    Args:
        gamma: 0..255 (0: no draft, one token a round).
        alpha: in 0..1.

    Raises:
        TypeError, ValueError: another argument, by name.
    """
    check_int("gamma", gamma, 0, GAMMA_MAX)
    check_number("alpha", alpha, 0, 1)
    total = power = alpha**0
    for _ in range(gamma):
        power = power * alpha
        total = total + power
    return total


def relative_time(gamma: int, alpha: Number, t_d: Number, t_v: Number) -> Number:
    """Eq. 1: T_avg / T_T, time of a token over that of a target pass.

    Args:
        gamma, alpha: as in `omega`.
        t_d, t_v: T_D / T_T and T_V / T_T, above 0.

    Raises:
        TypeError, ValueError: an argument, by name.
    """
    check_number("t_d", t_d, 0, math.inf, above=True)
    check_number("t_v", t_v, 0, math.inf, above=True)
    return (gamma * t_d + t_v) / omega(gamma, alpha)


def mem_w(config: ModelConfig, bits: float) -> float:
    """Eq. 2: MEM_W = N bits / 8 bytes, N all parameters, the embedding counted once where tied."""
    return parameters(config) * check_number("bits", bits, 0, 64, above=True) / 8


def mem_kv(config: ModelConfig, total_length: int, bits: float) -> float:
    """Eq. 3: MEM_KV = 2 L H_kv d_h (B S) bits / 8 bytes.

    Args:
        config: the model's shape.
        total_length: B S, cached tokens of all sequences.
        bits: of a number.
    """
    numbers = plain_kv_numbers(config, check_total(total_length))
    return numbers * check_number("bits", bits, 0, 64, above=True) / 8


def r_kv(config: ModelConfig, total_length: int) -> Fraction:
    """R_kv = MEM_KV / (MEM_W + MEM_KV), exactly; R_w = 1 - R_kv."""
    kv = plain_kv_numbers(config, check_total(total_length))
    return Fraction(kv, parameters(config) + kv)


def loaded(p_w: Number, p_kv: Number, share_kv: Number) -> Number:
    """p_w R_w + p_kv R_kv: mean bits of a number that a pass loads."""
    return p_w * (1 - share_kv) + p_kv * share_kv


def relative_draft(p_w: Number, p_kv: Number, share_kv: Number, p_full: Number) -> Number:
    """Eq. 4: T_D / T_T = (p_w R_w + p_kv R_kv) / p_full.

    Args:
        p_w, p_kv: bits of the draft's weights and cache.
        share_kv: R_kv, 0..1.
        p_full: bits of the target.

    Raises:
        TypeError, ValueError: an argument, by name.
    """
    check_number("share_kv", share_kv, 0, 1)
    check_number("p_full", p_full, 0, 64, above=True)
    for name, p in (("p_w", p_w), ("p_kv", p_kv)):
        check_number(name, p, 0, float(p_full), above=True)
    return loaded(p_w, p_kv, share_kv) / p_full


def speedup(
    gamma: int,
    alpha: Number,
    p_w: Number,
    p_kv: Number,
    share_kv: Number,
    p_full: Number,
    t_v: Number,
) -> Number:
    """Modelled speedup over 16-bit autoregressive decoding.

    S = 16 Omega / (gamma (p_w R_w + p_kv R_kv) + t_v p_full): Eqs. 1 and 4, and a 16-bit pass that
    takes 16 / p_full of a target pass.

    Args:
        gamma, alpha: as in `omega`.
        p_w, p_kv, share_kv, p_full: as in `relative_draft`.
        t_v: T_V / T_T.

    Raises:
        TypeError, ValueError: an argument, by name.
    """
    t_d = relative_draft(p_w, p_kv, share_kv, p_full)
    return HALF / (p_full * relative_time(gamma, alpha, t_d, t_v))


class Cost(Protocol):
    """What the search asks of a cost model of one model's shape."""

    @property
    def config(self) -> ModelConfig:
        """The model's shape."""

    @property
    def p_full(self) -> int:
        """Bits of the target."""

    @property
    def name(self) -> str:
        """As commands and files write it."""

    def speedup(
        self, precision: Precision, gamma: int, alpha: float, batch: int, sequence: int
    ) -> float:
        """Modelled speedup over 16-bit autoregressive decoding; gamma 0: the target alone."""


@dataclass(frozen=True)
class PaperCost:
    """The paper's cost model: only the product of batch and sequence matters.

    Attributes:
        config: the model's shape.
        p_full: bits of the target, 9..16.
        t_v: T_V / T_T; 1 where verification is memory-bound and reads everything once.
        exponents: count stored bits, p + 8/64, and not p.

    Raises:
        TypeError, ValueError: an attribute, by name.
    """

    config: ModelConfig
    p_full: int = 9
    t_v: float = 1.0
    exponents: bool = False

    def __post_init__(self) -> None:
        check_config(self.config)
        check_p_full(self.p_full)
        check_number("t_v", self.t_v, 0, math.inf, above=True)
        if not isinstance(self.exponents, bool):
            raise TypeError(f"exponents must be a bool, not {self.exponents!r}")

    @property
    def name(self) -> str:
        """As commands and files write it."""
        stored = ", exponents counted" if self.exponents else ""
        return f"paper, T_V = {self.t_v:g} T_T{stored}"

    def bits(self, p: int) -> float:
        """Bits of a number at precision p."""
        return float(p + EXPONENT_SHARE) if self.exponents else float(p)

    def speedup(
        self, precision: Precision, gamma: int, alpha: float, batch: int, sequence: int
    ) -> float:
        """Modelled speedup over 16-bit autoregressive decoding."""
        exact = precision.exact(self.p_full)
        return speedup(
            gamma,
            float(alpha),
            self.bits(exact.w.p),
            self.bits(exact.kv.p),
            float(r_kv(self.config, batch * sequence)),
            self.bits(self.p_full),
            1.0 if gamma == 0 else float(self.t_v),
        )


def check_config(config: object) -> ModelConfig:
    """Returns `config`, a ModelConfig; TypeError otherwise."""
    if not isinstance(config, ModelConfig):
        raise TypeError(f"config must be a ModelConfig, not {config!r}")
    return config


def mean(values: Iterable[float]) -> float:
    """The mean of at least one number, every one with the same weight."""
    given = list(values)
    return math.fsum(given) / len(given)
