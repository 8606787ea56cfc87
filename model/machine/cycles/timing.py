"""Sizes of a chip and of its memory, as far as they decide how long something takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Timing:
    """What the cycle model knows of a machine.

    Attributes:
        t_m: rows.
        fold: times a plane is read for the columns of a tile; a tile of p planes takes p * fold
            cycles.
        drain: results that a row gives out in a cycle, and elements of a beat of a slice.
        result_groups: column groups whose results may wait.
        ports: AXI masters.
        line_beats: beats of a line of 64 bytes on a port.
        burst_lines: lines of the longest burst.
        outstanding: bursts that a port may have on the bus.
        fifo_lines: lines that may wait between a port and the ring.
        ring_lines: lines of planes and exponents that may be asked for and not used up.
        pieces: pieces and jobs that may wait.
        latency: cycles from an address, or a burst's last datum, to the answer, as the memory of
            the simulation counts them.
    """

    t_m: int
    fold: int
    drain: int
    result_groups: int
    ports: int
    line_beats: int
    burst_lines: int
    outstanding: int
    fifo_lines: int
    ring_lines: int
    pieces: int
    latency: int

    @property
    def tile_beats(self) -> int:
        """Beats of an output tile."""
        return 64 // self.drain

    @property
    def word_beats(self) -> int:
        """Beats of a bank word of 16 numbers."""
        return 16 // self.drain
