"""The special functions once more: integers and exact fractions, element by element.

Written from the steps of contract section 11, without a tensor and without the model's code; the
entries of the tables are the only thing that is shared, and `test_tables.py` holds those to the
functions that they stand for. Floats are codes (ints).
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

from model.formats.special_tables import SegmentTable, exp2_table, reciprocal_table, rsqrt_table
from tests.model.reference import floor_shift, half_even, power, round_to, split, value

EXP2, RECIP, RSQRT = exp2_table(), reciprocal_table(), rsqrt_table()


def floor(exact: Fraction) -> int:
    return exact.numerator // exact.denominator


def entry(table: SegmentTable, segment: int, step: int, step_bits: int, sign: int) -> int:
    change = floor_shift(table.slopes[segment] * step, step_bits)
    return table.bases[segment] + sign * change


def exp2_fraction(f: int) -> int:
    """2^(f / 65536) in units of 2^-16."""
    return entry(EXP2, f // 1024, f % 1024, 10, 1)


def reciprocal(f: int) -> int:
    """1 / (1 + f / 65536) in units of 2^-17."""
    return entry(RECIP, f // 512, f % 512, 9, -1)


def inverse_root(odd: int, f: int) -> int:
    """((1 + f / 65536) 2^odd)^-1/2 in units of 2^-17."""
    return entry(RSQRT, 64 * odd + f // 1024, f % 1024, 10, -1)


def leading(exact: Fraction) -> int:
    """k with 2^k <= exact < 2^(k + 1)."""
    k = exact.numerator.bit_length() - exact.denominator.bit_length()
    while exact >= power(k + 1):
        k += 1
    while exact < power(k):
        k -= 1
    return k


def significant(exact: Fraction, bits: int) -> Fraction:
    """A positive number (or 0) rounded to some significant bits, ties to even."""
    if exact == 0:
        return exact
    unit = power(leading(exact) - bits + 1)
    return half_even(exact / unit) * unit


def log2_e() -> Fraction:
    with localcontext() as context:
        context.prec = 60
        return Fraction(1 / Decimal(2).ln())


def square_sum(codes: list[int]) -> tuple[int, int]:
    """A and R of a row, R 0 if there is none."""
    running, total = 0, 0
    for first in range(0, len(codes), 64):
        parts = [split(code) for code in codes[first : first + 64]]
        alive = [e for _, sig, e in parts if sig]
        if not alive:
            continue
        x = max(alive)
        s = sum(floor_shift(sig * 256, x - e) ** 2 for _, sig, e in parts if sig)
        if running == 0:
            running = x
        if x > running:
            total = floor_shift(total, 2 * (x - running))
            running = x
        total += floor_shift(s, 2 * (running - x))
    return total, running


def root_of_mean(total: int, running: int, d: int, eps: float) -> Fraction:
    s = significant(total * power(2 * running - 284), 24)
    mean = significant(s * significant(Fraction(1, d), 24), 24)
    z = significant(mean + significant(Fraction(eps), 24), 24)
    k = leading(z)
    f = floor((z / power(k) - 1) * 65536)
    return inverse_root(k % 2, f) * power(-17 - (k - k % 2) // 2)


def norm(codes: list[int], weight: list[int], eps: float) -> list[int]:
    r = root_of_mean(*square_sum(codes), len(codes), eps)
    return [round_to(value(x) * r * value(w), "bf16") for x, w in zip(codes, weight, strict=True)]


def rotated(codes: list[int], cosines: list[int], sines: list[int]) -> list[int]:
    half = len(codes) // 2
    low, high = [value(c) for c in codes[:half]], [value(c) for c in codes[half:]]
    sums = [a * c - b * s for a, b, c, s in zip(low, high, cosines, sines, strict=True)]
    sums += [b * c + a * s for a, b, c, s in zip(low, high, cosines, sines, strict=True)]
    return [round_to(each * power(-14), "bf16") for each in sums]


LOG2_E = significant(log2_e(), 23)


def silu(gate: int, up: int) -> int:
    g = value(gate)
    v = floor(abs(g) * LOG2_E * 65536)
    if v > 126 * 65536:
        e, n = 0, 0
    else:
        n, f = divmod(-v, 65536)
        e = exp2_fraction(f)
    s = reciprocal(min(floor_shift(e, -n), 65535))
    factor = floor_shift(s * e, 16) * power(n - 17) if g < 0 else s * power(-17)
    return round_to(g * factor * value(up), "bf16")


def summed(x: int, y: int) -> int:
    return round_to(value(x) + value(y), "bf16")


def single_value(code: int) -> Fraction:
    """The number of an FP32 code."""
    stored, fraction = (code >> 23) & 255, code & 0x7FFFFF
    sig = fraction + (1 << 23 if stored else 0)
    return (-1) ** (code >> 31) * sig * power(max(stored, 1) - 150)


def score_factor(width: int) -> Fraction:
    """log2(e) / sqrt(width), 18 significant bits."""
    with localcontext() as context:
        context.prec = 60
        exact = Fraction(1 / Decimal(2).ln() / Decimal(width).sqrt())
    return significant(exact, 18)


def fixed_score(code: int, width: int) -> int:
    x = floor(single_value(code) * score_factor(width) * 65536)
    return max(-(2**31 - 1), min(2**31 - 1, x))


def exponential(below: int) -> int:
    """The code of P for x - M in units of 2^-16."""
    n, f = divmod(below, 65536)
    if n < -126:
        return 0
    # 1.16 to 8 bits, the hardware's way: a carry goes into the exponent.
    return (n + 127) * 128 + half_even(Fraction(exp2_fraction(f), 512)) - 128


def attended(code: int, total: int) -> int:
    if total == 0:
        return 0
    k = total.bit_length() - 1
    f = floor((total / power(k) - 1) * 65536)
    return round_to(single_value(code) * reciprocal(f) * power(32 - 17 - k), "bf16")
