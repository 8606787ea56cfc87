"""What the surroundings of a component keep to beside the stream rule, and what helps its proof."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from amaranth.hdl import Cat, Signal, Value

from hw.compute.layouts import mpu_control_layout
from hw.control.controller import CLOSED
from hw.control.works import Work
from hw.keys.transposer import JOBS
from hw.special.groups import GROUPS_WAITING
from hw.transfers.arbiter import REQUESTS
from hw.transfers.layouts import Kind
from hw.transfers.loader import REQUESTS as LOADS
from sim.formal.bench import Bench, as_value
from sim.formal.program import WAITING

#: It may say after what the component forgets what it offers, by streams.
Rule = Callable[[Bench], "Mapping[str, Value] | None"]
#: By classes of components.
RULES: dict[str, Rule] = {}


def rule(name: str) -> Callable[[Rule], Rule]:
    """Enters a rule."""

    def enter(made: Rule) -> Rule:
        RULES[name] = made
        return made

    return enter


@rule("MatrixWalker")
def _matrix_walker(b: Bench) -> None:
    """It always offers something, and each block brings it nearer to the matrix' end."""
    dut = b.dut
    idle = b.inside("fsm_state") == 0
    matrix, k, n = dut.matrices.payload, b.inside("k"), b.inside("n")
    some = (matrix.k_tiles != 0) & (matrix.n_tiles != 0) & (matrix.tiles_per_block != 0)
    b.assume("no_side_is_empty", ~dut.matrices.valid | some)
    b.check("matrix_stays_to_its_end", idle | dut.matrices.valid, helper=True)
    offers = dut.fetches.valid | dut.pieces.valid | dut.jobs.valid
    b.check("no_dead_end", ~dut.matrices.valid | offers)
    b.check("blocks_are_of_tiles", ~dut.pieces.valid | (dut.pieces.payload.tiles != 0))
    b.check("not_beyond_the_last_block", ~dut.matrices.valid | (k < matrix.k_tiles))
    b.check("not_beyond_the_last_tile", ~dut.matrices.valid | (n < matrix.n_tiles))
    here = dut.matrices.valid
    b.check("begins_at_the_first", here | ((k == 0) & (n == 0)), helper=True)


#: Its states, in their order.
_ATTENTION = ("ROWS", "SETUP", "CHOOSE", "EXPONENTS", "PLANES", "PIECE", "JOB")


@rule("AttentionWalker")
def _attention_walker(b: Bench) -> None:
    """It offers something or chooses, for a cycle; each tile brings it nearer to the pass' end."""
    dut = b.dut
    state, key, value = b.inside("fsm_state"), b.inside("key"), b.inside("value")
    channels, last = b.inside("channels"), b.inside("last_block")
    here = dut.passes.valid
    b.assume("heads_have_tiles", ~here | (dut.passes.payload.head_tiles != 0))
    b.check("pass_stays_to_its_end", (state == 0) | here, helper=True)
    offers = dut.rows.valid | dut.fetches.valid | dut.pieces.valid | dut.jobs.valid
    chose = b.past(here & ~offers, "chose")
    b.check("no_dead_end", ~here | offers | ~chose)
    b.check("not_beyond_the_last_keys", ~here | (key <= last + 1))
    b.check("not_beyond_the_last_values", ~here | (value <= last))
    b.check("not_beyond_the_head", ~here | (channels < dut.passes.payload.head_tiles))
    in_values = b.inside("in_values")
    at = {name: state == i for i, name in enumerate(_ATTENTION)}
    fetched = at["EXPONENTS"] | at["PLANES"] | at["PIECE"] | at["JOB"]
    right = in_values | (key <= last)
    b.check("keys_are_left_while_they_are_in_work", ~here | ~fetched | right, helper=True)
    left = (state <= 2) | in_values | (channels == 0)
    b.check("heads_begin_with_values", ~here | left, helper=True)
    b.check("keys_lead", ~here | ~fetched | ~in_values | (key > value), helper=True)
    counts = (key == 0) & (value == 0) & (channels == 0)
    b.check("nothing_done_before", ~here | at["CHOOSE"] | fetched | counts, helper=True)
    b.check("begins_at_the_first", here | counts, helper=True)


