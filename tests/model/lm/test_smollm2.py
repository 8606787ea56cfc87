"""The GGUF reader: the shipped model, and each refusal on a small file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from torch import Tensor

from model.lm import plain, smollm2
from model.lm.checkpoint import Checkpoint, load

SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def test_the_file_is_the_one_that_numbers_are_given_for() -> None:
    with smollm2.find().open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == SHA256


def test_it_knows_the_capital_of_france() -> None:
    checkpoint, tokenizer = load("smollm2")
    config = checkpoint.config
    assert (config.layers, config.width, config.heads, config.kv_heads) == (30, 576, 9, 3)
    assert (config.vocabulary, config.end_ids, config.max_positions) == (49_152, (2,), 8192)
    tokens = tokenizer.encode("The capital of France is").ids
    for _ in range(2):
        ran = plain.forward(checkpoint, torch.tensor(tokens), positions="last")
        tokens.append(int(ran.logits.argmax()))
    assert tokenizer.decode(tokens).startswith("The capital of France is Paris")


def fields(checkpoint: Checkpoint) -> dict[str, int | float | str | list]:
    config = checkpoint.config
    return {
        "llama.block_count": config.layers,
        "llama.embedding_length": config.width,
        "llama.feed_forward_length": config.ff_width,
        "llama.attention.head_count": config.heads,
        "llama.attention.head_count_kv": config.kv_heads,
        "llama.rope.dimension_count": config.head_width,
        "llama.vocab_size": config.vocabulary,
        "llama.context_length": config.max_positions,
        "llama.attention.layer_norm_rms_epsilon": config.norm_eps,
        "llama.rope.freq_base": config.rope_base,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.tokens": [
            *(chr(33 + i) for i in range(config.vocabulary - 1)),
            "!#",
        ],
        "tokenizer.ggml.merges": ["! #"],
        "tokenizer.ggml.token_type": [1] * config.vocabulary,
    }


def permuted(weight: Tensor, head_width: int) -> Tensor:
    """Rows as GGUF keeps them: those of a RoPE pair are neighbours."""
    rows = torch.arange(len(weight)).view(-1, 2, head_width // 2).transpose(1, 2).flatten()
    return weight[rows]


def arrays(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    found = {"token_embd.weight": checkpoint.embedding, "output_norm.weight": checkpoint.norm}
    for layer, block in enumerate(checkpoint.blocks):
        for name, weight in block.items():
            turned = permuted(weight, checkpoint.config.head_width) if name in "qk" else weight
            found[f"blk.{layer}.{smollm2._BLOCK_NAMES[name]}.weight"] = turned
    return {name: weight.float().numpy().copy() for name, weight in found.items()}


def write(
    path: Path, values: dict, weights: dict[str, np.ndarray], architecture: str = "llama"
) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    for name, value in values.items():
        if isinstance(value, list):
            writer.add_array(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        else:
            writer.add_uint32(name, value)
    for name, weight in weights.items():
        writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_what_was_written_is_read(tiny: Checkpoint, tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", fields(tiny), arrays(tiny))
    checkpoint, tokenizer = smollm2.load(path)
    assert tokenizer.encode("!#").ids == [96]
    assert torch.equal(checkpoint.embedding, tiny.embedding)
    assert torch.equal(checkpoint.norm, tiny.norm)
    for mine, other in zip(checkpoint.blocks, tiny.blocks, strict=True):
        assert mine.keys() == other.keys()
        assert all(torch.equal(mine[name], other[name]) for name in mine)


def refused(path: Path, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        smollm2.load(path)


@pytest.mark.parametrize("share", [0.0001, 0.02, 0.5, 0.999])
def test_a_torn_file(share: float, tiny: Checkpoint, tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", fields(tiny), arrays(tiny))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    refused(path, r"m\.gguf is not a whole GGUF file")


def test_another_file(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_text("not a model, but long enough to have a header")
    refused(tmp_path / "m.gguf", "not a whole GGUF file: GGUF magic invalid")
    with pytest.raises(FileNotFoundError, match=r"none\.gguf is missing"):
        smollm2.load(tmp_path / "none.gguf")


class TestTensors:
    NAME = "blk.1.ffn_up.weight"

    def read(self, tiny: Checkpoint, folder: Path, weights: dict, message: str) -> None:
        refused(write(folder / "m.gguf", fields(tiny), weights), message)

    def test_missing(self, tiny: Checkpoint, tmp_path: Path) -> None:
        weights = arrays(tiny)
        del weights[self.NAME]
        self.read(tiny, tmp_path, weights, f"m.gguf: tensors that are missing: {self.NAME}$")

    def test_extra(self, tiny: Checkpoint, tmp_path: Path) -> None:
        weights = arrays(tiny) | {"output.weight": np.zeros((97, 64), "f4")}
        message = r"tensors that this model has no place for: output\.weight$"
        self.read(tiny, tmp_path, weights, message)

    def test_shape(self, tiny: Checkpoint, tmp_path: Path) -> None:
        weights = arrays(tiny)
        weights[self.NAME] = weights[self.NAME].T.copy()
        message = rf"tensor {self.NAME} must have shape \(128, 64\), not \(64, 128\)"
        self.read(tiny, tmp_path, weights, message)

    def test_type(self, tiny: Checkpoint, tmp_path: Path) -> None:
        weights = arrays(tiny)
        weights[self.NAME] = weights[self.NAME].astype(np.int32)
        message = f"tensor {self.NAME} must be F32 or F16 or .* not I32"
        self.read(tiny, tmp_path, weights, message)

    @pytest.mark.parametrize("value", [np.inf, np.nan, 3.4e38])
    def test_value(self, value: float, tiny: Checkpoint, tmp_path: Path) -> None:
        weights = arrays(tiny)
        weights[self.NAME][5, 3] = value
        message = rf"tensor {self.NAME}\[5, 3\] must (be|round to a) finite"
        self.read(tiny, tmp_path, weights, message)


class TestFields:
    def test_missing(self, tiny: Checkpoint, tmp_path: Path) -> None:
        for name in fields(tiny):
            values = fields(tiny)
            del values[name]
            path = write(tmp_path / "m.gguf", values, {})
            refused(path, f"m.gguf: field {name} is missing")

    def test_architecture(self, tiny: Checkpoint, tmp_path: Path) -> None:
        path = write(tmp_path / "m.gguf", fields(tiny), {}, architecture="gpt2")
        refused(path, "general.architecture must be 'llama', not 'gpt2'")

    def test_values(self, tiny: Checkpoint, tmp_path: Path) -> None:
        values = fields(tiny) | {"llama.attention.head_count": 5}
        refused(write(tmp_path / "m.gguf", values, {}), "heads must be a multiple of kv_heads")
        values = fields(tiny) | {"llama.block_count": "two"}
        refused(write(tmp_path / "m.gguf", values, {}), "layers must be an int, not 'two'")

    def test_tokenizer(self, tiny: Checkpoint, tmp_path: Path) -> None:
        values = fields(tiny) | {"tokenizer.ggml.merges": ["! %"]}
        message = "fields tokenizer.ggml.* are no tokenizer: .*`!%` out of vocabulary"
        refused(write(tmp_path / "m.gguf", values, {}), message)
        values = fields(tiny) | {"tokenizer.ggml.tokens": ["a", "b"]}
        message = "tokenizer.ggml.tokens must have 97 entries, not 2"
        refused(write(tmp_path / "m.gguf", values, {}), message)

    def test_scaling(self, tiny: Checkpoint, tmp_path: Path) -> None:
        values = fields(tiny) | {"llama.rope.scaling.type": "yarn"}
        refused(write(tmp_path / "m.gguf", values, {}), "field llama.rope.scaling.type must be")
