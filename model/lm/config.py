"""Shape of a decoder-only transformer of the Llama 3 or Qwen3 family."""

from __future__ import annotations

import math
from dataclasses import dataclass

from model.datapath.special import RopeScaling
from model.formats.checks import check_choice, check_int

FAMILIES = ("llama", "qwen3")
#: Larger counts than any model has: what a mistaken file gives, not a limit of ours.
_MANY = 1 << 31


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Hyperparameters.

    Attributes:
        family: "llama" or "qwen3".
        layers, width, ff_width: blocks, model dimension, SwiGLU dimension.
        heads, kv_heads, head_width: query heads, key/value heads, channels of a head.
        vocabulary: tokens.
        norm_eps: added to the mean square in RMSNorm.
        rope_base: base of the rotary frequencies.
        rope_scaling: Llama 3's scaling of them, or None.
        max_positions: positions that the model was made for.
        tied: the head is the embedding.
        qk_norm: RMSNorm of each query and key head before RoPE; Qwen3 has it, Llama does not.
        end_ids: tokens that end a text, none, one or several.
        begin_id: token that the checkpoint names as the first of a text, or None. Whether a prompt
            gets it is the tokenizer's choice.

    Raises:
        TypeError: a value of another kind.
        ValueError: values that no model has, or that don't go together; all of them, by name.
    """

    family: str
    layers: int
    width: int
    ff_width: int
    heads: int
    kv_heads: int
    head_width: int
    vocabulary: int
    norm_eps: float
    rope_base: float
    rope_scaling: RopeScaling | None = None
    max_positions: int
    tied: bool
    qk_norm: bool = False
    end_ids: tuple[int, ...] = ()
    begin_id: int | None = None

    def __post_init__(self) -> None:
        self._check_kinds()
        wrong = [*self._wrong_values()]
        if wrong:
            raise ValueError("; ".join(wrong))

    def _check_kinds(self) -> None:
        for name in ("tied", "qk_norm"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be a bool, not {getattr(self, name)!r}")
        for name in ("norm_eps", "rope_base"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise TypeError(f"{name} must be a float, not {value!r}")
        if not isinstance(self.rope_scaling, (RopeScaling, type(None))):
            raise TypeError(
                f"rope_scaling must be a RopeScaling or None, not {self.rope_scaling!r}"
            )
        if not isinstance(self.end_ids, tuple):
            raise TypeError(f"end_ids must be a tuple of ints, not {self.end_ids!r}")

    def _wrong_values(self) -> list[str]:
        wrong: list[str] = []

        def holds(condition: bool, message: str) -> None:
            if not condition:
                wrong.append(message)

        def count(name: str, value: object, low: int = 1, high: int = _MANY) -> bool:
            try:
                check_int(name, value, low, high)
            except ValueError as error:
                wrong.append(str(error))
                return False
            return True

        try:
            check_choice("family", self.family, FAMILIES)
        except ValueError as error:
            wrong.append(str(error))
        else:
            needed = self.family == "qwen3"
            holds(
                self.qk_norm == needed,
                f"qk_norm must be {needed} in family {self.family!r}, not {self.qk_norm}",
            )
        sizes = ("layers", "width", "ff_width", "head_width", "max_positions")
        for name in sizes:
            count(name, getattr(self, name))
        holds(self.head_width % 2 == 0, f"head_width must be even, not {self.head_width}")
        if count("heads", self.heads) & count("kv_heads", self.kv_heads):
            holds(
                self.heads % self.kv_heads == 0,
                f"heads must be a multiple of kv_heads, not {self.heads} and {self.kv_heads}",
            )
        holds(0 < self.norm_eps < 1, f"norm_eps must be in (0, 1), not {self.norm_eps!r}")
        holds(
            1 < self.rope_base < math.inf,
            f"rope_base must be finite and above 1, not {self.rope_base!r}",
        )
        if count("vocabulary", self.vocabulary):
            ids = {f"end_ids[{i}]": each for i, each in enumerate(self.end_ids)}
            if self.begin_id is not None:
                ids["begin_id"] = self.begin_id
            for name, each in ids.items():
                count(name, each, 0, self.vocabulary - 1)
        holds(
            len(set(self.end_ids)) == len(self.end_ids),
            f"end_ids must differ from each other, not {self.end_ids}",
        )
        return wrong

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

    def norm_shapes(self) -> dict[str, tuple[int]]:
        """(channels,) of each norm of a block, by name."""
        shapes: dict[str, tuple[int]] = {"attn_norm": (self.width,), "ffn_norm": (self.width,)}
        if self.qk_norm:
            shapes |= {"q_norm": (self.head_width,), "k_norm": (self.head_width,)}
        return shapes


def parameters(config: ModelConfig) -> int:
    """Weights of a model, embedding included; a tied head is counted once."""
    shapes = [*config.linear_shapes().values(), *config.norm_shapes().values()]
    block = sum(math.prod(shape) for shape in shapes)
    tables = 1 if config.tied else 2
    return config.layers * block + config.width + tables * config.vocabulary * config.width
