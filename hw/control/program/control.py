"""Commands around the steps: MODEL, SEQUENCE, ROWS, CALL, COMMIT, FENCE."""

from __future__ import annotations

import functools

from hw.config import P_MIN
from hw.control.assembler import Constant, Expr, Label, Register, Word
from hw.control.ports import Idle, Push
from hw.control.program.state import LINE_TOKENS, Control
from model.formats.commands import (
    SEGMENTS,
    VOCABULARY_MAX,
    Opcode,
    Region,
    Status,
)
from model.formats.constants import P_FULL_MIN, TILE_K
from model.formats.plt_layout import FIELDS as PLT_FIELDS
from model.formats.plt_layout import RESERVED
from model.formats.special_tables import score_factor


def plt_field(word: Expr, name: str) -> Expr:
    """A field of a word of the lookup table."""
    low, width = PLT_FIELDS[name]
    return (word >> low) & ((1 << width) - 1)


def control_functions(c: Control) -> None:
    """All of them."""
    _model(c)
    _sequence(c)
    _precision(c)
    _tokens(c)
    _rows(c)
    _call(c)
    _commit(c)
    with c.p.function("FENCE"):
        c.p.call("drain")


def _inverse(c: Control) -> None:
    """``a`` = FP32 of 1 / (64 b), b in 1 .. 2^15. Changes c, d, i."""
    p = c.p
    with p.function("inverse", leaf=True):
        # e = floor(log2 b)
        p.set(c.d, 0)
        with p.while_((Constant(2) << c.d) <= c.b):
            p.set(c.d, c.d + 1)
        p.set(c.a, Constant(127 - 6) - c.d)
        with p.if_((Constant(1) << c.d).is_not(c.b)):
            # 2^(e+1) / b in 1 .. 2: 24 bits by long division, rounded; no tie is possible.
            p.set(c.a, c.a - 1)
            p.set(c.c, (Constant(2) << c.d) - c.b)
            p.set(c.e, 0)
            with c.each(c.i, 23):
                p.set(c.c, c.c + c.c)
                p.set(c.e, c.e + c.e)
                with p.if_(c.c >= c.b):
                    p.set(c.c, c.c - c.b)
                    p.set(c.e, c.e + 1)
            with p.if_(c.c + c.c >= c.b):
                p.set(c.e, c.e + 1)
            p.set(c.a, (c.a << 23) + c.e)
            p.jump(back := Label())
        p.set(c.a, c.a << 23)
        p.place(back)


