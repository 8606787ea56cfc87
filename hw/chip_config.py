"""One frozen description of a chip: its compute core, and the memories and ports around it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from hw.axi.config import MemoryConfig
from hw.config import PRESETS, TILE, Config, ConfigError
from model.formats.commands import BANK_WORD, LINE_BYTES

#: Bits of a line, the unit of memory.
LINE_BITS = 8 * LINE_BYTES
#: Bits of a bank word.
WORD_BITS = 16 * BANK_WORD
#: Lines of a bit plane of a tile, and so macros of a row of the weight ring.
PLANE_LINES = TILE * TILE // LINE_BITS
#: Bank words of a tile's activations.
TILE_WORDS = TILE // BANK_WORD
#: Tiles of probabilities that are staged in a bank.
STAGED_TILES = 4
#: Most rows of a step: a mask of them is a number of the control processor.
ROWS_MAX = 48
#: Most words of a bank: what the SIZES register can say.
BANK_WORDS_MAX = (1 << 16) - 1
#: Most k-tiles of a block of the memory image.
BLOCK_TILES_MAX = 8


@dataclass(frozen=True, kw_only=True)
class ChipConfig:
    """Parameters of a chip.

    Parameters
    ----------
    core : Config
        The compute core.
    ports : int
        AXI4 masters for data: 1, 2, 4 or 8.
    port_bits : int
        Data bits of a master: 64, 128, 256 or 512.
    address_bits : int
        Byte address of a master, 32 to 64.
    ring_rows : int
        Bit planes that the weight ring holds: a power of two, 512 bytes each.
    bank_words : int
        Bank words of a row of the unified buffer, what is staged for attention included.
    sequences : int
        Sequences of a batch.

    Raises
    ------
    ConfigError
        With every reason why the chip cannot work.
    TypeError
        If a parameter has the wrong kind.
    """

    core: Config
    ports: int
    port_bits: int
    address_bits: int = 40
    ring_rows: int
    bank_words: int
    sequences: int

    def __post_init__(self) -> None:
        if not isinstance(self.core, Config):
            raise TypeError(f"core must be a Config, not {self.core!r}")
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name != "core" and (not isinstance(value, int) or isinstance(value, bool)):
                raise TypeError(f"{field.name} must be an integer, not {value!r}")
        problems = self._problems()
        if problems:
            lines = "\n".join(f"  - {problem}" for problem in problems)
            raise ConfigError(f"chip {self.name!r} cannot work:\n{lines}")

    def _problems(self) -> list[str]:
        problems: list[str] = []

        def need(condition: bool, message: str) -> None:
            if not condition:
                problems.append(message)

        core = self.core
        need(self.ports in (1, 2, 4, 8), f"ports must be 1, 2, 4 or 8, not {self.ports}")
        need(
            self.port_bits in (64, 128, 256, 512),
            f"port_bits must be 64, 128, 256 or 512, not {self.port_bits}",
        )
        need(
            32 <= self.address_bits <= 64,
            f"address_bits must be 32 to 64, not {self.address_bits}",
        )
        rows = self.ring_rows
        need(
            2 * core.p_max <= rows <= 1 << 16 and rows & (rows - 1) == 0,
            f"ring_rows must be a power of two from two tiles of {core.p_max} planes to 65536,"
            f" not {rows}",
        )
        need(
            self.staging_words + TILE_WORDS <= self.bank_words <= BANK_WORDS_MAX,
            f"bank_words must be {self.staging_words + TILE_WORDS} (what attention stages, and a"
            f" tile) to {BANK_WORDS_MAX}, not {self.bank_words}",
        )
        need(core.t_m <= ROWS_MAX, f"t_m must be {ROWS_MAX} at most, not {core.t_m}")
        need(1 <= self.sequences <= core.t_m, f"sequences must be 1 to t_m = {core.t_m}")
        need(
            core.special_elements == core.drain,
            f"special_elements = {core.special_elements} must equal drain = {core.drain}: a slice"
            " takes results as they leave the array",
        )
        need(core.contexts >= 2, "contexts must be 2 or more: scores, and sums of P.V")
        return problems

    @property
    def memory(self) -> MemoryConfig:
        """The memory ports: a request's tag says where in the ring its lines go."""
        lines = self.ring_rows * PLANE_LINES
        line_beats = LINE_BITS // self.port_bits
        return MemoryConfig(
            name=self.name,
            ports=self.ports,
            port_bits=self.port_bits,
            address_bits=self.address_bits,
            max_beats=max(16, 8 * line_beats),
            outstanding=16,
            ring_lines=lines,
            fifo_lines=8 if self.ports > 1 else 4,
            tag_bits=1 + (lines - 1).bit_length(),
        )

    @property
    def name(self) -> str:
        """Of the core."""
        return self.core.name

    @property
    def head_tiles_max(self) -> int:
        """Most tiles of a head's channels: an accumulator context each, and one for scores."""
        return self.core.contexts - 1

    @property
    def block_tiles(self) -> int:
        """k-tiles of a block: what lets two blocks of most planes lie in the ring, at most 8."""
        return min(BLOCK_TILES_MAX, self.ring_rows // (2 * self.core.p_max))

    @property
    def exponent_lines(self) -> int:
        """Lines of shared exponents beside the ring, one a tile: a tile has five planes or more."""
        return self.ring_rows // 4

    @property
    def staging_words(self) -> int:
        """Bank words at the end of a bank that attention stages in.

        Four tiles of probabilities; the queries and the results of two passes.
        """
        return (STAGED_TILES + 4 * self.head_tiles_max) * TILE_WORDS

    @property
    def staging(self) -> int:
        """The first of them: probabilities, then queries, then results."""
        return self.bank_words - self.staging_words

    @property
    def word_bits(self) -> int:
        """Width of a bank word's number."""
        return (self.bank_words - 1).bit_length()


def _chip(name: str, **more: int) -> ChipConfig:
    core = PRESETS[name]
    return ChipConfig(core=dataclasses.replace(core, special_elements=core.drain), **more)


CHIPS = {
    "tiny": _chip("tiny", ports=1, port_bits=64, ring_rows=64, bank_words=256, sequences=2),
    "small": _chip("small", ports=1, port_bits=512, ring_rows=512, bank_words=512, sequences=8),
    "paper": _chip("paper", ports=8, port_bits=512, ring_rows=512, bank_words=1792, sequences=32),
}
