"""Formal proofs: nothing is left out, each has a broken copy, and the page says what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from hw.chip import Chip
from hw.chip_config import CHIPS
from hw.control.assembler import Constant, Label, Port, Program, Register
from hw.library import Library, recording
from sim.faults import planted
from sim.formal import page
from sim.formal.bench import channels_of
from sim.formal.broken import BROKEN
from sim.formal.credits import CREDITS
from sim.formal.flow import Flow, is_counted, is_wait
from sim.formal.lengths import Broken, Machine, Sequence, round_of
from sim.formal.program import calls_return, no_branch_is_decided
from sim.formal.registry import PROOFS
from sim.formal.streams import STREAMS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "formal.md").read_text()


def test_every_broken_copy_has_its_proof_and_its_place() -> None:
    assert {fault.bench for fault in BROKEN} <= {proof.name for proof in PROOFS}
    for fault in BROKEN:
        path = ROOT / "hw" / fault.file
        assert planted(path.read_text(), fault) != path.read_text()


def test_every_proof_has_a_broken_copy() -> None:
    broken = {fault.bench.rsplit("_", 1)[0] for fault in BROKEN if "streams" not in fault.bench}
    for proof in PROOFS:
        kind = proof.name.rsplit("_", 1)[0]
        assert proof.deaf or kind in broken, proof.name


def test_tables() -> None:
    assert page.streams_table() in TEXT
    assert page.loops_table() in TEXT


@pytest.mark.slow
def test_table_of_surroundings() -> None:
    assert page.surroundings_table() in TEXT


@pytest.mark.slow
def test_every_module_of_the_chip_that_offers_something_has_its_proof() -> None:
    library = Library()
    with recording(library):
        library.add(Chip(CHIPS["tiny"]))
    proven = {type(one.make()).__name__ for one in STREAMS.values()}
    benches = [make() for make in CREDITS.values()]
    proven |= {type(bench.dut).__name__ for bench in benches if bench.rtlil()}
    with_streams = {
        type(module).__name__
        for module in library.modules.values()
        if any(source for _, source, *_ in channels_of(module, lambda member, field: None))
    }
    assert with_streams <= proven
    # Whoever looks at waves, or names a signal in a proof, finds it by its name.
    assert "$signal" not in library.rtlil()


class TestFlow:
    """The analysis of programs, on small ones whose answers are plain."""

    @staticmethod
    def flow(p: Program) -> Flow:
        return Flow(p.assemble(), p.names)

    def test_a_loop_that_counts(self) -> None:
        p = Program()
        i = p.register()
        p.set(i, 0)
        with p.while_(i < 5):
            p.set(i, i + 1)
        flow = self.flow(p)
        assert [is_counted(flow, loop) for loop in flow.loops()] == [True]

    def test_a_loop_whose_counter_is_set_back(self) -> None:
        p = Program()
        i, j = p.register(), p.register()
        with p.while_(i < 5):
            p.set(i, i + 1)
            with p.if_(j.is_(3)):
                p.set(i, 0)
        flow = self.flow(p)
        assert [is_counted(flow, loop) for loop in flow.loops()] == [False]

    def test_a_loop_that_does_not_always_count(self) -> None:
        p = Program()
        i, j = p.register(), p.register()
        with p.while_(i < 5), p.if_(j.is_(3)):
            p.set(i, i + 1)
        flow = self.flow(p)
        assert [is_counted(flow, loop) for loop in flow.loops()] == [False]

    def test_a_loop_whose_bound_moves(self) -> None:
        p = Program()
        i, j = p.register(), p.register()
        with p.while_(i < j):
            p.set(i, i + 1)
            p.set(j, j + 1)
        flow = self.flow(p)
        assert [is_counted(flow, loop) for loop in flow.loops()] == [False]

    def test_a_counter_that_a_function_changes(self) -> None:
        p = Program()
        begin = Label()
        p.jump(begin)
        i = p.register()
        with p.function("back", leaf=True):
            p.set(i, 0)
        p.place(begin)
        with p.while_(i < 5):
            p.set(i, i + 1)
            p.call("back")
        flow = self.flow(p)
        assert [is_counted(flow, loop) for loop in flow.loops()] == [False]

    def test_a_counter_in_memory_around_a_wait(self) -> None:
        p = Program()
        p.use_scratch(1024, 4)
        n = p.words()
        with p.while_(n < 5):
            again = Label()
            p.place(again)
            p.jump_if(Port(3).is_(0), again)
            p.set(n, n + 1)
        flow = self.flow(p)
        loops = list(flow.loops())
        assert [is_wait(flow, loop) for loop in loops] == [False]
        assert [is_counted(flow, loop) for loop in loops] == [True]

    def test_functions_that_call_each_other(self) -> None:
        p = Program()
        p.use_scratch(1024, 4)
        begin = Label()
        p.jump(begin)
        for name, other in (("a", "b"), ("b", "a")):
            with p.function(name):
                p.call(other)
        p.place(begin)
        p.call("a")
        p.jump(begin)
        assert not calls_return(self.flow(p))

    def test_a_branch_that_is_decided(self) -> None:
        p = Program()
        p.jump_if(p.register() >= Constant(0), begin := Label())
        p.place(begin)
        p.set(Register(12), 1)
        assert not no_branch_is_decided(self.flow(p))


@pytest.fixture(scope="module")
def machine() -> Machine:
    return Machine(CHIPS["small"])


class TestLengths:
    """A few rounds; the proof has all of them."""

    @pytest.mark.parametrize(
        "sequences",
        [
            {0: Sequence(length=0, limit=2, accepts=0, ends=99)},
            {3: Sequence(length=63, limit=128, accepts=4, ends=99)},
            {3: Sequence(length=63, limit=128, accepts=4, ends=2)},
            {0: Sequence(5, 9, 9, 99), 2: Sequence(62, 66, 1, 0), 7: Sequence(100, 102, 3, 99)},
        ],
    )
    def test_round(self, machine: Machine, sequences: dict[int, Sequence]) -> None:
        round_of(machine, sequences, 5)

    def test_a_wrong_limit_is_seen(self, machine: Machine) -> None:
        with pytest.raises(Broken, match="within_limit"):
            round_of(machine, {0: Sequence(length=9, limit=9, accepts=2, ends=99)}, 5)
