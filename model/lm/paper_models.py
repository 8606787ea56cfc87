"""The paper's three models: shapes for costs and tables; their weights come from a folder.

Source: the models' own config.json and generation_config.json (the instruct versions).
"""

from __future__ import annotations

from model.datapath.special import RopeScaling
from model.lm.config import ModelConfig

_LLAMA_ENDS = (128001, 128008, 128009)

#: The models that the paper evaluates, by the names that it uses.
PAPER_MODELS: dict[str, ModelConfig] = {
    "Llama-3.2-3B": ModelConfig(
        family="llama",
        layers=28,
        width=3072,
        ff_width=8192,
        heads=24,
        kv_heads=8,
        head_width=128,
        vocabulary=128256,
        norm_eps=1e-5,
        rope_base=500_000.0,
        rope_scaling=RopeScaling(
            factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_positions=8192
        ),
        max_positions=131_072,
        tied=True,
        end_ids=_LLAMA_ENDS,
        begin_id=128000,
    ),
    "Llama-3.1-8B": ModelConfig(
        family="llama",
        layers=32,
        width=4096,
        ff_width=14336,
        heads=32,
        kv_heads=8,
        head_width=128,
        vocabulary=128256,
        norm_eps=1e-5,
        rope_base=500_000.0,
        rope_scaling=RopeScaling(
            factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_positions=8192
        ),
        max_positions=131_072,
        tied=False,
        end_ids=_LLAMA_ENDS,
        begin_id=128000,
    ),
    "Qwen3-14B": ModelConfig(
        family="qwen3",
        layers=40,
        width=5120,
        ff_width=17408,
        heads=40,
        kv_heads=8,
        head_width=128,
        vocabulary=151936,
        norm_eps=1e-6,
        rope_base=1_000_000.0,
        max_positions=40_960,
        tied=False,
        qk_norm=True,
        end_ids=(151645, 151643),
        begin_id=151643,
    ),
}