def _model(c: Control) -> None:
    p, config = c.p, c.config
    core = config.core
    _inverse(c)
    field = functools.partial(c.field, Opcode.MODEL)
    with p.function("MODEL"):
        limits = {
            "width_tiles": (1, core.max_k // TILE_K),
            "kv_heads": (1, 255),
            "group": (1, core.t_m),
            "head_tiles": (1, config.head_tiles_max),
            "capacity": (TILE_K, core.max_k),
            "vocabulary": (1, VOCABULARY_MAX),
        }
        for name, (low, high) in limits.items():
            p.set(c.a, field(name))
            c.need(c.a >= low, Status.SHAPE)
            c.need(c.a <= high, Status.SHAPE)
        c.need((field("capacity") & (TILE_K - 1)).is_(0), Status.SHAPE)
        # The factor of the scores follows from the width of a head.
        p.set(c.a, 0)
        for tiles in range(1, config.head_tiles_max + 1):
            factor = score_factor(tiles * TILE_K)
            with p.if_(field("head_tiles").is_(tiles)):
                p.set(c.a, factor.integer | (factor.exponent & 0x3F) << 24)
        c.need((Word(c.cmd, 4) & 0x3F03_FFFF).is_(c.a), Status.SHAPE)
        c.need(field("p_full") >= P_FULL_MIN, Status.PRECISION)
        c.need(field("p_full") <= core.p_max, Status.PRECISION)
        p.call("drain")
        for name, where in c.model.items():
            p.set(where, field(name))
        p.set(c.has_model, 1)
        p.set(c.segments, 0)
        p.set(c.rows, 0)
        with c.each(c.i, config.sequences):
            for name in ("LENGTH", "COUNT", "STATE"):
                p.set(c.window(name, c.i), 0)
        m = c.model
        p.set(c.tile_lines, (m["p_full"] << 3) + 1)
        p.set(c.heads, m["kv_heads"] * m["group"])
        p.set(c.heads_tiles, c.heads * m["head_tiles"])
        p.set(c.vocabulary_tiles, (m["vocabulary"] + (TILE_K - 1)) >> 6)
        p.set(c.pass_positions, 0)
        p.set(c.a, m["group"])
        with p.while_(c.a <= core.t_m):
            p.set(c.a, c.a + m["group"])
            p.set(c.pass_positions, c.pass_positions + 1)
        for width, where in (("width_tiles", c.inverse_width), ("head_tiles", c.inverse_head)):
            p.set(c.b, m[width])
            p.call("inverse")
            p.set(where, c.a)
        c.put(
            model_head_tiles=m["head_tiles"],
            head_tiles=m["head_tiles"],
            p_full=m["p_full"],
            group=m["group"],
            factor=(m["factor_exponent"] << 18) | m["factor"],
        )


def need_tokens(c: Control, sequence: Expr) -> None:
    """A sequence that the chip has, and whose tokens have a place. Changes b."""
    c.need(sequence < c.config.sequences, Status.SEQUENCE)
    c.p.set(c.b, c.model["capacity"] >> 4)
    c.need_region(Region.TOKENS, c.b * sequence + c.b)


def _sequence(c: Control) -> None:
    p = c.p
    field = functools.partial(c.field, Opcode.SEQUENCE)
    with p.function("SEQUENCE", leaf=True):
        p.set(c.a, field("sequence"))
        need_tokens(c, c.a)
        p.set(c.c, field("length"))
        p.set(c.d, field("live"))
        c.need(c.c <= c.model["capacity"], Status.CAPACITY)
        with p.if_(c.d.is_not(0)):
            c.need(c.c + 1 < field("limit"), Status.CAPACITY)
            c.need(field("limit") <= c.model["capacity"], Status.CAPACITY)
        p.set(c.limit[c.a], field("limit"))
        p.set(c.window("LENGTH", c.a), c.c)
        p.set(c.window("COUNT", c.a), c.c + c.d)
        p.set(c.window("STATE", c.a), c.d)


def _precision(c: Control) -> None:
    """``need_precision``: checks the word ``a``. ``use_precision``: takes it. ``use_full``: all."""
    p, m = c.p, c.model
    with p.function("need_precision", leaf=True):
        c.need((c.a & RESERVED).is_(0), Status.PRECISION)
        c.need((c.a >> 31).is_not(0), Status.PRECISION)
        for name in ("p_w", "p_kv"):
            p.set(c.b, plt_field(c.a, name))
            c.need(c.b >= P_MIN, Status.PRECISION)
            c.need(c.b <= m["p_full"], Status.PRECISION)
    with p.function("use_precision", leaf=True):
        for name, midpoint in (("p_w", "midpoint_w"), ("p_kv", "midpoint_kv")):
            bits, flag = getattr(c, name), getattr(c, midpoint)
            p.set(c.b, plt_field(c.a, name))
            p.set(bits, c.b)
            p.set(flag, plt_field(c.a, midpoint))
            # Nothing is a midpoint where nothing is cut off.
            with p.if_(c.b.is_(m["p_full"])):
                p.set(flag, 0)
    with p.function("use_full", leaf=True):
        for bits, flag in ((c.p_w, c.midpoint_w), (c.p_kv, c.midpoint_kv)):
            p.set(bits, m["p_full"])
            p.set(flag, 0)
    with p.function("set_rows", leaf=True):
        # ``rows`` of them are known by their segments; none has an argmax. Changes i.
        c.put(step_rows=(Constant(1) << c.rows) - 1)
        with c.each(c.i, c.rows):
            p.set(c.argmax[c.i], 0)


def _tokens(c: Control) -> None:
    """``read_tokens``: ``e`` tokens of sequence ``a`` from position ``b`` on to address ``f``.

    ``write_tokens`` the reverse. Both change b, c, d, e, f, g, h.
    """
    p = c.p
    first_line = (c.b >> 4) + ((c.model["capacity"] >> 4) * c.a)
    with p.function("read_tokens", leaf=True):
        p.set(c.c, first_line)
        p.set(c.b, c.b & (LINE_TOKENS - 1))
        with p.while_(c.e.is_not(0)):
            c.load_line(Region.TOKENS, c.c, c.lines.place)
            c.wait_loads()
            c.count("READ_TOKENS", 64)
            with p.while_(c.e.is_not(0), c.b < LINE_TOKENS):
                p.set(c.d, c.lines[c.b])
                c.need(c.d < c.model["vocabulary"], Status.TOKEN)
                p.set(Word(c.f), c.d)
                p.set(c.f, c.f + 1)
                p.set(c.b, c.b + 1)
                p.set(c.e, c.e - 1)
            p.set(c.b, 0)
            p.set(c.c, c.c + 1)
    with p.function("write_tokens", leaf=True):
        p.set(c.c, first_line)
        p.set(c.b, c.b & (LINE_TOKENS - 1))
        c.count("WRITE_TOKENS", c.e << 2)
        with p.while_(c.e.is_not(0)):
            with c.each(c.g, LINE_TOKENS):
                # Words that are not written have no bytes.
                p.set(c.d, 0)
                with p.if_(c.g >= c.b, c.e.is_not(0)):
                    p.set(c.d, Word(c.f) | (Constant(1) << 32))
                    p.set(c.f, c.f + 1)
                    p.set(c.e, c.e - 1)
                c.push(Push.TEXT_WORD, c.d)
            c.put(line=c.base[int(Region.TOKENS)] + c.c)
            c.push(Push.TEXT)
            p.set(c.b, 0)
            p.set(c.c, c.c + 1)


def _rows(c: Control) -> None:
    p = c.p
    field = functools.partial(c.field, Opcode.ROWS)
    before, total, row = (p.words() for _ in range(3))

    def segment(name: str, index: Register) -> Expr:
        word = Word(c.cmd + index + index, 5 if name == "start" else 4)
        return {
            "sequence": word & 0xFFFF,
            "count": word >> 16,
            "start": word,
        }[name]

    with p.function("ROWS"):
        p.set(c.h, field("segments"))
        c.need(c.h >= 1, Status.ROWS)
        c.need(c.h <= SEGMENTS, Status.ROWS)
        # New ones are written behind those that are set, which a fault leaves as they are.
        p.set(before, c.segments)
        p.set(total, 0)
        with p.if_(field("append").is_not(0)):
            p.set(before, 0)
            p.set(total, c.rows)
            c.need(c.segments.is_not(0), Status.ROWS)
        p.set(c.k, 1)
        with c.each(c.i, c.h):
            with p.if_(segment("count", c.i).is_(0)):
                p.set(c.k, 0)
            p.set(total, total + segment("count", c.i))
        c.need(c.k.is_not(0), Status.ROWS)
        c.need(total <= c.config.core.t_m, Status.ROWS)
        with c.each(c.i, c.h):
            p.set(c.a, segment("sequence", c.i))
            need_tokens(c, c.a)
            p.set(c.k, c.segments + c.i)
            p.set(c.j, before)
            with p.while_(c.j < c.k):
                c.need(c.segment_sequence[c.j].is_not(c.a), Status.SEQUENCE)
                p.set(c.j, c.j + 1)
            p.set(c.c, segment("start", c.i))
            p.set(c.d, segment("count", c.i))
            c.need(c.c + c.d <= c.model["capacity"], Status.CAPACITY)
            p.set(c.segment_sequence[c.k], c.a)
            p.set(c.segment_start[c.k], c.c)
            p.set(c.segment_rows[c.k], c.d)
        p.set(c.a, field("precision"))
        with p.if_(c.a.is_not(0)):
            p.call("need_precision")
        c.wait(Idle.WRITES)
        p.set(row, c.rows)
        with c.each(c.i, c.h):
            p.set(c.k, c.segments + c.i)
            p.set(c.a, c.segment_sequence[c.k])
            p.set(c.b, c.segment_start[c.k])
            p.set(c.e, c.segment_rows[c.k])
            p.set(c.f, row + c.tokens.place)
            p.set(row, row + c.e)
            p.call("read_tokens")
        p.set(c.j, c.segments)
        p.set(c.segments, c.segments + c.h)
        with p.if_(field("append").is_(0)):
            p.set(c.segments, c.h)
            with c.each(c.i, c.h):
                for table in (c.segment_sequence, c.segment_start, c.segment_rows):
                    p.set(table[c.i], table[c.j + c.i])
            with c.each(c.i, total):
                p.set(c.tokens[c.i], c.tokens[c.rows + c.i])
        p.set(c.rows, total)
        p.call("set_rows")
        p.call("use_full")
        p.set(c.a, field("precision"))
        with p.if_(c.a.is_not(0)):
            p.call("use_precision")


def _call(c: Control) -> None:
    p = c.p
    with p.function("need_list", leaf=True):
        # ``j`` commands from line ``i`` on.
        c.need(c.j.is_not(0), Status.REGION)
        c.need_region(Region.COMMANDS, c.i + c.j)
    with p.function("CALL"):
        c.need(c.segments.is_not(0), Status.ROWS)
        p.set(c.i, c.field(Opcode.CALL, "list"))
        p.set(c.j, c.field(Opcode.CALL, "count"))
        p.call("need_list")
        p.call("list")


def _commit(c: Control) -> None:
    p = c.p
    append = c.field(Opcode.COMMIT, "append")
    end = p.words()
    with p.function("COMMIT"):
        c.need(c.segments.is_not(0), Status.ROWS)
        with p.if_(append.is_not(0)):
            p.set(c.j, 0)
            with c.each(c.i, c.segments):
                p.set(c.j, c.j + c.segment_rows[c.i])
                c.need(Word(c.j, c.argmax_at - 1).is_not(0), Status.ROWS)
                p.set(c.a, c.segment_start[c.i] + c.segment_rows[c.i])
                c.need(c.a < c.model["capacity"], Status.CAPACITY)
        p.call("drain")
        p.set(c.j, 0)
        with c.each(c.i, c.segments):
            p.set(c.a, c.segment_sequence[c.i])
            p.set(c.j, c.j + c.segment_rows[c.i])
            p.set(end, c.segment_start[c.i] + c.segment_rows[c.i])
            p.set(c.window("LENGTH", c.a), end)
            p.set(c.window("COUNT", c.a), end)
            p.set(c.window("STATE", c.a), 0)
            p.set(c.d, Word(c.j, c.argmax_at - 1) & ((1 << 32) - 1))
            with p.if_(append.is_not(0)):
                p.set(c.lines, c.d)
                p.set(c.window("COUNT", c.a), end + 1)
                p.set(c.b, end)
                p.set(c.e, 1)
                p.set(c.f, c.lines.place)
                p.call("write_tokens")
