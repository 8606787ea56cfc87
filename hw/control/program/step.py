"""Commands of a step, without attention: EMBED, NORM, LINEAR, HEAD."""

from __future__ import annotations

import functools

from hw.control.assembler import Constant, Expr, Label, Port, Word
from hw.control.ports import Flag, Idle, Push
from hw.control.program.state import Control
from hw.special.slice import Op
from hw.transfers.layouts import Target
from model.formats.commands import Epilogue, Opcode, Region, Status
from model.formats.constants import TILE_K

#: FP32 codes of the least and the largest eps.
EPS_LEAST, EPS_MOST = 0x0080_0000, 0x7F00_0000


def step_functions(c: Control) -> None:
    """All of them."""
    _embed(c)
    _norm(c)
    _matrix(c)
    _linear(c)
    _head(c)


def need_eps(c: Control, eps: Expr, inverse: Expr, expected: Expr) -> None:
    """Constants of a norm. Changes a."""
    c.p.set(c.a, eps)
    c.need(c.a >= EPS_LEAST, Status.NUMBER)
    c.need(c.a <= EPS_MOST, Status.NUMBER)
    c.p.set(c.a, inverse)
    c.need(c.a.is_(expected), Status.SHAPE)


def use_eps(c: Control, eps: Expr, inverse: Expr) -> None:
    """Gives them to the slices. What works with others comes to its end before."""
    p = c.p
    p.set(c.b, inverse)
    p.set(c.a, eps)
    other, done = Label(), Label()
    p.jump_if(c.a.is_not(c.eps_now), other)
    p.jump_if(c.b.is_(c.inverse_now), done)
    p.place(other)
    c.wait(Idle.SETTLED)
    c.put(eps=c.a, inverse_width=c.b)
    p.set(c.eps_now, c.a)
    p.set(c.inverse_now, c.b)
    p.place(done)


def need_apart(c: Control, source: Expr, sources: Expr, target: Expr, targets: Expr) -> None:
    """Bank words of tiles, apart from each other. Changes a to d."""
    p = c.p
    p.set(c.a, source)
    p.set(c.b, c.a + (sources << 2))
    p.set(c.c, target)
    p.set(c.d, c.c + (targets << 2))
    c.need_span(c.b)
    c.need_span(c.d)
    with p.if_(c.b > c.c):
        c.need(c.d <= c.a, Status.BANK)


def norm_weights(c: Control, line: Expr, tiles: Expr) -> None:
    """Weights of a norm on their way to the slices."""
    lines = tiles << 1
    c.count("READ_NORM", tiles << 7)
    c.load(
        line=c.base[int(Region.NORM)] + line,
        count=lines,
        load_target=int(Target.WEIGHTS),
    )


def _embed(c: Control) -> None:
    p, m = c.p, c.model
    target = c.field(Opcode.EMBED, "target")
    with p.function("EMBED"):
        c.need_span(target + (m["width_tiles"] << 2))
        p.set(c.c, m["width_tiles"] << 1)
        c.need_region(Region.EMBED, m["vocabulary"] * c.c)
        p.call("finish_attention")
        # Its words may still be read by what came before.
        c.wait(Idle.SETTLED)
        p.set(c.tapped, 0)
        c.put(count=c.c, load_target=int(Target.BANK), word=target)
        with c.each(c.i, c.rows):
            c.load(
                line=c.base[int(Region.EMBED)] + c.c * c.tokens[c.i],
                row=c.i,
            )
        c.count("READ_EMBED", (c.c << 6) * c.rows)
        c.wait_loads()


def _norm(c: Control) -> None:
    p, m = c.p, c.model
    field = functools.partial(c.field, Opcode.NORM)
    with p.function("NORM"):
        need_eps(c, field("eps"), field("inverse_width"), c.inverse_width)
        p.set(c.e, m["width_tiles"])
        need_apart(c, field("source"), c.e, field("target"), c.e)
        c.need_region(Region.NORM, field("weights") + (c.e << 1))
        p.call("finish_attention")
        use_eps(c, field("eps"), field("inverse_width"))
        c.put(source=field("source"), target=field("target"), words=c.e << 2)
        with p.if_(c.tapped.is_(0)):
            c.put(op=int(Op.SQUARES))
            c.push(Push.JOB)
        p.set(c.tapped, 0)
        c.put(op=int(Op.NORM))
        c.push(Push.JOB)
        norm_weights(c, field("weights"), c.e)


