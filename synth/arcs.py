"""Delays, slopes and setup times from the tables of a cell."""

from synth.liberty import Arc, Cell

RISE, FALL = 0, 1
COMBINATIONAL = ("combinational", "combinational_rise", "combinational_fall")
#: (edge of the input, edge of the output) pairs by Liberty's timing sense.
SENSES = {
    "positive_unate": ((RISE, RISE), (FALL, FALL)),
    "negative_unate": ((FALL, RISE), (RISE, FALL)),
    "non_unate": ((RISE, RISE), (FALL, RISE), (RISE, FALL), (FALL, FALL)),
}
DELAY, SLOPE = ("cell_rise", "cell_fall"), ("rise_transition", "fall_transition")


def read(arc: Arc, name: str, slope: float, load: float) -> float:
    table = arc.tables.get(name)
    return table.at(slope, load) if table else 0.0


def read_both(arc: Arc, edge: int, slope: float, load: float) -> tuple[float, float]:
    """(delay, slope) of an output edge; both tables mostly have the same axes."""
    delay, transition = arc.tables.get(DELAY[edge]), arc.tables.get(SLOPE[edge])
    if delay is None or transition is None:
        return read(arc, DELAY[edge], slope, load), slope
    place = delay.locate(slope, load)
    if transition.rows is delay.rows and transition.columns is delay.columns:
        return delay.read(place), transition.read(place)
    return delay.read(place), transition.at(slope, load)


def setup(cell: Cell, pin: str, clock: float, slope: float) -> float:
    """The setup time of a data pin, 0 where the library gives none."""
    needs = [
        table.at(clock, slope)
        for arc in cell.pins[pin].arcs
        if arc.kind.startswith(("setup", "recovery"))
        for table in arc.tables.values()
    ]
    return max(needs, default=0.0)