@rule("ReadArbiter")
def _read_arbiter(b: Bench) -> None:
    held, last = b.inside("held"), b.inside("last")
    asks = last & b.dut.reader_axi.arvalid | ~last & b.dut.stream_axi.arvalid
    b.check("who_was_shown_asks_on", ~held | asks, helper=True)


@rule("WriteArbiter")
def _write_arbiter(b: Bench) -> None:
    held, last, count = b.inside("held"), b.inside("last"), b.inside("work_count")
    asks: Value = Value.cast(0)
    for i in range(b.dut.sources):
        asks = asks | ((last == i) & getattr(b.dut, f"requests_{i}").valid)
    b.check("who_was_shown_asks_on", ~held | (asks & (count != REQUESTS)), helper=True)
    taken = b.dut.requests.valid & b.dut.requests.ready
    count = under_way(b, taken, b.inside("ends") & b.inside("moves"), REQUESTS)
    b.check("idle_without_a_request", b.dut.idle == (count == 0))
    b.check("no_line_without_a_request", ~b.dut.lines.valid | (count != 0))
    b.check("requests_are_counted", b.inside("work_count") == count, helper=True)


def within(b: Bench, name: str, most: int) -> None:
    """A count does not exceed what there is room for."""
    b.check(f"{name.replace('.', '_')}_within_room", b.inside(name) <= most, helper=True)


def under_way(b: Bench, begun: Any, ended: Any, most: int) -> Value:
    """What was begun at the ports and has not ended, proven to be ``most`` or fewer."""
    count = Signal(range(2 * most + 2), name="under_way")
    b.m.d.sync += count.eq(count + begun - ended)
    b.check("no_more_than_there_is_room_for", count <= most)
    return count


def stays(b: Bench, name: str, value: Any, changed: Any) -> None:
    """An input that changes only after a cycle of ``changed``."""
    same = as_value(value) == b.past(value, f"{name}_before")
    b.assume(f"{name}_stays", b.past(changed, f"{name}_may_change") | same, first=False)


@rule("Works")
def _works(b: Bench) -> None:
    valid, begun = b.dut.works.valid, b.inside("begun")
    kind = b.dut.works.payload.kind
    matrices, attention = b.inside("matrices.fsm_state"), b.inside("attention.fsm_state")
    b.check(
        "matrix_stays_to_its_end",
        (matrices == 0) | (valid & (kind != Work.PASS) & (kind != Work.JOB) & begun),
        helper=True,
    )
    b.check(
        "pass_stays_to_its_end",
        (attention == 0) | (valid & (kind == Work.PASS) & begun),
        helper=True,
    )


@rule("ReadDma")
def _read_dma(b: Bench) -> None:
    """Never more lines under way than the ring has free rows, which it gives free for good."""
    issued, released = b.inside("issued"), b.dut.released
    lines = Signal.like(released, name="lines_held")
    b.m.d.comb += lines.eq(issued - released)
    freed = Signal.like(released, name="lines_freed")
    b.m.d.comb += freed.eq(released - b.past(released, "released_before"))
    held = Signal.like(released, name="lines_held_before")
    b.m.d.sync += held.eq(lines)
    b.assume("nothing_is_held_at_first", b.running | (released == 0))
    b.assume("only_what_is_held_is_freed", freed <= held, first=False)
    b.check("no_more_than_the_ring_holds", lines <= b.dut.config.ring_lines)
    ports = [b.cut(f"port_{i}").ports["idle"] for i in range(b.dut.config.ports)]
    b.check("idle_when_all_ports_are", ~b.dut.idle | Cat(ports).all())


