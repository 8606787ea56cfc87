"""Rows of a pass: which sequence and position each one belongs to.

A pass feeds some tokens of some sequences. Linear layers see them as one list of rows; attention
sees a rectangle (active sequences, most tokens of one), whose gaps are padding and have no
position (contract section 9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

#: Position of a gap in the rectangle.
NO_POSITION = -1


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of one pass, sequence by sequence, positions ascending.

    Attributes:
        tokens: int64 (rows,).
        sequence: int64 (rows,), the cache's index of the row's sequence.
        position: int64 (rows,), counted from the sequence's own first token.
        active: the cache's indices of the sequences that have rows, ascending.
        counts: rows of each sequence of the cache.
        starts: first position of each sequence's rows.
        slots: int64 (rows,), place of each row in the flattened rectangle.
        positions: int64 (active, width), `NO_POSITION` in gaps.
    """

    tokens: Tensor
    sequence: Tensor
    position: Tensor
    active: list[int]
    counts: list[int]
    starts: list[int]
    slots: Tensor
    positions: Tensor

    @staticmethod
    def of(
        tokens: Sequence[Sequence[int]], starts: Sequence[int], device: str | torch.device = "cpu"
    ) -> Rows:
        """Rows that feed `tokens[b]` to sequence b from position `starts[b]` on."""
        counts = [len(given) for given in tokens]
        active = [b for b, count in enumerate(counts) if count]
        width = max(counts, default=0)
        positions = torch.full((len(active), width), NO_POSITION, dtype=torch.int64)
        for place, b in enumerate(active):
            positions[place, : counts[b]] = torch.arange(starts[b], starts[b] + counts[b])
        slots = (positions.flatten() >= 0).nonzero().squeeze(-1)
        return Rows(
            tokens=torch.tensor([t for given in tokens for t in given], device=device),
            sequence=torch.tensor(active)
            .repeat_interleave(torch.tensor([counts[b] for b in active], dtype=torch.int64))
            .to(device),
            position=positions.flatten()[slots].to(device),
            active=active,
            counts=counts,
            starts=list(starts),
            slots=slots.to(device),
            positions=positions.to(device),
        )

    def last(self) -> list[int]:
        """Index of the last row of each active sequence."""
        ends, end = [], 0
        for b in self.active:
            end += self.counts[b]
            ends.append(end - 1)
        return ends

    def spread(self, values: Tensor) -> Tensor:
        """Rows (rows, ...) laid into the rectangle (active, width, ...), zeros in gaps."""
        if len(self.slots) == self.positions.numel():
            return values.unflatten(0, self.positions.shape)
        result = values.new_zeros(self.positions.numel(), *values.shape[1:])
        result[self.slots] = values
        return result.unflatten(0, self.positions.shape)

    def gather(self, values: Tensor) -> Tensor:
        """The rectangle (active, width, ...) back to rows (rows, ...)."""
        flat = values.flatten(0, 1)
        return flat if len(self.slots) == len(flat) else flat[self.slots]
