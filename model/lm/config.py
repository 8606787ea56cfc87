"""Shape of a Llama-family transformer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Hyperparameters.

    Attributes:
        layers, width, ff_width: blocks, model dimension, SwiGLU dimension.
        heads, kv_heads, head_width: query heads, key/value heads, channels of a head.
        vocabulary: tokens.
        norm_eps: added to the mean square in RMSNorm.
        rope_base: base of the rotary frequencies.
        tied: the head is the embedding.
    """

    layers: int
    width: int
    ff_width: int
    heads: int
    kv_heads: int
    head_width: int
    vocabulary: int
    norm_eps: float
    rope_base: float
    tied: bool

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ValueError(
                f"heads must be a multiple of kv_heads, not {self.heads} and {self.kv_heads}"
            )

    def linear_shapes(self) -> dict[str, tuple[int, int]]:
        """(outputs, inputs) of each linear layer of a block, by name."""
        queries, keys = self.heads * self.head_width, self.kv_heads * self.head_width
        return {
            "q": (queries, self.width),
            "k": (keys, self.width),
            "v": (keys, self.width),
            "o": (self.width, queries),
            "gate": (self.ff_width, self.width),
            "up": (self.ff_width, self.width),
            "down": (self.width, self.ff_width),
        }
