"""Shapes by name for costs and tables, read without any weights."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from model.lm.config import ModelConfig
from model.lm.huggingface_config import read_config
from model.lm.paper_models import PAPER_MODELS

#: The name of SmolLM2 in tables, and those by which commands and files may call it.
SMOLLM2 = "SmolLM2-135M"
SMOLLM2_NAMES = ("smollm2", SMOLLM2, "SmolLM2-135M-Instruct")

#: Shape of SmolLM2-135M-Instruct, as `model.lm.smollm2` reads it from the package's file (which
#: takes seconds, and the package).
SMOLLM2_CONFIG = ModelConfig(
    family="llama",
    layers=30,
    width=576,
    ff_width=1536,
    heads=9,
    kv_heads=3,
    head_width=64,
    vocabulary=49152,
    norm_eps=9.999999747378752e-06,  # 1e-5 in float32
    rope_base=100_000.0,
    max_positions=8192,
    tied=True,
    end_ids=(2,),
    begin_id=1,
)


class Shape(NamedTuple):
    """A model's name and shape.

    Attributes:
        name: as tables write it.
        config: its shape.
    """

    name: str
    config: ModelConfig


def find_shape(name: str) -> Shape:
    """The shape of a model.

    Args:
        name: one of the paper's models, "smollm2", or a Hugging Face folder, of which only
            config.json (and generation_config.json) is read.

    Raises:
        TypeError: not a string.
        ValueError: no such model or folder; a config that is not built.
    """
    if not isinstance(name, str):
        raise TypeError(f"model must be a string, not {name!r}")
    if name in PAPER_MODELS:
        return Shape(name, PAPER_MODELS[name])
    if name.lower() in {each.lower() for each in SMOLLM2_NAMES}:
        return Shape(SMOLLM2, SMOLLM2_CONFIG)
    folder = Path(name)
    if not folder.is_dir():
        known = ", ".join([*PAPER_MODELS, "smollm2"])
        raise ValueError(f"model must be {known} or a folder with a config.json, not {name!r}")
    return Shape(folder.resolve().name, read_config(folder))
