"""The fast form of the exact data path: whole products, vectorised over rows and outputs.

Contract: sections 5, 7, 8 and 12.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from model.datapath.bounds import check_guard_bits, check_k
from model.datapath.primitives import (
    accumulate,
    activation_terms,
    align,
    fold_exponents,
    group_terms,
    round_result,
    signed_weights,
    tile_exponents,
    tile_sums,
)
from model.datapath.tile_machine import check_column_exponents
from model.formats.bf16 import check_finite
from model.formats.bfp import Bfp, is_midpoint
from model.formats.checks import at, check_p, check_tensor, first_index
from model.formats.constants import TILE_K, TILE_N
from model.formats.floats import float_format, from_codes
from model.formats.planes import check_weight, tile_counts


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
        max_k: largest K of the machine; by default what 64-bit accumulators hold.

    Returns:
        bfloat16 or float32, (M, N). No row depends on another.

    Raises:
        TypeError: an argument of another type.
        ValueError: an Inf or NaN among the activations or a shared exponent of 255, by index; a
            shape that does not fit; K beyond the accumulator's bound; an argument out of range.
    """
    check_finite(_check_activations(activations, weight), "activations")
    if bool((weight.exponents == 255).any()):
        index = first_index(weight.exponents == 255)
        raise ValueError(f"{at('weight exponents', index)} must be in 0..254, not 255")
    result, _ = matmul_with_status(
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
    _check_activations(activations, weight)
    check_p(p, weight.p_full)
    midpoint = is_midpoint(reconstruct, p, weight.p_full)
    g, f = check_guard_bits(align_guard_bits, acc_guard_bits)
    fmt = float_format(out)
    m, k = activations.shape
    n = weight.shape[1]
    check_k(k, p, g, f, max_k)
    check_column_exponents(column_exponents, n)
    k_tiles, n_tiles = tile_counts(k, n)

    pad_k, pad_n = k_tiles * TILE_K - k, n_tiles * TILE_N - n
    padded = torch.nn.functional.pad(activations, (0, pad_k))
    significands, activation_exponents, bad = activation_terms(padded)
    group_exponents, bad_groups = group_terms(weight.exponents)
    refused = bool(bad.any()) or bool(bad_groups.any())
    group_exponents = torch.nn.functional.pad(group_exponents, (0, 0, 0, pad_k))
    c = signed_weights(weight.signs, weight.load(p), midpoint)
    c = torch.nn.functional.pad(c, (0, pad_n, 0, pad_k)).to(torch.float64)
    # (n-tile, k-tile, row, k) and (n-tile, k-tile, k, n)
    by_tile = (k_tiles, m, TILE_K)
    split = c.reshape(k_tiles, TILE_K, n_tiles, TILE_N).permute(2, 0, 1, 3)
    folded = fold_exponents(
        activation_exponents.reshape(m, k_tiles, TILE_K).transpose(0, 1),
        group_exponents.T.reshape(n_tiles, k_tiles, 1, TILE_K),
    )
    exponents = tile_exponents(folded)
    terms = significands.reshape(m, k_tiles, TILE_K).transpose(0, 1).expand(by_tile)
    sums = tile_sums(align(terms, folded, exponents.unsqueeze(-1), g), split).to(torch.int64)

    accumulators = torch.zeros(n_tiles, m, TILE_N, dtype=torch.int64)
    running = torch.zeros(n_tiles, m, dtype=torch.int16)
    for tile in range(k_tiles):
        accumulators, running = accumulate(
            accumulators, running, sums[:, tile], exponents[:, tile], f
        )
    if column_exponents is not None:
        column_exponents = torch.nn.functional.pad(column_exponents.to(torch.int64), (0, pad_n))
        column_exponents = column_exponents.reshape(n_tiles, 1, TILE_N)
    codes, overflow = round_result(
        accumulators, running, p=p, g=g, f=f, fmt=fmt, column_exponents=column_exponents
    )
    flat = codes.transpose(0, 1).reshape(m, n_tiles * TILE_N)[:, :n]
    return from_codes(flat, fmt), Status(bool(overflow.any()), refused)


def _check_activations(activations: Tensor, weight: Bfp) -> Tensor:
    check_tensor("activations", activations)
    if not isinstance(weight, Bfp):
        raise TypeError(f"weight must be a Bfp, not {type(weight).__name__}")
    check_weight(weight)
    if activations.dtype != torch.bfloat16:
        raise TypeError(f"activations must be bfloat16, not {activations.dtype}")
    if activations.dim() != 2 or activations.shape[1] != weight.shape[0]:
        raise ValueError(
            f"activations must have shape (M, {weight.shape[0]}) for a weight of shape "
            f"{tuple(weight.shape)}, not {tuple(activations.shape)}",
        )
    return activations
