"""Pieces under test, their lines as the ports bring them, and the DMA's part."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from hw.chip_config import LINE_BITS, PLANE_LINES, ChipConfig
from hw.issue.pieces import piece_layout
from hw.memory.ring import ring_line_layout
from sim import words
from sim.stimulus import KINDS, Tile, random_rises, tile
from sim.words import Array

LINE_BYTES = LINE_BITS // 8


@dataclass
class Piece:
    """A block of tiles with all that belongs to it.

    Attributes
    ----------
    tiles : list of Tile
        Their activations are not looked at: they come from the banks.
    opened, mix : bool
    source : int
        Bank word of the first activations.
    """

    tiles: list[Tile]
    opened: bool = False
    mix: bool = False
    source: int = 0

    def word(self, config: ChipConfig) -> int:
        """As a word of the stream of pieces."""
        head, last = self.tiles[0], self.tiles[-1]
        return words.pack(
            piece_layout(config),
            {
                "tiles": len(self.tiles),
                "p": head.p,
                "opened": int(self.opened),
                "midpoint": head.midpoint,
                "needs": 0,
                "gate": 0,
                "first": head.first,
                "last": last.last,
                "context": head.context,
                "fp32": head.fp32,
                "scaled": int(last.scales is not None),
                "mix": int(self.mix),
                "source": self.source,
                "rows": head.rows,
            },
        )

    @property
    def line_count(self) -> int:
        """Lines of memory: one of exponents a tile, and its planes."""
        if self.opened:
            return 0
        return sum(1 + PLANE_LINES * each.p for each in self.tiles)

    def planes(self) -> list[bytes]:
        """Planes in the order of the memory image: plane-major."""
        result = []
        for b in range(self.tiles[0].p):
            for each in self.tiles:
                shift = each.p - 1 - b
                bits = each.signs if b == 0 else each.magnitudes >> shift & 1
                result.append(np.packbits(bits.astype(np.uint8), bitorder="little").tobytes())
        return result


def random_pieces(
    config: ChipConfig, rng: np.random.Generator, count: int, *, words_used: int
) -> list[Piece]:
    """Pieces of ``count`` output tiles, contexts interleaved; everything changes all the time."""
    core = config.core
    pick = random.Random(int(rng.integers(1 << 30)))
    result: list[Piece] = []
    open_blocks: dict[int, int] = {}
    settings: dict[int, tuple[int, int, int, int, bool, bool]] = {}
    while count or open_blocks:
        context = pick.randrange(core.contexts)
        if context not in open_blocks:
            if not count:
                continue
            count -= 1
            open_blocks[context] = pick.choice((1, 1, 2, 3))
            mix, opened = pick.choice(((True, False), (False, True), (False, False)))
            settings[context] = (
                core.p_max if opened else pick.choice((5, 5, 6, 7, 8, 9, core.p_max)),
                pick.randrange(2),
                pick.randrange(2),
                pick.choice(((1 << core.t_m) - 1, pick.getrandbits(core.t_m))),
                mix,
                opened,
            )
            first = True
        else:
            first = False
        p, fp32, midpoint, rows, mix, opened = settings[context]
        open_blocks[context] -= 1
        last = open_blocks[context] == 0
        most = config.head_tiles_max if opened else config.block_tiles
        blocks = 1 if mix else pick.choice((1, most, pick.randint(1, most)))
        tiles = [tile(core, rng, pick.choice(KINDS), p) for _ in range(blocks)]
        for number, each in enumerate(tiles):
            each.first = int(first and number == 0)
            each.last = int(last and number == blocks - 1)
            each.context, each.fp32, each.midpoint, each.rows = context, fp32, midpoint, rows
            if mix:
                each.rises = random_rises(rng, core.t_m) or [0] * core.t_m
            if opened:
                each.exponents[:] = 1
        if last:
            del open_blocks[context]
            if not mix and pick.random() < 0.3:
                tiles[-1].scales = rng.integers(0, 254, 64).astype(np.uint8)
        source = 4 * pick.randint(0, words_used // 4 - blocks)
        result.append(Piece(tiles, opened, mix, source))
    return result


@dataclass
class _Burst:
    lines: int
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.lines


class Deliveries:
    """What a DMA would do: deals bursts of lines to the ports, counts what has arrived in order.

    Attributes
    ----------
    sizes : lines of a burst
    sent_lines, sent_rows : int
        Lines asked for so far, and rows of the ring.
    frontier : int
        Lines that have arrived and all before them too.
    """

    def __init__(self, config: ChipConfig, rng: random.Random) -> None:
        self.config, self.rng = config, rng
        self.sizes: tuple[int, ...] = (1, 7, 16, 64)
        self.sent_lines = self.sent_rows = 0
        self.frontier = 0
        self._exponent_line = 0
        self._port = 0
        self._bursts: deque[_Burst] = deque()
        self._owners: list[deque[_Burst]] = [deque() for _ in range(config.ports)]

    def deal(self, piece: Piece) -> list[list[int]]:
        """Words of each port for the lines of a piece."""
        config = self.config
        layout = ring_line_layout(config)
        lines: list[tuple[bytes, int, int]] = []
        for each in piece.tiles:
            exponents = each.exponents.astype(np.uint8).tobytes()
            lines.append((exponents, self._exponent_line % config.exponent_lines, 1))
            self._exponent_line += 1
        for plane in piece.planes():
            for i in range(PLANE_LINES):
                place = (self.sent_rows % config.ring_rows) * PLANE_LINES + i
                lines.append((plane[i * LINE_BYTES : (i + 1) * LINE_BYTES], place, 0))
            self.sent_rows += 1
        self.sent_lines += len(lines)
        dealt: list[list[int]] = [[] for _ in range(config.ports)]
        while lines:
            size = min(len(lines), self.rng.choice(self.sizes))
            burst = _Burst(size)
            self._bursts.append(burst)
            for content, place, is_exponents in lines[:size]:
                word = {
                    "data": int.from_bytes(content, "little"),
                    "place": place,
                    "exponents": is_exponents,
                }
                dealt[self._port].append(words.pack(layout, word))
                self._owners[self._port].append(burst)
            del lines[:size]
            self._port = (self._port + 1) % config.ports
        return dealt

    def arrived(self, port: int) -> None:
        """A port's next line is in the ring."""
        self._owners[port].popleft().left -= 1
        while self._bursts and not self._bursts[0].left:
            self.frontier += self._bursts.popleft().lines


def bank_groups(banks: Array, source: int, number: int) -> list[int]:
    """Words of the activations' stream of the ``number``-th tile from ``source`` on."""
    first = source + 4 * number
    return [words.from_array(banks[:, first + g]) for g in range(4)]
