"""SiLU times up: y = g / (1 + e^-g) * u, for gate g and up u.

The hardware form, for each element:

1. v = floor(|g| log2(e) 2^16), from the exact product of 8 bits and the 23-bit constant.
2. t = 2^-v by the table `exp2`: E 2^n, E 17 bits (1.16), n the floor of -v / 2^16. Flushed: t = 0
   where -v is below -126, that is |g| from 87.34 on.
3. s = 1 / (1 + t) by the table `recip`: it reads 16 fraction bits of 1 + t, E >> -n, the largest
   16-bit number in place of t = 1; s has 17 bits (0.17).
4. The factor of g is s for g >= 0, and (s * E) >> 16 with the exponent n for g < 0: 18 bits.
5. y = round(g * factor * u), one rounding of the exact product of 8 + 18 + 8 bits.

Flush range: y is +0 where g <= -87.5 (the BF16 numbers below -126 ln 2). A product of 0 gives +0.

Contract: section 11.
"""

from __future__ import annotations

import torch
from torch import Tensor

from model.datapath.special.exact import (
    check_numbers,
    check_shapes,
    is_hardware,
    look_up,
    rounded,
)
from model.formats.bfp import pow2
from model.formats.special_tables import (
    EXP2_LEAST,
    EXPONENT_FRACTION_BITS,
    exp2_table,
    log2_e_factor,
    reciprocal_table,
)


def silu_times_up(gate: Tensor, up: Tensor, *, form: str) -> Tensor:
    """SiLU of the gate, times up.

    Args:
        gate: bfloat16, any shape.
        up: bfloat16, the same shape.
        form: "reference" or "hardware".

    Returns:
        bfloat16, the same shape; Inf where the product overflows.

    Raises:
        TypeError: an argument of another type.
        ValueError: an Inf or NaN, named by index; a shape or form that does not fit.
    """
    hardware = is_hardware(form)
    check_numbers("gate", gate)
    check_numbers("up", up)
    check_shapes("up", up, gate.shape, "gate")
    if hardware:
        # Exact: 8 + 18 + 8 bits.
        return rounded(_factor(gate).mul_(gate).mul_(up))
    single = gate.to(torch.float32)
    return (single * torch.sigmoid(single) * up.to(torch.float32)).to(torch.bfloat16)


def _factor(gate: Tensor) -> Tensor:
    """Steps 1 to 4: the sigmoid of the gate, float64, 18 bits times a power of two."""
    wide = gate.to(torch.float64)
    unit = 1 << EXPONENT_FRACTION_BITS
    exp2, recip = exp2_table(), reciprocal_table()
    least = EXP2_LEAST * unit
    # Exact: 8 + 23 bits. One below the least is enough to be flushed.
    scaled = wide.abs().mul_(-log2_e_factor().value * unit).clamp_min_(least - 1)
    exponents = scaled.ceil_().to(torch.int64)  # -floor of the magnitude
    t = look_up(exp2, exponents & (unit - 1))
    t.masked_fill_(exponents < least, 0)
    n = exponents >> EXPONENT_FRACTION_BITS
    fractions = (t >> -n.clamp_min(-63)).clamp_max_(unit - 1)
    s = look_up(recip, fractions)
    below = torch.where(gate < 0, (s * t).bitwise_right_shift_(exp2.fraction_bits), s)
    n.masked_fill_(gate >= 0, 0)
    return below.to(torch.float64).mul_(pow2(n - recip.fraction_bits))
