"""The fast form of the exact data path: whole products, vectorised over rows and outputs.

Contract: sections 5, 7, 8 and 12.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from model.datapath.bounds import acc_bound, check_guard_bits, check_k
from model.datapath.operands import check_column_exponents, check_operands
from model.datapath.prepared import prepare
from model.datapath.primitives import activation_terms, round_result
from model.datapath.products import accumulated
from model.formats.bf16 import check_finite
from model.formats.bfp import Bfp, is_midpoint
from model.formats.checks import check_integers, check_p
from model.formats.constants import EXPONENT_MAX, TILE_N
from model.formats.floats import float_format


class Status(NamedTuple):
    """Sticky flags of a product.

    Attributes:
        overflow: a finite result was too large for its format and became Inf.
        refused: an activation was Inf or NaN, or a shared exponent 255; they counted as zero.
    """

    overflow: bool
    refused: bool


def matmul(
    activations: Tensor,
    weight: Bfp,
    *,
    p: int,
    reconstruct: str = "truncate",
    align_guard_bits: int = 8,
    acc_guard_bits: int = 8,
    out: str = "bf16",
    column_exponents: Tensor | None = None,
    max_k: int | None = None,
) -> Tensor:
    """activations @ weight as the machine computes it, bit for bit.

    Args:
        activations: bfloat16 (M, K).
        weight: shape (K, N), groups of 64 along N.
        p: bits of the load, 2..p_full.
        reconstruct: "truncate" or "midpoint" (the same at p = p_full).
        align_guard_bits: g, 0..16.
        acc_guard_bits: f, 0..16.
        out: "bf16" or "fp32".
        column_exponents: r_n, integers (N,), added to each column's power of two: a token's
            exponent less 1 for open keys, 0 by default.
        max_k: largest K of the machine; by default what 63-bit accumulators hold.

    Returns:
        bfloat16 or float32, (M, N). No row depends on another.

    Raises:
        TypeError: an argument of another type.
        ValueError: an Inf or NaN among the activations or a shared exponent of 255, by index; a
            shape that does not fit; K beyond the accumulator's bound; an argument out of range.
    """
    result, status = matmul_with_status(
        activations,
        weight,
        p=p,
        reconstruct=reconstruct,
        align_guard_bits=align_guard_bits,
        acc_guard_bits=acc_guard_bits,
        out=out,
        column_exponents=column_exponents,
        max_k=max_k,
    )
    if status.refused:
        check_finite(activations, "activations")
        check_integers("weight exponents", weight.exponents, 0, EXPONENT_MAX)
    return result


def matmul_with_status(
    activations: Tensor,
    weight: Bfp,
    *,
    p: int,
    reconstruct: str = "truncate",
    align_guard_bits: int = 8,
    acc_guard_bits: int = 8,
    out: str = "bf16",
    column_exponents: Tensor | None = None,
    max_k: int | None = None,
) -> tuple[Tensor, Status]:
    """`matmul`, with the flags of the hardware in place of its refusals.

    Inf and NaN among the activations and groups of exponent 255 count as zeros and set
    `Status.refused`; arguments that cannot be computed with raise as in `matmul`.

    Returns:
        The result, (M, N), and the flags.
    """
    m, k, n = check_operands(activations, weight)
    check_p(p, weight.p_full)
    midpoint = is_midpoint(reconstruct, p, weight.p_full)
    g, f = check_guard_bits(align_guard_bits, acc_guard_bits)
    fmt = float_format(out)
    check_k(k, p, g, f, max_k)
    check_column_exponents(column_exponents, n)

    prepared = prepare(weight, p, midpoint)
    n_tiles, padded_k, _ = prepared.c.shape
    padded = torch.nn.functional.pad(activations, (0, padded_k - k))
    rows = activation_terms(padded)
    refused = prepared.refused or bool(rows.refused.any())
    one_sum_bound = acc_bound(max(padded_k, 1), p, g, f)
    accumulators, running = accumulated(rows, prepared, g=g, f=f, one_sum_bound=one_sum_bound)
    if column_exponents is not None:
        column_exponents = torch.nn.functional.pad(
            column_exponents.to(torch.int64), (0, n_tiles * TILE_N - n)
        ).reshape(n_tiles, 1, TILE_N)
    rounded = round_result(
        accumulators, running, p=p, g=g, f=f, fmt=fmt, column_exponents=column_exponents
    )
    result = rounded.numbers(fmt).transpose(0, 1).reshape(m, n_tiles * TILE_N)[:, :n]
    return result.contiguous(), Status(bool(rounded.overflow.any()), refused)
