"""STORE and ATTEND: keys and values to memory, and the passes of attention."""

from __future__ import annotations

import functools

from hw.chip_config import STAGED_TILES, TILE_WORDS
from hw.control.assembler import Constant, Expr, Port
from hw.control.ports import Flag, Idle, Push
from hw.control.program.state import Control
from hw.control.program.step import need_apart, need_eps, norm_weights, use_eps
from hw.special.slice import Op
from hw.transfers.layouts import Kind, Target
from model.formats.commands import OPEN_ROWS, Opcode, Region
from model.formats.constants import TILE_K


def attention_functions(c: Control) -> None:
    """All of them."""
    _cache(c)
    _store(c)
    _attend(c)
    _finish(c)


def _cache(c: Control) -> None:
    """``need_cache``: keys and values of every sequence among the rows. Changes a, b, i."""
    p, m = c.p, c.model
    # The fields lie alike in both commands.
    field = functools.partial(c.field, Opcode.STORE)
    with p.function("need_cache", leaf=True):
        p.set(c.a, 0)
        with c.each(c.i, c.segments):
            with p.if_(c.segment_sequence[c.i] > c.a):
                p.set(c.a, c.segment_sequence[c.i])
        p.set(c.b, m["capacity"] >> 6)
        last = m["kv_heads"] - 1
        c.need_region(
            Region.KEYS,
            field("keys")
            + m["key_sequence"] * c.a
            + m["key_head"] * last
            + c.b * m["head_tiles"] * c.tile_lines,
        )
        c.need_region(
            Region.VALUES,
            field("values")
            + m["value_sequence"] * c.a
            + m["value_head"] * last
            + m["value_channels"] * (m["head_tiles"] - 1)
            + c.b * c.tile_lines,
        )
        c.need_region(
            Region.OPEN_KEYS,
            field("open_keys")
            + m["open_sequence"] * c.a
            + m["head_tiles"] * (m["kv_heads"] * (2 * OPEN_ROWS)),
        )


def _places(c: Control, opcode: Opcode) -> dict[str, Expr]:
    """First lines of a sequence (``a``) and head (``j``), in memory."""
    m = c.model
    field = functools.partial(c.field, opcode)
    return {
        "keys": c.base[int(Region.KEYS)]
        + field("keys")
        + m["key_sequence"] * c.a
        + m["key_head"] * c.j,
        "values": c.base[int(Region.VALUES)]
        + field("values")
        + m["value_sequence"] * c.a
        + m["value_head"] * c.j,
        "open_keys": c.base[int(Region.OPEN_KEYS)]
        + field("open_keys")
        + m["open_sequence"] * c.a
        + m["head_tiles"] * (c.j * (2 * OPEN_ROWS)),
    }


