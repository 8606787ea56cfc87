"""Results of a measurement on disk: JSON lines, appended whole, resumed from.

The first line holds the settings; every other one the result of a task. A line is written with one
call and forced to disk, so that a run that is stopped leaves whole lines and at most one torn one
at the end, which the next run cuts off. A file of other settings is refused, never mixed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class ResultFile:
    """An open file of results.

    Args:
        path: made if it is not there.
        settings: JSON; must be those of the file if it has any.

    Attributes:
        results: by key, in the order of the file.

    Raises:
        ValueError: the file has other settings, or a line that is none of ours, by number.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.results: dict[str, dict[str, Any]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._settings = json.loads(json.dumps(settings))
        if path.exists():
            self._read()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if os.fstat(self._file).st_size == 0:
            self._append({"settings": self._settings})

    def _read(self) -> None:
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        for number, line in enumerate(data[:whole].splitlines(), 1):
            try:
                entry = json.loads(line)
                if number == 1:
                    given = entry["settings"]
                else:
                    self.results[entry["key"]] = entry
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{self.path}:{number} is not a line of results") from error
            if number == 1 and given != self._settings:
                names = sorted(
                    name
                    for name in given.keys() | self._settings.keys()
                    if given.get(name) != self._settings.get(name)
                )
                raise ValueError(
                    f"{self.path} holds a measurement with another {', '.join(names)}: give "
                    f"another --out, or remove the file to start anew"
                )
        if whole < len(data):
            os.truncate(self.path, whole)

    def add(self, result: dict[str, Any]) -> None:
        """Appends the result of a task; one that is there already changes nothing."""
        if result["key"] not in self.results:
            self._append(result)
            self.results[result["key"]] = json.loads(json.dumps(result))

    def _append(self, entry: Mapping[str, Any]) -> None:
        line = json.dumps(entry, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        written = os.write(self._file, line)
        if written != len(line):
            raise OSError(f"{self.path}: only {written} of {len(line)} bytes were written")
        os.fsync(self._file)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)
