"""The commands of a model: MODEL, and its step.

The step lies at the start of COMMANDS:

    the layers | NORM | HEAD | HEAD last_only | HEAD logits | HEAD logits last_only

A ROUND, and a CALL for argmaxes, run it up to the first HEAD. A chunk of a prompt calls the layers;
for the last one another CALL runs NORM, and a third one the HEAD that is wanted: the bank keeps
what lies between.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from model.formats.commands import Epilogue, Opcode, pack
from model.formats.special_tables import score_factor
from model.machine.layout import LAYER_COMMANDS, Manifest


class Segment(NamedTuple):
    """Neighbouring rows of one sequence.

    Attributes:
        sequence: which one.
        start: position of the first row.
        rows: how many.
    """

    sequence: int
    start: int
    rows: int


def fp32(value: float) -> int:
    """The code of `value` rounded to FP32."""
    return int.from_bytes(struct.pack("<f", value), "little")


def model_command(manifest: Manifest) -> bytes:
    """MODEL."""
    factor = score_factor(manifest.config.head_width)
    return pack(
        Opcode.MODEL,
        {
            "qk_norm": int(manifest.config.qk_norm),
            "p_full": manifest.p_full,
            "width_tiles": manifest.width_tiles,
            "kv_heads": manifest.config.kv_heads,
            "group": manifest.group,
            "head_tiles": manifest.head_tiles,
            "capacity": manifest.capacity,
            "factor": factor.integer,
            "factor_exponent": factor.exponent & 0x3F,
            "key_head": manifest.key_head,
            "key_sequence": manifest.key_sequence,
            "value_channels": manifest.value_channels,
            "value_head": manifest.value_head,
            "value_sequence": manifest.value_sequence,
            "open_sequence": manifest.open_sequence,
            "vocabulary": manifest.config.vocabulary,
        },
    )


def _norm(manifest: Manifest, weights: int) -> bytes:
    bank = manifest.bank
    return pack(
        Opcode.NORM,
        {
            "weights": weights,
            "source": bank.x,
            "target": bank.side,
            "eps": fp32(manifest.config.norm_eps),
            "inverse_width": fp32(1 / manifest.config.width),
        },
    )


def _layer(manifest: Manifest, layer: int) -> list[bytes]:
    config, bank = manifest.config, manifest.bank
    norms = manifest.norms[layer]
    cache = {
        "keys": layer * manifest.key_layer,
        "values": layer * manifest.value_layer,
        "open_keys": layer * manifest.open_layer,
    }

    def linear(name: str, source: int, target: int, epilogue: Epilogue) -> bytes:
        matrix = manifest.matrices[layer][name]
        return pack(
            Opcode.LINEAR,
            {
                "epilogue": int(epilogue),
                "weights": matrix.line,
                "k_tiles": matrix.k_tiles,
                "n_tiles": matrix.n_tiles,
                "source": source,
                "tiles_per_block": manifest.shape.tiles_per_block,
                "target": target,
            },
        )

    store = {
        **cache,
        "source": bank.wide,
        "q_norm": norms.get("q_norm", 0),
        "k_norm": norms.get("k_norm", 0),
        "eps": fp32(config.norm_eps),
        "inverse_width": fp32(1 / config.head_width),
    }
    return [
        _norm(manifest, norms["attn_norm"]),
        linear("qkv", bank.side, bank.wide, Epilogue.NONE),
        pack(Opcode.STORE, store),
        pack(Opcode.ATTEND, {**cache, "source": bank.wide, "target": bank.side}),
        linear("o", bank.side, bank.x, Epilogue.RESIDUAL),
        _norm(manifest, norms["ffn_norm"]),
        linear("gate_up", bank.side, bank.wide, Epilogue.SILU_UP),
        linear("down", bank.wide, bank.x, Epilogue.RESIDUAL),
    ]


class StepLines(NamedTuple):
    """Where the parts of the step lie: (first line, commands).

    Attributes:
        layers: the embedding and the layers.
        norm: the last norm.
        whole: layers, norm, and the head for argmaxes.
    """

    layers: tuple[int, int]
    norm: tuple[int, int]
    whole: tuple[int, int]

    def head(self, *, logits: bool, last_only: bool) -> tuple[int, int]:
        """The head in one of its forms."""
        return self.norm[0] + 1 + last_only + 2 * logits, 1


def step_lines(manifest: Manifest) -> StepLines:
    """Where the parts of the step lie."""
    layers = 1 + manifest.config.layers * LAYER_COMMANDS
    return StepLines((0, layers), (layers, 1), (0, layers + 2))


def step_list(manifest: Manifest) -> list[bytes]:
    """The step, from line 0 on."""
    commands = [pack(Opcode.EMBED, {"target": manifest.bank.x})]
    for layer in range(manifest.config.layers):
        commands += _layer(manifest, layer)
    commands.append(_norm(manifest, manifest.norms[-1]["norm"]))
    head = {
        "weights": manifest.head.line,
        "k_tiles": manifest.head.k_tiles,
        "n_tiles": manifest.head.n_tiles,
        "source": manifest.bank.side,
        "tiles_per_block": manifest.shape.tiles_per_block,
    }
    for logits in (0, 1):
        for last_only in (0, 1):
            commands.append(pack(Opcode.HEAD, {**head, "logits": logits, "last_only": last_only}))
    return commands
