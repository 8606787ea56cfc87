"""The memory image: every byte by an independent layout, files, and refusals."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hw.chip_config import CHIPS
from model.formats.bfp import Bfp
from model.formats.commands import COMMAND_BYTES, Region
from model.formats.planes import tile_exponents, tile_plane
from model.lm.config import ModelConfig
from model.lm.random_model import TINY, random_checkpoint
from model.lm.stored import store
from model.machine.encode import step_list
from model.machine.image import Image
from model.machine.layout import STATIC, Manifest
from model.machine.shape import PRESETS, MachineShape, preset
from tests.model.machine.chip import SEED, SMALL

SHAPE = PRESETS["small"]
WIDE = dataclasses.replace(
    TINY, family="qwen3", qk_norm=True, width=128, ff_width=576, heads=6, kv_heads=2,
    head_width=128, vocabulary=130, tied=False,
)  # fmt: skip


def built(config: ModelConfig = TINY, **more: Any) -> Image:
    options = {"capacity": 128, "sequences": 2, **more}
    return Image.build(store(random_checkpoint(config, SEED)), SHAPE, **options)


def matrix_bytes(columns: list[tuple[Bfp, int]], tiles_per_block: int) -> bytes:
    """A matrix whose n-tiles are the named ones of weights, tile by tile (contract section 10)."""
    content = b""
    for weight, n_tile in columns:
        k_tiles = -(-weight.shape[0] // 64)
        for first in range(0, k_tiles, tiles_per_block):
            block = range(first, min(first + tiles_per_block, k_tiles))
            for k in block:
                content += tile_exponents(weight, k_tile=k, n_tile=n_tile).tobytes()
            for plane in range(weight.p_full):
                for k in block:
                    content += tile_plane(weight, k_tile=k, n_tile=n_tile, plane=plane).tobytes()
    return content


def tiles(weight: Bfp) -> list[tuple[Bfp, int]]:
    return [(weight, n) for n in range(-(-weight.shape[1] // 64))]


@pytest.mark.parametrize("config", [TINY, WIDE], ids=["tiny", "wide"])
def test_weights_and_vectors(config: ModelConfig) -> None:
    model = store(random_checkpoint(config, SEED))
    image = built(config)
    place = 0
    weights = image.region(Region.WEIGHTS).tobytes()

    def comes(columns: list[tuple[Bfp, int]]) -> None:
        nonlocal place
        content = matrix_bytes(columns, 8)
        assert weights[place : place + len(content)] == content
        padded = -(-len(content) // 4096) * 4096
        assert not any(weights[place + len(content) : place + padded])
        place += padded

    for linears in model.linears:
        comes([column for name in "qkv" for column in tiles(linears[name])])
        comes(tiles(linears["o"]))
        pairs = zip(tiles(linears["gate"]), tiles(linears["up"]), strict=True)
        comes([column for pair in pairs for column in pair])
        comes(tiles(linears["down"]))
    comes(tiles(model.head))
    assert place == len(weights)
    names = ["attn_norm", "ffn_norm"] + ["q_norm", "k_norm"] * config.qk_norm
    vectors = [norms[name] for norms in model.norms for name in names] + [model.norm]
    codes = torch.cat(vectors).view(torch.int16).numpy().astype("<i2").tobytes()
    assert image.region(Region.NORM).tobytes() == codes
    embedding = model.embedding.view(torch.int16).numpy().astype("<i2").tobytes()
    assert image.region(Region.EMBED).tobytes() == embedding
    rope = image.region(Region.ROPE).view("<i2").reshape(128, -1, 2)
    assert np.array_equal(rope[..., 0], model.rope.cosines[:128].numpy())
    assert np.array_equal(rope[..., 1], model.rope.sines[:128].numpy())
    step = b"".join(step_list(image.manifest))
    assert image.region(Region.COMMANDS)[: len(step)].tobytes() == step
    assert len(step) <= image.manifest.jobs * COMMAND_BYTES


def test_regions() -> None:
    manifest = built(WIDE, base=8192).manifest
    end = 8192
    for region, extent in manifest.regions.items():
        assert extent.base % 4096 == 0
        assert extent.base == end, region
        end = -(-(extent.base + extent.lines * 64) // 4096) * 4096
    assert manifest.size == end - 8192
    assert [r for r in Region if r in STATIC] == list(Region)[: len(STATIC)]
    lines = {region.name: extent.lines for region, extent in manifest.regions.items()}
    # 2 sequences, 2 layers, 2 heads, 2 blocks, 2 tiles of 73 lines
    assert lines["KEYS"] == lines["VALUES"] == 2 * 2 * 2 * 2 * 2 * 73
    assert lines["OPEN_KEYS"] * 64 == 2 * 2 * 2 * 128 * 128 * 2
    assert lines["TOKENS"] * 64 == 2 * 128 * 4
    assert lines["LOGITS"] * 64 == 8 * 192 * 4
    assert lines["ROPE"] * 64 == 128 * 64 * 4
    assert [size for _, _, size in manifest.table()] == [64 * n for n in lines.values()]


def test_files(tmp_path: Path) -> None:
    image = built()
    image.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["image.bin", "image.json"]
    again = Image.load(tmp_path)
    assert again.manifest == image.manifest
    assert np.array_equal(again.data, image.data)
    path = tmp_path / "image.bin"
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(ValueError, match=rf"image.bin must have {len(data)} bytes, not"):
        Image.load(tmp_path)
    at = image.manifest.regions[Region.NORM].base
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with pytest.raises(ValueError, match="NORM must have the SHA-256 of the manifest"):
        Image.load(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"image.bin is missing"):
        Image.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: found.pop("capacity"), "must have all its keys: 'capacity'"),
        (lambda found: found["config"].pop("width"), "must have all its keys"),
        (lambda found: found["strides"].update(key_head=1), "strides must be"),
        (lambda found: found["regions"]["KEYS"].update(base=0), "regions must be"),
        (lambda found: found.update(capacity=100), "capacity must be a multiple of 64"),
        (lambda found: found["shape"].update(t_m=99), "t_m must be in 1..64, not 99"),
    ],
)
def test_manifests_that_are_not(tmp_path: Path, change: Any, message: str) -> None:
    built().save(tmp_path)
    path = tmp_path / "image.json"
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))
    with pytest.raises(ValueError, match=rf"image.json: .*{message}"):
        Image.load(tmp_path)


def test_a_failed_save_leaves_no_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = built()
    image.save(tmp_path)

    def full(self: Path, data: bytes) -> int:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="no space"):
        image.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["image.bin"]
    with pytest.raises(FileNotFoundError, match=r"image.json is missing"):
        Image.load(tmp_path)


def test_llama_scaling_survives_the_manifest() -> None:
    from model.lm.paper_models import PAPER_MODELS

    for config in PAPER_MODELS.values():
        manifest = Manifest(
            config=config, p_full=9, shape=PRESETS["paper"], capacity=1024, sequences=2
        )
        found = json.loads(json.dumps(manifest.as_json()))
        assert Manifest.of_json(found) == manifest


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"width": 96}, {}, "width must be a multiple of 64, not 96"),
    ({"ff_width": 100}, {}, "ff_width must be a multiple of 64, not 100"),
    ({"head_width": 80}, {}, "head_width must be 64 or 128, not 80"),
    ({"heads": 18, "kv_heads": 2}, {}, "heads / kv_heads must be at most t_m = 8, not 18 / 2"),
    ({"ff_width": 8192}, {}, "a row must fit 464 bank words, not 528: 4 of x, 12 of its norm"),
    ({}, {"capacity": 100}, "capacity must be a multiple of 64 up to 576"),
    ({}, {"capacity": 640}, "capacity must be a multiple of 64 up to 576 .*, not 640"),
    ({}, {"sequences": 9}, "sequences must be in 1..8, not 9"),
    ({}, {"base": 64}, "base must be a multiple of 4096, not 64"),
]


@pytest.mark.parametrize(("config", "more", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_refusals(config: dict[str, Any], more: dict[str, Any], message: str) -> None:
    shape = dataclasses.replace(TINY, **{"heads": 3, "kv_heads": 1, **config})
    with pytest.raises(ValueError, match=message):
        built(shape, **more)


def test_refusals_come_together() -> None:
    config = dataclasses.replace(SMALL, width=96, head_width=80)
    with pytest.raises(ValueError, match=r"width .*; head_width .*"):
        built(config)


def test_inf_among_what_stays_bf16() -> None:
    model = store(random_checkpoint(TINY, SEED))
    model.norms[1]["ffn_norm"][3] = torch.inf
    with pytest.raises(ValueError, match=r"ffn_norm\[3\] must be finite, not inf"):
        Image.build(model, SHAPE, capacity=128, sequences=1)


def test_shapes_of_chips() -> None:
    """Software and hardware speak of the same chips."""
    assert set(PRESETS) == set(CHIPS)
    for name, shape in PRESETS.items():
        assert preset(name) is shape
        chip = CHIPS[name]
        core = chip.core
        assert (shape.t_m, shape.p_max, shape.max_k) == (core.t_m, core.p_max, core.max_k)
        assert (shape.bank_words, shape.staging_words) == (chip.bank_words, chip.staging_words)
        assert (shape.sequences, shape.head_tiles_max) == (chip.sequences, chip.head_tiles_max)
        assert shape.tiles_per_block == chip.block_tiles
    with pytest.raises(ValueError, match="chip must be one of tiny, small, paper, not 'x'"):
        preset("x")
    with pytest.raises(ValueError, match=r"t_m must be in 1..64, not 65"):
        MachineShape(t_m=65, bank_words=1, sequences=1)
