"""config.json and generation_config.json of a Hugging Face folder.

Every option is checked. One that changes the result and is not built is refused, by its name; so is
one that this module does not know, unless it is off (null or false), since nothing tells whether it
may be ignored. All that is wrong is said at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from model.datapath.special import RopeScaling
from model.lm.config import FAMILIES, ModelConfig

#: Options that must have one of these values where they are given.
_FIXED: dict[str, tuple[object, ...]] = {
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "use_sliding_window": (False,),
    "pretraining_tp": (1,),
    "partial_rotary_factor": (1.0,),
    "torch_dtype": ("bfloat16", "float16", "float32", None),
    "dtype": ("bfloat16", "float16", "float32", None),
}
#: What an older file leaves out, by family; transformers reads these as well.
_DEFAULTS: dict[str, dict[str, object]] = {
    "llama": {"rope_theta": 10_000.0, "tie_word_embeddings": False},
    "qwen3": {"rope_theta": 10_000.0, "tie_word_embeddings": False, "head_dim": 128},
}
#: Options that are read below.
_READ = {
    "architectures",
    "bos_token_id",
    "eos_token_id",
    "head_dim",
    "hidden_size",
    "intermediate_size",
    "layer_types",
    "max_position_embeddings",
    "model_type",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "sliding_window",
    "tie_word_embeddings",
    "vocab_size",
}
#: Options of training, of other programs or of the file itself: no result depends on them.
_WITHOUT_EFFECT = {
    "attention_dropout",
    "auto_map",
    "initializer_range",
    "max_window_layers",  # only with a sliding window, which is refused
    "name_or_path",
    "pad_token_id",
    "transformers_version",
    "unsloth_fixed",
    "unsloth_version",
    "use_cache",
}
_ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_ROPE_TYPES = ("default", "llama3")
_LLAMA3 = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not JSON, or not an object, by path.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # of the text's encoding or of JSON
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold a JSON object, not {type(found).__name__}")
    return found


def read_config(folder: Path) -> ModelConfig:
    """The shape of the model in a folder.

    Raises:
        FileNotFoundError: no config.json.
        ValueError: options that are missing, of a wrong kind, or not built, all by name.
    """
    path = folder / "config.json"
    given = read_json(path)
    family = given.get("model_type")
    if family not in FAMILIES:
        raise ValueError(f"{path}: model_type must be 'llama' or 'qwen3', not {family!r}")
    generation = folder / "generation_config.json"
    options = _Options({**_DEFAULTS[family], **given})
    options.check_fixed(family)
    values = _values(options)
    base, scaling = _rope(options, "rope_theta" in given)
    end_ids, begin_id = _ids(options, read_json(generation) if generation.is_file() else {})
    if not options.wrong:
        try:
            return ModelConfig(
                family=family,
                **values,
                rope_base=base,
                rope_scaling=scaling,
                qk_norm=family == "qwen3",
                end_ids=end_ids,
                begin_id=begin_id,
            )
        except (TypeError, ValueError) as error:
            options.wrong.append(str(error))
    raise ValueError(f"{path}: {'; '.join(options.wrong)}")


class _Options:
    """The options of a file, and what was found wrong with them.

    Attributes:
        given: by name.
        wrong: messages.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.wrong: list[str] = []

    def take(self, name: str, kinds: tuple[type, ...], what: str, default: Any = None) -> Any:
        """An option of these kinds (an int is no bool); `default` where absent or null."""
        return self.kind(name, self.given.get(name), kinds, what, default)

    def kind(
        self, name: str, value: Any, kinds: tuple[type, ...], what: str, default: Any = None
    ) -> Any:
        if value is None:
            if default is None:
                self.wrong.append(f"{name} is missing, must be {what}")
            return default
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            self.wrong.append(f"{name} must be {what}, not {value!r}")
            return default
        return value

    def check_fixed(self, family: str) -> None:
        """Options that choose something: what is not built is refused."""
        known = _READ | _WITHOUT_EFFECT | set(_FIXED)
        for name, value in self.given.items():
            if name in _FIXED and value not in _FIXED[name]:
                allowed = " or ".join(repr(each) for each in _FIXED[name])
                self.wrong.append(f"{name} must be {allowed}, not {value!r}")
            if name not in known and not name.startswith("_") and value not in (None, False):
                self.wrong.append(f"{name} must be absent or off, not {value!r}: it is not built")
        architectures, only = self.given.get("architectures"), [_ARCHITECTURES[family]]
        if architectures not in (None, only):
            self.wrong.append(f"architectures must be {only}, not {architectures!r}")
        window = self.given.get("sliding_window")
        # Qwen3 names a window beside the switch that turns it on; other models just name it.
        if window is not None and family != "qwen3":
            self.wrong.append(f"sliding_window must be null, not {window!r}")
        types = self.given.get("layer_types")
        if types is not None and types != ["full_attention"] * _length(self.given):
            self.wrong.append(
                f"layer_types must be 'full_attention' for each of {_length(self.given)} layers,"
                f" not {types!r}"
            )


