"""Deliberate faults in the memory ports."""

from __future__ import annotations

from sim.fault_list import Fault, faults_of

AXI_FAULTS: list[Fault] = [
    *faults_of(
        "axi_splitter",
        "axi/splitter.py",
        (
            "bursts cross 4 KiB by a line",
            "page_left.eq(PAGE_LINES - line[: BURST_BITS - 1])",
            "page_left.eq(PAGE_LINES + 1 - line[: BURST_BITS - 1])",
        ),
        (
            "bursts are one line shorter than allowed",
            "longest = self.config.burst_lines",
            "longest = self.config.burst_lines - 1",
        ),
        (
            "a full last burst is not the last",
            "burst.last.eq(left <= allowed)",
            "burst.last.eq(left < allowed)",
        ),
        ("a request without a line is split", "active.eq(request.count != 0)", "active.eq(1)"),
        (
            "the tag of the first request stays",
            "tag.eq(request.tag)",
            "tag.eq(Mux(tag == 0, request.tag, tag))",
        ),
    ),
    *faults_of(
        "axi_splitter",
        "axi/config.py",
        ("the count loses its top bit", "COUNT_BITS = 21", "COUNT_BITS = 20"),
    ),
    *faults_of(
        "axi_read",
        "axi/read.py",
        (
            "a burst is one beat short",
            "length.eq(burst.lines * config.line_beats - 1)",
            "length.eq(burst.lines * config.line_beats - 2)",
        ),
        (
            "an address changes before it is taken",
            "room & ~self.stop & (~pending | bus.arready)",
            "room & ~self.stop",
        ),
        (
            "stop lets bursts through",
            "self.bursts.ready.eq(room & ~self.stop &",
            "self.bursts.ready.eq(room &",
        ),
        (
            "an error counts in the last beat of a line only",
            "error.eq(failed | bus.rresp[ERROR_BIT])",
            "error.eq(bus.rresp[ERROR_BIT])",
        ),
        ("an error stays for the next line", "failed.eq(error & ~complete)", "failed.eq(error)"),
        (
            "beats are gathered upside down",
            "whole = Cat(parts, bus.rdata) if",
            "whole = Cat(bus.rdata, parts) if",
        ),
        (
            "the position stays that of the burst",
            "row.index.eq(notes.head.index + offset)",
            "row.index.eq(notes.head.index)",
        ),
        (
            "the beat count survives nothing: it starts at the second beat",
            "beat.eq(beat + 1)",
            "beat.eq(beat + 1 + bus.rlast)",
        ),
        (
            "one burst more than allowed",
            "                room.eq(notes.count != config.outstanding),\n",
            "                room.eq(1),\n",
        ),
    ),
    *faults_of(
        "axi_read",
        "axi/read.py",
        (
            "data are taken although the queue is full",
            "bus.rready.eq(queue.i.ready)",
            "bus.rready.eq(1)",
        ),
        config="small",
    ),
    *faults_of(
        "axi_read",
        "axi/bus.py",
        ("DECERR is taken for good", "ERROR_BIT = 1", "ERROR_BIT = 0"),
        ("the wrong kind of burst", "INCR = 0b01", "INCR = 0b10"),
    ),
    *faults_of(
        "axi_line_reader",
        "axi/read.py",
        (
            "room for one line too many is promised",
            "promised + burst.lines <= self.depth)",
            "promised + burst.lines <= self.depth + 4)",
        ),
        (
            "room is never given back",
            "promised + Mux(taken, burst.lines, 0) - left",
            "promised + Mux(taken, burst.lines, 0)",
        ),
        (
            "every burst ends its request",
            "row.last.eq(bus.rlast & notes.head.last)",
            "row.last.eq(bus.rlast)",
        ),
        (
            "idle waits for the client",
            "self.idle.eq(port.idle)",
            "self.idle.eq(port.idle & ~port.lines.valid)",
        ),
        (
            "a request is taken under stop and lost",
            "self.requests.ready.eq(splitter.requests.ready & ~self.stop)",
            "self.requests.ready.eq(splitter.requests.ready)",
        ),
    ),
    *faults_of(
        "axi_read_dma",
        "axi/dma.py",
        (
            "the ring is filled beyond its space",
            "used + burst.lines <= config.ring_lines",
            "used < config.ring_lines",
        ),
        (
            "the last place of the ring stays empty",
            "used + burst.lines <= config.ring_lines",
            "used + burst.lines + config.burst_lines < config.ring_lines",
        ),
        (
            "positions do not count the lines of a burst",
            "issued.eq(issued + burst.lines)",
            "issued.eq(issued + 1)",
        ),
        (
            "the frontier does not follow line by line",
            "frontier.eq(base + _pick(progress, turn))",
            "frontier.eq(base)",
        ),
        (
            "the second error overwrites the tag",
            "with m.If(~error | self.clear):",
            "with m.If(1):",
        ),
        ("an error cannot be cleared", "(error & ~self.clear) | _any(bad)", "error | _any(bad)"),
    ),
    *faults_of(
        "axi_read_dma",
        "axi/dma.py",
        (
            "the frontier passes bursts of other ports",
            "passed.eq(_pick(whole, turn) & known)",
            "passed.eq(_any(whole) & known)",
        ),
        (
            "the frontier counts lines of any port",
            "frontier.eq(base + _pick(progress, turn))",
            "frontier.eq(base + progress[1])",
        ),
        (
            "all bursts go to one port",
            "port.bursts.valid.eq(splitter.bursts.valid & fits & (turn == i))",
            "port.bursts.valid.eq(splitter.bursts.valid & fits & (i == 0))",
        ),
        (
            "idle looks at one port",
            "_all([port.idle for port in ports]) & (frontier == issued)",
            "ports[0].idle",
        ),
        config="odd",
    ),
    *faults_of(
        "axi_write",
        "axi/write.py",
        (
            "a burst is issued before its data are here",
            "(burst.lines <= waiting) & room",
            "(waiting != 0) & room",
        ),
        (
            "wlast comes with every line",
            "bus.wlast.eq(ends & (sent + 1 == sending.head))",
            "bus.wlast.eq(ends)",
        ),
        (
            "wlast comes a line late",
            "ends & (sent + 1 == sending.head)",
            "ends & (sent == sending.head)",
        ),
        (
            "strobes are those of the first beat",
            "row.strobe[i * config.port_bits // 8 : (i + 1) * config.port_bits // 8]",
            "row.strobe[: config.port_bits // 8]",
        ),
        (
            "the fence does not wait for responses",
            "self.busy.eq(splitter.bursts.valid | (answers.count != 0))",
            "self.busy.eq(splitter.bursts.valid)",
        ),
        (
            "the fence does not wait for bursts to be issued",
            "self.busy.eq(splitter.bursts.valid | (answers.count != 0))",
            "self.busy.eq(answers.count != 0)",
        ),
        (
            "the tag is that of the last error",
            "with m.If((~error | self.clear) & answered & bus.bresp[ERROR_BIT]):",
            "with m.If(answered & bus.bresp[ERROR_BIT]):",
        ),
        ("the tag is that of a burst being issued", "tag.eq(answers.head)", "tag.eq(burst.tag)"),
        (
            "stop lets bursts through",
            "(burst.lines <= waiting) & room & ~self.stop &",
            "(burst.lines <= waiting) & room &",
        ),
        ("an address changes before it is taken", "(~pending | bus.awready)", "1"),
    ),
    *faults_of(
        "axi_protocol",
        "axi/arbiter.py",
        (
            "the stream goes first always",
            "m.d.comb += chosen.eq(~last)",
            "m.d.comb += chosen.eq(0)",
        ),
        ("an address that is shown gives way", "with m.If(held | ~(", "with m.If(~("),
        (
            "both clients get all data",
            "client.rvalid.eq(bus.rvalid & (bus.rid[0] == axi_id))",
            "client.rvalid.eq(bus.rvalid)",
        ),
        (
            "both clients believe that their address was taken",
            "client.arready.eq(bus.arready & (chosen == axi_id))",
            "client.arready.eq(bus.arready)",
        ),
    ),
    *faults_of(
        "axi_protocol",
        "axi/ports.py",
        (
            "idle forgets the writer",
            "dma.idle & reader.idle & writer.idle",
            "dma.idle & reader.idle",
        ),
        (
            "stop forgets the line reader",
            "for part in (dma, reader, writer):",
            "for part in (dma, writer):",
        ),
    ),
]
