"""AXI4 as signatures: the read channels, the write channels, or both; and AXI4-Lite.

Signals have their standard names in lower case, flat: a member ``m0_axi`` of a component becomes
the ports ``m0_axi_araddr``, ``m0_axi_rvalid`` and so on (:func:`hw.library.port_name`), which SoC
tools group by prefix. Only what the masters use is there. Bursts are INCR, of beats as wide as
the port; AxLOCK, AxQOS, AxREGION and the user signals are left out, so a bridge ties them to 0.
"""

from __future__ import annotations

from typing import Any, ClassVar

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.axi.config import ID_BITS, PORT_BITS

#: AxBURST of every burst.
INCR = 0b01
#: AxCACHE: normal memory, not cacheable, not bufferable. A write is answered from where it ends,
#: and not from a buffer on port 0's way, which reads on other ports would pass by: so what a fence
#: has seen answered, every port reads.
CACHE = 0b0010
#: AxPROT: unprivileged, secure, data.
PROT = 0b000
#: Responses: done, and refused by the slave.
OKAY, SLVERR = 0b00, 0b10
#: Bit of a response that is set in SLVERR and DECERR and in no other.
ERROR_BIT = 1


def _integer(name: str, value: object, allowed: str, fits: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, not {value!r}")
    if not fits(value):
        raise ValueError(f"{name} must be {allowed}, not {value!r}")


class _Axi4(wiring.Signature):
    """What the signatures have in common; seen from the master."""

    channels: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *, port_bits: int, address_bits: int = 40, id_bits: int = ID_BITS) -> None:
        _integer("port_bits", port_bits, "64, 128, 256 or 512", lambda bits: bits in PORT_BITS)
        _integer("address_bits", address_bits, "13 to 64", lambda bits: 13 <= bits <= 64)
        _integer("id_bits", id_bits, "1 to 16", lambda bits: 1 <= bits <= 16)
        self._port_bits = port_bits
        self._address_bits = address_bits
        self._id_bits = id_bits
        members: dict[str, Any] = {}
        for channel in self.channels:
            for name, member in self._channel(channel).items():
                members[channel + name] = member
        super().__init__(members)

    def _channel(self, channel: str) -> dict[str, Any]:
        handshake = {"valid": Out(1), "ready": In(1)}
        if channel in ("ar", "aw"):
            return {
                "id": Out(self.id_bits),
                "addr": Out(self.address_bits),
                "len": Out(8),
                "size": Out(3),
                "burst": Out(2),
                "cache": Out(4),
                "prot": Out(3),
                **handshake,
            }
        if channel == "w":
            return {
                "data": Out(self.port_bits),
                "strb": Out(self.port_bits // 8),
                "last": Out(1),
                **handshake,
            }
        answer = {"id": In(self.id_bits), "resp": In(2), "valid": In(1), "ready": Out(1)}
        return {**answer, "data": In(self.port_bits), "last": In(1)} if channel == "r" else answer

    @property
    def port_bits(self) -> int:
        """Data bits."""
        return self._port_bits

    @property
    def address_bits(self) -> int:
        """Bits of a byte address."""
        return self._address_bits

    @property
    def id_bits(self) -> int:
        """Bits of an ID."""
        return self._id_bits

    @property
    def size(self) -> int:
        """AxSIZE: the logarithm of the bytes of a beat."""
        return (self.port_bits // 8).bit_length() - 1

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and repr(other) == repr(self)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(port_bits={self.port_bits},"
            f" address_bits={self.address_bits}, id_bits={self.id_bits})"
        )


class AxiRead(_Axi4):
    """Read channels of an AXI4 master: AR and R.

    Parameters
    ----------
    port_bits : int
        Data bits: 64, 128, 256 or 512.
    address_bits : int
        Bits of a byte address, 13 to 64.
    id_bits : int
        Bits of an ID, 1 to 16.

    Members
    -------
    arid, araddr, arlen, arsize, arburst, arcache, arprot, arvalid, arready
        Address channel.
    rid, rdata, rresp, rlast, rvalid, rready
        Data channel.

    Raises
    ------
    TypeError
        If a parameter is no integer.
    ValueError
        If a parameter is out of range.
    """

    channels = ("ar", "r")


class AxiWrite(_Axi4):
    """Write channels of an AXI4 master: AW, W and B; parameters as of :class:`AxiRead`.

    Members
    -------
    awid, awaddr, awlen, awsize, awburst, awcache, awprot, awvalid, awready
        Address channel.
    wdata, wstrb, wlast, wvalid, wready
        Data channel.
    bid, bresp, bvalid, bready
        Response channel.
    """

    channels = ("aw", "w", "b")


class Axi(_Axi4):
    """All channels of an AXI4 master; members and parameters as of its two halves."""

    channels = ("ar", "r", "aw", "w", "b")


class AxiLite(wiring.Signature):
    """All channels of an AXI4-Lite bus, seen from the master; a slave has ``In`` of it.

    Parameters
    ----------
    data_bits : int
        Data bits: 32 or 64.
    address_bits : int
        Bits of a byte address, 2 to 64.

    Members
    -------
    awaddr, awprot, awvalid, awready
        Address channel of writes.
    wdata, wstrb, wvalid, wready
        Data channel of writes.
    bresp, bvalid, bready
        Response channel.
    araddr, arprot, arvalid, arready
        Address channel of reads.
    rdata, rresp, rvalid, rready
        Data channel of reads.

    Raises
    ------
    TypeError
        If a parameter is no integer.
    ValueError
        If a parameter is out of range.
    """

    def __init__(self, *, data_bits: int = 32, address_bits: int) -> None:
        _integer("data_bits", data_bits, "32 or 64", lambda bits: bits in (32, 64))
        _integer("address_bits", address_bits, "2 to 64", lambda bits: 2 <= bits <= 64)
        self._data_bits = data_bits
        self._address_bits = address_bits
        forth = {
            "aw": {"addr": address_bits, "prot": 3},
            "w": {"data": data_bits, "strb": data_bits // 8},
            "ar": {"addr": address_bits, "prot": 3},
        }
        back = {"b": {"resp": 2}, "r": {"data": data_bits, "resp": 2}}
        members: dict[str, Any] = {}
        for channels, to, against in ((forth, Out, In), (back, In, Out)):
            for channel, fields in channels.items():
                members |= {channel + name: to(width) for name, width in fields.items()}
                members |= {f"{channel}valid": to(1), f"{channel}ready": against(1)}
        super().__init__(members)

    @property
    def data_bits(self) -> int:
        """Data bits."""
        return self._data_bits

    @property
    def address_bits(self) -> int:
        """Bits of a byte address."""
        return self._address_bits

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and repr(other) == repr(self)

    def __repr__(self) -> str:
        return f"AxiLite(data_bits={self.data_bits}, address_bits={self.address_bits})"


def pass_on(m: Module, signature: _Axi4 | AxiLite, outer: Any, inner: Any) -> None:
    """Wires a bus of an instance to that of its parent: ``inner`` drives ``outer``, as a master.

    Parameters
    ----------
    m : Module
    signature : AxiRead, AxiWrite, Axi or AxiLite
        The signals to wire; ``outer`` may have more.
    outer, inner : interfaces
    """
    for name, member in signature.members.items():
        here, there = getattr(outer, name), getattr(inner, name)
        m.d.comb += here.eq(there) if member.flow == Out else there.eq(here)


def drive_constants(m: Module, bus: Any, *, channel: str, axi_id: int, size: int) -> None:
    """The fields of an address channel that never change."""
    constants = {"id": axi_id, "size": size, "burst": INCR, "cache": CACHE, "prot": PROT}
    for name, value in constants.items():
        m.d.comb += getattr(bus, channel + name).eq(value)
