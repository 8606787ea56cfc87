"""Checks of a product's operands, shared by all forms of the data path.

Contract: section 12.
"""

from __future__ import annotations

import torch
from torch import Tensor

from model.formats.bfp import Bfp
from model.formats.checks import check_integers, check_tensor
from model.formats.planes import check_weight

#: Range of a result exponent: wider than any two formats can be apart.
COLUMN_EXPONENT_MIN, COLUMN_EXPONENT_MAX = -1024, 1023


def check_operands(activations: Tensor, weight: Bfp) -> tuple[int, int, int]:
    """Returns (M, K, N) of a product.

    Args:
        activations: bfloat16 (M, K).
        weight: shape (K, N), groups of 64 along N.

    Raises:
        TypeError, ValueError: another type, shape or grouping, by name.
    """
    check_tensor("activations", activations)
    check_weight(weight)
    if activations.dtype != torch.bfloat16:
        raise TypeError(f"activations must be bfloat16, not {activations.dtype}")
    k, n = weight.shape
    if activations.dim() != 2 or activations.shape[1] != k:
        raise ValueError(
            f"activations must have shape (M, {k}) for a weight of shape {(k, n)}, "
            f"not {tuple(activations.shape)}",
        )
    return len(activations), k, n


def check_column_exponents(column_exponents: Tensor | None, n: int) -> Tensor | None:
    """Returns `column_exponents`: None, or integers (n,) in -1024..1023."""
    if column_exponents is not None:
        check_integers(
            "column_exponents", column_exponents, COLUMN_EXPONENT_MIN, COLUMN_EXPONENT_MAX
        )
        if tuple(column_exponents.shape) != (n,):
            raise ValueError(
                f"column_exponents must have shape ({n},), not {tuple(column_exponents.shape)}",
            )
    return column_exponents
