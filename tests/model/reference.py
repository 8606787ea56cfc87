"""An independent reference: the arithmetic contract in Python integers and exact fractions.

Written from the contract's sections alone, number by number, without a tensor and without the
model; for tests only. Floats are codes (ints), matrices lists of lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

#: Significand bits and the exponent of the least subnormal, by format.
FORMATS = {"bf16": (8, -133), "fp32": (24, -149)}


def power(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def split(code: int) -> tuple[int, int, int]:
    """Sign, significand with its leading one, effective exponent of a finite BF16 code."""
    sign, stored, fraction = code >> 15, (code >> 7) & 255, code & 127
    assert stored != 255
    if stored == 0:
        return sign, fraction, 1
    return sign, 128 + fraction, stored


def value(code: int) -> Fraction:
    sign, significand, exponent = split(code)
    return (-1) ** sign * significand * power(exponent - 134)


def half_even(exact: Fraction) -> int:
    """The nearest integer of a non-negative number, ties to even."""
    below = exact.numerator // exact.denominator
    rest = exact - below
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and below % 2 == 1):
        return below + 1
    return below


def round_to(exact: Fraction, fmt: str) -> int:
    """The code of the number nearest to `exact`, ties to even; overflow gives Inf."""
    bits, least = FORMATS[fmt]
    fraction_bits = bits - 1
    if exact == 0:
        return 0
    sign = 1 if exact < 0 else 0
    size = abs(exact)
    # Start a little below where the unit must be, and climb.
    unit = max(least, size.numerator.bit_length() - size.denominator.bit_length() - bits - 1)
    while size >= power(unit + bits):
        unit += 1
    count = half_even(size / power(unit))
    if count == 1 << bits:  # rounded up to the next power of two
        count, unit = count // 2, unit + 1
    if count < 1 << fraction_bits:
        code = count  # subnormal: unit is the least one
    else:
        stored = unit - least + 1
        code = (stored << fraction_bits) + count - (1 << fraction_bits)
    infinity = 255 << fraction_bits
    return (sign << (8 + fraction_bits)) | min(code, infinity)


@dataclass
class Group:
    exponent: int
    signs: list[int]
    magnitudes: list[int]


def quantize_group(codes: list[int], p_full: int, rounding: str = "truncate") -> Group:
    """Contract section 3."""
    parts = [split(code) for code in codes]
    alive = [exponent for _, significand, exponent in parts if significand != 0]
    shared = max(alive, default=0)
    signs, magnitudes = [], []
    for sign, significand, exponent in parts:
        if significand == 0:
            signs.append(0)
            magnitudes.append(0)
            continue
        exact = significand * 2 ** (p_full - 9) / power(shared - exponent)
        signs.append(sign)
        if rounding == "nearest":
            magnitudes.append(half_even(exact))
        else:
            magnitudes.append(exact.numerator // exact.denominator)
    return Group(shared, signs, magnitudes)


def dequantized(group: Group, p_full: int, p: int, reconstruct: str) -> list[Fraction]:
    """Contract sections 3 and 4."""
    values = []
    for sign, magnitude in zip(group.signs, group.magnitudes, strict=True):
        q = Fraction(magnitude // 2 ** (p_full - p))
        if reconstruct == "midpoint" and p < p_full and group.exponent != 0:
            q += Fraction(1, 2)
        scale = power(p_full - p) * power(group.exponent - 134 - (p_full - 9))
        values.append((-1) ** sign * q * scale)
    return values


@dataclass
class Matrix:
    """A quantised (K, N) weight: exponents [k][group], signs and magnitudes [k][n]."""

    exponents: list[list[int]]
    signs: list[list[int]]
    magnitudes: list[list[int]]


def quantize_matrix(codes: list[list[int]], p_full: int, rounding: str = "truncate") -> Matrix:
    exponents, signs, magnitudes = [], [], []
    for row in codes:
        groups = [
            quantize_group(row[first : first + 64], p_full, rounding)
            for first in range(0, len(row), 64)
        ]
        exponents.append([group.exponent for group in groups])
        signs.append([sign for group in groups for sign in group.signs])
        magnitudes.append([magnitude for group in groups for magnitude in group.magnitudes])
    return Matrix(exponents, signs, magnitudes)


def floor_shift(number: int, places: int) -> int:
    exact = number / power(places)
    return exact.numerator // exact.denominator


@dataclass
class Accumulator:
    """R and A_n of one row and one column; contract section 7."""

    f: int
    running: int | None = None
    total: int = 0

    def add(self, tile_sum: int, tile_exponent: int) -> None:
        if self.running is None:
            self.running = tile_exponent
        if tile_exponent > self.running:
            self.total = floor_shift(self.total, tile_exponent - self.running)
            self.running = tile_exponent
        self.total += floor_shift(tile_sum * 2**self.f, self.running - tile_exponent)


def aligned_tile(
    activations: list[int], exponents: list[int], g: int
) -> tuple[int | None, list[int]]:
    """X (None if there is none) and a'_k of one tile; contract section 5, steps 1 to 3."""
    parts = [split(code) for code in activations]
    folded = [
        e + shared if significand != 0 and shared != 0 else None
        for (_, significand, e), shared in zip(parts, exponents, strict=True)
    ]
    alive = [eps for eps in folded if eps is not None]
    if not alive:
        return None, [0] * len(folded)
    x = max(alive)
    aligned = []
    for (sign, significand, _), eps in zip(parts, folded, strict=True):
        if eps is None:
            aligned.append(0)
        else:
            size = floor_shift(significand * 2**g, x - eps)
            aligned.append(-size if sign else size)
    return x, aligned


