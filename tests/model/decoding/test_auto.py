"""The draft that follows a lookup table."""

from __future__ import annotations

from model.decoding.drafts.bs_spec import AutoBsSpec, BsSpec
from model.decoding.loop import Options, generate
from model.lm.precision import Precision
from model.lm.random_model import TINY, random_checkpoint
from model.lm.stored import store

PROMPTS = [[1, 2, 3] * 18, [5, 6]]


def test_the_pair_follows_the_live_sequences() -> None:
    """The table is asked for the sum of live lengths, once a round; ended ones do not count."""
    model = store(random_checkpoint(TINY, 0))
    asked: list[int] = []

    def choose(total: int) -> tuple[Precision, int | None]:
        asked.append(total)
        return Precision.parse("W5KV6" if total % 2 else "W7mKV5m"), 2

    draft = AutoBsSpec(model, choose, exact=True)
    plain = generate(BsSpec(model, None, exact=True), PROMPTS, Options(max_new=24))
    # The first sequence ends early, at its own fifth token or before.
    ends = (plain.sequences[0].tokens[4],)
    expected = generate(BsSpec(model, None, exact=True), PROMPTS, Options(max_new=24, end_ids=ends))
    asked.clear()
    found = generate(draft, PROMPTS, Options(gamma=7, max_new=24, end_ids=ends))
    assert [t.tokens for t in found.sequences] == [t.tokens for t in expected.sequences]
    assert all(len(r.drafted) <= 2 for r in found.rounds)  # the table's gamma, not the caller's
    first, second = (text.rounds for text in found.sequences)
    totals = [r.length for r in second]
    for number, r in enumerate(first):
        totals[number] += r.length
    assert asked == totals
    assert len(second) > len(first)
    assert str(Precision.parse("W7mKV5m")) in map(str, draft.chosen)
    assert "W5KV6" in map(str, draft.chosen)
