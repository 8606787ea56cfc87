"""Argument checks that name the tensor, the index, what is allowed and what was given."""

from __future__ import annotations

import torch
from torch import Tensor

from model.formats.constants import P_FULL_MAX, P_FULL_MIN, P_MIN_STUDY

#: Integer types in which codes, signs, magnitudes and exponents may be given.
INTEGER_DTYPES = frozenset(
    {torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64}
)


def check_int(name: str, value: object, low: int, high: int) -> int:
    """Returns `value`, an int in low..high.

    Raises:
        TypeError: not an int (a bool is none).
        ValueError: outside low..high.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {value!r}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be in {low}..{high}, not {value}")
    return value


def check_p_full(p_full: object) -> int:
    """Returns `p_full`, an int in 9..16; TypeError or ValueError otherwise."""
    return check_int("p_full", p_full, P_FULL_MIN, P_FULL_MAX)


def check_p(p: object, p_full: int) -> int:
    """Returns `p`, an int in 2..p_full; TypeError or ValueError otherwise."""
    if not isinstance(p, int) or isinstance(p, bool):
        raise TypeError(f"p must be an int, not {p!r}")
    if not P_MIN_STUDY <= p <= p_full:
        raise ValueError(f"p must be in {P_MIN_STUDY}..p_full = {p_full}, not {p}")
    return p


def check_choice(name: str, value: object, allowed: tuple[str, ...]) -> str:
    """Returns `value`, one of `allowed`; ValueError otherwise."""
    if not isinstance(value, str) or value not in allowed:
        names = " or ".join(repr(choice) for choice in allowed)
        raise ValueError(f"{name} must be {names}, not {value!r}")
    return value


def check_tensor(name: str, value: object) -> Tensor:
    """Returns `value`, a torch tensor; TypeError otherwise."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, not {type(value).__name__}")
    return value


def first_index(mask: Tensor) -> tuple[int, ...]:
    """Index of the first true element of `mask`, which must have one."""
    flat = int(mask.reshape(-1).to(torch.uint8).argmax())
    index: list[int] = []
    for size in reversed(mask.shape):
        index.append(flat % size)
        flat //= size
    return tuple(reversed(index))


def at(name: str, index: tuple[int, ...]) -> str:
    """An element by name and index, as error messages write it: `weights[3, 70]`."""
    return f"{name}[{', '.join(str(i) for i in index)}]"


def check_integers(name: str, values: Tensor, low: int, high: int) -> Tensor:
    """Returns `values`, an integer tensor with every element in low..high.

    Raises:
        TypeError: not a tensor of integers.
        ValueError: an element outside the range, named by index.
    """
    check_tensor(name, values)
    if values.dtype not in INTEGER_DTYPES:
        raise TypeError(f"{name} must be a tensor of integers, not of {values.dtype}")
    if values.numel() == 0:
        return values
    wide = values.to(torch.int64)
    least, most = torch.aminmax(wide)
    if int(least) < low or int(most) > high:
        index = first_index((wide < low) | (wide > high))
        raise ValueError(
            f"{at(name, index)} must be in {low}..{high}, not {int(wide[index])}",
        )
    return values