def product(
    activations: list[int],
    weight: Matrix,
    column: int,
    *,
    p_full: int,
    p: int,
    reconstruct: str,
    g: int,
    f: int,
) -> tuple[int, int | None]:
    """A and R of one row of activations and one column; contract sections 5 and 7."""
    accumulator = Accumulator(f)
    for first in range(0, len(activations), 64):
        ks = range(first, min(len(activations), first + 64))
        x, aligned = aligned_tile(
            [activations[k] for k in ks], [weight.exponents[k][column // 64] for k in ks], g
        )
        if x is None:
            continue
        total = 0
        for k, a in zip(ks, aligned, strict=True):
            c = 2 * (weight.magnitudes[k][column] // 2 ** (p_full - p))
            if reconstruct == "midpoint" and p < p_full:
                c += 1
            total += a * (-c if weight.signs[k][column] else c)
        accumulator.add(total, x)
    return accumulator.total, accumulator.running


def result(
    total: int,
    running: int | None,
    *,
    p: int,
    g: int,
    f: int,
    fmt: str,
    column_exponent: int = 0,
) -> int:
    """The code of one result; contract section 8."""
    if running is None:
        return 0
    return round_to(total * power(running - 260 - p - g - f + column_exponent), fmt)


def image(weight: Matrix, n: int, p_full: int, tiles_per_block: int) -> bytes:
    """The memory image, byte by byte; contract section 10."""
    k = len(weight.signs)
    k_tiles, n_tiles = -(-k // 64), -(-n // 64)

    def exponent(row: int, n_tile: int) -> int:
        return weight.exponents[row][n_tile] if row < k else 0

    def bit(row: int, column: int, plane: int) -> int:
        if row >= k or column >= n:
            return 0
        if plane == 0:
            return weight.signs[row][column]
        return weight.magnitudes[row][column] // 2 ** (p_full - 1 - plane) % 2

    out = bytearray()
    for n_tile in range(n_tiles):
        for block in range(0, k_tiles, tiles_per_block):
            tiles = range(block, min(k_tiles, block + tiles_per_block))
            for tile in tiles:
                out += bytes(exponent(64 * tile + row, n_tile) for row in range(64))
            for plane in range(p_full):
                for tile in tiles:
                    for row in range(64):
                        for byte in range(8):
                            columns = (64 * n_tile + 8 * byte + i for i in range(8))
                            bits = [bit(64 * tile + row, column, plane) for column in columns]
                            out.append(sum(b << i for i, b in enumerate(bits)))
    return bytes(out)
