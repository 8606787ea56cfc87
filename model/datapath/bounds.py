"""How large the exact integers of a product can become, and which products are refused.

    |A_n| <= max_k * 255 * 2^(g + f) * 2 (2^(p_max - 1) - 1)
    |I_n| <= 64    * 255 * 2^g       * 2 (2^(p_max - 1) - 1)

(p_max bits of a number, g guard bits of the aligner, f of the accumulator; a midpoint at
p < p_max stays below both.) A product with a K beyond its bound is refused, never wrapped.

Contract: section 7.
"""

from __future__ import annotations

from model.formats.checks import check_int
from model.formats.constants import P_FULL_MAX, P_MIN_STUDY, SIGNIFICAND_BITS, TILE_K

#: Most guard bits of the aligner and of the accumulator that the model computes with.
GUARD_BITS_MAX = 16

#: The model accumulates in 64-bit integers and rounds them with one bit to spare.
MODEL_BITS = 63


def check_guard_bits(align_guard_bits: object, acc_guard_bits: object) -> tuple[int, int]:
    """Returns (g, f), both ints in 0..16; TypeError or ValueError otherwise."""
    return (
        check_int("align_guard_bits", align_guard_bits, 0, GUARD_BITS_MAX),
        check_int("acc_guard_bits", acc_guard_bits, 0, GUARD_BITS_MAX),
    )


def acc_bound(max_k: int, p_max: int, g: int, f: int) -> int:
    """Largest |A_n| of a product over `max_k` reduction indices.

    Args:
        max_k: most reduction indices of one output.
        p_max: bits of a number, its sign included.
        g: guard bits of the aligner.
        f: guard bits of the accumulator.
    """
    check_int("max_k", max_k, 1, 1 << 62)
    check_int("p_max", p_max, P_MIN_STUDY, P_FULL_MAX)
    check_guard_bits(g, f)
    aligned = ((1 << SIGNIFICAND_BITS) - 1) << g
    return max_k * (aligned << f) * 2 * ((1 << (p_max - 1)) - 1)


def acc_bits(max_k: int, p_max: int, g: int, f: int) -> int:
    """Bits of a signed accumulator that holds every |A_n| of `acc_bound`."""
    return acc_bound(max_k, p_max, g, f).bit_length() + 1


def tile_sum_bits(p_max: int, g: int) -> int:
    """Bits of a signed tile sum I_n."""
    return acc_bits(TILE_K, p_max, g, 0)


def lut_entry_bits(g: int, mu: int = 4) -> int:
    """Bits of a signed LUT entry T(v), a signed sum of `mu` aligned activations."""
    check_int("align_guard_bits", g, 0, GUARD_BITS_MAX)
    return (mu * (((1 << SIGNIFICAND_BITS) - 1) << g)).bit_length() + 1


def largest_k(p_max: int, g: int, f: int, *, literal_midpoint: bool = False) -> int:
    """The largest K whose accumulator fits the model's 63 bits.

    Args:
        p_max, g, f: as in `acc_bound`.
        literal_midpoint: also at p = p_max a weight may be 2q + 1, half a unit above the bound.
    """
    each = acc_bound(1, p_max, g, f)
    if literal_midpoint:
        each += ((1 << SIGNIFICAND_BITS) - 1) << (g + f)
    return ((1 << (MODEL_BITS - 1)) - 1) // each


def check_k(k: int, p: int, g: int, f: int, max_k: int | None = None) -> None:
    """Refuses a product over `k` reduction indices that a config or the model cannot hold.

    Raises:
        ValueError: k is above `max_k`, or its accumulator above 63 bits.
    """
    if max_k is not None and k > max_k:
        raise ValueError(f"K must be at most max_k = {max_k}, not {k}")
    limit = largest_k(p, g, f)
    if k > limit:
        raise ValueError(
            f"K must be at most {limit} for a {MODEL_BITS}-bit accumulator at p {p}, "
            f"align_guard_bits {g} and acc_guard_bits {f}, not {k}",
        )
