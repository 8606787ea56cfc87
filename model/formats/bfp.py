"""Block floating point: groups of values with one exponent, signs and aligned magnitudes.

A group is `group` (64) neighbouring values along one dimension; in a weight of shape (K, N)
that is the output dimension N, because the 64 lanes that read one look-up table share k and
so must share the exponent of k. A last group may be shorter; it has its own exponent.

With F = p_full - 9 and E the largest effective exponent of the non-zero members,

    magnitude = (significand << F) >> (E - e)        truncated, or to nearest (ties to even)
    value     = (-1)^sign * magnitude * 2^(E - 134 - F)

An all-zero group has E = 0. A p-bit load keeps the top p - 1 of the p_full - 1 magnitude bits,
q = magnitude >> (p_full - p), and stands for

    truncate:  q * 2^(p_full - p)                    the paper's
    midpoint:  (q + 1/2) * 2^(p_full - p)            the middle of what was cut off

At p = p_full both are the exact value.

Contract: sections 2, 3 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from model.formats.bf16 import fields, to_bf16
from model.formats.checks import (
    at,
    check_choice,
    check_int,
    check_integers,
    check_p,
    check_p_full,
    check_tensor,
    first_index,
)
from model.formats.constants import EXPONENT_MAX, EXPONENT_OFFSET, GROUP, P_FULL_MIN

ROUNDINGS = ("truncate", "nearest")
RECONSTRUCTIONS = ("truncate", "midpoint")

_PIECE_ELEMENTS = 1 << 16


def partial_load(magnitudes: Tensor, p_full: int, p: int) -> Tensor:
    """The top p - 1 bits of magnitudes of p_full - 1 bits: q = magnitude >> (p_full - p)."""
    return magnitudes >> (check_p_full(p_full) - check_p(p, p_full))


def is_midpoint(reconstruct: str, p: int, p_full: int) -> bool:
    """Whether a p-bit load stands for the middle of its interval.

    At p = p_full nothing is cut off, and "midpoint" means the exact value like "truncate".
    """
    check_choice("reconstruct", reconstruct, RECONSTRUCTIONS)
    return reconstruct == "midpoint" and p < p_full


@dataclass(frozen=True, eq=False)
class Bfp:
    """Values in block floating point. The tensors must not be changed in place.

    The constructor checks types and shapes; `Bfp.from_parts` checks the contents as well and
    is the way in for parts that were stored. `quantize` makes one from floats.

    Attributes:
        exponents: uint8, the shape of the values with `group_dim` shrunk to ceil(n / group):
            the shared exponents, 1..254, 0 for an all-zero group.
        signs: uint8, the shape of the values: 1 for negative.
        magnitudes: int16, the shape of the values: 0..2^(p_full - 1) - 1.
        group_dim: dimension along which groups run, 0..rank - 1.
        group: values of a group.
        p_full: bits of a number, its sign included: 9..16.
    """

    exponents: Tensor
    signs: Tensor
    magnitudes: Tensor
    group_dim: int
    group: int = GROUP
    p_full: int = P_FULL_MIN

    def __post_init__(self) -> None:
        check_p_full(self.p_full)
        check_int("group", self.group, 1, 1 << 31)
        for name, dtype in (
            ("exponents", torch.uint8),
            ("signs", torch.uint8),
            ("magnitudes", torch.int16),
        ):
            given = check_tensor(name, getattr(self, name)).dtype
            if given != dtype:
                raise TypeError(f"{name} must be {dtype}, not {given}")
        if self.magnitudes.dim() == 0:
            raise ValueError("magnitudes must have at least one dimension, not none")
        check_int("group_dim", self.group_dim, 0, self.magnitudes.dim() - 1)
        if self.signs.shape != self.magnitudes.shape:
            raise ValueError(
                f"signs must have the shape of magnitudes, {tuple(self.magnitudes.shape)}, "
                f"not {tuple(self.signs.shape)}",
            )
        expected = group_shape(self.magnitudes.shape, self.group_dim, self.group)
        if tuple(self.exponents.shape) != expected:
            raise ValueError(
                f"exponents must have shape {expected} (one for {self.group} values along "
                f"dimension {self.group_dim}), not {tuple(self.exponents.shape)}",
            )

    @staticmethod
    def from_parts(
        exponents: Tensor,
        signs: Tensor,
        magnitudes: Tensor,
        *,
        group_dim: int = -1,
        group: int = GROUP,
        p_full: int = P_FULL_MIN,
    ) -> Bfp:
        """A Bfp of stored parts, in any integer types.

        Args:
            exponents: 0..254, shape as in `Bfp.exponents`.
            signs: 0 or 1, shape of the values.
            magnitudes: 0..2^(p_full - 1) - 1, shape of the values; 0 where the exponent is 0.
            group_dim: may count from the end.

        Raises:
            TypeError: a part is not a tensor of integers.
            ValueError: an element out of range or a shape that does not fit, by name and index.
        """
        check_p_full(p_full)
        check_integers("exponents", exponents, 0, EXPONENT_MAX)
        check_integers("signs", signs, 0, 1)
        check_integers("magnitudes", magnitudes, 0, (1 << (p_full - 1)) - 1)
        bfp = Bfp(
            exponents=exponents.to(torch.uint8),
            signs=signs.to(torch.uint8),
            magnitudes=magnitudes.to(torch.int16),
            group_dim=_positive_dim(group_dim, magnitudes.dim()),
            group=group,
            p_full=p_full,
        )
        dead = (bfp.spread(bfp.exponents) == 0) & ((bfp.magnitudes != 0) | (bfp.signs != 0))
        if bool(dead.any()):
            index = first_index(dead)
            raise ValueError(
                f"{at('magnitudes', index)} and its sign must be 0 in a group of exponent 0, "
                f"not {int(bfp.magnitudes[index])} and {int(bfp.signs[index])}",
            )
        return bfp

    @property
    def shape(self) -> torch.Size:
        """Shape of the values."""
        return self.magnitudes.shape

    @property
    def extra_bits(self) -> int:
        """F, the magnitude bits below those of a BF16 significand: 0 for BFP9, 7 for BFP16."""
        return self.p_full - P_FULL_MIN

    def spread(self, groups: Tensor) -> Tensor:
        """Values of groups, of the exponents' shape, given to every member: the values' shape."""
        spread = groups.repeat_interleave(self.group, self.group_dim)
        return spread.narrow(self.group_dim, 0, self.shape[self.group_dim])

    def load(self, p: int) -> Tensor:
        """Magnitudes of a p-bit load, q = magnitude >> (p_full - p): int16, values' shape."""
        return partial_load(self.magnitudes, self.p_full, p)

    def dequantize(self, p: int | None = None, reconstruct: str = "truncate") -> Tensor:
        """The values that a p-bit load stands for.

        Exact in float32: in units of 2^(E - 134 - F) every value is an integer of at most 15
        bits (a midpoint is one too, since a bit was cut off), and the smallest unit, 2^-140, is
        a multiple of the smallest subnormal, 2^-149; the largest value is below 2^128.

        Args:
            p: bits of the load, 2..p_full; all by default.
            reconstruct: "truncate" or "midpoint".

        Returns:
            float32, the values' shape; an exact zero in a live group reads as +1/2 of the last
            bit under "midpoint", and an all-zero group as 0 under both.

        Raises:
            TypeError, ValueError: p or reconstruct is none of these.
        """
        p = self.p_full if p is None else check_p(p, self.p_full)
        values = self.load(p).to(torch.float32)
        if is_midpoint(reconstruct, p, self.p_full):
            values.add_(0.5)
        unit = EXPONENT_OFFSET + self.extra_bits - (self.p_full - p)
        units = pow2(self.exponents.to(torch.int64) - unit).masked_fill_(self.exponents == 0, 0)
        return values.mul_(1 - 2 * self.signs.to(torch.float32)).mul_(self.spread(units.float()))


