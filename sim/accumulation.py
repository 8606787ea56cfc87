"""Accumulators of one row by the golden model, and what a tile does to them as the core is told."""

from __future__ import annotations

import torch

from hw.compute.accumulator import decision_layout
from hw.config import TILE, Config
from model.datapath.primitives import accumulate
from sim.words import Array


class Contexts:
    """Running exponents and accumulators of all contexts of one row.

    Attributes
    ----------
    running : list of int
        R of each context, 0 for none.
    accumulators : (contexts, 64) int64
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.running = [0] * config.contexts
        self.accumulators = torch.zeros(config.contexts, TILE, dtype=torch.int64)

    def tile(
        self, context: int, first: bool, exponent: int, sums: Array | None = None
    ) -> dict[str, int | None]:
        """Adds a tile of exponent X (0: skipped); returns its decision.

        Where old sums or the tile's sums are missing, and so 0, they may be shifted by anything.
        The direction of a shift by nothing has no meaning.
        """
        if first:
            self.running[context] = 0
            self.accumulators[context] = 0
        before = self.running[context]
        added = torch.zeros(TILE, dtype=torch.int64) if sums is None else torch.from_numpy(sums)
        self.accumulators[context], after = accumulate(
            self.accumulators[context],
            torch.tensor(before),
            added,
            torch.tensor(exponent),
            self.config.acc_guard_bits,
        )
        self.running[context] = int(after)
        distance = max(int(after) - before, int(after) - exponent)
        most = (1 << decision_layout(self.config)["amount"].width) - 1
        both = before and exponent
        return {
            "amount": min(distance, most) if both else None,
            "shift_old": int(after > before) if distance else None,
            "fresh": int(before == 0),
            "exponent": int(after),
        }
