"""Accumulators of one row by the golden model, and what a tile does to them as the core is told."""

from __future__ import annotations

import torch

from hw.compute.accumulator import decision_layout
from hw.config import RUNNING_BIAS, TILE, Config
from model.datapath.primitives import BIAS, accumulate
from sim.words import Array


def biased(running: int) -> int:
    """An R as the core keeps it: saturated from below, and never 0, which stands for none."""
    return max(running + RUNNING_BIAS, 1)


class Contexts:
    """Running exponents and accumulators of all contexts of one row.

    Attributes
    ----------
    accumulators : (contexts, 64) int64
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self._running = [0] * config.contexts
        self.accumulators = torch.zeros(config.contexts, TILE, dtype=torch.int64)

    @property
    def running(self) -> list[int]:
        """R of each context, 0 for none; rises may bring it below."""
        return [each - BIAS if each else 0 for each in self._running]

    def tile(
        self,
        context: int,
        first: bool,
        exponent: int,
        sums: Array | None = None,
        *,
        rise: int = 0,
    ) -> dict[str, int | None]:
        """Adds a tile of exponent X (0: skipped) after a rise; returns its decision.

        Where old sums or the tile's sums are missing, and so 0, they may be shifted by anything.
        The direction of a shift by nothing has no meaning.
        """
        if first:
            self._running[context] = 0
            self.accumulators[context] = 0
        before = self._running[context]
        before = max(before - rise, 1) if before else 0
        tile = exponent + BIAS if exponent else 0
        added = torch.zeros(TILE, dtype=torch.int64) if sums is None else torch.from_numpy(sums)
        self.accumulators[context], after = accumulate(
            self.accumulators[context],
            torch.tensor(before),
            added,
            torch.tensor(tile),
            self.config.acc_guard_bits,
        )
        self._running[context] = int(after)
        distance = max(int(after) - before, int(after) - tile)
        most = (1 << decision_layout(self.config)["amount"].width) - 1
        both = before and exponent
        return {
            "amount": min(distance, most) if both else None,
            "shift_old": int(after > before) if distance else None,
            "fresh": int(before == 0),
            "exponent": biased(int(after) - BIAS) if after else 0,
        }