@rule("SquareSum")
def _square_sum(b: Bench) -> None:
    waits, reserved = b.inside("waits"), b.inside("reserved")
    ends = b.inside("group_done") & b.inside("group_ends_row")
    b.check("a_sum_is_reserved_for", ~(waits | ends) | reserved, helper=True)
    b.check("one_sum_at_a_time", ~(waits & ends), helper=True)


@rule("Probabilities")
def _probabilities(b: Bench) -> None:
    waits, reserved = b.inside("waits"), b.inside("reserved")
    ends = b.inside("added") & b.inside("ends")
    b.check("a_sum_is_reserved_for", ~(waits | ends) | reserved, helper=True)
    b.check("one_sum_at_a_time", ~(waits & ends), helper=True)
    taken = b.inside("rises_taken")
    b.check("rises_are_counted", taken == b.inside("rises_count") + b.inside("closed"), helper=True)
    b.check("rises_within_room", taken <= GROUPS_WAITING, helper=True)


@rule("Quantizer")
def _quantizer(b: Bench) -> None:
    taken = b.inside("exponents_taken")
    b.check(
        "exponents_are_counted",
        taken == b.inside("exponents_count") + b.inside("closed"),
        helper=True,
    )
    b.check("exponents_within_room", taken <= GROUPS_WAITING, helper=True)


@rule("Loader")
def _loader(b: Bench) -> None:
    dut = b.dut
    requests, lines = dut.requests, dut.read_lines
    taken = lines.valid & lines.ready & lines.payload.last
    count = under_way(b, requests.valid & requests.ready, taken, LOADS)
    b.check("idle_without_a_request", dut.idle == (count == 0))
    b.check("no_line_without_a_request", ~lines.ready | (count != 0))
    b.check("requests_are_counted", b.inside("work_count") == count, helper=True)


@rule("ValueWriter")
def _value_writer(b: Bench) -> None:
    b.check("shown_while_it_writes", ~b.inside("shown") | b.inside("writing"), helper=True)


@rule("PlaneReader")
def _plane_reader(b: Bench) -> None:
    for name in ("plane", "open_plane"):
        stays(b, name, getattr(b.dut, name), b.dut.read)


@rule("TileFront")
def _tile_front(b: Bench) -> Mapping[str, Value]:
    dut = b.dut
    stays(b, "bank_data", dut.bank_data, dut.bank_read | dut.bank_other)
    stays(b, "exponent_data", dut.exponent_data, dut.exponent_read)
    stays(b, "rises", dut.rises, dut.mix_taken)
    b.assume("taken_together", dut.activations.ready == dut.exponents.ready)
    b.check("shown_is_of_a_piece", ~b.inside("shown") | dut.pieces.valid, helper=True)
    # The word is read again.
    return dict.fromkeys(("activations", "exponents"), dut.bank_other)


@rule("Slice")
def _slice(b: Bench) -> None:
    """Sums that are tapped are on their way, and the slice not idle, until the last has left."""
    b.assume("enters_when_ready", ~b.dut.enters | b.dut.ready)
    offered = b.cut("residual").port("results", "valid")
    b.assume(
        "tap_stays",
        b.past(~offered, "no_sum") | (b.dut.tap == b.past(b.dut.tap, "tap_before")),
        first=False,
    )


@rule("Epilogue")
def _epilogue(b: Bench) -> None:
    """What slices rely on."""
    slices = [b.cut(f"slice_{i}").ports for i in range(b.dut.config.core.t_m)]
    idle = Cat(each["idle"] for each in slices).all()
    b.check("enters_when_ready", Cat(~each["enters"] | each["ready"] for each in slices).all())
    tap = slices[0]["tap"]
    same = tap == b.past(tap, "tap_before")
    b.check("tap_stays", ~b.running | b.past(idle, "were_idle") | same)


