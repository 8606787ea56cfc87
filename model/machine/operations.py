"""The commands of a step: each computes rows in the unified buffer with the golden arithmetic.

Every number that a command reads is checked first: an Inf or NaN is `Status.NUMBER`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from model.datapath import matmul
from model.datapath.special import argmax, residual_add, rms_norm, silu_times_up
from model.formats.bf16 import check_finite
from model.formats.commands import LINE_BYTES, Epilogue, Opcode, Region, Status
from model.formats.constants import TILE_N
from model.formats.planes import Bytes
from model.machine.checks import STEP_CHECKS, need
from model.machine.keys_and_values import attend, store
from model.machine.memory import Memory
from model.machine.state import Fault, State
from model.machine.weights import Weights

Fields = Mapping[str, int]


def bf16_of(data: Bytes) -> Tensor:
    """BF16 numbers of bytes."""
    return torch.from_numpy(data.copy()).view(torch.bfloat16)


def single_of(code: int) -> float:
    """The FP32 number of a code."""
    return float(struct.unpack("<f", struct.pack("<I", code))[0])


class Operations:
    """Runs the commands of a step.

    Args:
        state: rows, precision and bank.
        memory: what they read and write.
        weights: the memory's, decoded.

    Attributes:
        heard: told of each HEAD's argmax by row; None for nobody.
    """

    def __init__(self, state: State, memory: Memory, weights: Weights) -> None:
        self.state, self.memory, self.weights = state, memory, weights
        self.heard: Callable[[Mapping[int, int]], object] | None = None
        self._run: dict[Opcode, Callable[[Fields], None]] = {
            Opcode.FENCE: lambda fields: None,
            Opcode.EMBED: self._embed,
            Opcode.NORM: self._norm,
            Opcode.LINEAR: self._linear,
            Opcode.STORE: self._store,
            Opcode.ATTEND: lambda fields: attend(fields, self.state, self.memory),
            Opcode.HEAD: self._head,
        }

    def run(self, opcode: Opcode, fields: Fields) -> None:
        """Checks and runs a command; Fault where it cannot work."""
        STEP_CHECKS[opcode](fields, self.state, self.memory)
        try:
            self._run[opcode](fields)
        except ValueError as error:  # the golden functions refuse Inf and NaN
            raise Fault(Status.NUMBER, f"{opcode.name}: {error}") from error

    def _embed(self, fields: Fields) -> None:
        tiles = self.state.the_model.width_tiles
        rows = [
            bf16_of(self.memory.read("READ_EMBED", Region.EMBED, token * 2 * tiles, 2 * tiles))
            for token in self.state.tokens
        ]
        self.state.words(fields["target"], tiles).copy_(torch.stack(rows))

    def norm_weights(self, line: int, tiles: int) -> Tensor:
        """A vector of norm weights."""
        return bf16_of(self.memory.read("READ_NORM", Region.NORM, line, 2 * tiles))

    def _norm(self, fields: Fields) -> None:
        tiles = self.state.the_model.width_tiles
        result = rms_norm(
            self.state.words(fields["source"], tiles),
            self.norm_weights(fields["weights"], tiles),
            single_of(fields["eps"]),
            form="hardware",
        )
        self.state.words(fields["target"], tiles).copy_(result)

    def _product(self, inputs: Tensor, fields: Fields, out: str) -> Tensor:
        load = self.state.precision.w
        check_finite(inputs, "inputs")
        weight = self.weights.matrix(fields, self.state.the_model.p_full)
        self.weights.count(fields, load.p)
        return matmul(inputs.contiguous(), weight, p=load.p, reconstruct=load.reconstruct, out=out)

    def _linear(self, fields: Fields) -> None:
        state, epilogue = self.state, fields["epilogue"]
        inputs = state.words(fields["source"], fields["k_tiles"])
        result = self._product(inputs, fields, "bf16")
        tiles = fields["n_tiles"]
        if epilogue == Epilogue.SILU_UP:
            tiles //= 2
            gate, up = result.unflatten(-1, (tiles, 2, TILE_N)).unbind(-2)
            result = silu_times_up(gate, up, form="hardware").flatten(-2)
        target = state.words(fields["target"], tiles)
        if epilogue == Epilogue.RESIDUAL:
            result = residual_add(target, result, form="hardware")
        target.copy_(result)

    def _store(self, fields: Fields) -> None:
        model = self.state.the_model
        norms = None
        if model.qk_norm:
            heads = {"q_norm": model.heads, "k_norm": model.kv_heads}
            # The weights are read anew for each head.
            norms = tuple(
                [self.norm_weights(fields[name], model.head_tiles) for _ in range(count)].pop()
                for name, count in heads.items()
            )
        store(fields, self.state, self.memory, norms, single_of(fields["eps"]))

    def _head(self, fields: Fields) -> None:
        state, tiles = self.state, fields["n_tiles"]
        rows = state.last_rows() if fields["last_only"] else list(range(len(state.tokens)))
        inputs = state.words(fields["source"], fields["k_tiles"])[rows]
        logits = self._product(inputs, fields, "fp32")
        if fields["logits"]:
            row_bytes = 4 * tiles * LINE_BYTES
            for row, values in zip(rows, logits, strict=True):
                content = values.numpy().astype("<f4", copy=False).tobytes()
                self.memory.write("WRITE_LOGITS", Region.LOGITS, row * row_bytes, content)
        best = argmax(logits, state.the_model.vocabulary)
        live = logits[:, : state.the_model.vocabulary]
        need(bool(torch.isfinite(live).all()), Status.NUMBER, "HEAD: a logit is infinite")
        for row, token in zip(rows, best.tolist(), strict=True):
            state.argmax[row] = token
        if self.heard:
            self.heard(dict(zip(rows, best.tolist(), strict=True)))
