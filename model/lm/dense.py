"""Weights as floating-point numbers: what a load of the stored bits stands for, or BF16 itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from model.datapath.special import rope_table
from model.formats.bfp import Bfp
from model.lm.checkpoint import Checkpoint
from model.lm.config import ModelConfig
from model.lm.precision import Load
from model.lm.stored import LINEARS, StoredModel

#: Changes a BF16 weight (outputs, inputs) into the numbers that a draft reads in its place.
Transform = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class DenseWeights:
    """The weights of one pass, all on one device.

    Attributes:
        config: the model's shape.
        embedding: bfloat16 (vocabulary, width).
        linears: for each layer, weights by name, (outputs, inputs).
        norms: for each layer, bfloat16 norm weights by name.
        norm: bfloat16 (width,).
        head: (vocabulary, width).
        rope: cosines and sines, int16 (positions, d_h / 2).
    """

    config: ModelConfig
    embedding: Tensor
    linears: list[dict[str, Tensor]]
    norms: list[dict[str, Tensor]]
    norm: Tensor
    head: Tensor
    rope: tuple[Tensor, Tensor]

    @staticmethod
    def of_stored(
        model: StoredModel,
        load: Load,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> DenseWeights:
        """What a p_w-bit load of a stored model stands for.

        A BFP9 load is exact in bfloat16 but for numbers below its smallest normal one, a BFP16
        load in float32.
        """
        load = load.exact(model.p_full)

        def dense(weight: Bfp) -> Tensor:
            values = weight.dequantize(load.p, load.reconstruct).T.contiguous()
            return values.to(device, dtype)

        return DenseWeights(
            config=model.config,
            embedding=model.embedding.to(device),
            linears=[{n: dense(w) for n, w in block.items()} for block in model.linears],
            norms=[{n: w.to(device) for n, w in block.items()} for block in model.norms],
            norm=model.norm.to(device),
            head=dense(model.head),
            rope=(model.rope.cosines.to(device), model.rope.sines.to(device)),
        )

    @staticmethod
    def of_checkpoint(
        checkpoint: Checkpoint,
        transform: Transform | None = None,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> DenseWeights:
        """The 16-bit weights, or what `transform` makes of those of linear layers and the head."""
        config = checkpoint.config

        def dense(weight: Tensor) -> Tensor:
            return (transform(weight) if transform else weight).to(device, dtype)

        rope = rope_table(
            config.max_positions, config.head_width, config.rope_base, config.rope_scaling
        )
        return DenseWeights(
            config=config,
            embedding=checkpoint.embedding.to(device),
            linears=[{name: dense(b[name]) for name in LINEARS} for b in checkpoint.blocks],
            norms=[
                {name: w.to(device) for name, w in b.items() if name.endswith("_norm")}
                for b in checkpoint.blocks
            ],
            norm=checkpoint.norm.to(device),
            head=dense(checkpoint.head_weight),
            rope=(rope.cosines.to(device), rope.sines.to(device)),
        )
