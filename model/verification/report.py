"""What a verification found: checks, Holm's decision over all of them, text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from model.verification.statistics import Statistic, holm

#: Levels, in their order, and what each one shows.
LEVELS = {
    "algebra": "one judged token, all random numbers, exact fractions",
    "kernel": "rounds of the product's functions against the exact law",
    "enumeration": "the whole loop on toys, all random numbers, exact fractions",
    "real": "tokens of a model against autoregressive ones, two samples",
    "greedy": "tokens and logits equal to autoregressive ones, bit for bit",
}

#: Holm-adjusted p below which a level is held to be wrong. The kernel's laws are exact and its
#: samples large: about 1e-9 a test, so that no seed fails by chance.
LIMITS = {"kernel": 1e-7, "real": 1e-3}

#: A control has been found when its own p is below this.
CONTROL_LIMIT = 1e-6


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was held against another.

    Attributes:
        level: key of `LEVELS`.
        name: what was tested.
        path: which numbers: "fractions", "exact", "fast", "float64 laws".
        equal: of an exact comparison; None for a statistical one.
        statistic: of a statistical comparison.
        detectable: total-variation distance found with a power of 0.9, or None.
        tokens: that were compared; for fractions, outcomes.
        detail: more, in words.
        control: the product was broken on purpose.
        note: said for comparison; nothing is claimed, and nothing can be wrong.
        adjusted: Holm's p over all statistical checks of the report that are no controls.
    """

    level: str
    name: str
    path: str
    equal: bool | None = None
    statistic: Statistic | None = None
    detectable: float | None = None
    tokens: int = 0
    detail: str = ""
    control: bool = False
    note: bool = False
    adjusted: float | None = None

    @property
    def holds(self) -> bool:
        """Equal, or not told apart."""
        if self.statistic is None:
            return bool(self.equal)
        if self.control:
            return self.statistic.p >= CONTROL_LIMIT
        p = self.statistic.p if self.adjusted is None else self.adjusted
        return p >= LIMITS[self.level]

    @property
    def good(self) -> bool:
        """As it must be: a check holds, a control does not."""
        return self.note or self.holds != self.control

    @property
    def verdict(self) -> str:
        """In words."""
        if self.note:
            return "no claim"
        if self.control:
            return "PASSED, BUT MUST FAIL" if self.holds else "failed as it must"
        return "holds" if self.holds else "WRONG"


def decided(checks: Sequence[Check]) -> list[Check]:
    """The checks with Holm's adjusted p over all statistical ones that are no controls."""
    family = [c for c in checks if c.statistic is not None and not c.control]
    values = iter(holm([c.statistic.p for c in family if c.statistic is not None]))
    return [replace(c, adjusted=next(values)) if c in family else c for c in checks]


def table(checks: Sequence[Check]) -> str:
    """The checks as text, level by level."""
    lines = []
    for level, what in LEVELS.items():
        rows = [check for check in checks if check.level == level]
        if not rows:
            continue
        paths = ", ".join(dict.fromkeys(check.path for check in rows))
        lines += [f"== {level}: {what} ({paths})"]
        lines += [_line(check) for check in rows]
        lines.append("")
    wrong = [check for check in checks if not check.good]
    controls = sum(check.control for check in checks)
    plain = len(checks) - controls - sum(check.note for check in checks)
    lines.append(
        f"{plain} checks, {controls} controls: "
        + ("all as they must be" if not wrong else f"{len(wrong)} WRONG")
    )
    lines += [f"  WRONG: {check.level}: {check.name}" for check in wrong]
    return "\n".join(lines)


def _line(check: Check) -> str:
    cells = []
    if check.statistic is not None:
        value, dof = check.statistic
        cells.append(f"chi2 {value:.1f}, dof {dof}, p {check.statistic.p:.3g}")
        if check.adjusted is not None:
            cells.append(f"Holm {check.adjusted:.3g}")
        if check.detectable is not None:
            cells.append(f"finds {check.detectable:.3f}")
    if check.tokens:
        cells.append(f"{check.tokens:,} {'outcomes' if check.path == 'fractions' else 'tokens'}")
    if check.detail:
        cells.append(check.detail)
    mark = "control: " if check.control else ""
    return f"  {mark + check.name:<47} {check.verdict:<18} {'; '.join(cells)}"


def as_json(checks: Sequence[Check]) -> list[dict[str, object]]:
    """The checks as JSON holds them."""
    rows = []
    for check in checks:
        row = asdict(check)
        if check.statistic is not None:
            value, dof = check.statistic
            row["statistic"] = {"value": str(value), "dof": dof, "p": check.statistic.p}
        rows.append({**row, "verdict": check.verdict, "good": check.good})
    return rows
