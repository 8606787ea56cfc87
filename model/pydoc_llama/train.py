"""Trains the small Llama: `python -m model.pydoc_llama.train [--check] [--steps N]`.

The same Python, torch and kind of processor give the same file, bit for bit: one thread, fixed
seeds. Elsewhere the last bits of sums may differ, and so the weights; `--check` says whether they
do, without writing anything. The text depends on the version of Python: README.md names it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import platform
import sys
import time
from pydoc_data.topics import topics
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor
from torch.nn import functional

from model.lm.checkpoint import Checkpoint
from model.lm.config import ModelConfig
from model.lm.huggingface import SINGLE
from model.lm.plain import forward
from model.pydoc_llama import FOLDER, HELD_OUT

CONFIG = ModelConfig(
    family="llama",
    layers=2,
    width=128,
    ff_width=256,
    heads=2,
    kv_heads=1,
    head_width=64,
    vocabulary=256,
    norm_eps=1e-5,
    rope_base=10_000.0,
    max_positions=512,
    tied=True,
)
#: Bytes of a sample, samples of a step, steps.
CONTEXT, BATCH, STEPS = 192, 16, 1200
SEED = 20
#: Learning rate at its highest; steps until then.
RATE, WARM_UP = 4e-3, 60


def corpus() -> tuple[Tensor, Tensor]:
    """Bytes to train on, and those of the held-out topics; uint8."""

    def joined(names: list[str]) -> Tensor:
        text = "\n\n".join(topics[name] for name in names)
        return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)

    names = sorted(topics)
    return (
        joined([name for name in names if name not in HELD_OUT]),
        joined([name for name in names if name in HELD_OUT]),
    )


def fresh() -> tuple[Any, list[Tensor]]:
    """A model in FP32 that `forward` takes for a checkpoint, and its parameters."""
    generator = torch.Generator().manual_seed(SEED)

    def normal(shape: tuple[int, ...], deviation: float) -> Tensor:
        return (torch.randn(shape, generator=generator) * deviation).requires_grad_()

    def block() -> dict[str, Tensor]:
        weights = {
            name: normal(shape, 1 / math.sqrt(shape[1]))
            for name, shape in CONFIG.linear_shapes().items()
        }
        norms = {
            name: torch.ones(shape).requires_grad_() for name, shape in CONFIG.norm_shapes().items()
        }
        return {**weights, **norms}

    embedding = normal((CONFIG.vocabulary, CONFIG.width), 0.1)
    model = SimpleNamespace(
        config=CONFIG,
        embedding=embedding,
        head_weight=embedding,
        blocks=[block() for _ in range(CONFIG.layers)],
        norm=torch.ones(CONFIG.width).requires_grad_(),
    )
    parameters = [embedding, model.norm, *(w for each in model.blocks for w in each.values())]
    return model, parameters


def loss_of(model: Any, text: Tensor, starts: Tensor) -> Tensor:
    """Mean loss in nats a byte of samples of a text."""
    samples = torch.stack([text[start : start + CONTEXT + 1] for start in starts.tolist()]).long()
    logits = forward(model, samples[:, :-1]).logits
    return functional.cross_entropy(logits.flatten(0, 1), samples[:, 1:].flatten())


def held_out_loss(model: Any) -> float:
    """Loss over the held-out topics, in nats a byte."""
    text = corpus()[1]
    with torch.no_grad():
        starts = torch.arange(0, len(text) - CONTEXT - 1, CONTEXT)
        return float(loss_of(model, text, starts))


def train(steps: int) -> Any:
    """A trained model, in FP32."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    text, _ = corpus()
    model, parameters = fresh()
    matrices = [p for p in parameters if p.ndim == 2]
    vectors = [p for p in parameters if p.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=RATE,
        betas=(0.9, 0.98),
    )
    generator = torch.Generator().manual_seed(SEED)
    started = time.monotonic()
    for step in range(steps):
        share = min((step + 1) / WARM_UP, 0.5 + 0.5 * math.cos(math.pi * step / steps))
        for group in optimizer.param_groups:
            group["lr"] = RATE * share
        starts = torch.randint(len(text) - CONTEXT - 1, (BATCH,), generator=generator)
        loss = loss_of(model, text, starts)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if step % 50 == 49 or step == steps - 1:
            spent = time.monotonic() - started
            print(
                f"step {step + 1}/{steps}: {loss.item():.3f} nats a byte, {spent:.0f} s of about"
                f" {spent * steps / (step + 1):.0f} s",
                flush=True,
            )
    return model


def rounded(model: Any) -> Checkpoint:
    """The model in BF16."""

    def bf16(weight: Tensor) -> Tensor:
        return weight.detach().to(torch.bfloat16)

    return Checkpoint(
        CONFIG,
        bf16(model.embedding),
        [{name: bf16(weight) for name, weight in block.items()} for block in model.blocks],
        bf16(model.norm),
    )


def files_of(checkpoint: Checkpoint) -> dict[str, bytes]:
    """Contents of the folder's files, as `transformers` names them."""
    from model.lm.huggingface import _BLOCK_NAMES, _EMBEDDING, _NORM

    config = checkpoint.config
    tensors = {_EMBEDDING: checkpoint.embedding, _NORM: checkpoint.norm}
    for layer, block in enumerate(checkpoint.blocks):
        for name, weight in block.items():
            tensors[f"model.layers.{layer}.{_BLOCK_NAMES[name]}.weight"] = weight
    fields = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": config.width,
        "intermediate_size": config.ff_width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_width,
        "vocab_size": config.vocabulary,
        "max_position_embeddings": config.max_positions,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_base,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": config.tied,
        "torch_dtype": "bfloat16",
    }
    return {
        SINGLE: save({name: weight.contiguous() for name, weight in tensors.items()}),
        "config.json": (json.dumps(fields, indent=2) + "\n").encode(),
    }


def main(argv: list[str] | None = None) -> int:
    """The command; with --check 1 where the weights are not those of the folder."""
    parser = argparse.ArgumentParser(
        prog="model.pydoc_llama.train", description="Trains the small Llama."
    )
    parser.add_argument("--check", action="store_true", help="compare with what is there")
    parser.add_argument("--steps", type=int, default=STEPS, help="for trials; %(default)s")
    arguments = parser.parse_args(argv)
    if arguments.steps < 1:
        parser.error(f"--steps must be at least 1, not {arguments.steps}")
    text = b"".join(bytes(part.numpy()) for part in corpus())
    print(
        f"Python {platform.python_version()}, torch {torch.__version__}; {len(text):,} bytes of"
        f" text, sha256 {hashlib.sha256(text).hexdigest()}"
    )
    checkpoint = rounded(train(arguments.steps))
    print(f"held-out topics: {held_out_loss(checkpoint):.3f} nats a byte, in BF16")
    files = files_of(checkpoint)
    digest = hashlib.sha256(files[SINGLE]).hexdigest()
    print(f"sha256 of {SINGLE}: {digest}, {len(files[SINGLE]):,} bytes")
    if arguments.check:
        same = all((FOLDER / name).read_bytes() == content for name, content in files.items())
        print(f"{'equal to' if same else 'differs from'} what is in {FOLDER.name}/")
        return 0 if same else 1
    for name, content in files.items():
        (FOLDER / name).write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