def _length(given: dict[str, Any]) -> int:
    layers = given.get("num_hidden_layers")
    return layers if isinstance(layers, int) else 0


def _values(options: _Options) -> dict[str, Any]:
    """Sizes and switches, by the names of `ModelConfig`."""

    def count(name: str, default: int | None = None) -> Any:
        return options.take(name, (int,), "an int", default)

    width, heads = count("hidden_size"), count("num_attention_heads")
    head_width = options.given.get("head_dim")
    if head_width is None and width and heads and width % heads:
        options.wrong.append(f"head_dim is missing, and {width} channels are not {heads} heads")
    return {
        "layers": count("num_hidden_layers"),
        "width": width,
        "ff_width": count("intermediate_size"),
        "heads": heads,
        "kv_heads": count("num_key_value_heads", heads),
        "head_width": count("head_dim", width // heads if width and heads else 1),
        "vocabulary": count("vocab_size"),
        "norm_eps": options.take("rms_norm_eps", (int, float), "a number"),
        "max_positions": count("max_position_embeddings"),
        "tied": options.take("tie_word_embeddings", (bool,), "true or false"),
    }


def _rope(options: _Options, base_is_given: bool) -> tuple[Any, RopeScaling | None]:
    """Base and scaling, from `rope_parameters` or from the older `rope_theta, rope_scaling`."""
    number = ((int, float), "a number")
    base = options.take("rope_theta", *number)
    new, old = options.given.get("rope_parameters"), options.given.get("rope_scaling")
    if new is not None and old is not None and new != old:
        options.wrong.append("rope_parameters and rope_scaling are both given, and differ")
    name, found = ("rope_scaling", old) if new is None else ("rope_parameters", new)
    if found is None:
        return base, None
    if not isinstance(found, dict):
        options.wrong.append(f"{name} must be an object or null, not {found!r}")
        return base, None
    own = found.get("rope_theta")
    if own is not None:
        if base_is_given and own != base:
            options.wrong.append(f"rope_theta {base!r} and {name}.rope_theta {own!r} differ")
        base = options.kind(f"{name}.rope_theta", own, *number)
    kind = found.get("rope_type", found.get("type", "default"))
    if kind not in _ROPE_TYPES:
        options.wrong.append(f"{name}.rope_type must be 'default' or 'llama3', not {kind!r}")
        return base, None
    known = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
    known |= set(_LLAMA3) if kind == "llama3" else set()
    for extra in sorted(set(found) - known):
        options.wrong.append(f"{name}.{extra} is no option of rope type {kind!r}")
    if found.get("partial_rotary_factor", 1.0) != 1.0:
        part = found["partial_rotary_factor"]
        options.wrong.append(f"{name}.partial_rotary_factor must be 1.0, not {part!r}")
    if kind == "default":
        return base, None
    before = len(options.wrong)
    factor, low, high = (
        options.kind(f"{name}.{each}", found.get(each), *number) for each in _LLAMA3[:3]
    )
    original = options.kind(f"{name}.{_LLAMA3[3]}", found.get(_LLAMA3[3]), (int,), "an int")
    if len(options.wrong) > before:
        return base, None
    return base, _refused(
        options,
        name,
        lambda: RopeScaling(
            factor=float(factor),
            low_freq_factor=float(low),
            high_freq_factor=float(high),
            original_positions=original,
        ),
    )


def _refused(options: _Options, name: str, make: Callable[[], RopeScaling]) -> RopeScaling | None:
    try:
        return make()
    except (TypeError, ValueError) as error:
        options.wrong.append(f"{name}: {error}")
        return None


def _ids(options: _Options, generation: dict[str, Any]) -> tuple[tuple[int, ...], int | None]:
    """End-of-text ids of both files, each once, and the first id of a text."""
    ends: list[int] = []
    for where, given in (("", options.given), ("generation_config.json: ", generation)):
        found = given.get("eos_token_id")
        for each in found if isinstance(found, list) else [found]:
            if each is None:
                continue
            if not isinstance(each, int) or isinstance(each, bool):
                wish = "an int, a list of ints or null"
                options.wrong.append(f"{where}eos_token_id must be {wish}, not {found!r}")
            elif each not in ends:
                ends.append(each)
    begin = options.given.get("bos_token_id")
    begin = generation.get("bos_token_id") if begin is None else begin
    if begin is not None and (not isinstance(begin, int) or isinstance(begin, bool)):
        options.wrong.append(f"bos_token_id must be an int or null, not {begin!r}")
        begin = None
    return tuple(ends), begin
