"""The program of the control processor: what `model.machine` says of commands, as instructions."""

from hw.control.program.main import program_of

__all__ = ["program_of"]
