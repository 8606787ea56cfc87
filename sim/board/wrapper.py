"""The module around the chip that joins it to ``memory.cpp``."""

from __future__ import annotations

from collections.abc import Sequence

#: Its name, and that of the chip in it.
TOP, CHIP = "bsspec_board", "bsspec_chip"

#: Fields of the channels that the chip drives: what the memory is told of them.
_ADDRESS = ("valid", "id", "addr", "len", "size", "burst", "cache", "prot")
_READS = (*(f"ar{field}" for field in _ADDRESS), "rready")
_WRITES = (
    *(f"aw{field}" for field in _ADDRESS),
    *("wvalid", "wdata", "wstrb", "wlast", "bready"),
)
#: Those that the memory drives.
_READ_OUT = ("arready", "rvalid", "rid", "rdata", "rresp", "rlast")
_WRITE_OUT = ("awready", "wready", "bvalid", "bid", "bresp")
#: Register window: what the host sees, and what it drives.
_LITE = ("awready", "wready", "bvalid", "bresp", "arready", "rvalid", "rdata", "rresp")
_LITE_OUT = ("awvalid", "wvalid", "arvalid", "bready", "rready")
#: Half a clock period in nanoseconds.
HALF_PERIOD = 5


def wrapper(ports: Sequence[tuple[str, str, int]]) -> str:
    """SystemVerilog of the board around a chip.

    Everything that the chip sees comes from registers, so nothing races with it. ``wake`` changes
    when Python has something to do; it is the only port, since the clock is made in here.

    Parameters
    ----------
    ports : sequence of (str, str, int)
        Name, ``input`` or ``output``, and bits of every port of the chip but ``clk`` and ``rst``.

    Raises
    ------
    ValueError
        If the chip has no ``m0_axi``.
    """
    bits = {name: width for name, _, width in ports}
    if "m0_axi_rdata" not in bits:
        raise ValueError("a board needs a chip with a port m0_axi")
    count = sum(name.endswith("_axi_arvalid") and name.startswith("m") for name in bits)
    writers = [p for p in range(count) if f"m{p}_axi_awvalid" in bits]
    data = bits["m0_axi_rdata"]
    body: list[str] = []
    for name, way, width in ports:
        body.append(f"  {'reg' if way == 'input' else 'wire'} [{width - 1}:0] {name};")
    body += ["  reg rst;", f"  {CHIP} chip (", "    .clk(clk),", "    .rst(rst),"]
    body += [",\n".join(f"    .{name}({name})" for name in bits), "  );"]

    def declare(name: str, arguments: Sequence[tuple[str, str, str]]) -> str:
        listed = ",\n".join(f"    {way} {kind} its_{each}" for way, kind, each in arguments)
        return f'  import "DPI-C" function void {name}(\n{listed}\n  );'

    def kind(field: str) -> str:
        if field in ("wdata", "rdata"):
            return f"bit [{data - 1}:0]"
        return "longint unsigned" if field[2:] == "addr" or field == "wstrb" else "int unsigned"

    port = ("input", "int", "p")
    word = "int unsigned"
    board_out = ("rst_next", "wake_next", *(f"{name}_next" for name in _LITE_OUT))
    lite_rest = ("address_next", "data_next", "strobe_next")
    body += [
        declare("board_reads", [port, *(("input", kind(each), each) for each in _READS)]),
        declare("board_writes", [port, *(("input", kind(each), each) for each in _WRITES)]),
        declare("board_read_out", [port, *(("output", kind(each), each) for each in _READ_OUT)]),
        declare("board_write_out", [port, *(("output", kind(each), each) for each in _WRITE_OUT)]),
        declare(
            "board_cycle",
            [
                *(("input", word, each) for each in (*_LITE, "interrupt")),
                *(("output", word, each) for each in (*board_out, *lite_rest)),
            ],
        ),
    ]
    outputs: dict[str, str] = {}
    after: list[str] = []
    before: list[str] = []
    for p in range(count):
        prefix = f"m{p}_axi_"
        before.append(f"    board_reads({p}, {', '.join(prefix + each for each in _READS)});")
        if p in writers:
            before.append(f"    board_writes({p}, {', '.join(prefix + each for each in _WRITES)});")
        for fields, call in ((_READ_OUT, "board_read_out"), (_WRITE_OUT, "board_write_out")):
            if call == "board_write_out" and p not in writers:
                continue
            names = [f"{prefix}{each}_next" for each in fields]
            outputs |= dict(zip(names, map(kind, fields), strict=True))
            after.append(f"    {call}({p}, {', '.join(names)});")
            after += [f"    {prefix}{each} <= {prefix}{each}_next;" for each in fields]
    outputs |= dict.fromkeys((*board_out, *lite_rest), word)
    body += [f"  {kind_} {name};" for name, kind_ in outputs.items()]
    lite = ", ".join([*(f"s_axi_{each}" for each in _LITE), "interrupt", *board_out, *lite_rest])
    body += [
        "  initial begin",
        "    wake = 0;",
        "    rst = 1;",
        "    clk = 0;",
        "  end",
        # Made here and not by cocotb's timer, which costs 2.3 us a cycle more.
        f"  always #{HALF_PERIOD} clk = ~clk;",
        "  always @(posedge clk) begin",
        *before,
        f"    board_cycle({lite});",
        "    rst <= rst_next[0];",
        "    wake <= wake_next[0];",
        *(f"    s_axi_{each} <= {each}_next[0];" for each in _LITE_OUT),
        "    s_axi_awaddr <= address_next;",
        "    s_axi_araddr <= address_next;",
        "    s_axi_wdata <= data_next;",
        "    s_axi_wstrb <= strobe_next;",
        "    s_axi_awprot <= 0;",
        "    s_axi_arprot <= 0;",
        *after,
        "  end",
    ]
    head = [f"module {TOP}(wake);", "  output wake;", "  reg wake;", "  reg clk;"]
    return "\n".join([*head, *body, "endmodule", ""])
