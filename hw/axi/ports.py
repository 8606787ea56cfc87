"""All memory ports of the chip: the stream reader, the line reader and the writer."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hw.axi.arbiter import ReadArbiter
from hw.axi.bus import Axi, pass_on
from hw.axi.config import MemoryConfig
from hw.axi.dma import ReadDma
from hw.axi.layouts import (
    read_line_layout,
    request_layout,
    stream_line_layout,
    write_line_layout,
)
from hw.axi.read import LineReader, read_signature
from hw.axi.write import LineWriter, write_signature
from hw.library import Unique, instantiate


class MemoryPorts(Unique):
    """The chip's way to memory.

    Port 0 has all channels: the stream reader (ID 0) and the line reader (ID 1) share its read
    channels, the writer has the others. All further ports belong to the stream reader and have
    read channels only. Members are those of :class:`~hw.axi.dma.ReadDma`,
    :class:`~hw.axi.read.LineReader` and :class:`~hw.axi.write.LineWriter`, with a prefix; latency
    and throughput too, but that line reader and stream share port 0.

    Parameters
    ----------
    config : MemoryConfig

    Members
    -------
    stream_requests, stream_lines_0, ..., released, frontier
        Of the stream reader.
    read_requests, read_lines
        Of the line reader.
    write_requests, write_lines, write_busy
        Of the writer.
    stream_error, stream_error_tag, write_error, write_error_tag, clear
        Sticky.
    stop, idle
        Of all three. Once ``stop`` is 1 and ``idle`` is 1, a reset loses nothing of the bus's.
    m0_axi, m1_axi, ...
        The ports.
    """

    module_name = "bsspec_memory_ports"
    label = "memory ports"

    def __init__(self, config: MemoryConfig) -> None:
        self.config = config
        requests = stream.Signature(request_layout(config))
        bus = Axi(port_bits=config.port_bits, address_bits=config.address_bits)
        members: dict[str, Any] = {
            "stream_requests": In(requests),
            "released": In(config.index_bits),
            "frontier": Out(config.index_bits),
            "read_requests": In(requests),
            "read_lines": Out(stream.Signature(read_line_layout(config))),
            "write_requests": In(requests),
            "write_lines": In(stream.Signature(write_line_layout())),
            "write_busy": Out(1),
            "stream_error": Out(1),
            "stream_error_tag": Out(config.tag_bits),
            "write_error": Out(1),
            "write_error_tag": Out(config.tag_bits),
            "clear": In(1),
            "stop": In(1),
            "idle": Out(1),
        }
        for i in range(config.ports):
            members[f"stream_lines_{i}"] = Out(stream.Signature(stream_line_layout(config)))
            members[f"m{i}_axi"] = Out(bus if i == 0 else read_signature(config))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        dma = instantiate(m, "dma", ReadDma, config)
        reader = instantiate(m, "reader", LineReader, config)
        writer = instantiate(m, "writer", LineWriter, config)
        arbiter = instantiate(m, "arbiter", ReadArbiter, config)
        reads = read_signature(config)
        pass_on(m, reads, arbiter.stream_axi, dma.m0_axi)
        pass_on(m, reads, arbiter.reader_axi, reader.axi)
        pass_on(m, reads, self.m0_axi, arbiter.axi)
        pass_on(m, write_signature(config), self.m0_axi, writer.axi)
        for i in range(1, config.ports):
            pass_on(m, reads, getattr(self, f"m{i}_axi"), getattr(dma, f"m{i}_axi"))

        into = [
            (self.stream_requests, dma.requests),
            (self.read_requests, reader.requests),
            (self.write_requests, writer.requests),
            (self.write_lines, writer.lines),
        ]
        out = [(reader.lines, self.read_lines)]
        for i in range(config.ports):
            out.append((getattr(dma, f"lines_{i}"), getattr(self, f"stream_lines_{i}")))
        for source, sink in [*into, *out]:
            m.d.comb += [
                sink.valid.eq(source.valid),
                sink.payload.eq(source.payload),
                source.ready.eq(sink.ready),
            ]
        for part in (dma, reader, writer):
            m.d.comb += part.stop.eq(self.stop)
        m.d.comb += [
            dma.released.eq(self.released),
            self.frontier.eq(dma.frontier),
            dma.clear.eq(self.clear),
            writer.clear.eq(self.clear),
            self.stream_error.eq(dma.error),
            self.stream_error_tag.eq(dma.error_tag),
            self.write_error.eq(writer.error),
            self.write_error_tag.eq(writer.error_tag),
            self.write_busy.eq(writer.busy),
            self.idle.eq(dma.idle & reader.idle & writer.idle),
        ]
        return m
