"""The one error that this package raises for what a user can put right."""


class SynthError(Exception):
    """A mistake in the input, a missing file, a design that does not map: one clear line."""
