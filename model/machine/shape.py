"""What software needs to know of a chip: how many rows, how large its memories."""

from __future__ import annotations

from dataclasses import dataclass

from model.formats import registers
from model.formats.checks import check_int
from model.formats.commands import BANK_WORD
from model.formats.constants import P_FULL_MAX, P_FULL_MIN, TILE_K, TILES_PER_BLOCK


@dataclass(frozen=True, kw_only=True)
class MachineShape:
    """Sizes of a chip.

    Attributes:
        name: of the preset, or any.
        t_m: rows of a step, 1..64: no step may close two key blocks of one sequence.
        bank_words: words of 16 elements that a row has in the unified buffer, those included that
            attention stages queries and results in.
        sequences: sequences that the chip keeps lengths of, `t_m` at most.
        p_max: most planes of a number; 16, since open keys have 16.
        head_tiles_max: tiles of 64 channels of the widest head.
        max_k: longest reduction, and so the longest context.
        tiles_per_block: k-tiles of a block of weights in the image.

    Raises:
        TypeError, ValueError: a size out of range, by name.
    """

    name: str = "custom"
    t_m: int
    bank_words: int
    sequences: int
    p_max: int = P_FULL_MAX
    head_tiles_max: int = 2
    max_k: int = 131_072
    tiles_per_block: int = TILES_PER_BLOCK

    def __post_init__(self) -> None:
        check_int("t_m", self.t_m, 1, TILE_K)
        check_int("sequences", self.sequences, 1, min(self.t_m, registers.SEQUENCES_MAX))
        check_int("p_max", self.p_max, P_FULL_MIN, P_FULL_MAX)
        check_int("head_tiles_max", self.head_tiles_max, 1, 15)
        check_int("bank_words", self.bank_words, self.staging_words + 4, (1 << 16) - 1)
        check_int("max_k", self.max_k, TILE_K, 1 << 24)
        check_int("tiles_per_block", self.tiles_per_block, 1, 255)

    @property
    def staging_words(self) -> int:
        """Words at the end of a bank that belong to attention.

        Four tiles of probabilities; the queries and the results of two passes.
        """
        return (4 + 4 * self.head_tiles_max) * TILE_K // BANK_WORD

    @property
    def usable_words(self) -> int:
        """Words of a bank that commands may name."""
        return self.bank_words - self.staging_words

    def registers(self) -> dict[str, int]:
        """What the registers of the configuration read as."""
        return {
            "ID": registers.ID,
            "VERSION": registers.VERSION,
            "CONFIG": registers.pack(
                "CONFIG",
                t_m=self.t_m,
                p_max=self.p_max,
                head_tiles_max=self.head_tiles_max,
                tiles_per_block=self.tiles_per_block,
            ),
            "SIZES": registers.pack("SIZES", bank_words=self.bank_words, sequences=self.sequences),
            "MAX_K": self.max_k,
        }


#: The chips that the project builds.
PRESETS = {
    shape.name: shape
    for shape in (
        MachineShape(name="tiny", t_m=2, bank_words=256, sequences=2, tiles_per_block=2),
        MachineShape(name="small", t_m=8, bank_words=512, sequences=8),
        MachineShape(name="paper", t_m=32, bank_words=1792, sequences=32),
    )
}


def preset(name: str) -> MachineShape:
    """The preset of that name; ValueError otherwise."""
    if name not in PRESETS:
        raise ValueError(f"chip must be one of {', '.join(PRESETS)}, not {name!r}")
    return PRESETS[name]
