"""How far `hardware` and `reference` are apart, function by function.

Tables are swept over every index that they can be given; the rest gets random numbers that look
like those of a language model, from a fixed seed. A distance is in BF16 ulps: of the result, or,
where terms can cancel (rotation, residual sum, whole rows of attention), of the larger term.

Contract: section 11.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from model.datapath.special.exact import rounded
from model.datapath.special.norm import SQUARE_OFFSET, inverse_root, rms_norm
from model.datapath.special.residual import residual_add
from model.datapath.special.rope import rope_table, rotate
from model.datapath.special.silu import silu_times_up
from model.datapath.special.softmax import (
    attention_output,
    exponentials,
    fixed_scores,
    integer_sum,
    softmax_reference,
)
from model.formats.bf16 import from_codes
from model.formats.bfp import pow2
from model.formats.constants import TILE_N
from model.formats.floats import to_codes
from model.formats.special_tables import EXP2_LEAST, reciprocal_table, rsqrt_table

#: The contract's limits.
WITHIN_ONE_MIN = 0.999
WORST_MAX = 2.0

#: Positions at which the rotation is swept.
POSITIONS = (0, 1, 2, 63, 64, 1000, 8191, 131071)


@dataclass(frozen=True)
class Sweep:
    """Distances of one function over one set of inputs.

    Attributes:
        function: as the table names it.
        inputs: what was swept.
        count: results that were compared, those of the flush range not among them.
        equal: share of results that are equal (+0 and -0 are).
        within: share that is at most 1 ulp off.
        worst: largest distance, in ulps.
        flush: the range whose results are +0, or "none".
        flushed_right: whether every result of the flush range was +0.
        judged: whether the contract's limits apply: to what the machine gives, not to P / L.
    """

    function: str
    inputs: str
    count: int
    equal: float
    within: float
    worst: float
    flush: str = "none"
    flushed_right: bool = True
    judged: bool = True

    @property
    def met(self) -> bool:
        """Whether the contract's limits are met, where they apply."""
        return not self.judged or (
            self.within >= WITHIN_ONE_MIN and self.worst <= WORST_MAX and self.flushed_right
        )


def order(values: Tensor) -> Tensor:
    """Ranks of BF16 numbers, int64: neighbours differ by 1; +0 and -0 have rank 0."""
    codes = to_codes(values).to(torch.int64)
    magnitudes = codes & 0x7FFF
    return torch.where(codes > 0x7FFF, -magnitudes, magnitudes)


def ulp_distance(left: Tensor, right: Tensor) -> Tensor:
    """Distance of BF16 numbers, counted in representable numbers: float64."""
    return (order(left) - order(right)).abs().to(torch.float64)


def term_distance(left: Tensor, right: Tensor, term: Tensor) -> Tensor:
    """Distance of BF16 numbers in ulps of a term: float64.

    Args:
        left, right: bfloat16.
        term: float64, the larger term; the ulp of 0 is that of subnormals.
    """
    exponents = torch.frexp(term).exponent.to(torch.int64)
    ulp = pow2((exponents - 8).clamp_min(-133).masked_fill(term == 0, -133))
    return (left.to(torch.float64) - right.to(torch.float64)).abs() / ulp


def swept(function: str, inputs: str, distances: Tensor, **more: object) -> Sweep:
    """The sweep of given distances."""
    return Sweep(
        function,
        inputs,
        distances.numel(),
        equal=float((distances == 0).double().mean()),
        within=float((distances <= 1).double().mean()),
        worst=float(distances.max()),
        **more,  # type: ignore[arg-type]
    )


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator)


