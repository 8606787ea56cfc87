"""Exact attention, through the cache, against integers element by element: bit for bit."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

from model.datapath.attention import ValueTiles, mix
from model.datapath.primitives import group_terms
from model.formats.bf16 import from_codes
from model.lm.cache import KVCache
from model.lm.exact import ExactView, OpenKeys
from model.lm.precision import Load
from model.lm.random_model import TINY
from model.lm.rows import Rows
from tests.model.attention_reference import attention
from tests.model.cases import BASE_SEED

MOODS = ("normal", "rises by 1", "rises by 70", "falls", "huge", "tiny", "zero keys", "zero values",
         "subnormal values", "outlier channel")  # fmt: skip


def codes(values: Tensor) -> list:
    """BF16 codes of numbers."""
    return (values.bfloat16().view(torch.int16).to(torch.int32) & 0xFFFF).tolist()


def operands(mood: str, tokens: int, d: int, heads: int, share: int) -> tuple[Tensor, ...]:
    """Queries (tokens, heads * share, d), keys and values (tokens, heads, d), bfloat16."""
    rng = np.random.default_rng([BASE_SEED, MOODS.index(mood), tokens, d])

    def normal(count: int) -> Tensor:
        return torch.from_numpy(rng.standard_normal((tokens, count, d), np.float32))

    queries, keys, values = normal(heads * share), normal(heads), normal(heads)
    if mood.startswith(("rises", "falls")):
        # A score of step * block for each token, some bits of noise on top.
        queries[:] = 1.0
        block = torch.arange(tokens) // 64
        step = {"rises by 1": 1.0, "rises by 70": 70.0, "falls": -40.0}[mood]
        size = step * block / (d**0.5 * 1.4427)
        keys = 0.05 * keys + size.view(-1, 1, 1)
    elif mood == "huge":
        keys *= 2.0**30
    elif mood == "tiny":
        keys, queries = keys * 2.0**-70, queries * 2.0**-60
    elif mood == "zero keys":
        keys[:] = 0
    elif mood == "zero values":
        values[: tokens // 2 * 2 : 2] = 0
        values[..., : d // 2] = 0
    elif mood == "subnormal values":
        values *= 2.0**-130
    elif mood == "outlier channel":
        keys[..., 3] *= 500
        values[tokens // 2] *= 2.0**20
    return tuple(part.bfloat16() for part in (queries, keys, values))


def attended(
    queries: Tensor, keys: Tensor, values: Tensor, rows: int, load: Load
) -> tuple[Tensor, int]:
    """Output of the last rows, and the position of the first; rows before them are in the cache."""
    tokens, heads, d = keys.shape
    config = dataclasses.replace(
        TINY, layers=1, heads=queries.shape[1], kv_heads=heads, head_width=d
    )
    cache = KVCache(config, 1, tokens)
    view = ExactView(cache, OpenKeys(cache), load)
    start = tokens - rows
    for first, end in ((0, start), (start, tokens)):
        fed = Rows.of([[0] * (end - first)], [first])
        if end > first:
            cache.write(0, fed, keys[first:end], values[first:end])
    return view.attend(0, fed, queries[start:]), start


def compare(mood: str, d: int, tokens: int, rows: int, p: int, midpoint: bool, step: int) -> None:
    """Every `step`-th of the last rows against the reference; two heads that share a KV head."""
    load = Load(p, midpoint).exact(9)
    queries, keys, values = operands(mood, tokens, d, 1, 2)
    found, start = attended(queries, keys, values, rows, load)
    k, v = codes(keys[:, 0]), codes(values[:, 0])
    for row in range(rows - 1, -1, -step):
        head = row % 2
        wanted = attention(
            codes(queries[start + row, head]), start + row, k, v, p=p, midpoint=load.midpoint
        )
        assert codes(found[row, head]) == wanted, (mood, d, start + row)


@pytest.mark.parametrize("d", [16, 64, 80, 128])
@pytest.mark.parametrize("tokens", [40, 66])
def test_widths_across_a_block_end(d: int, tokens: int) -> None:
    """One tile, open; and rows that straddle the end of the first block."""
    compare("normal", d, tokens, 5, 7, True, 2)


@pytest.mark.parametrize("p", [5, 6, 7, 8, 9])
@pytest.mark.parametrize("midpoint", [False, True])
def test_loads(p: int, midpoint: bool) -> None:
    compare("normal", 16, 131, 4, p, midpoint, 2)


@pytest.mark.parametrize("mood", MOODS)
def test_moods_over_four_tiles(mood: str) -> None:
    """Three closed tiles and an open one; the maximum moves, or nothing is left of a tile."""
    compare(mood, 16, 196, 8, 6, True, 5)
    compare(mood, 16, 196, 8, 9, False, 5)


def test_wide_head_over_three_tiles() -> None:
    compare("rises by 70", 128, 130, 2, 5, True, 2)


def test_rows_do_not_depend_on_the_pass() -> None:
    """All rows at once, one by one, and beside another sequence give the same bits."""
    queries, keys, values = operands("normal", 130, 64, 2, 2)
    load = Load(6, True)
    at_once, _ = attended(queries, keys, values, 130, load)
    for end in (1, 63, 64, 65, 128, 129, 130):
        alone, _ = attended(queries[:end], keys[:end], values[:end], 1, load)
        assert torch.equal(alone[0], at_once[end - 1])
    config = dataclasses.replace(TINY, layers=1, heads=4, kv_heads=2, head_width=64)
    cache = KVCache(config, 2, 130)
    view = ExactView(cache, OpenKeys(cache), load)
    lengths = (130, 70)
    rows = Rows.of([[0] * n for n in lengths], [0, 0])
    both = [torch.cat([part[:n] for n in lengths]) for part in (queries, keys, values)]
    cache.write(0, rows, *both[1:])
    found = view.attend(0, rows, both[0])
    assert torch.equal(found, torch.cat([at_once[:n] for n in lengths]))


def test_a_row_that_is_none_gives_zero_and_looks_at_nothing() -> None:
    rng = torch.Generator().manual_seed(0)
    scores = torch.randn(1, 1, 2, 3, 64, generator=rng)
    values = ValueTiles(
        torch.randint(-511, 511, (1, 1, 2, 64, 16), generator=rng).float(),
        group_terms(torch.full((1, 1, 2, 64, 1), 127)),
        9,
    )
    positions = torch.tensor([[70, -1, 10]])
    found = mix(scores, positions, values, 16)
    assert not found[0, 0, 1].any()
    # Tokens behind a row's position may hold anything.
    behind = torch.arange(128).view(2, 1, 64) > torch.tensor([70, -1, 10]).view(3, 1)
    again = mix(scores.masked_fill(behind, float("inf")), positions, values, 16)
    assert torch.equal(again, found)


def test_codes_are_those_of_the_model() -> None:
    numbers = torch.tensor([1.0, -2.5, 0.0])
    assert torch.equal(from_codes(torch.tensor(codes(numbers))), numbers.bfloat16())
