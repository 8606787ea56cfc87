"""Yosys in a child process: an error of Yosys can end the process that it runs in."""

import json
import os
import re
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path

from synth.errors import SynthError

# Only this runs in the child: pass after pass of the script, the output as it comes.
_CHILD = """
import sys
from pyosys import libyosys as yosys
yosys.run_pass("script " + sys.argv[1], yosys.Design())
"""


@cache
def version() -> str:
    """The version of Yosys, which moves areas by a per cent or so."""
    try:
        return metadata.version("pyosys")
    except metadata.PackageNotFoundError:
        raise SynthError("pyosys is not installed (make setup)") from None


def run(script: str, folder: Path, name: str) -> str:
    """Run a Yosys script in `folder` (as its current one) and return what it printed.

    Raises SynthError with Yosys's own words where it stops; the whole output is `name`.log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.ys").write_text(script)
    log = folder / f"{name}.log"
    environment = {**os.environ, "TMPDIR": str(folder.resolve())}
    with log.open("w") as output:
        process = subprocess.run(
            [sys.executable, "-c", _CHILD, f"{name}.ys"],
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            check=False,
        )
    text = log.read_text(errors="replace")
    hit = re.search(r"^(.*)\bERROR: (.*)", text, re.MULTILINE)
    if hit or process.returncode:
        words = f"{hit[1]}{hit[2]}" if hit else f"Yosys ended with code {process.returncode}"
        raise SynthError(f"{name}: {words} (all of it: {log})")
    return text


def read_json(path: Path) -> dict:
    """A JSON file that Yosys wrote; `stat -json` leaves commas that JSON does not have."""
    text = path.read_text()
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return json.loads(re.sub(r",(\s*[}\]])", r"\1", text))
