"""The list of deliberate faults fits the hardware as it is."""

from __future__ import annotations

import pytest

from sim.build import ROOT
from sim.fault_list import Fault
from sim.faults import FAULTS, StaleFault, planted


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.bench}: {fault.what}")
def test_every_fault_can_be_planted(fault: Fault) -> None:
    text = (ROOT / "hw" / fault.file).read_text()
    assert planted(text, fault) != text


def test_no_two_faults_have_one_name() -> None:
    names = [(fault.bench, fault.what) for fault in FAULTS]
    assert len(set(names)) == len(names)


def test_a_fault_that_fits_nowhere_is_refused() -> None:
    with pytest.raises(StaleFault, match="must occur once"):
        planted("a = 1\n", Fault("none", "array", "x.py", "b = 2", "b = 3"))
