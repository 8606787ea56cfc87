"""The golden model's tables and patterns in the form in which the core keeps them.

The model has full tables ``T(v)`` over four activations, bit i of v set where activation i
subtracts. The core has half tables of halved sums over ``mu`` activations, and look-ups of an index
and a negation. What is here translates between the two forms and computes no sum of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from amaranth.lib import data

from hw.compute.layouts import table_layout
from hw.config import GROUPS, TILE, Config
from model.datapath.steps import full_tables, half_tables, plane_patterns
from model.formats.constants import MU
from sim.words import Array, pack


def tables(config: Config, aligned: Array) -> Array:
    """``T(v)`` of every table, (tables, 2**mu), from aligned activations, (any multiple of mu,).

    Two activations make a table of the model with two zeros behind them.
    """
    wanted = len(aligned) // config.mu
    padded = np.zeros((-(-wanted // (TILE // MU)) * (TILE // MU), MU), np.int64)
    padded[:wanted, : config.mu] = aligned.reshape(wanted, config.mu)
    full = full_tables(half_tables(torch.from_numpy(padded.reshape(-1, TILE))))
    return full.reshape(-1, 1 << MU)[:wanted, : 1 << config.mu].numpy()


def pattern(config: Config, index: int, negate: int) -> int:
    """The v of a look-up: activation 0 subtracts if ``negate``, the others like it or not."""
    v = negate
    for i in range(1, config.mu):
        v |= (negate if index >> (i - 1) & 1 else 1 - negate) << i
    return v


def look(config: Config, v: int) -> dict[str, int]:
    """The look-up of a pattern, the inverse of :func:`pattern`."""
    negate = v & 1
    same = [(v >> i & 1) == negate for i in range(1, config.mu)]
    return {"index": sum(bit << i for i, bit in enumerate(same)), "negate": negate}


def table(config: Config, full: Array) -> dict[str, Any]:
    """A half table of halved entries, a value of ``table_layout``, from ``T(v)``, (2**mu,)."""
    entries = [int(full[pattern(config, index, 0)]) for index in range(config.entries)]
    return {"entries": [entry >> 1 for entry in entries], "odd": entries[0] & 1}


def tables_word(config: Config, full: Array) -> int:
    """Tables side by side as a word, the first lowest, from ``T(v)``, (tables, 2**mu)."""
    layout = data.ArrayLayout(table_layout(config), len(full))
    return pack(layout, [table(config, values) for values in full])


def group_masks(config: Config, step: int, columns: int) -> list[int]:
    """Bits of each group of tables in an array [column][table] with elements of ``step`` bits."""
    one = (1 << config.luts_per_group * step) - 1
    column = sum(1 << i * config.luts * step for i in range(columns))
    return [(one << group * config.luts_per_group * step) * column for group in range(GROUPS)]


def subtracts(signs: Array, magnitudes: Array, p: int) -> Array:
    """Where the activation is subtracted, (p, 64, columns) [plane, k, n], by the model's patterns.

    Parameters
    ----------
    signs, magnitudes : (64, columns)
        At most 64 columns; ``magnitudes`` below ``2**(p - 1)``.
    """
    columns = signs.shape[1]
    wide = [np.zeros((TILE, TILE), np.int64) for _ in range(2)]
    wide[0][:, :columns], wide[1][:, :columns] = signs, magnitudes
    v = plane_patterns(torch.from_numpy(wide[0]), torch.from_numpy(wide[1]), p).numpy()
    bits = v[:, :, None, :] >> np.arange(MU)[:, None] & 1
    return bits.reshape(p, TILE, TILE)[:, :, :columns]


def looks_word(config: Config, subtracted: Array) -> int:
    """A word of ``looks_layout`` from where one plane subtracts, (64, columns)."""
    columns = subtracted.shape[1]
    by_table = subtracted.T.reshape(columns, config.luts, config.mu)
    negate = by_table[:, :, :1]
    bits = np.concatenate([by_table[:, :, 1:] == negate, negate], axis=2).astype(np.uint8)
    packed = np.packbits(bits.reshape(-1), bitorder="little")
    return int.from_bytes(packed.tobytes(), "little")
