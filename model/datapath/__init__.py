"""The exact data path: the integers of the arithmetic contract, in forms with the same bits.

- `matmul`, `matmul_with_status`: the fast form, for whole products
- `stepwise`: one output tile with every look-up and accumulator visible by name
- `TileMachine`: tile by tile with accumulator contexts, as the array runs
- `model.datapath.vectors`: golden vectors from files, checked against the model
"""

from __future__ import annotations

from model.datapath.fast import Status, matmul, matmul_with_status
from model.datapath.steps import Stepwise, TileSteps, stepwise
from model.datapath.tile_machine import TileMachine, TileTrace

__all__ = [
    "Status",
    "Stepwise",
    "TileMachine",
    "TileSteps",
    "TileTrace",
    "matmul",
    "matmul_with_status",
    "stepwise",
]
