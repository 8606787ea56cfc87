"""Where external tools are found."""

from __future__ import annotations

import os
from pathlib import Path

#: Root of the project's tree.
ROOT = Path(__file__).resolve().parent.parent
#: The Verilator that set-up brought, where the system has none that is new enough.
OWN_VERILATOR = ROOT / ".tools" / "verilator" / "bin"


def search_path() -> str:
    """``PATH`` with the project's own tools in front."""
    return os.pathsep.join([str(OWN_VERILATOR), os.environ.get("PATH", os.defpath)])