def _matrix(c: Control) -> None:
    """``matrix``: shape of a LINEAR or HEAD, whose fields lie alike; ``send_matrix``: the work."""
    p = c.p
    core = c.config.core
    field = functools.partial(c.field, Opcode.LINEAR)
    with p.function("need_matrix", leaf=True):
        p.set(c.e, field("k_tiles"))
        p.set(c.f, field("n_tiles"))
        p.set(c.g, field("tiles_per_block"))
        c.need(c.e >= 1, Status.SHAPE)
        c.need(c.e <= core.max_k // TILE_K, Status.SHAPE)
        c.need(c.f.is_not(0), Status.SHAPE)
        c.need(c.g >= 1, Status.SHAPE)
        c.need(c.g <= c.config.block_tiles, Status.SHAPE)
    with p.function("need_weights", leaf=True):
        # k tiles in ``e``, n tiles in ``f``: their product in ``h``.
        p.set(c.h, c.f * c.e)
        c.need_region(Region.WEIGHTS, c.h * c.tile_lines + field("weights"))
    with p.function("send_matrix", leaf=True):
        c.put(
            line=c.base[int(Region.WEIGHTS)] + field("weights"),
            k_tiles=c.e,
            n_tiles=c.f,
            tiles_per_block=c.g,
            source=field("source"),
            p=c.p_w,
            midpoint=c.midpoint_w,
        )
        c.count("READ_EXPONENTS", c.h << 6)
        p.set(c.a, c.p_w)
        p.set(c.tiles_by_p[c.a], c.tiles_by_p[c.a] + c.h)
        c.push(Push.MATRIX)


def _linear(c: Control) -> None:
    p, m = c.p, c.model
    field = functools.partial(c.field, Opcode.LINEAR)
    following = functools.partial(c.field_at, Opcode.NORM)
    with p.function("LINEAR"):
        p.call("need_matrix")
        p.set(c.i, field("epilogue"))
        c.need(c.i <= max(Epilogue), Status.SHAPE)
        p.set(c.j, c.f)
        with p.if_(c.i.is_(int(Epilogue.SILU_UP))):
            c.need((c.f & 1).is_(0), Status.SHAPE)
            p.set(c.j, c.f >> 1)
        need_apart(c, field("source"), c.e, field("target"), c.j)
        p.call("need_weights")
        # Sums enter the norm behind them, where that is what it reads.
        p.set(c.k, 0)
        with p.if_(c.i.is_(int(Epilogue.RESIDUAL))):
            c.wait_count(Flag.LOADS, c.ahead)
            p.set(c.a, c.following)
            with p.if_(
                (Word(c.a) & 0xFF).is_(int(Opcode.NORM)),
                following("source", c.a).is_(field("target")),
                c.f.is_(m["width_tiles"]),
            ):
                p.set(c.k, 1)
        with p.if_(c.k.is_not(0)):
            # The norm's constants must be there before its sums are complete.
            use_eps(c, following("eps", c.a), following("inverse_width", c.a))
        p.set(c.tapped, c.k)
        c.put(
            target=field("target"),
            epilogue=c.i,
            tap=c.k,
            head=0,
            columns=TILE_K,
            mask=(Constant(1) << c.rows) - 1,
            gate=c.gate,
        )
        with p.if_(c.passes.is_not(0)):
            # What attention gives out is waited for behind the gate, not here.
            c.put(gate=(c.gate + 1) & 15)
        p.call("send_matrix")
        p.call("finish_attention")


def _head(c: Control) -> None:
    p, m = c.p, c.model
    field = functools.partial(c.field, Opcode.HEAD)
    mask = p.words()
    with p.function("HEAD"):
        p.call("need_matrix")
        c.need(c.f.is_(c.vocabulary_tiles), Status.SHAPE)
        c.need_span(field("source") + (c.e << 2))
        p.call("need_weights")
        p.set(c.j, (c.f << 2) * c.rows)
        with p.if_(field("logits").is_not(0)):
            c.need_region(Region.LOGITS, c.j)
        p.call("finish_attention")
        # Rows that take part: all, or the last one of each segment.
        p.set(c.i, (Constant(1) << c.rows) - 1)
        p.set(c.k, c.rows)
        with p.if_(field("last_only").is_not(0)):
            p.set(c.i, 0)
            p.set(c.d, 0)
            p.set(c.k, c.segments)
            with c.each(c.c, c.segments):
                p.set(c.d, c.d + c.segment_rows[c.c])
                p.set(c.i, c.i | (Constant(1) << (c.d - 1)))
        p.set(mask, c.i)
        c.put(
            target=0,
            epilogue=int(Epilogue.NONE),
            tap=0,
            head=1,
            columns=((m["vocabulary"] - 1) & (TILE_K - 1)) + 1,
            mask=mask,
            gate=c.gate,
            logits=field("logits"),
            logits_line=c.base[int(Region.LOGITS)],
            logits_stride=c.f << 2,
        )
        with p.if_(field("logits").is_not(0)):
            c.count("WRITE_LOGITS", (c.f << 8) * c.k)
        p.call("send_matrix")
        c.wait(Idle.SETTLED)
        # Winners come a few cycles behind the last logit.
        seen = Label()
        p.place(seen)
        p.jump_if((Port(int(Flag.SEEN)) & mask).is_not(mask), seen)
        p.call("check")
        with c.each(c.i, c.rows):
            with p.if_(((mask >> c.i) & 1).is_not(0)):
                p.set(c.argmax[c.i], Port(int(Flag.WINNERS), c.i) | (Constant(1) << 32))
        c.push(Push.FORGET)
