"""The cycle model: the parts of the chip as processes that wait for each other."""

from model.machine.cycles.chip import Parts, Stalls
from model.machine.cycles.timing import Timing

__all__ = ["Parts", "Stalls", "Timing"]
