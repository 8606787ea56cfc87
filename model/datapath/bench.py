"""Speed of the fast form beside `torch.nn.functional.linear` in FP32 on the same shapes.

`bsspec bench products` prints, for square weights and 1, 8 and 32 rows of activations, the best
time of each and the ratio: a target (p 9), a midpoint draft (p 6), and a target whose rows all
hold an outlier that lifts the running exponent far above most tiles, so that every tile is summed
on its own. One thread; weights are prepared before the clock starts, as they are in a decoding
loop. The best of several rounds is taken, since others may use the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from model.datapath.fast import matmul
from model.formats.bfp import Bfp, quantize

SIZES = (576, 4096)
ROWS = (1, 8, 32)
OUTLIER = 4096.0


class Timing(NamedTuple):
    """Best times of one shape, in milliseconds.

    Attributes:
        d: the weight is d by d.
        m: rows of activations.
        linear_ms: `torch.nn.functional.linear`, FP32.
        target_ms, draft_ms, outlier_ms: the fast form.
    """

    d: int
    m: int
    linear_ms: float
    target_ms: float
    draft_ms: float
    outlier_ms: float

    def ratio(self, form: str) -> float:
        """Time of a form ("target", "draft" or "outlier") over that of the linear layer."""
        return float(getattr(self, f"{form}_ms")) / self.linear_ms


def best_ms(call: Callable[[], object], *, seconds: float) -> float:
    """The shortest of as many calls as fit `seconds` (three at least), in milliseconds."""
    call()
    best = float("inf")
    end = time.perf_counter() + seconds
    calls = 0
    while calls < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
        calls += 1
    return best * 1e3


def measure(d: int, m: int, *, seconds: float = 0.5, seed: int = 0) -> Timing:
    """Times one shape, each form for `seconds`."""
    generator = torch.Generator().manual_seed(seed)
    dense = torch.randn(d, d, generator=generator) / d**0.5
    weight = quantize(dense.T)
    activations = torch.randn(m, d, generator=generator).bfloat16()
    outlier = activations.clone()
    outlier[:, d // 2] *= OUTLIER
    return _measured(dense, weight, activations, outlier, seconds)


def _measured(
    dense: Tensor, weight: Bfp, activations: Tensor, outlier: Tensor, seconds: float
) -> Timing:
    single = activations.float()
    forms: tuple[Callable[[], object], ...] = (
        lambda: torch.nn.functional.linear(single, dense),
        lambda: matmul(activations, weight, p=9),
        lambda: matmul(activations, weight, p=6, reconstruct="midpoint"),
        lambda: matmul(outlier, weight, p=9),
    )
    times = [best_ms(form, seconds=seconds) for form in forms]
    return Timing(len(dense), len(activations), *times)


def table(timings: Sequence[Timing]) -> str:
    """The timings as text, with ratios to the linear layer."""
    lines = [
        f"{'d':>6} {'M':>3} {'linear FP32':>12}"
        f" {'target p 9':>18} {'draft p 6':>18} {'with outliers':>18}"
    ]
    for timing in timings:
        cells = (
            f"{getattr(timing, f'{form}_ms'):>9.3f} ms {timing.ratio(form):>5.1f}x"
            for form in ("target", "draft", "outlier")
        )
        lines.append(f"{timing.d:>6} {timing.m:>3} {timing.linear_ms:>9.3f} ms {' '.join(cells)}")
    return "\n".join(lines)


def measure_all(seconds: float = 0.5) -> list[Timing]:
    """Times all shapes on one thread, each form for `seconds`."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [measure(d, m, seconds=seconds) for d in SIZES for m in ROWS]
    finally:
        torch.set_num_threads(threads)


def as_json(timings: Sequence[Timing]) -> list[dict[str, float]]:
    """The timings with their ratios."""
    return [
        timing._asdict()
        | {f"{form}_ratio": timing.ratio(form) for form in ("target", "draft", "outlier")}
        for timing in timings
    ]
