"""What a parent needs of a module's timing, and the longest paths that are reported of it."""

from dataclasses import dataclass, field

from synth.netlist import Key

#: The arrival of what never arrives.
NEVER = float("-inf")
NOTHING: frozenset[str] = frozenset()


@dataclass
class Output:
    """An output bit: latest arrival from a register, its slope, and ns a pF of further load."""

    arrival: float
    slope: float
    resistance: float
    start: str
    via: frozenset[str] = NOTHING


@dataclass
class Model:
    """What a parent sees of a module."""

    load: dict[Key, float] = field(default_factory=dict)
    to_register: dict[Key, float] = field(default_factory=dict)
    to_register_via: dict[Key, frozenset[str]] = field(default_factory=dict)
    outputs: dict[Key, Output] = field(default_factory=dict)
    through: dict[Key, dict[Key, float]] = field(default_factory=dict)


@dataclass
class Paths:
    """The longest path of a module by kind, in ns; None where there is none.

    Inside runs from register to register, in and out from and to the module's border, through from
    border to border; a path that goes on outside is longer and is found in the parent. Via
    names the modules below that the inside path runs through.
    """

    inside: float | None
    into: float | None
    out: float | None
    through: float | None
    start: str = ""
    end: str = ""
    via: tuple[str, ...] = ()
    overloaded: int = 0

    @property
    def longest(self) -> float:
        return max(
            x for x in (self.inside, self.into, self.out, self.through, 0.0) if x is not None
        )
