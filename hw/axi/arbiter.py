"""Two readers on one port."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from hw.axi.config import READER_ID, STREAM_ID, MemoryConfig
from hw.axi.read import read_signature
from hw.library import Unique


class ReadArbiter(Unique):
    """Shares the read channels of a port between the stream reader and the line reader.

    Whoever did not send the last address goes first, so a client waits for one burst of the other
    at most. An address that was shown stays until it is taken. Data go to the client of their ID,
    beats of both in any order. Combinational in both directions.

    Parameters
    ----------
    config : MemoryConfig

    Members
    -------
    stream_axi, reader_axi : read channels, from the clients
        Their IDs are ``STREAM_ID`` and ``READER_ID``.
    axi : read channels
    """

    module_name = "bsspec_read_arbiter"
    label = "read arbiter"

    def __init__(self, config: MemoryConfig) -> None:
        self.config = config
        bus = read_signature(config)
        super().__init__({"stream_axi": In(bus), "reader_axi": In(bus), "axi": Out(bus)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus = self.axi
        clients = {STREAM_ID: self.stream_axi, READER_ID: self.reader_axi}
        first, second = clients[0], clients[1]
        last = Signal()
        held = Signal()
        chosen = Signal()
        with m.If(held | ~(first.arvalid & second.arvalid)):
            m.d.comb += chosen.eq(Mux(held, last, second.arvalid))
        with m.Else():
            m.d.comb += chosen.eq(~last)
        m.d.comb += bus.arvalid.eq(first.arvalid | second.arvalid)
        m.d.sync += held.eq(bus.arvalid & ~bus.arready)
        with m.If(bus.arvalid):
            m.d.sync += last.eq(chosen)
        for name in ("id", "addr", "len", "size", "burst", "cache", "prot"):
            name = f"ar{name}"
            m.d.comb += getattr(bus, name).eq(
                Mux(chosen, getattr(second, name), getattr(first, name))
            )
        m.d.comb += bus.rready.eq(Mux(bus.rid[0], second.rready, first.rready))
        for axi_id, client in clients.items():
            m.d.comb += [
                client.arready.eq(bus.arready & (chosen == axi_id)),
                client.rvalid.eq(bus.rvalid & (bus.rid[0] == axi_id)),
            ]
            for name in ("rid", "rdata", "rresp", "rlast"):
                m.d.comb += getattr(client, name).eq(getattr(bus, name))
        return m
