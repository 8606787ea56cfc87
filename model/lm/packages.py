"""Files inside installed packages that are taken for their data and never imported."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def package_file(package: str, inside: str) -> Path:
    """The path of a file of a package.

    Args:
        package: its import name.
        inside: the file's path in the package.

    Raises:
        FileNotFoundError: the package is not installed, or has no such file.
    """
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / inside
        if path.is_file():
            return path
    raise FileNotFoundError(f"package {package} with {inside} is not installed: make setup")
