"""Negative controls: faults that are planted in the product, which every level must find.

A control replaces functions of the product while it runs; the loop and everything else stay as
they are. The list is one for all levels of sampling; greedy decoding has its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from model.decoding import loop, sampling
from model.lm.cache import KVCache
from model.lm.rows import Rows


class Replaced(NamedTuple):
    """One function of the product and what stands in for it."""

    owner: ModuleType | type
    name: str
    by: Callable[..., Any]


@contextlib.contextmanager
def planted(*faults: Replaced) -> Iterator[None]:
    """The product with functions replaced."""
    with contextlib.ExitStack() as stack:
        for fault in faults:
            stack.enter_context(mock.patch.object(fault.owner, fault.name, fault.by))
        yield


def _resample_from_p(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return p


def _inverted(p: np.ndarray, q: np.ndarray, x: int, u: Any) -> bool:
    return bool(u * p[x] < q[x])


def _always(p: np.ndarray, q: np.ndarray, x: int, u: float) -> bool:
    return True


_judge = sampling.judge


def _bonus_from_q(p: list, q: list, *rest: Any) -> tuple[int, int]:
    return _judge([*p[:-1], q[-1] if q else p[-1]], q, *rest)


def _another_q(p: list, q: list, *rest: Any) -> tuple[int, int]:
    return _judge(p, [np.roll(law, 1) for law in q], *rest)


def _judges(by: Callable[..., tuple[int, int]]) -> tuple[Replaced, ...]:
    """The function itself and the loop's name for it."""
    return Replaced(sampling, "judge", by), Replaced(loop, "judge", by)


#: Faults of sampled decoding, by name.
SAMPLED: dict[str, tuple[Replaced, ...]] = {
    "resample from p": (Replaced(sampling, "residual", _resample_from_p),),
    "accept min(1, q/p)": (Replaced(sampling, "accepts", _inverted),),
    "accept always": (Replaced(sampling, "accepts", _always),),
    "bonus from q": _judges(_bonus_from_q),
    "a q that was not the sampled law": _judges(_another_q),
}

_write = KVCache.write


def first_writer_wins() -> Replaced:
    """A cache that keeps what was written first since the last commit: the draft's rows."""
    kept: dict[tuple[int, int, int, int, int], tuple[Tensor, Tensor]] = {}

    def write(self: KVCache, layer: int, rows: Rows, keys: Tensor, values: Tensor) -> None:
        keys, values = keys.clone(), values.clone()
        places = zip(rows.sequence.tolist(), rows.position.tolist(), strict=True)
        for row, (b, position) in enumerate(places):
            # What was rejected is forgotten with the committed length, as in the product.
            name = (id(self), self.lengths[b], layer, b, position)
            if name in kept:
                keys[row], values[row] = kept[name]
            else:
                kept[name] = keys[row], values[row]
        _write(self, layer, rows, keys, values)

    return Replaced(KVCache, "write", write)


def first_close_wins() -> Replaced:
    """A cache whose key blocks keep the form in which they were closed first: from drafted keys."""
    closed: set[tuple[int, int, int, int]] = set()
    close = KVCache._close

    def close_once(self: KVCache, layer: int, b: int, block: int) -> None:
        name = (id(self), layer, b, block)
        if name not in closed:
            closed.add(name)
            close(self, layer, b, block)

    return Replaced(KVCache, "_close", close_once)


def greedy_faults() -> dict[str, tuple[Replaced, ...]]:
    """Faults of greedy decoding, by name; made anew for each use, since some remember."""
    return {
        "accept always": SAMPLED["accept always"],
        "drafted keys and values stay": (first_writer_wins(),),
        "a block closed from drafted keys stays": (first_close_wins(),),
    }


def is_bitwise_equal(first: Tensor, second: Tensor) -> bool:
    """Whether two float32 tensors are the same bits."""
    return first.shape == second.shape and torch.equal(
        first.contiguous().view(torch.int32), second.contiguous().view(torch.int32)
    )
