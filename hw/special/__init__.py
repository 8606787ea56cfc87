"""Special functions of one row: one slice of the special function unit, streaming."""