@rule("Array")
def _array(b: Bench) -> None:
    control = mpu_control_layout(b.dut.config)(b.inside("control"))
    for row in range(b.dut.config.t_m):
        for name in ("codes", "overflow"):
            value = b.cut(f"mpu_{row}").ports[name]
            stays(b, f"mpu_{row}_{name}", value, control.advance)


@rule("KeyCloser")
def _key_closer(b: Bench) -> None:
    dut = b.dut
    # Registers read them: a row after ``read``, and at once the line of it that is asked for.
    other = dut.line_number != b.past(dut.line_number, "number")
    b.assume(
        "line_stays",
        b.past(dut.read, "row_read") | other | (dut.line == b.past(dut.line, "line_before")),
        first=False,
    )
    stays(b, "channels", dut.channels, dut.channels_free | ~dut.busy)
    stays(b, "job", dut.job, ~dut.busy)
    b.assume("begun_when_it_rests", ~dut.start | ~dut.busy)


@rule("KeyTransposer")
def _key_transposer(b: Bench) -> None:
    closer, made = b.cut("closer").ports, b.cut("maker").ports["made"]
    shown, here = b.inside("shown"), b.inside("work_count") != 0
    b.assume("made_of_a_job", ~made | (here & ~shown & ~closer["busy"]))
    b.assume("closed_while_no_other_is_shown", ~closer["done"] | (closer["busy"] & here & ~shown))
    b.check("shown_is_of_a_job", ~shown | here, helper=True)
    within(b, "work_count", JOBS)


@rule("Processor")
def _processor(b: Bench) -> None:
    """Whatever the program is."""
    out = b.dut
    rom = b.cut("rom").ports
    stays(b, "instruction", rom["read_data"], rom["read_enable"])
    b.channel(out.out_valid, out.out_ready, [out.out_port, out.out_data], "out", ours=True)


@rule("Controller")
def _controller(b: Bench) -> Mapping[str, Value]:
    ports = b.cut("processor").ports
    b.channel(
        ports["out_valid"],
        ports["out_ready"],
        [ports["out_port"], ports["out_data"]],
        "processor_out",
        ours=False,
    )
    port = ports["out_port"]
    waiting = Cat(port == each for each in sorted(WAITING)).any()
    b.check("only_queues_wait", waiting | ports["out_ready"])
    within(b, "closed_count", CLOSED)
    flushed = b.past(b.dut.flush, "flushed")
    kept = ("works", "moves", "closed_requests", "text_requests", "text_lines")
    offers: Value = Value.cast(0)
    for name in kept:
        offers = offers | getattr(b.dut, name).valid
    b.check("a_flush_forgets_all_that_waits", ~flushed | ~offers)
    return dict.fromkeys(kept, b.dut.flush)


@rule("Mover")
def _mover(b: Bench) -> None:
    """Keys are whole lines, as the program has them: two words a line."""
    moves = b.dut.moves
    words = moves.payload.words
    whole = (words != 0) & ~words[0]
    b.assume("keys_are_whole_lines", ~moves.valid | (moves.payload.kind != Kind.KEYS) | whole)


@rule("Chip")
def _chip(b: Bench) -> None:
    """Parts are reset when nothing is on the buses, which is proven of the program."""
    control, reader, writer = (b.cut(name).ports for name in ("controller", "reader", "writer"))
    datapath = b.cut("datapath").ports
    silent = datapath["memory_idle"] & reader["idle"] & writer["idle"]
    b.assume("flushed_when_silent", ~control["flush"] | silent)
    shows = {
        "datapath": (
            datapath["memory_idle"],
            [name for name in datapath if name.endswith("axi_arvalid")],
        ),
        "reader": (reader["idle"], ["axi_arvalid"]),
        "writer": (writer["idle"], ["axi_awvalid", "axi_wvalid"]),
    }
    for name, (idle, valids) in shows.items():
        asks = Cat(b.cut(name).ports[valid] for valid in valids).any()
        b.assume(f"{name}_is_silent_when_idle", ~idle | ~asks)
