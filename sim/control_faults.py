"""Deliberate faults in what the host reaches, and in the control processor."""

from __future__ import annotations

from sim.fault_list import Fault, faults_of

CONTROL_FAULTS: list[Fault] = [
    *faults_of(
        "register_window",
        "control/window.py",
        (
            "a host access takes no heed of the processor's reads",
            "free = ~self.read & ~self.write",
            "free = ~self.write",
        ),
        (
            "a host access takes no heed of the processor's writes",
            "free = ~self.read & ~self.write",
            "free = ~self.read",
        ),
        (
            "the host's writes always go first",
            "free & ~(self.read_wants & reads_next)",
            "free",
        ),
        (
            "the processor's word goes with the host's next read",
            "self.read_data.eq(Mux(fresh, ram.read_data, kept))",
            "self.read_data.eq(ram.read_data)",
        ),
        (
            "writes do not wait until the memory is cleared",
            "turn.eq(self.ready & addressed & filled & ~bus.bvalid)",
            "turn.eq(addressed & filled & ~bus.bvalid)",
        ),
        (
            "reads do not wait until the memory is cleared",
            "turn.eq(self.ready & addressed & ~bus.rvalid)",
            "turn.eq(addressed & ~bus.rvalid)",
        ),
        (
            "a write does not wait for its data",
            "turn.eq(self.ready & addressed & filled & ~bus.bvalid)",
            "turn.eq(self.ready & addressed & ~bus.bvalid)",
        ),
        (
            "a write is done over an answer that nobody took",
            "turn.eq(self.ready & addressed & filled & ~bus.bvalid)",
            "turn.eq(self.ready & addressed & filled)",
        ),
        (
            "a read is done over an answer that nobody took",
            "turn.eq(self.ready & addressed & ~bus.rvalid)",
            "turn.eq(self.ready & addressed)",
        ),
        ("some strobes are enough", "bus.wstrb.all()", "bus.wstrb.any()"),
        (
            "a write's address is taken to be a word's",
            "known.eq(whole & ~address[: -len(row)].any())",
            "known.eq(whole)",
        ),
        (
            "a read's address is taken to be a word's",
            "stored | hardwired) & ~address[: -len(row)].any())",
            "stored | hardwired))",
        ),
        ("settings change while a job runs", "(is_stored & ~self.busy)", "is_stored"),
        (
            "a job starts after an error",
            "~(start & ~clear & (self.status != Status.OK))",
            "1",
        ),
        (
            "clear comes too late for start",
            "~(start & ~clear & (self.status != Status.OK))",
            "~(start & (self.status != Status.OK))",
        ),
        (
            "status is cleared while a job runs",
            "(start | clear | clear_counters))",
            "(start | clear_counters))",
        ),
        (
            "counters are cleared while a job runs",
            "(start | clear | clear_counters))",
            "(start | clear))",
        ),
        ("refused starts start", "does.eq(fires & allowed)", "does.eq(fires)"),
        (
            "an abort while idle stops the next job",
            "is_control & abort & self.busy",
            "is_control & abort",
        ),
        (
            "an acknowledgement of nothing clears",
            "is_pending & done",
            "is_pending",
        ),
        (
            "clear_counters is answered at once",
            "fires.eq(self.clear_counters & self.cleared)",
            "fires.eq(1)",
        ),
        (
            "an abort outlives its job",
            "self.abort.eq(0),",
            "",
        ),
        (
            "the interrupt heeds no enable",
            "self.interrupt.eq(self.pending & self.enable)",
            "self.interrupt.eq(self.pending)",
        ),
        (
            "the interrupt's event is left out",
            "                self.pending.eq(1),\n",
            "",
        ),
        (
            "bits of no field are kept",
            "self.host_write_data.eq(data & mask)",
            "self.host_write_data.eq(data)",
        ),
        (
            "a word is read before it is there",
            "with m.If(coming):",
            "with m.If(fires & is_stored):",
        ),
        (
            "reads of nothing are answered well",
            "bus.rresp.eq(Mux(known, OKAY, SLVERR))",
            "bus.rresp.eq(OKAY)",
        ),
        (
            "refused writes are answered well",
            "bus.bresp.eq(Mux(allowed, OKAY, SLVERR))",
            "bus.bresp.eq(OKAY)",
        ),
    ),
    *faults_of(
        "register_window",
        "control/register_rows.py",
        (
            "later words of a window are not the host's",
            "REGISTERS[name].end // WORD_BYTES",
            "REGISTERS[name].end // WORD_BYTES - (REGISTERS[name].entries > 1)",
        ),
        (
            "a 64-bit base has one mask",
            "allowed >> WORD_BITS * (place % words)",
            "allowed",
        ),
    ),
    *faults_of(
        "processor",
        "control/processor.py",
        (
            "a load is over before its word is there",
            "load_waits.eq(is_op[Op.LOAD] & ~loaded)",
            "load_waits.eq(is_op[Op.LOAD] & in_scratch & ~loaded)",
        ),
        (
            "a load reads twice",
            "self.window_read.eq(running & load_waits & ~in_scratch)",
            "self.window_read.eq(running & is_op[Op.LOAD] & ~in_scratch)",
        ),
        (
            "a store gets lost where somebody else writes",
            "~load_waits & ~store_waits & (",
            "~load_waits & (",
        ),
        (
            "stores into the window wait for the scratch memory",
            "store_waits.eq(is_op[Op.STORE] & in_scratch & self.scratch_write)",
            "store_waits.eq(is_op[Op.STORE] & self.scratch_write)",
        ),
        (
            "a store goes before somebody else's word",
            "scratch.write_data.eq(Mux(self.scratch_write, self.scratch_data, second))",
            "scratch.write_data.eq(Mux(is_op[Op.STORE], second, self.scratch_data))",
        ),
        (
            "a store ends up in window and scratch memory",
            "self.scratch_write | (running & is_op[Op.STORE] & in_scratch)",
            "self.scratch_write | (running & is_op[Op.STORE])",
        ),
        (
            "words of the scratch memory have 32 bits",
            'purpose="scratch", width=WORD_BITS',
            'purpose="scratch", width=32',
        ),
        (
            "an instruction runs before it is read",
            "self.out_valid.eq(running & is_op[Op.OUT])",
            "self.out_valid.eq(is_op[Op.OUT])",
        ),
        (
            "a number is given although the port does not take it",
            "(~is_op[Op.OUT] | self.out_ready)",
            "1",
        ),
        (
            "register 0 can be written",
            "Mux(fields[1] == 0, 0, registers[fields[1]])",
            "registers[fields[1]]",
        ),
        (
            "register 0 can be stored",
            "Mux(fields[2] == 0, 0, registers[fields[2]])",
            "registers[fields[2]]",
        ),
        (
            "branches compare with the place they go to",
            "Mux(branches, constant >> TARGET_BITS, constant)",
            "constant",
        ),
        ("less or equal", "(a < b) ^ is_op[Op.IF_NOT_BELOW]", "(a <= b) ^ is_op[Op.IF_NOT_BELOW]"),
        ("shifts by five bits", "a << b[:6]", "a << b[:5]"),
        ("long shifts right are cut", "a >> b[:6]", "a >> b[:5]"),
        ("factors are cut", "b[: FACTOR_BITS[1]]", "b[: FACTOR_BITS[1] - 1]"),
        ("the larger one", "Mux(a < b, a, b)", "Mux(a > b, a, b)"),
        ("a call returns to itself", "Op.CALL: place + 1", "Op.CALL: place"),
        (
            "the first instruction is skipped",
            "rom.read_enable.eq(ends | ~running)",
            "rom.read_enable.eq(ends)",
        ),
        (
            "ports have no index",
            "self.in_port.eq(a + constant)",
            "self.in_port.eq(constant)",
        ),
        (
            "waiting instructions write their results",
            "            with m.If(writes):\n",
            "        with m.If(running & writes & ~is_op[Op.IN]):\n"
            "            m.d.sync += registers[fields[0]].eq(result)\n"
            "        with m.If(ends):\n"
            "            with m.If(writes):\n",
        ),
    ),
    *faults_of(
        "processor",
        "memory/rom.py",
        (
            "the next word is read without being asked for",
            "read.en.eq(self.read_enable)",
            "read.en.eq(1)",
        ),
    ),
]
