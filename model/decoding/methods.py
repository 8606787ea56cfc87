"""Drafts by the names that commands and tables use.

none                    autoregressive decoding of the BFP9 target
W6KV7, W6mKV7m, ..      BS-Spec; m reads a load as its midpoint
auto                    BS-Spec, the pair looked up as the sequences grow
speq                    sign and exponent of FP16 weights, 16-bit cache (our reading)
quantspec-s             W16KV4;  quantspec-ns-w4kv8, -w4kv4, -w16kv4
separate:PATH           another model with the same vocabulary; separate:first-N takes the first
                        N layers of the target itself
"""

from __future__ import annotations

import copy
import dataclasses
from functools import cached_property

import torch
from tokenizers import Tokenizer

from model.decoding.drafts.base import Draft
from model.decoding.drafts.bs_spec import AutoBsSpec, BsSpec, Choice
from model.decoding.drafts.quantspec import VARIANTS, QuantSpec
from model.decoding.drafts.separate import SeparateModel
from model.decoding.drafts.speq import Speq
from model.formats.constants import P_FULL_MIN
from model.lm.checkpoint import Checkpoint, load
from model.lm.precision import Precision
from model.lm.stored import StoredModel, store

#: Names that are not precisions, as error messages list them.
NAMES = ("none", "auto", "speq", *VARIANTS, "separate:PATH", "separate:first-N")

_FIRST = "first-"


class Source:
    """A model by name, in the forms that drafts take.

    Args:
        name: "smollm2", or the path of a checkpoint.
        checkpoint, tokenizer: already loaded ones.

    Attributes:
        name, checkpoint, tokenizer: of the model.
    """

    def __init__(self, name: str, checkpoint: Checkpoint, tokenizer: Tokenizer | None) -> None:
        self.name, self.checkpoint, self.tokenizer = name, checkpoint, tokenizer

    @staticmethod
    def load(name: str) -> Source:
        """Loads "smollm2" or a Hugging Face folder; raises as `model.lm.checkpoint.load`."""
        return Source(name, *load(name))

    @cached_property
    def stored(self) -> StoredModel:
        """The BFP9 form, made once."""
        return store(self.checkpoint)


def check_name(name: str) -> None:
    """Refuses what `make_draft` cannot make, without a model at hand.

    Raises:
        ValueError: no such draft, or a precision beyond BFP9, by name.
    """
    if name.startswith("W"):
        Precision.parse(name).exact(P_FULL_MIN)
    elif name not in ("none", "auto", "speq", *VARIANTS) and not name.startswith("separate:"):
        raise ValueError(f"draft must be W5KV5..W9KV9 or one of {', '.join(NAMES)}, not {name!r}")


def make_draft(
    name: str,
    source: Source,
    *,
    exact: bool = False,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    choose: Choice | None = None,
) -> Draft:
    """The draft called `name`, with its target.

    Args:
        name: see above.
        source: the target's model.
        exact: the exact path; only for targets in block floating point.
        device, dtype: of the fast path.
        choose: the lookup table of "auto".

    Raises:
        ValueError: no such draft, or none with an exact path, by name.
    """
    check_name(name)
    if name == "auto":
        if choose is None:
            raise ValueError("draft auto needs a precision lookup table: --plt FILE")
        return AutoBsSpec(source.stored, choose, exact=exact, device=device, dtype=dtype)
    if name == "none" or name.startswith("W"):
        precision = None if name == "none" else Precision.parse(name)
        return BsSpec(source.stored, precision, exact=exact, device=device, dtype=dtype)
    if name.startswith("separate:"):
        target = BsSpec(source.stored, None, exact=exact, device=device, dtype=dtype)
        checkpoint = _separate(name.removeprefix("separate:"), source)
        return SeparateModel(target, checkpoint, name=name, device=device, dtype=dtype)
    if exact:
        raise ValueError(f"draft {name} has a 16-bit target and no exact path: leave out --exact")
    if name == "speq":
        return Speq(source.checkpoint, device=device, dtype=dtype)
    return QuantSpec(source.checkpoint, name, device=device, dtype=dtype)


def _separate(name: str, source: Source) -> Checkpoint:
    if not name.startswith(_FIRST):
        return load(name)[0]
    layers = source.checkpoint.config.layers
    count = name.removeprefix(_FIRST)
    if not count.isdigit() or not 1 <= int(count) <= layers:
        raise ValueError(f"separate:first-N must have N in 1..{layers}, not {count!r}")
    return dataclasses.replace(
        source.checkpoint,
        config=dataclasses.replace(source.checkpoint.config, layers=int(count)),
        blocks=source.checkpoint.blocks[: int(count)],
    )


def autoregressive(draft: Draft) -> Draft:
    """The same target without its draft: what speculative decoding is compared with."""
    plain = copy.copy(draft)
    plain.drafts = False
    return plain