def _store(c: Control) -> None:
    p, m = c.p, c.model
    field = functools.partial(c.field, Opcode.STORE)
    places = _places(c, Opcode.STORE)
    row, line, end = p.words(), p.words(), p.words()
    head_words = m["head_tiles"] << 2
    with p.function("STORE"):
        p.set(c.e, c.heads_tiles + m["kv_heads"] * (m["head_tiles"] << 1))
        c.need_span(field("source") + (c.e << 2))
        with p.if_(m["qk_norm"].is_not(0)):
            need_eps(c, field("eps"), field("inverse_width"), c.inverse_head)
            for name in ("q_norm", "k_norm"):
                c.need_region(Region.NORM, field(name) + (m["head_tiles"] << 1))
        c.need_region(Region.ROPE, m["capacity"] * (m["head_tiles"] << 1))
        p.call("need_cache")
        p.call("finish_attention")
        p.call("load_rope")
        with p.if_(m["qk_norm"].is_not(0)):
            p.call("norm_heads")
        c.wait_loads()
        # Queries and keys turn in place.
        p.set(c.a, head_words)
        p.set(c.b, field("source"))
        p.set(c.k, c.heads + m["kv_heads"])
        c.put(op=int(Op.ROPE), words=c.a)
        with c.each(c.i, c.k):
            c.put(source=c.b, target=c.b)
            c.push(Push.JOB)
            p.set(c.b, c.b + c.a)
        c.wait(Idle.SETTLED)
        p.set(row, 0)
        with c.each(c.i, c.segments):
            p.set(c.a, c.segment_sequence[c.i])
            with c.each(c.j, m["kv_heads"]):
                p.call("store_keys")
                p.call("store_values")
            p.set(row, row + c.segment_rows[c.i])
        # Blocks that are complete, from the keys as they are in memory.
        with c.each(c.i, c.segments):
            p.set(c.a, c.segment_sequence[c.i])
            p.set(end, (c.segment_start[c.i] + c.segment_rows[c.i]) >> 6)
            p.set(c.k, c.segment_start[c.i] >> 6)
            with p.while_(c.k < end):
                c.wait(Idle.MOVER, Idle.WRITES)
                with c.each(c.j, m["kv_heads"]):
                    p.call("close")
                p.set(c.k, c.k + 1)
    with p.function("load_rope", leaf=True):
        # Changes b, d, i, j, k.
        p.set(c.d, m["head_tiles"] << 1)
        c.put(count=c.d, load_target=int(Target.ROPE))
        p.set(c.k, 0)
        with c.each(c.i, c.segments):
            p.set(c.b, c.segment_start[c.i] * c.d + c.base[int(Region.ROPE)])
            with c.each(c.j, c.segment_rows[c.i]):
                c.load(line=c.b, row=c.k)
                p.set(c.b, c.b + c.d)
                p.set(c.k, c.k + 1)
        c.count("READ_ROPE", (c.d << 6) * c.rows)
    with p.function("norm_heads", leaf=True):
        # Each head for itself, in place. Changes a to d, i.
        use_eps(c, field("eps"), field("inverse_width"))
        p.set(c.d, field("source"))
        for count, weights in ((c.heads, "q_norm"), (m["kv_heads"], "k_norm")):
            with c.each(c.i, count):
                c.put(source=c.d, target=c.d, words=head_words, op=int(Op.SQUARES))
                c.push(Push.JOB)
                c.put(op=int(Op.NORM))
                c.push(Push.JOB)
                norm_weights(c, field(weights), m["head_tiles"])
                p.set(c.d, c.d + head_words)
    with p.function("store_keys", leaf=True):
        # Keys of the segment's rows, head ``j``. Changes b, c, d, k.
        p.set(line, places["open_keys"])
        p.set(c.b, m["head_tiles"] << 1)
        c.put(
            kind=int(Kind.KEYS),
            words=head_words,
            word=field("source") + ((c.heads + c.j) * m["head_tiles"] << 2),
        )
        p.set(c.c, c.segment_start[c.i])
        p.set(c.d, row)
        with c.each(c.k, c.segment_rows[c.i]):
            c.move(line=line + (c.c & (OPEN_ROWS - 1)) * c.b, row=c.d)
            p.set(c.c, c.c + 1)
            p.set(c.d, c.d + 1)
        c.count("WRITE_OPEN_KEYS", (c.k * c.b) << 6)
    with p.function("store_values", leaf=True):
        # Values of the segment's rows, head ``j``. Changes b to h, k.
        p.set(line, places["values"])
        p.set(c.h, c.heads + m["kv_heads"] + c.j)
        p.set(c.e, field("source") + (c.h * m["head_tiles"] << 2))
        c.put(kind=int(Kind.VALUES), words=TILE_WORDS)
        with c.each(c.h, m["head_tiles"]):
            c.put(word=c.e)
            p.set(c.c, c.segment_start[c.i])
            p.set(c.d, row)
            p.set(c.f, c.segment_rows[c.i])
            with c.each(c.k, c.f):
                c.move(
                    line=line + (c.c >> 6) * c.tile_lines,
                    token=c.c & (TILE_K - 1),
                    row=c.d,
                    last=((c.f - c.k) >> 0).least(2) & 1,
                )
                p.set(c.c, c.c + 1)
                p.set(c.d, c.d + 1)
            c.count("WRITE_VALUES", c.f * c.tile_lines)
            p.set(c.e, c.e + TILE_WORDS)
            p.set(line, line + m["value_channels"])
    with p.function("close", leaf=True):
        # Block ``k`` of head ``j``. Changes b, c.
        p.set(c.b, m["head_tiles"] << 1)
        p.set(c.c, c.b * TILE_K)
        c.put(close=1, count=TILE_K)
        c.push(Push.KEYS)
        c.load(
            line=places["open_keys"] + (c.k << 6 & (OPEN_ROWS - 1)) * c.b,
            count=c.c,
            load_target=int(Target.KEYS),
        )
        c.count("READ_OPEN_KEYS", c.c << 6)
        p.set(c.b, m["head_tiles"] * c.tile_lines)
        c.put(line=places["keys"] + c.b * c.k, count=c.b)
        c.push(Push.CLOSED)
        c.count("WRITE_KEYS", c.b << 6)