def quantize(
    values: Tensor,
    *,
    group_dim: int = -1,
    group: int = GROUP,
    p_full: int = P_FULL_MIN,
    rounding: str = "truncate",
) -> Bfp:
    """Quantises floats to BFP.

    Args:
        values: bfloat16, or float32 or float16, which are first rounded once to BF16; any rank
            from 1. A weight (K, N) has its groups along N, the default.
        group_dim: dimension along which groups run; may count from the end.
        group: values of a group; a last group may be shorter.
        p_full: 9..16: 1 sign and p_full - 1 magnitude bits.
        rounding: "truncate" (the paper's, and the hardware's), or "nearest" (ties to even),
            for weights converted offline only.

    Returns:
        A Bfp of the same shape. Zeros have sign 0; other values keep their sign, also where the
        magnitude is shifted out. Quantising `dequantize()` again gives the same exponents and
        magnitudes, and the same signs where the magnitude is not 0.

    Raises:
        TypeError: values or an argument of another type.
        ValueError: Inf, NaN or a value that rounds to Inf, by index; an argument out of range.
    """
    check_tensor("values", values)
    check_int("group", group, 1, 1 << 31)
    extra = check_p_full(p_full) - P_FULL_MIN
    check_choice("rounding", rounding, ROUNDINGS)
    dim = _positive_dim(group_dim, values.dim())
    runs = to_bf16(values).movedim(dim, -1)
    shape, n = runs.shape[:-1], runs.shape[-1]
    runs = runs.reshape(shape.numel(), n)
    device = runs.device
    exponents = torch.empty(len(runs), -(-n // group), dtype=torch.uint8, device=device)
    signs = torch.empty(runs.shape, dtype=torch.uint8, device=device)
    magnitudes = torch.empty(runs.shape, dtype=torch.int16, device=device)
    # A piece at a time, so that the integers of one stay in the cache.
    step = max(1, _PIECE_ELEMENTS // max(n, 1))
    for first in range(0, len(runs), step):
        piece = slice(first, first + step)
        exponents[piece], signs[piece], magnitudes[piece] = _quantize_runs(
            runs[piece], group, extra, rounding
        )

    def restored(part: Tensor) -> Tensor:
        return part.reshape(*shape, part.shape[-1]).movedim(-1, dim).contiguous()

    return Bfp(
        restored(exponents), restored(signs), restored(magnitudes), dim, group=group, p_full=p_full
    )


def _quantize_runs(
    runs: Tensor, group: int, extra: int, rounding: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Exponents, signs and magnitudes (int32) of BF16 runs (R, n) with groups along n."""
    sign, significand, exponent, _ = fields(runs)
    alive = significand != 0
    n = runs.shape[-1]
    groups = -(-n // group)
    padded = torch.nn.functional.pad(exponent * alive, (0, groups * group - n))
    # An explicit shape: -1 could not be inferred for a tensor without elements.
    exponents = padded.reshape(len(runs), groups, group).amax(-1)
    spread = exponents.repeat_interleave(group, -1)[:, :n]
    shift = spread.sub(exponent).clamp_(0, 31)  # 15 bits at most: 31 leaves nothing
    wide = significand << extra
    magnitudes = wide >> shift
    if rounding == "nearest":
        # The first dropped bit is the half; more than that, or an odd quotient, rounds up.
        half = (torch.ones_like(shift) << shift) >> 1
        half.masked_fill_(shift == 31, 1 << 30)  # 1 << 31 is negative
        rest = wide - (magnitudes << shift.clamp_max(16))
        up = (rest > half) | ((rest == half) & (shift > 0) & (magnitudes & 1 == 1))
        magnitudes = magnitudes + up
    return exponents, sign * alive, magnitudes


def group_shape(shape: torch.Size, group_dim: int, group: int) -> tuple[int, ...]:
    """Shape of the exponents of values of `shape`."""
    return tuple(-(-size // group) if dim == group_dim else size for dim, size in enumerate(shape))


def pow2(exponents: Tensor) -> Tensor:
    """2^exponents as float64, exact for int64 exponents in -1022..1023."""
    return ((exponents + 1023) << 52).view(torch.float64)


def _positive_dim(group_dim: int, rank: int) -> int:
    if rank == 0:
        raise ValueError("values must have at least one dimension, not none")
    return check_int("group_dim", group_dim, -rank, rank - 1) % rank
