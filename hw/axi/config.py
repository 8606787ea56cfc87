"""One frozen description of the memory ports, from which widths and memories are derived.

A **line** is 64 bytes, aligned: the unit of every address and length inside the chip. A **port**
is an AXI4 master. A burst never crosses 4 KiB, which is 64 lines.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

#: Bits of a line.
LINE_BITS = 512
LINE_BYTES = LINE_BITS // 8
#: Bits of an address within a line.
OFFSET_BITS = 6
#: Lines of the 4 KiB that no burst may cross.
PAGE_LINES = 64
#: Width of the line count of a request, 1 .. 2**20.
COUNT_BITS = 21
#: Width of the line count of a burst, 1 .. 64.
BURST_BITS = 7
#: Widths of a port.
PORT_BITS = (64, 128, 256, 512)
#: IDs on the read channels of port 0. All other ports, and writes, use the first one.
STREAM_ID = 0
READER_ID = 1
ID_BITS = 1


def _power(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


class MemoryConfigError(ValueError):
    """Memory ports that cannot work; the message lists every reason, one a line."""


@dataclass(frozen=True, kw_only=True)
class MemoryConfig:
    """Parameters of the memory ports.

    Parameters
    ----------
    name : str
        Name of the configuration, that of the core's that it belongs to.
    ports : int
        AXI4 masters: 1, 2, 4 or 8.
    port_bits : int
        Data bits of each: 64, 128, 256 or 512.
    address_bits : int
        Width of a byte address, 13 to 64.
    max_beats : int
        Longest burst in beats, whole lines, up to 256. Short bursts need a smaller ring; 16 beats
        pass any bridge to AXI3 in one piece.
    outstanding : int
        Bursts of one client that a port has on the bus at a time.
    ring_lines : int
        Lines of the ring that the wide stream is read into, a power of two, as are the next three.
    fifo_lines : int
        Lines that wait at each port for the ring.
    reader_lines : int
        Lines that are reserved for small reads.
    writer_lines : int
        Lines that wait to be written.
    tag_bits : int
        Width of the tag of a request.

    Raises
    ------
    MemoryConfigError
        With every reason why the ports cannot work.
    TypeError
        If a parameter has the wrong kind.
    """

    name: str
    ports: int
    port_bits: int
    address_bits: int = 40
    max_beats: int = 16
    outstanding: int = 16
    ring_lines: int = 256
    fifo_lines: int = 4
    reader_lines: int = 64
    writer_lines: int = 32
    tag_bits: int = 8

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            kind = str if field.name == "name" else int
            if not isinstance(value, kind) or isinstance(value, bool):
                wanted = "a string" if kind is str else "an integer"
                raise TypeError(f"{field.name} must be {wanted}, not {value!r}")
        problems = self._problems()
        if problems:
            lines = "\n".join(f"  - {problem}" for problem in problems)
            raise MemoryConfigError(f"memory ports {self.name!r} cannot work:\n{lines}")

    def _problems(self) -> list[str]:
        problems: list[str] = []

        def need(condition: bool, message: str) -> bool:
            if not condition:
                problems.append(message)
            return condition

        need(self.ports in (1, 2, 4, 8), f"ports must be 1, 2, 4 or 8, not {self.ports}")
        sized = need(
            self.port_bits in PORT_BITS,
            f"port_bits must be 64, 128, 256 or 512, not {self.port_bits}",
        )
        need(
            13 <= self.address_bits <= 64, f"address_bits must be 13 to 64, not {self.address_bits}"
        )
        need(1 <= self.outstanding <= 64, f"outstanding must be 1 to 64, not {self.outstanding}")
        need(1 <= self.tag_bits <= 32, f"tag_bits must be 1 to 32, not {self.tag_bits}")
        for name in ("ring_lines", "fifo_lines", "reader_lines", "writer_lines"):
            value = getattr(self, name)
            need(_power(value) and value > 1, f"{name} must be a power of two, not {value}")
        if sized and need(
            self.line_beats <= self.max_beats <= 256 and self.max_beats % self.line_beats == 0,
            f"max_beats must be a multiple of the {self.line_beats} beats of a line, up to 256,"
            f" not {self.max_beats}",
        ):
            for name in ("ring_lines", "reader_lines", "writer_lines"):
                value = getattr(self, name)
                need(
                    value >= self.burst_lines,
                    f"{name} must hold a burst of {self.burst_lines} lines, not {value}",
                )
        return problems

    @property
    def line_beats(self) -> int:
        """Beats of a line."""
        return LINE_BITS // self.port_bits

    @property
    def burst_lines(self) -> int:
        """Lines of the longest burst."""
        return min(PAGE_LINES, self.max_beats // self.line_beats)

    @property
    def line_address_bits(self) -> int:
        """Width of a line address."""
        return self.address_bits - OFFSET_BITS

    @property
    def index_bits(self) -> int:
        """Width of a position in the stream: one bit more than the ring's row, so that a full ring
        differs from an empty one."""
        return self.ring_lines.bit_length()


PRESETS = {
    config.name: config
    for config in (
        MemoryConfig(
            name="tiny",
            ports=1,
            port_bits=64,
            max_beats=64,
            outstanding=8,
            ring_lines=64,
            reader_lines=16,
            writer_lines=16,
        ),
        MemoryConfig(name="small", ports=1, port_bits=512),
        MemoryConfig(
            name="paper", ports=8, port_bits=512, ring_lines=2048, fifo_lines=8, reader_lines=256
        ),
    )
}
