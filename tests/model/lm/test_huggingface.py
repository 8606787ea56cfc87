"""Folders that must be refused, each by the name of what is wrong; and those that must not."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from model.lm import huggingface
from model.lm.checkpoint import Checkpoint, load
from model.lm.config import ModelConfig
from model.lm.huggingface import INDEX, SINGLE
from model.lm.paper_models import PAPER_MODELS
from model.lm.random_model import TINY, random_checkpoint
from tests.model.lm.folders import options, tensors, write_folder, write_json

UP = "model.layers.1.mlp.up_proj.weight"
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
QWEN = dataclasses.replace(TINY, family="qwen3", qk_norm=True, tied=False)
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def refused(folder: Path, message: str, kind: type[Exception] = ValueError) -> None:
    with pytest.raises(kind, match=message):
        load(str(folder))


def same(mine: Checkpoint, other: Checkpoint) -> bool:
    first, second = tensors(mine), tensors(other)
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


@pytest.mark.parametrize("config", [TINY, QWEN], ids=["llama", "qwen3"])
@pytest.mark.parametrize("shards", [1, 3])
def test_what_was_written_is_read(config: ModelConfig, shards: int, tmp_path: Path) -> None:
    written = random_checkpoint(config, 3)
    write_folder(tmp_path, options(config), tensors(written), shards=shards)
    read, tokenizer = load(str(tmp_path))
    assert read.config == config
    assert same(read, written)
    assert tokenizer.encode("!#").ids == [0, 2]


def test_the_model_outlives_its_files(tiny: Checkpoint, tmp_path: Path) -> None:
    write_folder(tmp_path, options(TINY), tensors(tiny))
    read, _ = load(str(tmp_path))
    path = tmp_path / SINGLE
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    assert same(read, tiny)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_other_types_are_rounded_once(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    weights = {
        name: (weight.float() * (1 + 0.01 * torch.rand(weight.shape))).to(dtype)
        for name, weight in tensors(random_checkpoint(TINY, 1)).items()
    }
    weights[UP][0, 0] = 1 + 2.0**-8 + (2.0**-20 if dtype == torch.float32 else 0)  # a tie, or more
    write_folder(tmp_path, options(TINY), weights)
    read, _ = load(str(tmp_path))
    assert all(torch.equal(each, weights[name].bfloat16()) for name, each in tensors(read).items())
    assert float(read.blocks[1]["up"][0, 0]) == (1 if dtype == torch.float16 else 1 + 2.0**-7)


class TestFiles:
    def test_no_folder(self, tmp_path: Path) -> None:
        message = "model must be 'smollm2' or the path of a folder, not '.*nowhere'"
        refused(tmp_path / "nowhere", message, FileNotFoundError)

    def test_no_config(self, tmp_path: Path) -> None:
        refused(tmp_path, "config.json is missing", FileNotFoundError)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", "config.json is not JSON: .*line 1"),
            ("", "config.json is not JSON"),
            ("[1]", "config.json must hold a JSON object, not list"),
        ],
    )
    def test_config_is_not_json(self, text: str, message: str, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(text)
        refused(tmp_path, message)

    def test_no_weights(self, tiny: Checkpoint, tmp_path: Path) -> None:
        write_folder(tmp_path, options(TINY), tensors(tiny))
        (tmp_path / SINGLE).unlink()
        refused(tmp_path, f"has neither {SINGLE} nor {INDEX}", FileNotFoundError)

    def test_both_kinds(self, tiny: Checkpoint, tmp_path: Path) -> None:
        write_folder(tmp_path, options(TINY), tensors(tiny))
        write_folder(tmp_path, options(TINY), tensors(tiny), shards=2)
        refused(tmp_path, f"must hold {SINGLE} or {INDEX}, not both")

    @pytest.mark.parametrize("size", [0, 5, 100, 3000, -1])
    @pytest.mark.parametrize("shards", [1, 2])
    def test_truncated(self, size: int, shards: int, tiny: Checkpoint, tmp_path: Path) -> None:
        write_folder(tmp_path, options(TINY), tensors(tiny), shards=shards)
        path = sorted(tmp_path.glob("*.safetensors"))[-1]
        path.write_bytes(path.read_bytes()[:size])
        refused(tmp_path, f"{path.name} is not a whole safetensors file: ")

    def test_tokenizer(self, tiny: Checkpoint, tmp_path: Path) -> None:
        write_folder(tmp_path, options(TINY), tensors(tiny))
        path = tmp_path / "tokenizer.json"
        path.write_text(path.read_text()[:-20])
        refused(tmp_path, r"tokenizer\.json is not JSON")
        path.write_text("{}")
        refused(tmp_path, r"tokenizer\.json is not a tokenizer")
        small = dataclasses.replace(TINY, vocabulary=60)
        write_folder(tmp_path, options(small), tensors(random_checkpoint(small, 0)))
        refused(tmp_path, r"tokenizer\.json: ids must be below vocab_size, 60, not 63")

    def test_text_without_a_tokenizer(self, tiny: Checkpoint, tmp_path: Path) -> None:
        write_folder(tmp_path, options(TINY), tensors(tiny), tokenizer=False)
        read, tokenizer = load(str(tmp_path))
        assert same(read, tiny)
        for use in (lambda: tokenizer.encode("a"), lambda: tokenizer.decode([1])):
            with pytest.raises(FileNotFoundError, match=r"tokenizer\.json is missing: text needs"):
                use()


class TestShards:
    def folder(self, tiny: Checkpoint, path: Path) -> tuple[dict[str, Any], list[Path]]:
        write_folder(path, options(TINY), tensors(tiny), shards=3)
        return json.loads((path / INDEX).read_text()), sorted(path.glob("*.safetensors"))

    def test_missing(self, tiny: Checkpoint, tmp_path: Path) -> None:
        _, files = self.folder(tiny, tmp_path)
        files[1].unlink()
        message = "shards that are missing: model-00002-of-00003.safetensors$"
        refused(tmp_path, message, FileNotFoundError)

    def test_tensor_in_two(self, tiny: Checkpoint, tmp_path: Path) -> None:
        _, files = self.folder(tiny, tmp_path)
        save_file({**load_file(files[0]), UP: tiny.blocks[1]["up"].clone()}, files[0])
        save_file({**load_file(files[1]), UP: tiny.blocks[1]["up"].clone()}, files[1])
        refused(tmp_path, f"tensor {UP} is in two shards, {files[0].name}, {files[1].name}$")

    def test_not_in_the_index(self, tiny: Checkpoint, tmp_path: Path) -> None:
        index, _ = self.folder(tiny, tmp_path)
        where = index["weight_map"].pop(UP)
        write_json(tmp_path / INDEX, index)
        refused(tmp_path, f"does not list tensor {UP} in {where}, which holds it")

    def test_only_in_the_index(self, tiny: Checkpoint, tmp_path: Path) -> None:
        index, _ = self.folder(tiny, tmp_path)
        where = tmp_path / index["weight_map"][UP]
        held = load_file(where)
        del held[UP]
        save_file(held, where)
        refused(tmp_path, f"lists tensor {UP} in {where.name}, which lacks it")

    @pytest.mark.parametrize("listed", [None, [], {"a": 1}])
    def test_no_list(self, listed: object, tiny: Checkpoint, tmp_path: Path) -> None:
        self.folder(tiny, tmp_path)
        write_json(tmp_path / INDEX, {"weight_map": listed})
        refused(tmp_path, "weight_map must be an object of tensor names and file names")

    def test_elsewhere(self, tiny: Checkpoint, tmp_path: Path) -> None:
        index, _ = self.folder(tiny, tmp_path)
        index["weight_map"][UP] = "../model.safetensors"
        write_json(tmp_path / INDEX, index)
        refused(tmp_path, r"a shard must be a file of the same folder, not '\.\./model")

    def test_index_is_not_json(self, tiny: Checkpoint, tmp_path: Path) -> None:
        self.folder(tiny, tmp_path)
        (tmp_path / INDEX).write_text("{'a'")
        refused(tmp_path, f"{INDEX} is not JSON")


class TestTensors:
    @pytest.fixture
    def weights(self, tiny: Checkpoint) -> dict[str, Tensor]:
        return {name: weight.clone() for name, weight in tensors(tiny).items()}

    def read(self, folder: Path, weights: dict[str, Tensor], message: str) -> None:
        refused(write_folder(folder, options(TINY), weights), message)

    def test_missing(self, weights: dict[str, Tensor], tmp_path: Path) -> None:
        del weights[UP], weights["model.norm.weight"]
        message = rf"tensors that are missing: {UP}, model\.norm\.weight$"
        self.read(tmp_path, weights, message)

    def test_extra(self, weights: dict[str, Tensor], tmp_path: Path) -> None:
        bias = "model.layers.0.self_attn.q_proj.bias"
        weights[bias] = torch.zeros(256).bfloat16()
        self.read(tmp_path, weights, f"tensors that this model has no place for: {bias}$")

    def test_layers_beyond_the_last(self, weights: dict[str, Tensor], tmp_path: Path) -> None:
        weights["model.layers.2.mlp.up_proj.weight"] = weights[UP]
        message = r"no place for: model\.layers\.2\.mlp\.up_proj\.weight"
        self.read(tmp_path, weights, message)

    def test_shape(self, weights: dict[str, Tensor], tmp_path: Path) -> None:
        weights[UP] = weights[UP].T
        self.read(tmp_path, weights, rf"tensor {UP} must have shape \(128, 64\), not \(64, 128\)")

    def test_shapes_come_before_values(self, weights: dict[str, Tensor], tmp_path: Path) -> None:
        weights[EMBEDDING][0, 0] = torch.nan
        weights[UP] = weights[UP].T
        self.read(tmp_path, weights, f"tensor {UP} must have shape")

    @pytest.mark.parametrize("dtype", [torch.float64, torch.int8, torch.float8_e4m3fn])
    def test_type(self, dtype: torch.dtype, weights: dict[str, Tensor], tmp_path: Path) -> None:
        weights[UP] = weights[UP].to(dtype)
        self.read(tmp_path, weights, f"tensor {UP} must be BF16 or F16 or F32, not [FI]")

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            (float("inf"), "must be finite, not inf"),
            (float("-inf"), "must be finite, not -inf"),
            (float("nan"), "must be finite, not nan"),
            (3.4e38, "must round to a finite BF16 number"),
        ],
    )
    def test_value(
        self, value: float, message: str, weights: dict[str, Tensor], tmp_path: Path
    ) -> None:
        weights[UP] = weights[UP].float()
        weights[UP][7, 11] = value
        self.read(tmp_path, weights, rf"tensor {UP}\[7, 11\] {message}")
        weights[UP] = weights[UP].bfloat16()  # where 3.4e38 is Inf
        self.read(tmp_path, weights, rf"tensor {UP}\[7, 11\] must be finite")

    def test_harmless_extras(
        self, weights: dict[str, Tensor], tiny: Checkpoint, tmp_path: Path
    ) -> None:
        extras = ["model.rotary_emb.inv_freq", "model.layers.1.self_attn.rotary_emb.inv_freq"]
        weights |= {name: torch.ones(32) for name in extras}
        weights[HEAD] = weights[EMBEDDING]
        read, _ = load(str(write_folder(tmp_path, options(TINY), weights)))
        assert read.head is None
        assert same(read, tiny)

    def test_tied_head_that_is_no_copy(self, weights: dict[str, Tensor], tmp_path: Path) -> None:
        weights[HEAD] = weights[EMBEDDING].clone()
        weights[HEAD][96, 2] = 0.5
        message = rf"{HEAD} of a tied model must be a copy of {EMBEDDING}, but at \[96, 2\] it is"
        self.read(tmp_path, weights, f"{message} 0.5 and not .* is tie_word_embeddings right")

    def test_untied_without_head(self, tmp_path: Path) -> None:
        weights = tensors(random_checkpoint(QWEN, 0))
        del weights[HEAD]
        write_folder(tmp_path, options(QWEN), weights)
        refused(tmp_path, rf"tensors that are missing: {HEAD}$")


class TestOptions:
    def read(
        self, folder: Path, changes: dict[str, Any], config: ModelConfig = TINY
    ) -> ModelConfig:
        given = {**options(config), **changes}
        write_json(folder / "config.json", {k: v for k, v in given.items() if v is not ...})
        return huggingface.read_config(folder)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"model_type": "mistral"}, "model_type must be 'llama' or 'qwen3', not 'mistral'"),
            ({"model_type": ...}, "model_type must be 'llama' or 'qwen3', not None"),
            ({"hidden_act": "gelu"}, "hidden_act must be 'silu', not 'gelu'"),
            ({"attention_bias": True}, "attention_bias must be False, not True"),
            ({"mlp_bias": True}, "mlp_bias must be False, not True"),
            ({"use_sliding_window": True}, "use_sliding_window must be False, not True"),
            ({"sliding_window": 4096}, "sliding_window must be null, not 4096"),
            ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types must be"),
            ({"layer_types": ["full_attention"]}, "for each of 2 layers"),
            ({"pretraining_tp": 2}, "pretraining_tp must be 1, not 2"),
            ({"torch_dtype": "float64"}, "torch_dtype must be 'bfloat16' or .* not 'float64'"),
            ({"dtype": "int8"}, "dtype must be .* not 'int8'"),
            ({"quantization_config": {"bits": 4}}, "quantization_config must be absent or off"),
            ({"logit_scale": 2.0}, "logit_scale must be absent or off, not 2.0: it is not built"),
            ({"architectures": ["LlamaModel"]}, r"architectures must be \['LlamaForCausalLM'\]"),
            ({"num_hidden_layers": ...}, "num_hidden_layers is missing, must be an int"),
            ({"vocab_size": "many"}, "vocab_size must be an int, not 'many'"),
            ({"hidden_size": True}, "hidden_size must be an int, not True"),
            ({"intermediate_size": 1.5}, "intermediate_size must be an int, not 1.5"),
            ({"num_key_value_heads": 3}, "heads must be a multiple of kv_heads, not 4 and 3"),
            ({"head_dim": 63}, "head_width must be even, not 63"),
            ({"head_dim": ..., "hidden_size": 66}, "66 channels are not 4 heads"),
            ({"rms_norm_eps": "small"}, "rms_norm_eps must be a number, not 'small'"),
            ({"rms_norm_eps": 0}, r"norm_eps must be in \(0, 1\), not 0"),
            ({"max_position_embeddings": 0}, "max_positions must be in 1"),
            ({"tie_word_embeddings": "yes"}, "tie_word_embeddings must be true or false"),
            ({"eos_token_id": "end"}, "eos_token_id must be an int, a list of ints or null"),
            ({"eos_token_id": [2, True]}, "eos_token_id must be an int, a list of ints or null"),
            ({"eos_token_id": 97}, r"end_ids\[0\] must be in 0..96, not 97"),
            ({"bos_token_id": 1.0}, "bos_token_id must be an int or null, not 1.0"),
            ({"rope_theta": "long"}, "rope_theta must be a number, not 'long'"),
            ({"rope_theta": 0.5}, "rope_base must be finite and above 1, not 0.5"),
            ({"rope_scaling": {"type": "yarn"}}, "rope_scaling.rope_type must be .* not 'yarn'"),
            ({"rope_scaling": "llama3"}, "rope_scaling must be an object or null, not 'llama3'"),
            ({"rope_scaling": {**LLAMA3, "beta": 1}}, "rope_scaling.beta is no option of rope"),
            ({"rope_scaling": {"factor": 2.0}}, "rope_scaling.factor is no option .* 'default'"),
            ({"rope_scaling": {**LLAMA3, "factor": None}}, "rope_scaling.factor is missing"),
            ({"rope_scaling": {**LLAMA3, "low_freq_factor": 4.0}}, "rope_scaling: a scaling must"),
            (
                {"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 1.5}},
                "original_max_position_embeddings must be an int, not 1.5",
            ),
            ({"partial_rotary_factor": 0.5}, "partial_rotary_factor must be 1.0, not 0.5"),
            (
                {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
                "rope_parameters.partial_rotary_factor must be 1.0, not 0.5",
            ),
            (
                {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10_000.0}},
                "rope_parameters.rope_type must be 'default' or 'llama3', not 'dynamic'",
            ),
            (
                {"rope_parameters": {"rope_type": "default", "rope_theta": 5.0}},
                "rope_theta 10000.0 and rope_parameters.rope_theta 5.0 differ",
            ),
            (
                {"rope_parameters": {"rope_type": "default"}, "rope_scaling": LLAMA3},
                "rope_parameters and rope_scaling are both given, and differ",
            ),
        ],
    )
    def test_refused(self, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=f"config.json: .*{message}"):
            self.read(tmp_path, changes)

    def test_all_at_once(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"hidden_act must .*; vocab_size is missing"):
            self.read(tmp_path, {"hidden_act": "relu", "vocab_size": ...})

    @pytest.mark.parametrize(
        "changes",
        [
            {"architectures": ["LlamaForCausalLM"], "use_cache": True, "attention_dropout": 0.1},
            {"_name_or_path": "x", "initializer_range": 0.02, "transformers_version": "4.43.0"},
            {"attention_bias": False, "mlp_bias": False, "pretraining_tp": 1, "pad_token_id": 0},
            {"torch_dtype": ..., "dtype": "float32", "use_sliding_window": False},
            {"layer_types": ["full_attention"] * 2, "some_switch": False, "some_value": None},
            {"rope_scaling": {"rope_type": "default"}},
            {"rope_theta": ..., "rope_scaling": ...},
            {
                "rope_theta": ...,
                "rope_scaling": ...,
                "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
            },
        ],
    )
    def test_accepted(self, changes: dict[str, Any], tmp_path: Path) -> None:
        assert self.read(tmp_path, changes) == TINY

    @pytest.mark.parametrize("name", list(PAPER_MODELS))
    def test_models_of_the_paper(self, name: str, tmp_path: Path) -> None:
        assert self.read(tmp_path, {}, PAPER_MODELS[name]) == PAPER_MODELS[name]

    def test_a_window_that_is_not_in_use(self, tmp_path: Path) -> None:
        changes = {"sliding_window": 4096, "use_sliding_window": False, "max_window_layers": 28}
        assert self.read(tmp_path, changes, QWEN) == QWEN

    def test_left_out(self, tmp_path: Path) -> None:
        changes = {"num_key_value_heads": ..., "head_dim": ..., "tie_word_embeddings": ...}
        read = self.read(tmp_path, changes)
        assert (read.kv_heads, read.head_width, read.tied) == (4, 16, False)

    def test_end_ids_of_both_files(self, tmp_path: Path) -> None:
        write_json(tmp_path / "generation_config.json", {"eos_token_id": [7, 5], "bos_token_id": 3})
        read = self.read(tmp_path, {"eos_token_id": 5})
        assert (read.end_ids, read.begin_id) == ((5, 7), 3)
        write_json(tmp_path / "generation_config.json", {"eos_token_id": 7.5})
        message = "generation_config.json: eos_token_id must be an int, a list of ints or null"
        with pytest.raises(ValueError, match=message):
            self.read(tmp_path, {})
