"""What a bench is told by the runner, and what it reports back; both through files."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hw.config import Config

_VARIABLE = "BSSPEC_BENCH"


@dataclass
class Environment:
    """Configuration, seed and size of a bench run.

    Attributes
    ----------
    config : Config
    seed : int
    quick : bool
        The short form, for ``make test``.
    report_path : Path
        Where the bench's records go, a JSON line each.
    options : dict
        What else the runner wants a bench to know.
    """

    config: Config
    seed: int
    quick: bool
    report_path: Path
    options: dict[str, Any] = field(default_factory=dict)

    def scale(self, quick: int, full: int) -> int:
        """A count that depends on the form of the run."""
        return quick if self.quick else full

    def report(
        self, part: str, *, transactions: int, cycles: int, seed: int, measured: str = ""
    ) -> None:
        """Records a part of the bench that ended without a mismatch, and what it measured."""
        record = {
            "part": part,
            "transactions": transactions,
            "cycles": cycles,
            "seed": seed,
            "measured": measured,
        }
        with self.report_path.open("a") as handle:
            handle.write(json.dumps(record) + "\n")

    def to_env(self) -> dict[str, str]:
        """Environment variables for the simulation process."""
        text = json.dumps(
            {
                "config": dataclasses.asdict(self.config),
                "seed": self.seed,
                "quick": self.quick,
                "report_path": str(self.report_path),
                "options": self.options,
            }
        )
        return {_VARIABLE: text}

    @classmethod
    def get(cls) -> Environment:
        """The environment of this simulation process."""
        fields = json.loads(os.environ[_VARIABLE])
        return cls(
            config=Config(**fields["config"]),
            seed=fields["seed"],
            quick=fields["quick"],
            report_path=Path(fields["report_path"]),
            options=fields["options"],
        )
