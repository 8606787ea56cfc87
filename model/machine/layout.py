"""Where everything lies in memory: the manifest of an image.

All of it follows from a model's shape, the chip's, the capacity and the number of sequences, so a
manifest can be made, printed and checked without a weight at hand. The JSON form holds the
results as well, for hosts that are not written in Python.

Source: docs/chip.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from model.datapath.special import RopeScaling
from model.formats.checks import check_int
from model.formats.commands import BANK_WORD, LINE_BYTES, OPEN_ROWS, TRACE_LINES, Region
from model.formats.constants import TILE_K, TILE_N
from model.lm.config import ModelConfig
from model.machine.shape import MachineShape

#: Regions and matrices start at multiples of this many lines: 4 KiB.
ALIGNED_LINES = 4096 // LINE_BYTES
#: Lines of COMMANDS that jobs may use, behind the step.
JOB_LINES = 1024
#: Trace entries of a sequence.
TRACE_ROUNDS = 64
#: Regions whose bytes an image holds; the others begin as zeros.
STATIC = (Region.COMMANDS, Region.WEIGHTS, Region.EMBED, Region.NORM, Region.ROPE)
#: Matrices of a layer in memory, and the linear layers that each holds.
MATRICES = {"qkv": ("q", "k", "v"), "o": ("o",), "gate_up": ("gate", "up"), "down": ("down",)}
#: Lines of a step beside those of the layers: NORM, and HEAD in four forms.
STEP_TAIL = 5
#: Commands of a layer.
LAYER_COMMANDS = 8


class Matrix(NamedTuple):
    """A matrix in WEIGHTS.

    Attributes:
        line: its first line.
        k_tiles, n_tiles: inputs and outputs, in tiles.
    """

    line: int
    k_tiles: int
    n_tiles: int


class Extent(NamedTuple):
    """A region.

    Attributes:
        base: address of its first byte.
        lines: its size.
    """

    base: int
    lines: int


class BankPlan(NamedTuple):
    """Places in the unified buffer, in bank words.

    Attributes:
        x: the residual stream.
        side: its norm, then the attention's output.
        wide: queries, keys and values; later SiLU(gate) times up.
        words: all of it.
    """

    x: int
    side: int
    wide: int
    words: int


def lines_of(elements: int, width: int = 2) -> int:
    """Lines of so many elements of `width` bytes."""
    return -(-elements * width // LINE_BYTES)


def aligned(lines: int) -> int:
    """Lines up to the next multiple of 4 KiB."""
    return -(-lines // ALIGNED_LINES) * ALIGNED_LINES


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """An image's plan.

    Attributes:
        config: the model's shape.
        p_full: bits of a stored number.
        shape: the chip's.
        capacity: positions of a sequence.
        sequences: sequences that there is room for.
        base: address of the first region.
        sha256: of the bytes of each region in `STATIC`, by name; empty before they are written.

    Raises:
        TypeError: an argument of another type.
        ValueError: what the chip cannot hold; all of it, by name.
    """

    config: ModelConfig
    p_full: int
    shape: MachineShape
    capacity: int
    sequences: int
    base: int = 0
    sha256: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_int("capacity", self.capacity, 1, 1 << 24)
        check_int("sequences", self.sequences, 1, self.shape.sequences)
        check_int("p_full", self.p_full, 9, self.shape.p_max)
        check_int("base", self.base, 0, 1 << 62)
        if self.base % 4096:
            raise ValueError(f"base must be a multiple of 4096, not {self.base}")
        wrong = [*self._misfits()]
        if wrong:
            raise ValueError("; ".join(wrong))

    def _misfits(self) -> Iterator[str]:
        config, shape = self.config, self.shape
        for name in ("width", "ff_width"):
            if getattr(config, name) % TILE_K:
                yield f"{name} must be a multiple of {TILE_K}, not {getattr(config, name)}"
        widths = [TILE_K * tiles for tiles in range(1, min(shape.head_tiles_max, 2) + 1)]
        if config.head_width not in widths:
            names = " or ".join(map(str, widths))
            yield f"head_width must be {names}, not {config.head_width}"
        if self.group > min(shape.t_m, 255):
            yield (
                f"heads / kv_heads must be at most t_m = {shape.t_m}, not {config.heads} / "
                f"{config.kv_heads}"
            )
        if config.kv_heads > 255:
            yield f"kv_heads must be at most 255, not {config.kv_heads}"
        queries = config.heads * config.head_width
        for name, inputs in (("q", config.width), ("o", queries), ("down", config.ff_width)):
            if inputs > shape.max_k:
                yield f"{name} must have at most max_k = {shape.max_k} inputs, not {inputs}"
        longest = -(-(config.max_positions + 1) // TILE_K) * TILE_K
        if self.capacity % TILE_K or not TILE_K <= self.capacity <= min(longest, shape.max_k):
            yield (
                f"capacity must be a multiple of {TILE_K} up to {min(longest, shape.max_k)} "
                f"(max_positions {config.max_positions} and one token, max_k {shape.max_k}), not "
                f"{self.capacity}"
            )
        need = self.bank
        if need.words > shape.usable_words:
            yield (
                f"a row must fit {shape.usable_words} bank words, not {need.words}: "
                f"{need.side} of x, {need.wide - need.side} of its norm or the attention's output, "
                f"{need.words - need.wide} of queries, keys and values or of the feed-forward"
            )

    @property
    def group(self) -> int:
        """Query heads of a key head."""
        return self.config.heads // self.config.kv_heads

    @property
    def width_tiles(self) -> int:
        """d, in tiles."""
        return self.config.width // TILE_K

    @property
    def head_tiles(self) -> int:
        """d_h, in tiles."""
        return self.config.head_width // TILE_K

    @property
    def qkv_width(self) -> int:
        """Outputs of the fused matrix of queries, keys and values."""
        return (self.config.heads + 2 * self.config.kv_heads) * self.config.head_width

    @property
    def tile_lines(self) -> int:
        """Lines of a tile with all its planes."""
        return 1 + 8 * self.p_full

    @cached_property
    def bank(self) -> BankPlan:
        """Places in the unified buffer."""
        config = self.config
        side = -(-config.width // BANK_WORD)
        wide = side - (-max(config.width, config.heads * config.head_width) // BANK_WORD)
        words = wide - (-max(self.qkv_width, config.ff_width) // BANK_WORD)
        return BankPlan(0, side, wide, words)

    # Strides, in lines: the fields of MODEL, and those from layer to layer.

    @property
    def key_head(self) -> int:
        """Closed keys, from head to head."""
        return self.capacity // TILE_N * self.head_tiles * self.tile_lines

    @property
    def key_layer(self) -> int:
        """Closed keys, from layer to layer."""
        return self.config.kv_heads * self.key_head

    @property
    def key_sequence(self) -> int:
        """Closed keys, from sequence to sequence."""
        return self.config.layers * self.key_layer

    @property
    def value_channels(self) -> int:
        """Values, from n-tile to n-tile."""
        return self.capacity // TILE_K * self.tile_lines

    @property
    def value_head(self) -> int:
        """Values, from head to head."""
        return self.head_tiles * self.value_channels

    @property
    def value_layer(self) -> int:
        """Values, from layer to layer."""
        return self.config.kv_heads * self.value_head

    @property
    def value_sequence(self) -> int:
        """Values, from sequence to sequence."""
        return self.config.layers * self.value_layer

    @property
    def open_layer(self) -> int:
        """Open keys, from layer to layer."""
        return self.config.kv_heads * OPEN_ROWS * 2 * self.head_tiles

    @property
    def open_sequence(self) -> int:
        """Open keys, from sequence to sequence."""
        return self.config.layers * self.open_layer

    @property
    def vocabulary_tiles(self) -> int:
        """Outputs of the head, in tiles."""
        return -(-self.config.vocabulary // TILE_N)

    @cached_property
    def _placed(self) -> tuple[list[dict[str, Matrix]], Matrix, int]:
        config, line = self.config, 0
        shapes = {
            "qkv": (config.width, self.qkv_width),
            "o": (config.heads * config.head_width, config.width),
            "gate_up": (config.width, 2 * config.ff_width),
            "down": (config.ff_width, config.width),
        }

        def place(k: int, n: int) -> Matrix:
            nonlocal line
            matrix = Matrix(line, -(-k // TILE_K), -(-n // TILE_N))
            line = aligned(line + matrix.k_tiles * matrix.n_tiles * self.tile_lines)
            return matrix

        layers = [{name: place(*shapes[name]) for name in MATRICES} for _ in range(config.layers)]
        return layers, place(config.width, config.vocabulary), line

    @property
    def matrices(self) -> list[dict[str, Matrix]]:
        """The matrices of each layer, by name."""
        return self._placed[0]

    @property
    def head(self) -> Matrix:
        """The head."""
        return self._placed[1]

    @cached_property
    def norms(self) -> list[dict[str, int]]:
        """First line of each norm's weights in NORM, for each layer; `norm` in one entry more."""
        line, places = 0, []
        for _ in range(self.config.layers):
            layer = {}
            for name, (width,) in self.config.norm_shapes().items():
                layer[name] = line
                line += lines_of(width)
            places.append(layer)
        return [*places, {"norm": line}]

    @property
    def jobs(self) -> int:
        """First line of COMMANDS that jobs may use."""
        return aligned(1 + self.config.layers * LAYER_COMMANDS + STEP_TAIL)

    @cached_property
    def regions(self) -> dict[Region, Extent]:
        """Base and size of every region."""
        config, n = self.config, self.sequences
        lines = {
            Region.COMMANDS: self.jobs + JOB_LINES,
            Region.WEIGHTS: self._placed[2],
            Region.EMBED: config.vocabulary * 2 * self.width_tiles,
            Region.NORM: self.norms[-1]["norm"] + lines_of(config.width),
            Region.ROPE: self.capacity * 2 * self.head_tiles,
            Region.KEYS: n * self.key_sequence,
            Region.VALUES: n * self.value_sequence,
            Region.OPEN_KEYS: n * self.open_sequence,
            Region.TOKENS: n * self.capacity // 16,
            Region.LOGITS: self.shape.t_m * 4 * self.vocabulary_tiles,
            Region.TRACE: n * TRACE_ROUNDS * TRACE_LINES,
        }
        found, base = {}, self.base
        for region in Region:
            found[region] = Extent(base, lines[region])
            base += aligned(lines[region]) * LINE_BYTES
        return found

    @property
    def size(self) -> int:
        """Bytes from the base to the end of the last region, a multiple of 4 KiB."""
        last = self.regions[Region.TRACE]
        return last.base + aligned(last.lines) * LINE_BYTES - self.base

    @property
    def static_size(self) -> int:
        """Bytes of the regions in `STATIC`, which come first."""
        return self.regions[Region.KEYS].base - self.base

    def as_json(self) -> dict[str, Any]:
        """The JSON form: what the manifest was made from, and all that follows from it."""
        given = dataclasses.asdict(self)
        strides = (
            "key_head key_layer key_sequence value_channels value_head value_layer value_sequence "
            "open_layer open_sequence"
        )
        return {
            **given,
            "config": {**given["config"], "end_ids": list(self.config.end_ids)},
            "sha256": dict(self.sha256),
            "bytes": self.size,
            "static_bytes": self.static_size,
            "regions": {r.name: extent._asdict() for r, extent in self.regions.items()},
            "matrices": [
                {name: matrix._asdict() for name, matrix in layer.items()}
                for layer in self.matrices
            ],
            "head": self.head._asdict(),
            "norms": self.norms,
            "strides": {name: getattr(self, name) for name in strides.split()},
            "bank": self.bank._asdict(),
            "jobs": self.jobs,
        }

    @staticmethod
    def of_json(found: Mapping[str, Any]) -> Manifest:
        """The manifest of the JSON form.

        Raises:
            ValueError: a key that is missing, or one that does not follow from the others, by name.
        """
        try:
            config = dict(found["config"])
            if config["rope_scaling"] is not None:
                config["rope_scaling"] = RopeScaling(**config["rope_scaling"])
            config["end_ids"] = tuple(config["end_ids"])
            manifest = Manifest(
                config=ModelConfig(**config),
                shape=MachineShape(**found["shape"]),
                sha256=dict(found["sha256"]),
                **{k: found[k] for k in ("p_full", "capacity", "sequences", "base")},
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a manifest must have all its keys: {error}") from None
        for name, value in manifest.as_json().items():
            if found.get(name) != value:
                raise ValueError(f"{name} must be {value!r}, not {found.get(name)!r}")
        return manifest

    def table(self) -> list[tuple[str, int, int]]:
        """(region, base, bytes) of every region."""
        return [(r.name, e.base, e.lines * LINE_BYTES) for r, e in self.regions.items()]
