"""How many bits a model and its cache occupy, and how many of them a pass loads.

Counted as the memory image holds them (contract section 10): whole tiles of 64 by 64, 64 exponent
bytes and 512 bytes a plane each, so that a p-bit load reads the exponents and p planes. 16-bit
numbers count 16 bits. What an accelerator reads twice because a pass does not fit its rows is not
counted here; that belongs to a machine's cost model.
"""

from __future__ import annotations

from model.formats.constants import TILE_K, TILE_N
from model.lm.cache import BLOCK
from model.lm.config import ModelConfig

#: Bits of a stored 16-bit number.
HALF = 16


def tile_bits(p: int) -> int:
    """Bits that a p-bit load of a tile reads: 64 exponents of 8 bits, p planes of 64 by 64."""
    return TILE_K * 8 + p * TILE_K * TILE_N


def tiles(k: int, n: int) -> int:
    """Tiles of a (K, N) weight, padded to whole ones."""
    return -(-k // TILE_K) * -(-n // TILE_N)


def weight_shapes(config: ModelConfig) -> list[tuple[int, int]]:
    """(inputs, outputs) of all linear layers and the head: what a decoding pass reads."""
    block = [(k, n) for n, k in config.linear_shapes().values()]
    return block * config.layers + [(config.width, config.vocabulary)]


def bfp_weight_bits(config: ModelConfig, p: int) -> int:
    """Bits of a p-bit load of all linear layers and the head."""
    return sum(tiles(k, n) for k, n in weight_shapes(config)) * tile_bits(p)


def plain_weights(config: ModelConfig) -> int:
    """Weights of all linear layers and the head, unpadded."""
    return sum(k * n for k, n in weight_shapes(config))


def bfp_kv_bits(config: ModelConfig, length: int, p: int) -> int:
    """Bits of a p-bit load of the cache of a sequence for a row at position length - 1.

    Closed key blocks before the row's own one and all value tiles at p bits; the keys of its own
    block as BF16.
    """
    if length == 0:
        return 0
    depth = -(-config.head_width // TILE_K)
    closed = (length - 1) // BLOCK
    values = -(-length // BLOCK)
    own = (length - closed * BLOCK) * config.head_width * HALF
    return config.layers * config.kv_heads * ((closed + values) * depth * tile_bits(p) + own)


def plain_kv_numbers(config: ModelConfig, length: int) -> int:
    """Numbers in the cache of a sequence: keys and values of `length` tokens."""
    return 2 * config.layers * config.kv_heads * config.head_width * length
