"""Constants of the number formats and of the tile, shared by software and hardware.

No torch here: `hw` reads this module.

Contract: sections 1 (BF16), 2 (groups), 3 (BFP), 4 (partial loading), 5 (tile), 10 (image).
"""

from __future__ import annotations

#: Values that share one exponent: neighbouring outputs n that meet the same activation k.
GROUP = 64

#: A tile is 64 reduction indices k by 64 outputs n in every configuration.
TILE_K = 64
TILE_N = 64

#: Activations that share one look-up table.
MU = 4

#: Bits of a BF16 significand with its leading one explicit.
SIGNIFICAND_BITS = 8

#: A BF16 value is sig * 2^(e - 134): bias 127 plus the 7 fraction bits.
EXPONENT_OFFSET = 134

#: Largest exponent of a finite BF16 value, and so of a group; 255 is Inf or NaN.
EXPONENT_MAX = 254

#: Full precisions of a BFP number: 1 sign bit and p_full - 1 magnitude bits.
P_FULL_MIN = 9
P_FULL_MAX = 16

#: Shortest load: of the hardware, and of the model (2 to 4 bits are for study only).
P_MIN = 5
P_MIN_STUDY = 2

#: Bytes of one tile in memory: its exponents, and one plane (64 x 64 bits).
TILE_EXPONENT_BYTES = TILE_K
PLANE_BYTES = TILE_K * TILE_N // 8
PLANE_ROW_BYTES = TILE_N // 8

#: k-tiles in one block of the memory image, unless a config says otherwise.
TILES_PER_BLOCK = 8

#: A result is A * 2^(R - 260 - p - g - f).
RESULT_OFFSET = 260
