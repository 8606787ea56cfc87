"""Calibration: acceptance, the cost model, the precision lookup table."""
