"""The residual sum.

Both forms add in FP32 and round the sum to BF16. That is the exact sum rounded once: a sum of
two numbers of 8 bits that is rounded first to 24 bits and then to 8 is rounded rightly, since
24 >= 2 * 8 + 2, and where FP32 has fewer bits, below 2^-126, the sum is exact: it is a multiple of
2^-133, the least BF16 number. The hardware form gives +0 for a sum of 0.

Contract: section 11.
"""

from __future__ import annotations

import torch
from torch import Tensor

from model.datapath.special.exact import check_numbers, check_shapes, is_hardware


def residual_add(x: Tensor, y: Tensor, *, form: str) -> Tensor:
    """x + y, rounded once.

    Args:
        x: bfloat16, any shape.
        y: bfloat16, the same shape.
        form: "reference" or "hardware".

    Returns:
        bfloat16, the same shape; Inf where the sum overflows.

    Raises:
        TypeError: an argument of another type.
        ValueError: an Inf or NaN, named by index; a shape or form that does not fit.
    """
    hardware = is_hardware(form)
    check_numbers("x", x)
    check_numbers("y", y)
    check_shapes("y", y, x.shape, "x")
    total = x.to(torch.float32).add_(y)
    if hardware:
        total.add_(0.0)  # -0 + 0 is +0
    return total.to(torch.bfloat16)
