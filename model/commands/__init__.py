"""Commands that join several rooms of the model."""
