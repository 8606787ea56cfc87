"""Files that are whole or absent, and JSON without doubt."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_whole(path: Path, content: str | bytes) -> Path:
    """Writes a file under another name first, so that nobody meets half of it.

    Args:
        path: in a folder that is made where it is missing.
        content: text (UTF-8, lines end in a line feed) or bytes.

    Returns:
        The path.

    Raises:
        OSError: it can't be written; nothing of it is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def json_text(value: Any) -> str:
    """JSON as this project's files hold it; ValueError for NaN or Inf, which JSON has not."""
    return json.dumps(value, indent=1, allow_nan=False) + "\n"
