"""The levels in small, with other faults than the command's own, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from model.decoding import loop, sampling
from model.decoding.drafts.bs_spec import BsSpec
from model.decoding.drafts.shared import SharedCacheDraft
from model.decoding.loop import Options, generate
from model.decoding.sampling import Sampling
from model.lm.precision import Precision
from model.lm.random_model import TINY, random_checkpoint
from model.lm.stored import store
from model.verification import algebra, enumeration, greedy, kernel, two_sample, verify
from model.verification.controls import Replaced, planted
from model.verification.report import Check, decided, table
from model.verification.statistics import Statistic
from model.verification.toys import TableDraft, chain_law, random_toy
from model.verification.wrappers import Restarts


def test_algebra_seeds() -> None:
    assert algebra.wrong_pairs(7, 40) == 0


@pytest.mark.parametrize("seed", range(3))
def test_enumeration_seeds(seed: int) -> None:
    """Other tables, and prompts whose first token has the other parity."""
    toy = random_toy(seed + 10, sparse=True)
    options = Options(gamma=2, max_new=5, sampling=Sampling(temperature=1.0))
    for prompt in ((1,), (0, 2)):
        with planted(enumeration.EXACT):
            found, _, rounds = enumeration.enumerate_loop(TableDraft(toy), (prompt,), options)
        assert found == {(tokens,): w for tokens, w in chain_law(toy, prompt, 5).items()}
        assert rounds >= 2


def test_enumeration_finds_a_bonus_that_is_thrown_away() -> None:
    """A loop that commits one token too few repeats a token: the position's parity shows it."""

    def short(self: TableDraft, tokens: list) -> None:
        commit(self, [given[:-1] if len(given) > 2 else given for given in tokens])

    commit = TableDraft.commit
    options = Options(gamma=2, max_new=5, sampling=Sampling(temperature=1.0))
    toy = random_toy(0)
    with planted(enumeration.EXACT, Replaced(TableDraft, "commit", short)):
        found, _, _ = enumeration.enumerate_loop(TableDraft(toy), ((1,),), options)
    assert found != {(tokens,): w for tokens, w in chain_law(toy, (1,), 5).items()}


def test_kernel_finds_a_residual_of_absolute_differences() -> None:
    case = next(iter(kernel.cases(1)))
    fault = Replaced(sampling, "residual", lambda p, q: np.abs(p - q))
    with planted(fault):
        found = kernel.run(case, 4000, 1)
    assert min(s.p for s in kernel.statistics(case, found)) < 1e-9


def test_kernel_finds_too_few_acceptances() -> None:
    """Half of the acceptances, the residual to match: lossless, but the count shows it."""
    case = next(iter(kernel.cases(1)))
    with planted(
        Replaced(sampling, "accepts", lambda p, q, x, u: bool(2 * u * q[x] < min(p[x], q[x]))),
        Replaced(sampling, "residual", lambda p, q: p - np.minimum(p, q) / 2),
    ):
        *positions, accepted = kernel.statistics(case, kernel.run(case, 4000, 1))
    assert accepted.p < 1e-9
    assert min(s.p for s in positions) > 1e-6


def test_greedy_finds_a_draft_whose_logits_are_used_for_the_target() -> None:
    model = store(random_checkpoint(TINY, 0))
    prompts = greedy.prompts_of(97, 0, (12,))
    reference = greedy.Reference(BsSpec(model, None, exact=True), prompts, 8)
    draft = BsSpec(model, Precision.parse("W5KV5"), exact=True)
    verify_ = SharedCacheDraft.verify

    def by_draft(self: SharedCacheDraft, tokens: list, *, last_only: bool = False) -> list:
        self._target = self._draft
        return verify_(self, tokens, last_only=last_only)

    with planted(Replaced(SharedCacheDraft, "verify", by_draft)):
        assert not reference.compare(draft, 3).logits
    assert reference.compare(draft, 3).equal


def test_restarts_give_what_new_starts_give() -> None:
    model = store(random_checkpoint(TINY, 0))
    prompts = greedy.prompts_of(97, 3, (62,)) * 2
    restarts = Restarts(BsSpec(model, Precision.parse("W5KV5"), exact=True))
    for seed in range(3):
        options = Options(gamma=3, max_new=6, sampling=Sampling(temperature=1.0), seed=seed)
        new = generate(BsSpec(model, Precision.parse("W5KV5"), exact=True), prompts, options)
        again = generate(restarts, prompts, options)
        assert [s.tokens for s in again.sequences] == [s.tokens for s in new.sequences]
    with pytest.raises(ValueError, match="prompts of the first start"):
        generate(restarts, greedy.prompts_of(97, 4, (62, 62)), options)
    with pytest.raises(ValueError, match="a restart must have batch 2"):
        generate(restarts, prompts[:1], options)


def test_plan_has_the_tokens_that_were_asked_for() -> None:
    prefixes = [two_sample.Prefix(str(i), [i]) for i in range(6)]
    plan = two_sample.Plan.of(prefixes, 3, Sampling(temperature=1.0), 9200, 0)
    assert (plan.batches, plan.batch, plan.tokens) == (5, 62, 9300)
    assert plan.batch <= two_sample.BATCH


def check(**changes: object) -> Check:
    plain: dict = {"level": "real", "name": "x", "path": "fast", "statistic": Statistic(5.0, 5)}
    return Check(**(plain | changes))


def test_report_decides_by_holm_and_turns_controls_round() -> None:
    bad = Statistic(60.0, 5)
    found = decided([check(), check(name="bad", statistic=bad), check(control=True),
                     check(control=True, statistic=bad)])  # fmt: skip
    assert [each.good for each in found] == [True, False, False, True]
    assert found[1].adjusted == pytest.approx(2 * bad.p)
    assert found[2].adjusted is None
    text = table(found)
    assert "2 checks, 2 controls: 2 WRONG" in text
    assert "PASSED, BUT MUST FAIL" in text
    # Enough tests beside it, and the same value is no surprise.
    many = decided([check() for _ in range(10_000)] + [check(statistic=Statistic(30.0, 5))])
    assert all(each.good for each in many)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--quick", "--level", "algebra", "--json", str(tmp_path / "a.json")]
    assert verify.main([*arguments, "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "1 checks, 5 controls: all as they must be" in said
    content = json.loads((tmp_path / "a.json").read_text())
    assert content == json.loads((tmp_path / "out" / "report.json").read_text())
    assert [c["good"] for c in content["checks"]] == [True] * 6
    assert (tmp_path / "out" / "report.txt").read_text() in said


def test_command_fails_where_the_product_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    fault = Replaced(sampling, "residual", lambda p, q: p)
    with planted(fault):
        assert verify.main(["--quick", "--level", "algebra"]) == 1
    assert "WRONG" in capsys.readouterr().out


def test_command_fails_where_a_control_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    harmless = {"nothing": (Replaced(loop, "probs", loop.probs),)}
    monkeypatch.setattr(algebra, "SAMPLED", harmless)
    assert verify.main(["--quick", "--level", "algebra"]) == 1


@pytest.mark.slow  # `make test` runs it as a step of its own
def test_command_quick() -> None:
    assert verify.main(["--quick"]) == 0
