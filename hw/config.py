"""One frozen description of a compute core, from which every width is derived.

The bounds behind the widths are those of the arithmetic contract (``docs/number-format.md``):
an aligned activation has at most ``a_max = 255 * 2**align_guard_bits``, a table entry sums
``mu`` of them, a tile sum 64 of them times a coefficient below ``2**p_max``.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Side of a tile and length of a group (contract section 2): fixed, because the tile exponent is
#: a maximum over 64 reduction indices whatever the size of the array.
TILE = 64
#: Fewest planes of a tile, the sign plane included (contract section 4).
P_MIN = 5
#: Pipeline stages of a column's reduction, and groups in which look-up tables are renewed.
#: A group is renewed in one cycle and the groups follow each other, so ``GROUPS < P_MIN`` is what
#: lets the tables of the next tile be built behind the current one at every precision.
GROUPS = 4
#: Largest magnitude of a BF16 significand, ``1.1111111``.
SIGNIFICAND_MAX = 255


def signed_bits(bound: int) -> int:
    """Width in bits of a two's complement number that holds ``-bound .. bound``."""
    return bound.bit_length() + 1


class ConfigError(ValueError):
    """A configuration that cannot work; the message lists every reason, one a line."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Parameters of a compute core.

    Parameters
    ----------
    name : str
        Name of the configuration; appears in reports and file names.
    t_m : int
        MPUs, one row of activations each (``T_M``).
    subarrays : int
        Subarrays of an MPU.
    fanout : int
        BS-RAC lanes (columns) a look-up table feeds within one subarray.
    mu : int
        Activations a look-up table covers (index width), 2 or 4.
    p_max : int
        Most planes of a tile, the sign plane included: 9 (BFP9 only) to 16.
    align_guard_bits : int
        ``g`` of contract section 5.
    acc_guard_bits : int
        ``f`` of contract section 7.
    max_k : int
        Longest reduction; bounds the accumulators (contract section 7).
    acc_bits : int or None
        Accumulator width; ``None`` takes the smallest that the bound allows.
    contexts : int
        Accumulator contexts: output tiles whose sums an MPU keeps at the same time.
    acc_columns : int
        Columns that one cycle brings from tile sums to accumulators, an MPU.
    drain : int
        Results that leave a cycle, an MPU.
    result_tiles : int
        Output tiles that the result buffer of an MPU holds.
    special_elements : int
        Elements a cycle of a slice of the special function unit, one slice a row: 1, 2, 4 or 8.

    Raises
    ------
    ConfigError
        With every reason why the configuration cannot work, and the arithmetic behind each.
    TypeError
        If a parameter has the wrong kind.
    """

    name: str
    t_m: int
    subarrays: int
    fanout: int
    mu: int = 4
    p_max: int = 16
    align_guard_bits: int = 8
    acc_guard_bits: int = 8
    max_k: int = 131072
    acc_bits: int | None = None
    contexts: int = 3
    acc_columns: int = 16
    drain: int = 8
    result_tiles: int = 2
    special_elements: int = 2

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "name":
                if not isinstance(value, str):
                    raise TypeError(f"name must be a string, not {value!r}")
            elif field.name == "acc_bits" and value is None:
                continue
            elif not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{field.name} must be an integer, not {value!r}")
        problems = self._problems()
        if problems:
            lines = "\n".join(f"  - {problem}" for problem in problems)
            raise ConfigError(f"configuration {self.name!r} cannot work:\n{lines}")

    def _problems(self) -> list[str]:
        problems: list[str] = []

        def need(condition: bool, message: str) -> bool:
            if not condition:
                problems.append(message)
            return condition

        need(
            self.name.isidentifier(),
            f"name must be letters, digits and underscores, not {self.name!r}",
        )
        need(1 <= self.t_m <= 256, f"t_m must be 1 to 256, not {self.t_m}")
        sized = need(self.subarrays >= 1, f"subarrays must be at least 1, not {self.subarrays}")
        sized &= need(self.fanout >= 1, f"fanout must be at least 1, not {self.fanout}")
        need(self.mu in (2, 4), f"mu must be 2 or 4, not {self.mu}")
        need(9 <= self.p_max <= 16, f"p_max must be 9 to 16, not {self.p_max}")
        guards = need(
            0 <= self.align_guard_bits <= 16,
            f"align_guard_bits must be 0 to 16, not {self.align_guard_bits}",
        )
        guards &= need(
            0 <= self.acc_guard_bits <= 16,
            f"acc_guard_bits must be 0 to 16, not {self.acc_guard_bits}",
        )
        guards &= need(
            TILE <= self.max_k <= 1 << 24, f"max_k must be 64 to 16777216, not {self.max_k}"
        )
        need(1 <= self.contexts <= 16, f"contexts must be 1 to 16, not {self.contexts}")
        need(self.result_tiles >= 2, f"result_tiles must be at least 2, not {self.result_tiles}")
        need(
            self.special_elements in (1, 2, 4, 8),
            f"special_elements must be 1, 2, 4 or 8, not {self.special_elements}",
        )
        sized &= need(self.acc_columns >= 1, f"acc_columns must be >= 1, not {self.acc_columns}")
        sized &= need(self.drain >= 1, f"drain must be at least 1, not {self.drain}")
        if sized:
            lanes = self.subarrays * self.fanout
            need(
                lanes <= TILE and TILE % lanes == 0,
                f"subarrays x fanout = {self.subarrays} x {self.fanout} = {lanes} lanes"
                f" must divide {TILE}",
            )
            rows = -(-lanes // self.acc_columns)
            need(
                lanes % self.acc_columns == 0,
                f"acc_columns = {self.acc_columns} must divide the {lanes} lanes",
            )
            need(
                rows < P_MIN,
                f"{lanes} lanes / {self.acc_columns} acc_columns = {rows} cycles for"
                f" the sums of a tile, but {P_MIN} planes leave {P_MIN - 1}",
            )
            need(
                self.acc_columns % self.drain == 0,
                f"drain = {self.drain} must divide acc_columns = {self.acc_columns}",
            )
        if guards and self.acc_bits is not None:
            need(
                self.acc_bits >= self.acc_bits_needed,
                f"acc_bits = {self.acc_bits} is below the bound: {self.max_k} x 255 x"
                f" 2^({self.align_guard_bits}+{self.acc_guard_bits}) x (2^{self.p_max} - 1) needs"
                f" {self.acc_bits_needed} bits",
            )
            need(self.acc_bits <= 96, f"acc_bits must be at most 96, not {self.acc_bits}")
        return problems

    # Geometry -------------------------------------------------------------------------------

    @property
    def lanes(self) -> int:
        """Columns that a cycle serves."""
        return self.subarrays * self.fanout

    @property
    def fold(self) -> int:
        """Passes over the columns of a tile: a tile of p planes takes ``p * fold`` cycles."""
        return TILE // self.lanes

    @property
    def luts(self) -> int:
        """Look-up tables of an MPU (all subarrays of an MPU read the same ones)."""
        return TILE // self.mu

    @property
    def luts_per_group(self) -> int:
        """Tables built in one cycle."""
        return self.luts // GROUPS

    @property
    def group_k(self) -> int:
        """Activations of one renewed group, and so aligners of an MPU."""
        return TILE // GROUPS

    @property
    def entries(self) -> int:
        """Entries of a half table."""
        return 1 << (self.mu - 1)

    @property
    def acc_rows(self) -> int:
        """Cycles in which the tile sums of all lanes reach the accumulators."""
        return self.lanes // self.acc_columns

    @property
    def tile_rows(self) -> int:
        """Accumulator rows of one output tile."""
        return TILE // self.acc_columns

    @property
    def result_rows(self) -> int:
        """Rows of the result buffer."""
        return self.result_tiles * self.tile_rows

    # Widths ---------------------------------------------------------------------------------

    @property
    def a_max(self) -> int:
        """Largest magnitude of an aligned activation."""
        return SIGNIFICAND_MAX << self.align_guard_bits

    @property
    def aligned_bits(self) -> int:
        """Signed width of an aligned activation."""
        return signed_bits(self.a_max)

    @property
    def entry_bits(self) -> int:
        """Signed width of a stored table entry: half the signed sum, rounded down.

        All signed sums of one table have the parity of the plain sum, so that bit is kept once a
        table instead of once an entry.
        """
        return signed_bits(self.mu * self.a_max // 2)

    @property
    def parity_bits(self) -> int:
        """Unsigned width of the number of odd tables, 0 .. luts."""
        return self.luts.bit_length()

    def partial_bits(self, stage: int) -> int:
        """Signed width of the reduction after ``stage`` (0 .. 3) of its four groups.

        Until the last stage a partial sum holds at most ``luts_per_group * (stage + 1)`` halved
        entries. The last stage may also take the difference of two such sums.
        """
        if not 0 <= stage < GROUPS:
            raise ValueError(f"stage must be 0 to {GROUPS - 1}, not {stage!r}")
        entry = self.mu * self.a_max // 2 + 1
        if stage == GROUPS - 1:
            return signed_bits(TILE * self.a_max + self.luts)
        return signed_bits((stage + 1) * self.luts_per_group * entry)

    @property
    def sign_sum_bits(self) -> int:
        """Signed width of the kept sum of a sign plane, in halves."""
        return signed_bits((TILE * self.a_max + self.luts) // 2)

    @property
    def tile_sum_bits(self) -> int:
        """Signed width of a tile sum ``I`` (contract section 5)."""
        return signed_bits(TILE * self.a_max * ((1 << self.p_max) - 1))

    @property
    def half_sum_bits(self) -> int:
        """Signed width of a tile sum without its lowest bit, the form a column keeps."""
        return signed_bits((TILE * self.a_max * ((1 << self.p_max) - 1) + 1) // 2)

    @property
    def acc_bits_needed(self) -> int:
        """Signed width of the accumulator bound (contract section 7)."""
        bound = self.max_k * (self.a_max << self.acc_guard_bits) * ((1 << self.p_max) - 1)
        return signed_bits(bound)

    @property
    def acc_width(self) -> int:
        """Signed width of an accumulator."""
        return self.acc_bits_needed if self.acc_bits is None else self.acc_bits

    @property
    def p_bits(self) -> int:
        """Width of a plane count."""
        return self.p_max.bit_length()

    @property
    def context_bits(self) -> int:
        """Width of a context number."""
        return max(1, (self.contexts - 1).bit_length())

    @property
    def result_note_bits(self) -> int:
        """Width of what is noted beside each row of the result buffer."""
        return self.t_m + self.context_bits + COLUMN_BITS + self.p_bits + 2

    @property
    def memory_bits(self) -> dict[str, int]:
        """Bits of every memory of the core, over all its instances, by module name."""
        row_bits = self.acc_columns * self.acc_width
        return {
            "bsspec_mem_accumulators": self.t_m * self.contexts * self.tile_rows * row_bits,
            "bsspec_mem_results": self.t_m * self.result_rows * (row_bits + RUNNING_BITS),
            "bsspec_mem_result_notes": self.result_rows * self.result_note_bits,
        }

    # Forms ----------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """Parameters and derived figures, for JSON."""
        derived = {
            name: getattr(self, name)
            for name in (
                "lanes",
                "fold",
                "luts",
                "aligned_bits",
                "entry_bits",
                "tile_sum_bits",
                "acc_width",
                "acc_rows",
                "result_rows",
                "memory_bits",
            )
        }
        return {"parameters": dataclasses.asdict(self), "derived": derived}

    def to_json(self) -> str:
        """Parameters and derived figures as JSON text, keys in a fixed order."""
        return json.dumps(self.as_dict(), indent=2) + "\n"


#: Width of a column number within an output tile.
COLUMN_BITS = 6
#: Width of a tile exponent ``X``: 2 .. 508, 0 for none.
EXPONENT_BITS = 9
#: A running exponent ``R`` is kept as ``R + RUNNING_BIAS``, 0 for none. Rises (contract section 11,
#: softmax) make it fall, to -127 at most: a tile then leaves nothing of the old sums, whatever its
#: exponent, and a result is zero in FP32.
RUNNING_BIAS = 128
RUNNING_BITS = 10
#: Width of a rise; the largest one is beyond every running exponent.
RISE_BITS = 10

PRESETS = {
    config.name: config
    for config in (
        Config(name="tiny", t_m=2, subarrays=1, fanout=4, acc_columns=1, drain=1),
        Config(name="small", t_m=8, subarrays=1, fanout=8, acc_columns=2, drain=2),
        Config(
            name="paper",
            t_m=32,
            subarrays=2,
            fanout=32,
            acc_columns=16,
            drain=8,
            special_elements=8,
        ),
    )
}


def load(source: str) -> Config:
    """A preset by name, or a configuration from a TOML file.

    The file holds the parameters of :class:`Config` as top-level keys; ``preset = "small"``
    takes the rest from a preset.

    Raises
    ------
    ConfigError
        If the name or file does not exist, the file does not parse, or a key is unknown.
    """
    if source in PRESETS:
        return PRESETS[source]
    path = Path(source)
    if path.suffix != ".toml":
        raise ConfigError(
            f"configuration must be {', '.join(PRESETS)} or a path ending in .toml, not {source!r}"
        )
    try:
        fields = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read configuration {source}: {error}") from None
    known = {field.name for field in dataclasses.fields(Config)}
    unknown = sorted(set(fields) - known - {"preset"})
    if unknown:
        raise ConfigError(
            f"{source}: unknown parameters {', '.join(unknown)}; known are"
            f" {', '.join(sorted(known))} and preset"
        )
    preset = fields.pop("preset", None)
    if preset is not None and preset not in PRESETS:
        raise ConfigError(f"{source}: preset must be one of {', '.join(PRESETS)}, not {preset!r}")
    base = dataclasses.asdict(PRESETS[preset]) if preset is not None else {}
    if preset is not None:
        base["name"] = path.stem
    try:
        return Config(**{**base, **fields})
    except TypeError as error:
        raise ConfigError(f"{source}: {error}") from None