def _attend(c: Control) -> None:
    p, m, config = c.p, c.model, c.config
    field = functools.partial(c.field, Opcode.ATTEND)
    places = _places(c, Opcode.ATTEND)
    row, left, position, parity, base = (p.words() for _ in range(5))
    tiles = config.head_tiles_max
    queries = config.staging + STAGED_TILES * TILE_WORDS
    results = queries + 2 * tiles * TILE_WORDS
    head_words = m["head_tiles"] << 2
    with p.function("ATTEND"):
        p.set(c.e, c.heads_tiles)
        need_apart(c, field("source"), c.e, field("target"), c.e)
        p.call("need_cache")
        p.call("finish_attention")
        # What STORE has written is read.
        c.wait(Idle.MOVER, Idle.WRITES, Idle.KEYS, Idle.SETTLED)
        p.set(c.passes_base, Port(Flag.PASSES))
        p.set(row, 0)
        with c.each(c.i, c.segments):
            p.set(c.a, c.segment_sequence[c.i])
            with c.each(c.j, m["kv_heads"]):
                p.set(left, c.segment_rows[c.i])
                p.set(position, c.segment_start[c.i])
                with p.while_(left.is_not(0)):
                    p.call("abort")
                    p.call("pass")
                    p.set(left, left - c.k)
                    p.set(position, position + c.k)
            p.set(row, row + c.segment_rows[c.i])
    with p.function("pass"):
        # A pass of ``k`` positions of head ``j``. Changes b to h.
        with p.if_((c.passes - c.scattered).is_(2)):
            p.call("scatter")
        p.set(parity, c.passes & 1)
        p.set(c.k, left.least(c.pass_positions))
        p.set(c.b, row + position - c.segment_start[c.i])
        p.set(c.c, m["group"] * m["head_tiles"] * c.j << 2)
        p.set(c.d, c.passes & 1)
        p.set(c.pass_row[c.d], c.b)
        p.set(c.pass_word[c.d], field("target") + c.c)
        p.set(c.pass_count[c.d], c.k)
        p.set(c.e, Constant(tiles * TILE_WORDS) * parity)
        c.move(
            kind=int(Kind.GATHER),
            row=c.b,
            word=field("source") + c.c,
            words=head_words,
            staged=c.e + queries,
            positions=c.k,
        )
        # Rows of the first one's block.
        p.set(c.f, position & (TILE_K - 1))
        p.set(c.g, (Constant(TILE_K) - c.f).least(c.k))
        # The open keys from the start of that block on: of one block, or of two.
        p.set(c.b, m["head_tiles"] << 1)
        p.set(base, (position >> 6 << 6 & (OPEN_ROWS - 1)) * c.b)
        p.set(c.c, (c.f + c.k).least(TILE_K))
        p.call("open")
        with p.if_(c.f + c.k > TILE_K):
            p.set(c.c, c.f + c.k - TILE_K)
            p.set(base, ((position >> 6) + 1 << 6 & (OPEN_ROWS - 1)) * c.b)
            p.call("open")
        p.set(c.gate, (c.gate + 1) & 15)
        c.put(
            line=places["keys"],
            values=places["values"],
            value_channels=m["value_channels"],
            p=c.p_kv,
            midpoint=c.midpoint_kv,
            source=c.e + queries,
            target=c.e + results,
            start=position,
            rows=c.k * m["group"],
            rows_first=c.g * m["group"],
            gate=c.gate,
        )
        c.push(Push.PASS)
        # Bytes: closed blocks before the last own one, value tiles up to it.
        p.set(c.f, (position + c.k - 1) >> 6)
        p.set(c.g, (m["head_tiles"] << 6) * ((c.p_kv << 3) + 1))
        c.count("READ_KEYS", c.g * c.f)
        c.count("READ_VALUES", c.g * c.f + c.g)
        p.set(c.passes, c.passes + 1)
        c.wait_moves()
        c.put(gates=c.gate)
    with p.function("open", leaf=True):
        # ``c`` tokens of a block, ``b`` lines each.
        c.put(close=0, count=c.c)
        c.push(Push.KEYS)
        p.set(c.h, c.b * c.c)
        c.load(
            line=places["open_keys"] + base,
            count=c.h,
            load_target=int(Target.KEYS),
        )
        c.count("READ_OPEN_KEYS", c.h << 6)


def _finish(c: Control) -> None:
    p, m, config = c.p, c.model, c.config
    tiles = config.head_tiles_max
    results = config.staging + (STAGED_TILES + 2 * tiles) * TILE_WORDS
    with p.function("finish_attention"):
        # Until the results of all passes are where they belong; then the gate behind them opens.
        with p.if_(c.passes.is_not(0)):
            with p.while_(c.scattered < c.passes):
                p.call("scatter")
            c.wait_moves()
            p.set(c.passes, 0)
            p.set(c.scattered, 0)
            p.set(c.gate, (c.gate + 1) & 15)
            c.put(gates=c.gate)
    with p.function("scatter", leaf=True):
        # The results of the oldest pass. Changes d, h.
        p.set(c.scattered, c.scattered + 1)
        p.set(c.h, (c.passes_base + c.scattered) & 0xFF)
        c.wait_count(Flag.PASSES, c.h)
        p.set(c.d, (c.scattered - 1) & 1)
        c.move(
            kind=int(Kind.SCATTER),
            row=c.pass_row[c.d],
            word=c.pass_word[c.d],
            words=m["head_tiles"] << 2,
            staged=Constant(tiles * TILE_WORDS) * c.d + results,
            positions=c.pass_count[c.d],
        )
