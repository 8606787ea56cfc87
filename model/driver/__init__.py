"""Drivers for hosts without this package's runtime: C beside this file, and a Python device."""

from __future__ import annotations

from pathlib import Path

#: Where the C driver lies.
FOLDER = Path(__file__).parent
