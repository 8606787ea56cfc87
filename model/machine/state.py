"""What the chip keeps between commands, and how a command fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from model.formats.commands import BANK_WORD, Status
from model.formats.constants import TILE_K
from model.lm.precision import Precision
from model.machine.encode import Segment
from model.machine.shape import MachineShape

#: Bank words of a tile's 64 elements.
TILE_WORDS = TILE_K // BANK_WORD


class Fault(Exception):
    """A command that cannot work.

    Attributes:
        status: what stops the job.
    """

    def __init__(self, status: Status, why: str) -> None:
        super().__init__(why)
        self.status = status


class Model(NamedTuple):
    """The fields of MODEL."""

    qk_norm: int
    p_full: int
    width_tiles: int
    kv_heads: int
    group: int
    head_tiles: int
    capacity: int
    factor: int
    factor_exponent: int
    key_head: int
    key_sequence: int
    value_channels: int
    value_head: int
    value_sequence: int
    open_sequence: int
    vocabulary: int

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.kv_heads * self.group

    @property
    def head_width(self) -> int:
        """d_h."""
        return self.head_tiles * TILE_K

    @property
    def tile_lines(self) -> int:
        """Lines of a tile with all its planes."""
        return 1 + 8 * self.p_full


@dataclass
class Sequence:
    """What the chip knows of a sequence.

    Attributes:
        length: committed tokens.
        limit: tokens at which it ends.
        count: tokens, the pending one included, cut at its end.
        pending: the token behind the committed ones, while a ROUND is at work.
        live, end, limited: the bits of STATE.
    """

    length: int = 0
    limit: int = 0
    count: int = 0
    pending: int = 0
    live: bool = False
    end: bool = False
    limited: bool = False


@dataclass
class State:
    """Everything that lasts from command to command.

    Attributes:
        shape: the chip's.
        model: of the last MODEL, None before it.
        sequences: by number.
        segments, tokens: the rows of the step.
        argmax: of each row; None where no HEAD has run.
        precision: of the steps to come.
        bank: bfloat16 (t_m, elements): the unified buffer.
    """

    shape: MachineShape
    model: Model | None = None
    sequences: list[Sequence] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    argmax: list[int | None] = field(default_factory=list)
    precision: Precision = field(default_factory=Precision.full)
    bank: Tensor = field(init=False)

    def __post_init__(self) -> None:
        elements = self.shape.bank_words * BANK_WORD
        self.bank = torch.zeros(self.shape.t_m, elements, dtype=torch.bfloat16)
        self.forget()

    def forget(self) -> None:
        """Forgets rows and sequences, as MODEL does."""
        self.sequences = [Sequence() for _ in range(self.shape.sequences)]
        self.set_rows([], [])

    def set_rows(self, segments: list[Segment], tokens: list[int]) -> None:
        """The rows of the steps to come; they have no argmax yet."""
        self.segments, self.tokens = segments, tokens
        self.argmax = [None] * len(tokens)

    def set_model(self, fields: Mapping[str, int]) -> None:
        """What MODEL sets."""
        self.model = Model(**fields)
        self.forget()

    @property
    def the_model(self) -> Model:
        """The model, which must be set."""
        assert self.model is not None
        return self.model

    @property
    def live(self) -> list[int]:
        """Sequences that take part in rounds, ascending."""
        return [s for s, sequence in enumerate(self.sequences) if sequence.live]

    @property
    def positions(self) -> list[int]:
        """Position of each row."""
        return [s.start + i for s in self.segments for i in range(s.rows)]

    def last_rows(self) -> list[int]:
        """The last row of each segment."""
        ends, end = [], 0
        for segment in self.segments:
            end += segment.rows
            ends.append(end - 1)
        return ends

    def words(self, place: int, tiles: int) -> Tensor:
        """A view of so many tiles at a bank word, of the rows of the step."""
        first = place * BANK_WORD
        return self.bank[: len(self.tokens), first : first + tiles * TILE_K]
