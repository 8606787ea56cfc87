"""The special functions of the machine, each in two forms.

- `reference`: torch float32 and one rounding to BF16
- `hardware`: the integer and table algorithm that the RTL runs, bit for bit

Functions that have the `form` argument come in both; the parts of softmax and argmax are
hardware forms, with `softmax_reference` beside them. Every function is pure and works on any
leading dimensions; no row looks at another.

`python -m model.datapath.special.accuracy` prints how far the two forms are apart.

Contract: section 11.
"""

from __future__ import annotations

from model.datapath.special.argmax import argmax
from model.datapath.special.exact import FORMS
from model.datapath.special.norm import rms_norm
from model.datapath.special.residual import residual_add
from model.datapath.special.rope import RopeScaling, RopeTable, rope_table, rotate
from model.datapath.special.silu import silu_times_up
from model.datapath.special.softmax import (
    attention_output,
    exponentials,
    fixed_scores,
    integer_sum,
    softmax_reference,
)

__all__ = [
    "FORMS",
    "RopeScaling",
    "RopeTable",
    "argmax",
    "attention_output",
    "exponentials",
    "fixed_scores",
    "integer_sum",
    "residual_add",
    "rms_norm",
    "rope_table",
    "rotate",
    "silu_times_up",
    "softmax_reference",
]
