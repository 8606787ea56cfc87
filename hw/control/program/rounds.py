"""ROUND: drafts and verifications, whole on the chip."""

from __future__ import annotations

import functools

from hw.control.assembler import Constant, Expr, Label, Port
from hw.control.ports import Flag, Idle, Push
from hw.control.program.control import plt_field
from hw.control.program.state import LINE_TOKENS, Control
from model.formats.commands import END_IDS, TRACE_LINES, Opcode, Region, Status
from model.formats.plt_layout import ENTRIES, FIRST_LOG2
from model.formats.registers import pack

_LIVE, _END, _LIMIT = (pack("STATE", **{name: 1}) for name in ("live", "end", "limit"))
#: Most drafted tokens of an entry of the trace.
_TRACE_TOKENS = LINE_TOKENS * (TRACE_LINES - 1)


def round_functions(c: Control) -> None:
    """All of them."""
    p, config = c.p, c.config
    field = functools.partial(c.field, Opcode.ROUND)
    done, live, total, word, gamma, most, step, draft_word = (p.words() for _ in range(8))
    # Tokens of the verification: pending, then drafted ones; of a sequence from ``place`` on.
    verified = p.words(config.core.t_m)
    accepted, emitted, length, drafted, state, trace_next = (p.words() for _ in range(6))
    sequences = config.sequences

    def is_live(index: Expr) -> Expr:
        return c.window("STATE", index) & _LIVE

    with p.function("ROUND"):
        c.need(field("end_ids") <= END_IDS, Status.TOKEN)
        p.set(c.i, field("list"))
        p.set(c.j, field("count"))
        p.call("need_list")
        c.wait(Idle.WRITES)
        with c.each(c.i, sequences):
            with p.if_(is_live(c.i).is_not(0)):
                p.set(c.a, c.i)
                p.set(c.b, c.window("LENGTH", c.i))
                p.set(c.e, 1)
                p.set(c.f, c.i + c.pending.place)
                p.call("read_tokens")
        with p.if_(field("trace").is_not(0)):
            p.set(trace_next, field("trace_entry"))
            p.set(c.window("TRACE_NEXT"), trace_next)
        p.set(done, 0)
        again, end = Label(), Label()
        p.place(again)
        p.set(live, 0)
        p.set(total, 0)
        with c.each(c.i, sequences):
            with p.if_(is_live(c.i).is_not(0)):
                p.set(live, live + 1)
                p.set(total, total + c.window("LENGTH", c.i))
        p.jump_if(live.is_(0), end)
        with p.if_(field("rounds").is_not(0), field("rounds") <= done):
            p.jump(end)
        p.call("round")
        p.set(done, done + 1)
        p.jump(again)
        p.place(end)
        p.set(c.segments, 0)
        p.set(c.rows, 0)

    with p.function("round"):
        p.set(word, field("precision"))
        with p.if_((word >> 31).is_(0)):
            c.need(word.is_(0), Status.PRECISION)
            # ceil(log2(total)) - 11, clamped.
            p.set(c.i, 0)
            with p.while_((Constant(1 << FIRST_LOG2) << c.i) < total, c.i < ENTRIES - 1):
                p.set(c.i, c.i + 1)
            p.set(word, c.window("PLT", c.i))
        p.set(c.a, word)
        p.call("need_precision")
        with p.if_(field("trace").is_not(0)):
            c.need_region(Region.TRACE, (trace_next + live) * TRACE_LINES)
        p.set(gamma, plt_field(word, "gamma"))
        with p.if_(field("gamma_limit").is_not(0)):
            p.set(gamma, gamma.least(field("gamma_limit")))
        # Rows that a sequence may have, without the pending token's.
        p.set(c.a, 0)
        p.set(c.b, live + live)
        with p.while_(c.b <= config.core.t_m):
            p.set(c.b, c.b + live)
            p.set(c.a, c.a + 1)
        p.set(gamma, gamma.least(c.a))
        p.set(most, 0)
        p.set(c.d, 0)
        with c.each(c.i, sequences):
            with p.if_(is_live(c.i).is_not(0)):
                p.set(c.a, (c.limit[c.i] - c.window("LENGTH", c.i) - 2).least(gamma))
                p.set(c.gammas[c.i], c.a)
                p.set(c.place[c.i], c.d)
                p.set(verified[c.d], c.pending[c.i])
                p.set(c.d, c.d + c.a + 1)
                with p.if_(c.a > most):
                    p.set(most, c.a)
        p.set(step, 0)
        with p.while_(step < most):
            p.set(c.a, word)
            p.call("use_precision")
            p.set(c.segments, 0)
            with c.each(c.i, sequences):
                with p.if_(is_live(c.i).is_not(0), c.gammas[c.i] > step):
                    p.set(c.segment_sequence[c.segments], c.i)
                    p.set(c.segment_start[c.segments], c.window("LENGTH", c.i) + step)
                    p.set(c.segment_rows[c.segments], 1)
                    p.set(c.a, c.place[c.i] + step)
                    p.set(c.tokens[c.segments], verified[c.a])
                    p.set(c.segments, c.segments + 1)
            p.set(c.rows, c.segments)
            p.call("step")
            with c.each(c.i, c.rows):
                p.set(c.a, c.segment_sequence[c.i])
                p.set(c.a, c.place[c.a] + step)
                p.set(verified[c.a + 1], c.argmax[c.i] & 0xFFFF_FFFF)
            p.set(step, step + 1)
        p.call("use_full")
        p.set(c.segments, 0)
        p.set(c.rows, 0)
        with c.each(c.i, sequences):
            with p.if_(is_live(c.i).is_not(0)):
                p.set(c.a, c.segments)
                p.set(c.segment_sequence[c.a], c.i)
                p.set(c.segment_start[c.a], c.window("LENGTH", c.i))
                p.set(c.segment_rows[c.a], c.gammas[c.i] + 1)
                p.set(c.rows, c.rows + c.segment_rows[c.a])
                p.set(c.segments, c.a + 1)
        with c.each(c.i, c.rows):
            p.set(c.tokens[c.i], verified[c.i])
        p.call("step")
        with c.each(c.i, sequences):
            with p.if_(is_live(c.i).is_not(0)):
                p.call("judge")
        c.count("ROUNDS", 1)

    with p.function("step"):
        p.call("set_rows")
        p.set(c.i, field("list"))
        p.set(c.j, field("count"))
        p.set(draft_word, c.cmd)
        p.call("list")
        p.set(c.cmd, draft_word)
        c.count("STEPS", 1)
        with c.each(c.i, c.rows):
            c.need(c.argmax[c.i].is_not(0), Status.ROWS)

    with p.function("judge"):
        # Sequence ``i``. Changes all but i.
        p.set(c.k, c.place[c.i])
        p.set(drafted, c.gammas[c.i])
        p.set(length, c.window("LENGTH", c.i))
        p.set(c.j, 0)
        with p.while_(c.j < drafted):
            p.set(c.a, c.k + c.j)
            p.leave((c.argmax[c.a] & 0xFFFF_FFFF).is_not(verified[c.a + 1]))
            p.set(c.j, c.j + 1)
        p.set(accepted, c.j)
        # The new tokens are the target's: an end-of-text id among them?
        p.set(emitted, accepted + 1)
        p.set(state, _LIVE)
        p.set(c.j, 0)
        with p.while_(c.j <= accepted):
            p.set(c.a, c.argmax[c.k + c.j] & 0xFFFF_FFFF)
            for i in range(END_IDS):
                with p.if_(field("end_ids") > i, field(f"end_id_{i}").is_(c.a)):
                    p.set(state, _END)
            with p.if_(state.is_(_END)):
                p.set(emitted, c.j + 1)
                p.set(c.j, accepted)
            p.set(c.j, c.j + 1)
        p.set(c.pending[c.i], c.argmax[c.k + accepted] & 0xFFFF_FFFF)
        p.set(c.h, length + emitted + 1)
        with p.if_(state.is_(_LIVE), c.h >= c.limit[c.i]):
            p.set(state, _LIMIT)
        p.set(c.window("COUNT", c.i), c.h)
        p.set(c.window("STATE", c.i), state)
        p.set(c.window("LENGTH", c.i), length + accepted + 1)
        p.set(c.a, c.i)
        p.set(c.b, length + 1)
        p.set(c.e, accepted + 1)
        p.set(c.f, c.k + c.argmax.place)
        p.call("write_tokens")
        c.count("DRAFTED", drafted)
        c.count("ACCEPTED", accepted)
        with p.if_(field("trace").is_not(0)):
            p.call("trace")

    with p.function("trace", leaf=True):
        values: tuple[Expr, ...] = (
            done,
            c.i,
            length,
            drafted,
            accepted,
            c.pending[c.i],
            emitted,
            state,
            word,
            total,
            Port(Flag.CYCLES),
            Port(Flag.CYCLES) >> 32,
            *(Constant(0) for _ in range(4)),
        )
        full = Constant(1) << 32
        low = 0xFFFF_FFFF
        p.set(c.a, c.base[int(Region.TRACE)] + (trace_next << 2))
        for value in values:
            c.push(Push.TEXT_WORD, (value & low) | full)
        c.put(line=c.a)
        c.push(Push.TEXT)
        p.set(c.b, 0)
        p.set(c.d, c.place[c.i] + 1)
        with p.while_(c.b < _TRACE_TOKENS):
            with c.each(c.c, LINE_TOKENS):
                p.set(c.e, 0)
                with p.if_(c.b < drafted):
                    p.set(c.e, verified[c.d + c.b])
                c.push(Push.TEXT_WORD, c.e | full)
                p.set(c.b, c.b + 1)
            p.set(c.a, c.a + 1)
            c.put(line=c.a)
            c.push(Push.TEXT)
        c.count("WRITE_TRACE", 64 * TRACE_LINES)
        p.set(trace_next, trace_next + 1)
        p.set(c.window("TRACE_NEXT"), trace_next)
