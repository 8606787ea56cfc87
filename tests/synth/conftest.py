"""A build folder shared by the tests of one run, and two libraries: with timing and without."""

from pathlib import Path

import pytest

from synth import libraries
from synth.libraries import Library

# A library small enough to check by hand. Delay = intrinsic + 10 ns/pF * load, whatever the slope.
CELLS = {
    "inv": (1.0, "y", "!a", 0.010),
    "buf": (1.5, "y", "a", 0.020),
    "nand2": (2.0, "y", "!(a b)", 0.020),
    "nor2": (2.0, "y", "!(a+b)", 0.030),
    "xor2": (5.0, "y", "a^b", 0.060),
    "tri_big": (0.0, "y", "a b", 0.010),
}
SETUP, CLOCK_TO_Q, RESISTANCE, PIN = 0.05, 0.1, 10.0, 0.001


def _tables(intrinsic: float) -> str:
    delay = ", ".join(f"{intrinsic + RESISTANCE * load:.4f}" for load in (0.0, 0.1))
    rows = f'"{delay}", "{delay}"'
    slope = '"0.01, 0.01", "0.01, 0.01"'
    return "".join(
        f"{name} (t) {{ values ({rows}); }}\n" for name in ("cell_rise", "cell_fall")
    ) + ("".join(f"{name} (t) {{ values ({slope}); }}\n" for name in _TRANSITIONS))


_TRANSITIONS = ("rise_transition", "fall_transition")


def _gate(name: str) -> str:
    area, out, function, intrinsic = CELLS[name]
    inputs = sorted({c for c in function if c.isalpha()})
    pins = "".join(f"pin ({p}) {{ direction : input; capacitance : {PIN}; }}\n" for p in inputs)
    arcs = "".join(
        f'timing () {{ related_pin : "{p}"; timing_sense : non_unate;\n{_tables(intrinsic)} }}\n'
        for p in inputs
    )
    return (
        f"cell ({name}) {{ area : {area};\n{pins}"
        f'pin ({out}) {{ direction : output; function : "{function}"; max_capacitance : 1;\n'
        f"{arcs} }} }}\n"
    )


def _flop() -> str:
    setup = f'"{SETUP}, {SETUP}", "{SETUP}, {SETUP}"'
    constraint = (
        f"rise_constraint (c) {{ values ({setup}); }} fall_constraint (c) {{ values ({setup}); }}"
    )
    return f"""
    cell (dff) {{ area : 6;
      ff (IQ, IQN) {{ next_state : "d"; clocked_on : "ck"; }}
      pin (ck) {{ direction : input; capacitance : {PIN}; clock : true; }}
      pin (d) {{ direction : input; capacitance : {PIN};
        timing () {{ related_pin : "ck"; timing_type : setup_rising; {constraint} }} }}
      pin (q) {{ direction : output; function : "IQ"; max_capacitance : 1;
        timing () {{ related_pin : "ck"; timing_type : rising_edge;
        {_tables(CLOCK_TO_Q)} }} }} }}
    """


def liberty_text(without: tuple[str, ...] = ()) -> str:
    """The library above, some cells left out."""
    gates = "".join(_gate(name) for name in CELLS if name not in without)
    return f"""
    library (toy) {{
      delay_model : table_lookup; time_unit : "1ns"; capacitive_load_unit (1, pf);
      lu_table_template (t) {{ variable_1 : input_net_transition;
        variable_2 : total_output_net_capacitance; index_1 ("0.0, 1.0"); index_2 ("0.0, 0.1"); }}
      lu_table_template (c) {{ variable_1 : related_pin_transition;
        variable_2 : constrained_pin_transition; index_1 ("0.0, 1.0"); index_2 ("0.0, 1.0"); }}
      {gates} {_flop()}
    }}
    """


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("synth")


@pytest.fixture(scope="session")
def toy(build: Path) -> Library:
    path = build / "toy.lib"
    path.write_text(liberty_text(without=("tri_big",)))
    return libraries.load(path)


@pytest.fixture(scope="session")
def sky130(build: Path) -> Library:
    return libraries.default(build)
