"""Commands with bits flipped at random: a status or a result, and no byte outside its region."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from model.formats import registers
from model.formats.commands import Region, Status
from model.lm.precision import Precision
from model.machine.device import finish
from model.machine.encode import step_list
from model.machine.jobs import Live, precision_word, round_job
from model.machine.layout import STATIC
from sim.flips import every_command, flipped
from tests.model.machine.chip import SEED, Chip, prompts_of

WRITABLE = tuple(region for region in Region if region not in STATIC)


@pytest.mark.parametrize("part", ["job", "step"])
def test_flipped_bits(part: str) -> None:
    print(f"seed {SEED}")
    generator = np.random.default_rng([SEED, len(part)])
    chip = Chip.of(base=4096)
    manifest, simulator = chip.image.manifest, chip.simulator
    finish(chip.host.prefill(prompts_of(97, (30, 70))))
    memory = simulator.machine.memory.data
    inside = np.zeros(len(memory), bool)
    for region in WRITABLE:
        extent = manifest.regions[region]
        inside[extent.base : extent.base + extent.lines * 64] = True
    job = every_command(manifest, (3, 4))
    step = step_list(manifest)
    start = manifest.regions[Region.COMMANDS].base
    seen: Counter[Status] = Counter()
    kept = memory.copy()
    for number in range(100):
        memory[:] = kept
        commands = job if part == "job" else step
        changed = flipped(commands, generator, int(number > 0))
        simulator.write(start + manifest.jobs * 64, b"".join(changed if part == "job" else job))
        if part == "step":
            simulator.write(start, b"".join(changed))
        before = memory.copy()
        simulator.write_register("FIRST_COMMAND", manifest.jobs)
        simulator.write_register("CONTROL", registers.pack("CONTROL", start=1))
        for _ in range(2000):
            if not simulator.advance():
                break
        if simulator.busy:  # a ROUND or list that was made longer
            simulator.write_register("CONTROL", registers.pack("CONTROL", abort=1))
            simulator.wait()
        word = registers.unpack("STATUS", simulator.read_register("STATUS"))
        seen[Status(word["status"])] += 1
        assert number or word["status"] == Status.OK  # nothing was flipped yet
        simulator.write_register("CONTROL", registers.pack("CONTROL", clear=1))
        assert np.array_equal(memory[~inside], before[~inside])
    print(seen)
    assert len(seen) >= 5


def test_an_aborted_round_can_be_taken_up_again() -> None:
    """Lengths and tokens are those of the last whole round, wherever the host stops."""
    chip = Chip.of()
    manifest, simulator = chip.image.manifest, chip.simulator
    prompts = prompts_of(97, (60, 21))
    word = precision_word(Precision.parse("W6KV6"), 3)
    limits = [len(prompt) + 10 for prompt in prompts]
    finish(chip.host.prefill(prompts))
    live = [Live(b, len(prompts[b]), limits[b]) for b in range(2)]
    finish(chip.host.rounds(live, 64, word=word))
    expected = [finish(chip.host.get_tokens(b, 0, limits[b])) for b in range(2)]
    line = manifest.jobs
    for stop in (3, 5, 30, 47, 60):
        finish(chip.host.prefill(prompts))
        job = round_job(manifest, live, rounds=0, word=word, trace_entry=0)
        simulator.write(manifest.regions[Region.COMMANDS].base + line * 64, b"".join(job))
        simulator.write_register("FIRST_COMMAND", line)
        simulator.write_register("CONTROL", registers.pack("CONTROL", start=1))
        for _ in range(stop):
            assert simulator.advance()
        simulator.write_register("CONTROL", registers.pack("CONTROL", abort=1))
        simulator.wait()
        simulator.write_register("CONTROL", registers.pack("CONTROL", clear=1))
        read = simulator.read_register
        again = [
            Live(b, max(read("LENGTH", b), len(prompts[b])), limits[b])
            for b in range(2)
            if read("COUNT", b) < limits[b]
        ]
        finish(chip.host.rounds(again, 64, word=word))
        assert [finish(chip.host.get_tokens(b, 0, limits[b])) for b in range(2)] == expected
