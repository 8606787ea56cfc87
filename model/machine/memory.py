"""Memory as the chip sees it: regions of lines, and a count of the bytes that it moves."""

from __future__ import annotations

from collections import Counter

import numpy as np

from model.formats.commands import LINE_BYTES, Region, Status
from model.formats.planes import Bytes
from model.formats.registers import PLANES, TRAFFIC
from model.machine.state import Fault


class Memory:
    """Bytes, and the regions that registers lay over them.

    What is read and what is counted are told apart: a weight that is kept decoded is counted each
    time that the chip would read it.

    Args:
        size: bytes.

    Attributes:
        data: all bytes.
        base, lines: of each region, as the registers BASE and SIZE hold them.
        traffic: bytes by the names of `TRAFFIC`.
        planes: bytes of each plane of weights.
    """

    def __init__(self, size: int) -> None:
        self.data: Bytes = np.zeros(size, np.uint8)
        self.base = [0] * len(Region)
        self.lines = [0] * len(Region)
        self.traffic: Counter[str] = Counter()
        self.planes = [0] * PLANES

    def clear_counters(self) -> None:
        """All counts 0."""
        self.traffic.clear()
        self.planes = [0] * PLANES

    def check(self, region: Region, line: int, count: int) -> None:
        """Fault REGION unless so many lines from a line on lie in the region."""
        if line + count > self.lines[region]:
            raise Fault(
                Status.REGION,
                f"{region.name} has {self.lines[region]} lines, not {line + count}",
            )

    def _span(self, region: Region, offset: int, count: int, status: Status) -> slice:
        inside = 0 <= offset <= offset + count <= self.lines[region] * LINE_BYTES
        assert inside, f"{region.name}: {count} bytes at {offset}"
        start = self.base[region] + offset
        if start + count > len(self.data):
            raise Fault(status, f"no memory at {start:#x}")
        return slice(start, start + count)

    def at(self, region: Region, offset: int, count: int, status: Status = Status.READ) -> Bytes:
        """A view of bytes of a region, from a byte offset on; not counted.

        Fault `status` where there is no memory.
        """
        return self.data[self._span(region, offset, count, status)]

    def read(self, kind: str, region: Region, line: int, count: int) -> Bytes:
        """Reads and counts whole lines."""
        found = self.at(region, line * LINE_BYTES, count * LINE_BYTES)
        self.count(kind, count * LINE_BYTES)
        return found

    def write(self, kind: str, region: Region, offset: int, content: bytes | Bytes) -> None:
        """Writes and counts bytes at a byte offset."""
        span = self._span(region, offset, len(content), Status.WRITE)
        self.data[span] = np.frombuffer(content, np.uint8)
        self.count(kind, len(content))

    def count(self, kind: str, count: int) -> None:
        """Counts bytes that the chip moves."""
        assert kind in TRAFFIC, kind
        self.traffic[kind] += count
