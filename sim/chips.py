"""Chips of the benches: the memories and ports that go with a core's configuration."""

from __future__ import annotations

import dataclasses

from hw.chip_config import CHIPS, ChipConfig
from hw.config import Config

#: Memories and ports of configurations that are no presets.
_MORE = {
    "slice": {"ports": 4, "port_bits": 256, "ring_rows": 128, "bank_words": 128, "sequences": 2},
    "odd": {"ports": 2, "port_bits": 128, "ring_rows": 64, "bank_words": 104, "sequences": 3},
}


def chip_of(core: Config) -> ChipConfig:
    """The chip of a core; its slices take results as they leave the array.

    Raises
    ------
    KeyError
        If no chip goes with a configuration of this name.
    """
    core = dataclasses.replace(core, special_elements=core.drain)
    if core.name in CHIPS:
        return dataclasses.replace(CHIPS[core.name], core=core)
    return ChipConfig(core=core, **_MORE[core.name])
