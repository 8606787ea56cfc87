"""One task of an acceptance measurement: some prompts under one draft.

A task is pure: its result follows from its arguments alone (and, on the fast path, from the
machine's floating point), so it may run anywhere and be run again. Prompts of a task are decoded as
one batch; which prompts share a task is part of the settings, since the fast path's last bits
depend on the batch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.decoding.drafts.base import Draft
from model.decoding.drafts.bs_spec import BsSpec
from model.decoding.loop import Options, generate
from model.decoding.methods import Source, make_draft
from model.decoding.rates import Rates
from model.decoding.sampling import Sampling
from model.lm.precision import Precision


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What all tasks of a measurement have in common.

    Attributes:
        model: "smollm2" or a folder; every worker must be able to read it.
        gamma, max_new: of each run.
        temperature: 0 for greedy.
        seed: of sampled runs.
        exact: the exact path.
        teacher_forced: measure `alpha_tv` too.
        device: of the fast path.
    """

    model: str
    gamma: int = 7
    max_new: int = 64
    temperature: float = 0.0
    seed: int = 0
    exact: bool = False
    teacher_forced: bool = True
    device: str = "cpu"


@dataclass(frozen=True)
class Task:
    """A draft on some prompts.

    Attributes:
        draft: its name.
        first: index of the first prompt in the measurement's list.
        names: of the prompts.
        prompts: their tokens.
    """

    draft: str
    first: int
    names: tuple[str, ...]
    prompts: tuple[tuple[int, ...], ...]

    @property
    def key(self) -> str:
        """Names the task within a measurement."""
        return f"{self.draft} {self.first}+{len(self.prompts)}"


@lru_cache(maxsize=1)
def _source(model: str) -> Source:
    """The model of this process."""
    torch.set_num_threads(1)
    return Source.load(model)


@lru_cache(maxsize=1)
def _bs_spec(model: str, exact: bool, device: str) -> BsSpec:
    """One BS-Spec draft a process, whose precision tasks set: its dequantised target is kept."""
    full = Precision.full(_source(model).stored.p_full)
    return BsSpec(_source(model).stored, full, exact=exact, device=device)


def _draft(settings: Settings, name: str) -> Draft:
    if name.startswith("W"):
        draft = _bs_spec(settings.model, settings.exact, settings.device)
        draft.name, draft.precision = name, Precision.parse(name).exact(draft.model.p_full)
        return draft
    return make_draft(name, _source(settings.model), exact=settings.exact, device=settings.device)


def overlap(target: Tensor, draft: Tensor) -> Tensor:
    """sum min(p, q) of every row at temperature 1.

    Args:
        target, draft: logits, float32 (rows, vocabulary).

    Returns:
        float64 (rows,).
    """
    p, q = (torch.softmax(logits.double(), -1) for logits in (target, draft))
    return torch.minimum(p, q).sum(-1)


def run(settings: Settings, task: Task) -> dict[str, Any]:
    """Runs a task.

    Returns:
        JSON: `key`, `draft`, `seconds`, and for each prompt its name, counts of rounds, output
        tokens, the positions that were teacher-forced with the sum of their overlaps, and how many
        of them have the same most likely token under target and draft.
    """
    begun = time.perf_counter()
    draft = _draft(settings, task.draft)
    options = Options(
        gamma=settings.gamma,
        sampling=Sampling(temperature=settings.temperature),
        max_new=settings.max_new,
        end_ids=_source(settings.model).checkpoint.config.end_ids,
        seed=settings.seed,
        streams=tuple(range(task.first, task.first + len(task.prompts))),
    )
    output = generate(draft, task.prompts, options)
    decoded = time.perf_counter() - begun
    results: list[dict[str, Any]] = [
        {
            "prompt": name,
            "tokens": len(text.tokens),
            "rates": Rates.of(text.rounds).as_json(),
        }
        for name, text in zip(task.names, output.sequences, strict=True)
    ]
    if settings.teacher_forced and draft.drafts:
        texts = [text.tokens for text in output.sequences]
        _add_overlaps(results, draft, task.prompts, texts)
    return {
        "key": task.key,
        "draft": task.draft,
        "prompts": results,
        "seconds": time.perf_counter() - begun,
        "decoding_seconds": decoded,
    }


def _add_overlaps(
    results: list[dict[str, Any]],
    draft: Draft,
    prompts: Sequence[Sequence[int]],
    texts: Sequence[Sequence[int]],
) -> None:
    laws = zip(*draft.teacher_forced(prompts, texts), strict=True)
    for result, (target, drafted) in zip(results, laws, strict=True):
        result["positions"] = len(target)
        result["overlap"] = float(overlap(target, drafted).sum())
        result["same_top"] = int((target.argmax(-1) == drafted.argmax(-1)).sum())


@dataclass(frozen=True)
class Acceptance:
    """Acceptance of one draft over prompts.

    Attributes:
        rates: summed counts.
        interval: 95 % confidence interval of `alpha_cond`, from resampled prompts.
        alpha_tv: mean overlap of the laws at temperature 1; NaN if not measured.
        tv_interval: of `alpha_tv`.
        same_top: share of positions with the same most likely token.
        prompts: how many.
    """

    rates: Rates
    interval: tuple[float, float]
    alpha_tv: float
    tv_interval: tuple[float, float]
    same_top: float
    prompts: int


#: Resamples of a confidence interval, and the seed that draws them.
RESAMPLES, RESAMPLE_SEED = 2000, 20261129


def ratio_interval(parts: np.ndarray, wholes: np.ndarray) -> tuple[float, float]:
    """95 % interval of sum(parts) / sum(wholes) by resampling prompts with replacement.

    Tokens of one prompt are not independent, prompts are: so they are what is drawn.

    Args:
        parts, wholes: one number a prompt.
    """
    random = np.random.default_rng(RESAMPLE_SEED)
    drawn = random.integers(0, len(parts), (RESAMPLES, len(parts)))
    sums = wholes[drawn].sum(1)
    ratios = parts[drawn].sum(1)[sums > 0] / sums[sums > 0]
    if len(ratios) == 0:
        return (float("nan"), float("nan"))
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(low), float(high)


def summarise(results: Sequence[dict[str, Any]]) -> Acceptance:
    """Acceptance from the results of tasks that share a draft and no prompt."""
    prompts = sorted(
        (prompt for result in results for prompt in result["prompts"]), key=lambda p: p["prompt"]
    )
    rates = [Rates.from_json(prompt["rates"]) for prompt in prompts]
    total = sum(rates, Rates())
    forced = [prompt for prompt in prompts if "overlap" in prompt]
    overlaps = np.array([prompt["overlap"] for prompt in forced], float)
    positions = np.array([prompt["positions"] for prompt in forced], float)
    count = positions.sum()
    nan = float("nan")
    return Acceptance(
        rates=total,
        interval=ratio_interval(
            np.array([r.accepted for r in rates], float), np.array([r.tested for r in rates], float)
        ),
        alpha_tv=float(overlaps.sum() / count) if count else nan,
        tv_interval=ratio_interval(overlaps, positions) if count else (nan, nan),
        same_top=sum(prompt["same_top"] for prompt in forced) / count if count else nan,
        prompts=len(prompts),
    )
