"""Argmax of logits: the token that greedy decoding takes.

Contract: section 11.
"""

from __future__ import annotations

import torch
from torch import Tensor

from model.datapath.special.exact import check_dtype
from model.formats.checks import at, check_int, first_index


def argmax(logits: Tensor, count: int | None = None) -> Tensor:
    """Index of the largest logit of each row, the lowest one on a tie; -0 ties with +0.

    Args:
        logits: float32 (..., V).
        count: columns from `count` on are padding and take no part; all V take part by default.

    Returns:
        int64 (...).

    Raises:
        TypeError: an argument of another type.
        ValueError: a NaN, named by index; no column, or a count out of range.
    """
    check_dtype("logits", logits, torch.float32)
    if logits.dim() == 0 or logits.shape[-1] == 0:
        raise ValueError(f"logits must have a column, not shape {tuple(logits.shape)}")
    if count is not None:
        logits = logits[..., : check_int("count", count, 1, logits.shape[-1])]
    # torch takes the first of several largest, and a NaN before any number.
    best, index = logits.max(-1)
    if bool(torch.isnan(best).any()):
        raise ValueError(f"{at('logits', first_index(torch.isnan(logits)))} must not be NaN")
    return index
