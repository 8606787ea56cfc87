"""The memory image: a model as the bytes that the chip reads.

An image is a manifest and the bytes of the regions that do not change while the chip runs; the
other regions begin as zeros. In a folder it is `image.bin` and `image.json`; neither ever exists in
half, and the manifest, written last, holds the digests of the bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from model.calibration.files import json_text, write_whole
from model.datapath.special import rope_table
from model.formats.bf16 import check_finite
from model.formats.bfp import Bfp
from model.formats.commands import LINE_BYTES, Region
from model.formats.constants import TILE_N
from model.formats.planes import Bytes, to_image
from model.lm.huggingface_config import read_json
from model.lm.stored import StoredModel
from model.machine.encode import step_list
from model.machine.layout import MATRICES, STATIC, Manifest
from model.machine.shape import MachineShape

#: Names of the files.
BYTES_FILE, MANIFEST_FILE = "image.bin", "image.json"

#: What an observer is told: a part that is done, of how many.
Progress = Callable[[int, int], None]


def side_by_side(parts: list[Bfp]) -> Bfp:
    """Weights with the same inputs, their outputs one behind the other."""
    return _joined(parts, lambda each: torch.cat(each, 1))


def alternating(first: Bfp, second: Bfp) -> Bfp:
    """Two weights of one shape, 64 outputs of each in turn."""

    def join(pair: list[Tensor]) -> Tensor:
        tiles = first.exponents.shape[1]
        split = [part.unflatten(1, (tiles, -1)) for part in pair]
        return torch.stack(split, 2).flatten(1)

    return _joined([first, second], join)


def _joined(parts: list[Bfp], join: Callable[[list[Tensor]], Tensor]) -> Bfp:
    exponents, signs, magnitudes = (
        join([getattr(part, name) for part in parts]).contiguous()
        for name in ("exponents", "signs", "magnitudes")
    )
    return Bfp(exponents, signs, magnitudes, 1, group=TILE_N, p_full=parts[0].p_full)


def little_endian(values: Tensor) -> Bytes:
    """The bytes of BF16 or 16-bit numbers."""
    codes = values.contiguous().view(torch.int16).numpy()
    return codes.astype("<i2", copy=False).view(np.uint8).reshape(-1)


@dataclass(frozen=True, eq=False)
class Image:
    """A model in memory.

    Attributes:
        manifest: where everything lies.
        data: uint8, the bytes of the static regions, from the manifest's base on.
    """

    manifest: Manifest
    data: Bytes

    @staticmethod
    def build(
        model: StoredModel,
        shape: MachineShape,
        *,
        capacity: int,
        sequences: int,
        base: int = 0,
        progress: Progress | None = None,
    ) -> Image:
        """Lays out a model.

        Args:
            model: the stored bits.
            shape: the chip's.
            capacity: positions of a sequence, a multiple of 64.
            sequences: to make room for.
            base: address of the first region, a multiple of 4096.
            progress: told of every matrix that is written.

        Raises:
            TypeError, ValueError: what the chip cannot hold, by name.
        """
        manifest = Manifest(
            config=model.config,
            p_full=model.p_full,
            shape=shape,
            capacity=capacity,
            sequences=sequences,
            base=base,
        )
        data = np.zeros(manifest.static_size, np.uint8)

        def put(region: Region, line: int, content: Bytes) -> None:
            extent = manifest.regions[region]
            assert line * LINE_BYTES + len(content) <= extent.lines * LINE_BYTES
            start = extent.base - manifest.base + line * LINE_BYTES
            data[start : start + len(content)] = content

        total = manifest.config.layers * len(MATRICES) + 1
        for done, (line, weight) in enumerate(_matrices(model, manifest)):
            put(Region.WEIGHTS, line, to_image(weight, tiles_per_block=shape.tiles_per_block))
            if progress is not None:
                progress(done + 1, total)
        check_finite(model.embedding, "embedding")
        put(Region.EMBED, 0, little_endian(model.embedding))
        for layer, norms in enumerate([*model.norms, {"norm": model.norm}]):
            for name, line in manifest.norms[layer].items():
                put(Region.NORM, line, little_endian(check_finite(norms[name], name)))
        config = model.config
        table = rope_table(capacity, config.head_width, config.rope_base, config.rope_scaling)
        pairs = torch.stack([table.cosines, table.sines], -1)
        put(Region.ROPE, 0, little_endian(pairs))
        put(Region.COMMANDS, 0, np.frombuffer(b"".join(step_list(manifest)), np.uint8))
        image = Image(manifest, data)
        return Image(replace(manifest, sha256=image.digests()), data)

    def region(self, region: Region) -> Bytes:
        """The bytes of a static region."""
        extent = self.manifest.regions[region]
        start = extent.base - self.manifest.base
        return self.data[start : start + extent.lines * LINE_BYTES]

    def digests(self) -> dict[str, str]:
        """SHA-256 of every static region, by name."""
        return {r.name: hashlib.sha256(self.region(r).tobytes()).hexdigest() for r in STATIC}

    def save(self, folder: str | Path) -> Path:
        """Writes both files; the manifest last, so that it vouches for the bytes."""
        folder = Path(folder)
        # An old manifest must not stand beside new bytes.
        (folder / MANIFEST_FILE).unlink(missing_ok=True)
        write_whole(folder / BYTES_FILE, self.data.tobytes())
        write_whole(folder / MANIFEST_FILE, json_text(self.manifest.as_json()))
        return folder

    @staticmethod
    def load(folder: str | Path) -> Image:
        """Reads both files.

        Raises:
            FileNotFoundError: a file is missing, by name.
            ValueError: a manifest or a region that is not what it was, by name.
        """
        folder = Path(folder)
        for name in (MANIFEST_FILE, BYTES_FILE):
            if not (folder / name).is_file():
                raise FileNotFoundError(f"{folder / name} is missing")
        path = folder / MANIFEST_FILE
        try:
            manifest = Manifest.of_json(read_json(path))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        path = folder / BYTES_FILE
        size = path.stat().st_size
        if size != manifest.static_size:
            raise ValueError(f"{path} must have {manifest.static_size} bytes, not {size}")
        image = Image(manifest, np.fromfile(path, np.uint8))
        for name, digest in image.digests().items():
            if manifest.sha256.get(name) != digest:
                raise ValueError(f"{path}: {name} must have the SHA-256 of the manifest")
        return image


def _matrices(model: StoredModel, manifest: Manifest) -> Iterator[tuple[int, Bfp]]:
    """First line and weight of every matrix."""
    for linears, places in zip(model.linears, manifest.matrices, strict=True):
        for name, parts in MATRICES.items():
            weights = [linears[part] for part in parts]
            if name == "gate_up":
                yield places[name].line, alternating(*weights)
            else:
                yield places[name].line, side_by_side(weights)
    yield manifest.head.line, model.head