def _with_outliers(generator: torch.Generator, rows: int, width: int) -> Tensor:
    """Rows of different scales; half of them with channels up to 2^12 above the others."""
    scales = torch.exp2(torch.randint(-8, 8, (rows, 1), generator=generator).float())
    x = _normal(generator, rows, width) * scales
    channels = torch.randint(0, width, (rows // 2, 3), generator=generator)
    boosts = torch.exp2(torch.randint(1, 13, channels.shape, generator=generator).float())
    x[: rows // 2].scatter_(1, channels, x[: rows // 2].gather(1, channels) * boosts)
    return x.to(torch.bfloat16)


def norm_sweeps(generator: torch.Generator, elements: int) -> Iterator[Sweep]:
    """RMSNorm of rows, and every index of its table."""
    for width in (64, 128, 576, 4096):
        x = _with_outliers(generator, max(2, elements // width), width)
        weight = (1 + 0.3 * _normal(generator, width)).to(torch.bfloat16)
        hardware, reference = (
            rms_norm(x, weight, 1e-5, form=form) for form in ("hardware", "reference")
        )
        yield swept("rms_norm", f"random rows, d {width}", ulp_distance(hardware, reference))
    table = rsqrt_table()
    # A 2^0 with A of 17 bits, and of 18 for the other parity: every index once; d 1.
    a = torch.arange(1 << 16, 1 << 17)
    total = torch.cat([a, 2 * a])
    running = torch.full_like(total, SQUARE_OFFSET // 2)
    r = inverse_root(total, running, 1, 2.0**-126)
    exact = torch.rsqrt(total.float()).to(torch.bfloat16)
    inputs = f"all {1 << table.index_bits:,} indices"
    yield swept("1/sqrt in it", inputs, ulp_distance(rounded(r), exact))


def rotation_sweeps(generator: torch.Generator, elements: int) -> Iterator[Sweep]:
    """Rotations at several positions."""
    for width, base in ((64, 1e4), (128, 5e5)):
        table = rope_table(max(POSITIONS) + 1, width, base)
        cosines, sines = (part[list(POSITIONS)] for part in (table.cosines, table.sines))
        rows = elements // (width * len(POSITIONS))
        x = _with_outliers(generator, max(2, rows * len(POSITIONS)), width)
        x = x[: rows * len(POSITIONS)].view(rows, len(POSITIONS), width)
        hardware, reference = (
            rotate(x, cosines, sines, form=form) for form in ("hardware", "reference")
        )
        low, high = x.to(torch.float64).abs().chunk(2, -1)
        c, s = cosines.abs() * 2.0**-14, sines.abs() * 2.0**-14
        terms = torch.cat([torch.maximum(low * c, high * s), torch.maximum(high * c, low * s)], -1)
        inputs = f"random rows, d {width}, {len(POSITIONS)} positions"
        yield swept("rotate", inputs, term_distance(hardware, reference, terms))


def silu_sweep(generator: torch.Generator, ups: int) -> Sweep:
    """Every gate with some random ups."""
    codes = torch.arange(1 << 16)
    gate = from_codes(codes[(codes & 0x7FFF) < 0x7F80]).repeat(ups)
    up = _normal(generator, gate.numel()).to(torch.bfloat16)
    hardware, reference = (silu_times_up(gate, up, form=f) for f in ("hardware", "reference"))
    flushed = gate <= -87.5
    return swept(
        "silu_times_up",
        f"all 65,280 gates, {ups} random ups each",
        ulp_distance(hardware, reference)[~flushed],
        flush="gate <= -87.5",
        flushed_right=bool((to_codes(hardware[flushed]).to(torch.int64) == 0).all()),
    )


def residual_sweep(generator: torch.Generator, elements: int) -> Sweep:
    """Sums of random numbers of different scales."""
    x, y = (_with_outliers(generator, elements // 576, 576) for _ in range(2))
    hardware, reference = (residual_add(x, y, form=form) for form in ("hardware", "reference"))
    terms = torch.maximum(x.abs(), y.abs()).to(torch.float64)
    return swept("residual_add", "random pairs", term_distance(hardware, reference, terms))


def softmax_sweeps(generator: torch.Generator, rows: int) -> Iterator[Sweep]:
    """Exponentials and reciprocals over every index, and whole rows of attention."""
    fractions = torch.arange(1 << 16)
    parts = (0, -1, -2, -17, -64, -125, EXP2_LEAST)
    x = torch.stack([fractions + part * 65536 for part in parts])
    # 23 bits: exact in FP32.
    reference = torch.exp2(x.to(torch.float32) / 65536).to(torch.bfloat16)
    below = torch.arange(EXP2_LEAST * 65536 - 65536, EXP2_LEAST * 65536)
    yield swept(
        "exponentials",
        f"all 65,536 fractions, {len(parts)} integer parts",
        ulp_distance(exponentials(x, 0), reference),
        flush="x - M < -126",
        flushed_right=bool((to_codes(exponentials(below, 0)).to(torch.int64) == 0).all()),
    )

    leading = torch.arange(1 << 16, 1 << 17)
    shifts = torch.tensor([0, 8, 16, 20, 34]).unsqueeze(-1)
    low = torch.randint(0, 1 << 34, (len(shifts), len(leading)), generator=generator)
    total = (leading << shifts) | (low & ((1 << shifts) - 1))
    sums = _normal(generator, *total.shape, 4)
    hardware = attention_output(sums, total)
    exact = (sums / (total.to(torch.float32) * 2.0**-32).unsqueeze(-1)).to(torch.bfloat16)
    inputs = f"all {1 << reciprocal_table().index_bits:,} indices, 5 sizes of L, 4 sums"
    yield swept("attention_output", inputs, ulp_distance(hardware, exact))
    for tokens, spread in ((64, 1.0), (500, 3.0), (2048, 8.0)):
        inputs = f"rows of {tokens:,} tokens, scores of deviation {spread:g}"
        shares, outputs = _row_distances(generator, rows, tokens, spread)
        yield swept("softmax, P.V / L", inputs, outputs)
        yield swept("softmax, P / L *", inputs, shares, judged=False)


def _row_distances(
    generator: torch.Generator, rows: int, tokens: int, spread: float, width: int = 64
) -> tuple[Tensor, Tensor]:
    """Attention rows in tiles of 64 tokens under a running maximum, against FP32's softmax.

    P.V is exact here, so that only the special functions differ; values are BF16.

    Returns:
        Distances of the shares P / L that are at least 2^-32, and of the outputs (rows, width),
        the latter in ulps of the sum of the terms' magnitudes.
    """
    scores = _normal(generator, rows, tokens) * spread * width**0.5
    values = _normal(generator, tokens, width).to(torch.bfloat16).to(torch.float64)
    x = fixed_scores(scores, width)
    sums = torch.zeros(rows, tokens, dtype=torch.float64)
    total = torch.zeros(rows, dtype=torch.int64)
    maximum = x[:, :TILE_N].amax(-1) >> 16
    for first in range(0, tokens, TILE_N):
        tile = slice(first, first + TILE_N)
        latest = torch.maximum(maximum, x[:, tile].amax(-1) >> 16)
        rise, maximum = latest - maximum, latest
        p = exponentials(x[:, tile], maximum.unsqueeze(-1))
        total = (total >> rise.clamp_max(63)) + integer_sum(p).sum(-1)
        sums *= pow2(-rise).unsqueeze(-1)
        sums[:, tile] = p.to(torch.float64)
    exact = softmax_reference(scores, width)
    outputs = attention_output((sums @ values).to(torch.float32), total)
    wide = exact.to(torch.float64)
    shares = ulp_distance(attention_output(sums.to(torch.float32), total), exact.bfloat16())
    return shares[exact >= 2.0**-32], term_distance(
        outputs, (wide @ values).to(torch.float32).to(torch.bfloat16), wide @ values.abs()
    )


def sweeps(*, elements: int = 1 << 20, seed: int = 0) -> Iterator[Sweep]:
    """All sweeps, in the order of the table.

    Args:
        elements: how many random elements a sweep has, about.
        seed: of the random numbers.
    """
    generator = torch.Generator().manual_seed(seed)
    yield from norm_sweeps(generator, elements)
    yield from rotation_sweeps(generator, elements)
    yield silu_sweep(generator, max(1, elements >> 16))
    yield residual_sweep(generator, elements)
    yield from softmax_sweeps(generator, max(2, elements >> 12))
