"""Payloads of the streams between the chip and its memory ports."""

from __future__ import annotations

from amaranth.hdl import unsigned
from amaranth.lib import data

from hw.axi.config import BURST_BITS, COUNT_BITS, LINE_BITS, LINE_BYTES, MemoryConfig


def request_layout(config: MemoryConfig) -> data.StructLayout:
    """A request: ``count`` lines, 1 to 2**20, from address ``line`` on; ``tag`` is the user's.

    Whoever makes requests sees to it that they have a line and end within the address space.
    """
    return data.StructLayout(
        {
            "line": unsigned(config.line_address_bits),
            "count": unsigned(COUNT_BITS),
            "tag": unsigned(config.tag_bits),
        }
    )


def burst_layout(config: MemoryConfig) -> data.StructLayout:
    """A burst: ``lines`` lines, 1 to 64, from ``line`` on; ``last`` of its request.

    Its byte address is ``line`` times 64, its beats are ``lines`` times the beats of a line: both
    are wiring, so bursts are the same for every width of a port.
    """
    return data.StructLayout(
        {
            "line": unsigned(config.line_address_bits),
            "lines": unsigned(BURST_BITS),
            "last": 1,
            "tag": unsigned(config.tag_bits),
        }
    )


def placed_burst_layout(config: MemoryConfig) -> data.StructLayout:
    """A burst of the wide stream: ``index`` is the position of its first line there."""
    fields = {name: field.shape for name, field in burst_layout(config) if name != "last"}
    return data.StructLayout({**fields, "index": unsigned(config.index_bits)})


def placed_line_layout(config: MemoryConfig) -> data.StructLayout:
    """A line of the wide stream as a port receives it.

    ``index`` is its position in the stream, ``tag`` that of its request, ``ends`` marks the last
    line of a burst, ``error`` a beat with an error response.
    """
    return data.StructLayout(
        {
            "data": unsigned(LINE_BITS),
            "error": 1,
            "ends": 1,
            "tag": unsigned(config.tag_bits),
            "index": unsigned(config.index_bits),
        }
    )


def stream_line_layout(config: MemoryConfig) -> data.StructLayout:
    """A line of the wide stream, its position there, and the tag of its request.

    In a ring that holds all of the stream, the row is the position's low bits.
    """
    return data.StructLayout(
        {
            "data": unsigned(LINE_BITS),
            "index": unsigned(config.index_bits),
            "tag": unsigned(config.tag_bits),
        }
    )


def read_line_layout(config: MemoryConfig) -> data.StructLayout:
    """A line of a small read: ``last`` of its request, ``error`` if memory answered with one."""
    return data.StructLayout(
        {"data": unsigned(LINE_BITS), "error": 1, "last": 1, "tag": unsigned(config.tag_bits)}
    )


def write_line_layout() -> data.StructLayout:
    """A line to be written: bit ``i`` of ``strobe`` says whether byte ``i`` is."""
    return data.StructLayout({"data": unsigned(LINE_BITS), "strobe": unsigned(LINE_BYTES)})
