"""A model as the accelerator's memory holds it: stored once, read at any precision.

Linear layers and the head are BFP weights (K inputs, N outputs) with groups of 64 outputs;
embedding rows and norm weights stay BF16. A tied head is stored beside the embedding, since the
two are read in different forms (both count in the memory image, the parameters count once).

Contract: sections 2, 3 and 11 (RoPE tables).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from model.datapath.special import RopeTable, rope_table
from model.formats.bfp import Bfp, quantize
from model.lm.checkpoint import Checkpoint
from model.lm.config import ModelConfig

#: Linear layers of a block, in the order of a pass.
LINEARS = ("q", "k", "v", "o", "gate", "up", "down")


@dataclass(frozen=True, eq=False)
class StoredModel:
    """The stored bits of a model.

    Attributes:
        config: its shape.
        embedding: bfloat16 (vocabulary, width).
        linears: for each layer, the BFP weights by name, (inputs, outputs).
        norms: for each layer, bfloat16 norm weights by name: `attn_norm`, `ffn_norm` (width,),
            and with QK-norm `q_norm`, `k_norm` (head_width,).
        norm: bfloat16 (width,), the last norm.
        head: BFP (width, vocabulary).
        p_full: bits of a stored number.
    """

    config: ModelConfig
    embedding: Tensor
    linears: list[dict[str, Bfp]]
    norms: list[dict[str, Tensor]]
    norm: Tensor
    head: Bfp
    p_full: int

    @cached_property
    def rope(self) -> RopeTable:
        """Cosines and sines of every position of the context."""
        config = self.config
        return rope_table(
            config.max_positions, config.head_width, config.rope_base, config.rope_scaling
        )


def store(checkpoint: Checkpoint, *, p_full: int = 9, rounding: str = "truncate") -> StoredModel:
    """Quantises a checkpoint.

    Args:
        checkpoint: BF16 weights.
        p_full: bits of a stored number, 9 (BFP9) to 16 (BFP16).
        rounding: "truncate" or "nearest" (contract section 3).

    Raises:
        TypeError, ValueError: from `quantize`, by name.
    """

    def bfp(weight: Tensor) -> Bfp:
        return quantize(weight.T, p_full=p_full, rounding=rounding)

    return StoredModel(
        config=checkpoint.config,
        embedding=checkpoint.embedding,
        linears=[{name: bfp(block[name]) for name in LINEARS} for block in checkpoint.blocks],
        norms=[
            {name: weight for name, weight in block.items() if name.endswith("_norm")}
            for block in checkpoint.blocks
        ],
        norm=checkpoint.norm,
        head=bfp(checkpoint.head_weight),
        p_full=p_full,
    )
