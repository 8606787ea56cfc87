"""A random model for whoever needs one, made once."""

from __future__ import annotations

import pytest

from model.lm.checkpoint import Checkpoint
from model.lm.random_model import TINY, random_checkpoint


@pytest.fixture(scope="session")
def tiny() -> Checkpoint:
    """The `TINY` shape with seed 0; treat it as read-only."""
    return random_checkpoint(TINY, 0)
