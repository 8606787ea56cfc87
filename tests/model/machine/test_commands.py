"""Every command that cannot work: its status, its line, and nothing written."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from model.formats import registers
from model.formats.commands import FIELDS, Opcode, Region, Status, pack, unpack
from model.formats.plt_layout import pack as pack_word
from model.machine.device import finish
from model.machine.encode import Segment, model_command, step_lines, step_list
from model.machine.jobs import Live, chunks, logits_job, prefill_jobs, round_job
from model.machine.layout import JOB_LINES
from model.machine.listing import listed, text
from model.machine.runtime import JobError
from model.machine.shape import PRESETS
from tests.model.machine.chip import SMALL, Chip, prompts_of

QWEN = dataclasses.replace(SMALL, family="qwen3", qk_norm=True)
S = Status
HALT = pack(Opcode.HALT, {})


@pytest.fixture(scope="module")
def chip() -> Chip:
    """A chip whose first sequence has a prompt; each case leaves it as it was."""
    made = Chip.of(QWEN)
    finish(made.host.prefill(prompts_of(97, (20, 9))))
    return made


def word(**fields: int) -> int:
    return pack_word({"p_w": 6, "p_kv": 6, "gamma": 2, "midpoint_w": 0, "midpoint_kv": 0,
                      "valid": 1, **fields})  # fmt: skip


def changed(command: bytes, **fields: int) -> bytes:
    """A command with other fields."""
    opcode, values = unpack(command)
    return pack(opcode, {**values, **fields})


def stops(chip: Chip, job: list[bytes], status: Status, at: int, list_line: int = -1) -> None:
    """Runs a job that must stop at its command `at`, or at a line of a list, without a write."""
    memory = chip.simulator.machine.memory
    before, traffic = memory.data.copy(), memory.traffic.copy()
    with pytest.raises(JobError) as stopped:
        finish(chip.host.run([*job, HALT]))
    line = list_line if list_line >= 0 else chip.image.manifest.jobs + at
    assert (stopped.value.status, stopped.value.line) == (status, line)
    first = chip.image.manifest.jobs * 64
    before[first : first + 64 * JOB_LINES] = memory.data[first : first + 64 * JOB_LINES]
    assert np.array_equal(memory.data, before)
    for name in traffic:
        if name.startswith("WRITE"):
            assert memory.traffic[name] == traffic[name]


ROWS = pack(Opcode.ROWS, {"segments": 1, "sequence_0": 0, "count_0": 2, "start_0": 3})
LIVE = pack(Opcode.SEQUENCE, {"live": 1, "sequence": 0, "length": 20, "limit": 40})

#: Control commands after MODEL: (those before, the bad one, status).
CONTROL: dict[str, tuple[list[bytes], bytes, Status]] = {
    "opcode": ([], bytes([0x08]) + bytes(63), S.UNKNOWN_COMMAND),
    "reserved": ([], HALT[:8] + b"\1" + HALT[9:], S.RESERVED_BITS),
    "step": ([ROWS], pack(Opcode.EMBED, {}), S.NESTED_LIST),
    "sequence": ([], changed(LIVE, sequence=8), S.SEQUENCE),
    "sequence-tokens": ([], changed(LIVE, sequence=2), S.REGION),
    "length": ([], changed(LIVE, live=0, length=193), S.CAPACITY),
    "limit": ([], changed(LIVE, limit=193), S.CAPACITY),
    "at-limit": ([], changed(LIVE, limit=21), S.CAPACITY),
    "no-segments": ([], pack(Opcode.ROWS, {}), S.ROWS),
    "segments": ([], pack(Opcode.ROWS, {"segments": 7}), S.ROWS),
    "append": ([], changed(ROWS, append=1), S.ROWS),
    "empty": ([], changed(ROWS, count_0=0), S.ROWS),
    "many": ([], changed(ROWS, count_0=9), S.ROWS),
    "many-appended": ([ROWS], changed(ROWS, append=1, sequence_0=1, count_0=7), S.ROWS),
    "twice": ([ROWS], changed(ROWS, append=1), S.SEQUENCE),
    "rows-sequence": ([], changed(ROWS, sequence_0=8), S.SEQUENCE),
    "rows-capacity": ([], changed(ROWS, start_0=191), S.CAPACITY),
    "precision": ([], changed(ROWS, precision=word(p_w=10)), S.PRECISION),
    "precision-kv": ([], changed(ROWS, precision=word(p_kv=4)), S.PRECISION),
    "precision-invalid": ([], changed(ROWS, precision=word(valid=0)), S.PRECISION),
    "precision-reserved": ([], changed(ROWS, precision=word() | 1 << 30), S.PRECISION),
    "call-no-rows": ([], pack(Opcode.CALL, {"count": 1}), S.ROWS),
    "call-empty": ([ROWS], pack(Opcode.CALL, {}), S.REGION),
    "call-region": ([ROWS], pack(Opcode.CALL, {"list": 5, "count": 1 << 20}), S.REGION),
    "commit-no-rows": ([], pack(Opcode.COMMIT, {}), S.ROWS),
    "commit-no-argmax": ([ROWS], pack(Opcode.COMMIT, {"append": 1}), S.ROWS),
    "round-ends": ([LIVE], pack(Opcode.ROUND, {"end_ids": 5, "count": 1}), S.TOKEN),
    "round-empty": ([LIVE], pack(Opcode.ROUND, {}), S.REGION),
    "round-table": ([LIVE], pack(Opcode.ROUND, {"count": 1}), S.PRECISION),
    "round-precision": (
        [LIVE],
        pack(Opcode.ROUND, {"count": 1, "precision": word(p_w=4)}),
        S.PRECISION,
    ),
    "round-trace": (
        [LIVE],
        pack(
            Opcode.ROUND,
            {"count": 1, "precision": word(), "trace": 1, "trace_entry": 128},
        ),
        S.REGION,
    ),
}


@pytest.mark.parametrize("name", CONTROL)
def test_control(chip: Chip, name: str) -> None:
    before, bad, status = CONTROL[name]
    job = [model_command(chip.image.manifest), *before, bad]
    stops(chip, job, status, len(job) - 1)


@pytest.mark.parametrize("opcode", [Opcode.SEQUENCE, Opcode.ROWS, Opcode.CALL, Opcode.COMMIT,
                                    Opcode.ROUND])  # fmt: skip
def test_no_model(opcode: Opcode) -> None:
    stops(Chip.of(QWEN), [pack(Opcode.FENCE, {}), pack(opcode, {})], S.NO_MODEL, 1)


MODEL_FIELDS = [
    ({"width_tiles": 0}, S.SHAPE),
    ({"width_tiles": 2049}, S.SHAPE),
    ({"kv_heads": 0}, S.SHAPE),
    ({"group": 0}, S.SHAPE),
    ({"group": 9}, S.SHAPE),
    ({"head_tiles": 0}, S.SHAPE),
    ({"head_tiles": 3}, S.SHAPE),
    ({"capacity": 0}, S.SHAPE),
    ({"capacity": 96}, S.SHAPE),
    ({"capacity": 1 << 18}, S.SHAPE),
    ({"vocabulary": 0}, S.SHAPE),
    ({"factor": 1}, S.SHAPE),
    ({"p_full": 8}, S.PRECISION),
    ({"p_full": 17}, S.PRECISION),
]


@pytest.mark.parametrize(("fields", "status"), MODEL_FIELDS, ids=str)
def test_model(chip: Chip, fields: dict[str, int], status: Status) -> None:
    stops(chip, [changed(model_command(chip.image.manifest), **fields)], status, 0)


BIG = (1 << 32) - 1
#: Commands of a step: (opcode, which of them in the step, other fields, status).
STEP: list[tuple[Opcode, int, dict[str, int], Status]] = [
    (Opcode.EMBED, 0, {"target": 477}, S.BANK),
    (Opcode.NORM, 0, {"source": 477}, S.BANK),
    (Opcode.NORM, 0, {"target": 3}, S.BANK),
    (Opcode.NORM, 0, {"weights": BIG}, S.REGION),
    (Opcode.NORM, 0, {"eps": 0}, S.NUMBER),
    (Opcode.NORM, 0, {"eps": 0x7F80_0000}, S.NUMBER),
    (Opcode.NORM, 0, {"inverse_width": 1}, S.SHAPE),
    (Opcode.LINEAR, 0, {"k_tiles": 0}, S.SHAPE),
    (Opcode.LINEAR, 0, {"k_tiles": 2049}, S.SHAPE),
    (Opcode.LINEAR, 0, {"n_tiles": 0}, S.SHAPE),
    (Opcode.LINEAR, 0, {"tiles_per_block": 0}, S.SHAPE),
    (Opcode.LINEAR, 0, {"tiles_per_block": 9}, S.SHAPE),
    (Opcode.LINEAR, 0, {"epilogue": 3}, S.SHAPE),
    (Opcode.LINEAR, 2, {"n_tiles": 1}, S.SHAPE),
    (Opcode.LINEAR, 0, {"n_tiles": 200}, S.BANK),
    (Opcode.LINEAR, 0, {"target": 7}, S.BANK),
    (Opcode.LINEAR, 0, {"weights": BIG}, S.REGION),
    (Opcode.STORE, 0, {"source": 465}, S.BANK),
    (Opcode.STORE, 0, {"keys": 1 << 20}, S.REGION),
    (Opcode.STORE, 0, {"values": 1 << 20}, S.REGION),
    (Opcode.STORE, 0, {"open_keys": 1 << 20}, S.REGION),
    (Opcode.STORE, 0, {"q_norm": 1 << 20}, S.REGION),
    (Opcode.STORE, 0, {"k_norm": 1 << 20}, S.REGION),
    (Opcode.STORE, 0, {"eps": 1 << 31}, S.NUMBER),
    (Opcode.STORE, 0, {"inverse_width": 0}, S.SHAPE),
    (Opcode.ATTEND, 0, {"source": 473}, S.BANK),
    (Opcode.ATTEND, 0, {"target": 9}, S.BANK),
    (Opcode.ATTEND, 0, {"keys": 1 << 20}, S.REGION),
    (Opcode.ATTEND, 0, {"values": 1 << 20}, S.REGION),
    (Opcode.ATTEND, 0, {"open_keys": 1 << 20}, S.REGION),
    (Opcode.HEAD, 0, {"n_tiles": 1}, S.SHAPE),
    (Opcode.HEAD, 0, {"k_tiles": 0}, S.SHAPE),
    (Opcode.HEAD, 0, {"source": 477}, S.BANK),
    (Opcode.HEAD, 0, {"weights": BIG}, S.REGION),
]


@pytest.mark.parametrize("case", STEP, ids=lambda case: f"{case[0].name}-{case[2]}")
def test_step(chip: Chip, case: tuple[Opcode, int, dict[str, int], Status]) -> None:
    opcode, which, fields, status = case
    manifest = chip.image.manifest
    found = [command for command in step_list(manifest) if command[0] == opcode][which]
    # The list lies behind the job: MODEL, ROWS, CALL, HALT, then the bad command.
    line = manifest.jobs + 4
    call = pack(Opcode.CALL, {"list": line, "count": 1})
    job = [model_command(manifest), ROWS, call, HALT, changed(found, **fields)]
    stops(chip, job, status, 0, line)


@pytest.mark.parametrize("opcode", [o for o in Opcode if o < Opcode.EMBED and o != Opcode.FENCE])
def test_nested(chip: Chip, opcode: Opcode) -> None:
    line = chip.image.manifest.jobs + 4
    call = pack(Opcode.CALL, {"list": line, "count": 1})
    job = [model_command(chip.image.manifest), ROWS, call, HALT, pack(opcode, {})]
    stops(chip, job, S.NESTED_LIST, 0, line)


def test_regions_that_are_too_small(chip: Chip) -> None:
    """EMBED, ROPE and LOGITS are checked by size; commands behind the end of COMMANDS are none."""
    manifest = chip.image.manifest
    steps = {command[0]: command for command in step_list(manifest)}  # the last HEAD: logits
    line = manifest.jobs + 4
    call = pack(Opcode.CALL, {"list": line, "count": 1})
    for region, opcode in ((Region.EMBED, Opcode.EMBED), (Region.ROPE, Opcode.STORE),
                           (Region.LOGITS, Opcode.HEAD)):  # fmt: skip
        size = 8 if region == Region.LOGITS else manifest.regions[region].lines
        chip.simulator.write_register("SIZE", size - 1, region)
        job = [model_command(manifest), ROWS, call, HALT, steps[opcode]]
        stops(chip, job, S.REGION, 0, line)
        chip.simulator.write_register("SIZE", manifest.regions[region].lines, region)
    lines = manifest.regions[Region.COMMANDS].lines
    chip.simulator.write_register("FIRST_COMMAND", lines)
    chip.simulator.write_register("CONTROL", 1)
    chip.simulator.wait()
    assert chip.simulator.read_register("STATUS") >> 8 == S.REGION
    assert chip.simulator.read_register("COMMAND_INDEX") == lines
    chip.simulator.write_register("CONTROL", 4)


def test_tokens_beyond_the_vocabulary(chip: Chip) -> None:
    manifest = chip.image.manifest
    kept = finish(chip.host.get_tokens(0, 20, 1))
    finish(chip.host.put_tokens(0, 20, [97]))
    stops(chip, [model_command(manifest), changed(ROWS, start_0=19)], S.TOKEN, 1)
    job = round_job(manifest, [Live(0, 20, 40)], rounds=1, word=word())
    stops(chip, job[:-1], S.TOKEN, 2)
    finish(chip.host.put_tokens(0, 20, kept))


def test_a_list_without_head(chip: Chip) -> None:
    """A ROUND needs an argmax of every row."""
    manifest = chip.image.manifest
    rounds = pack(Opcode.ROUND, {"list": 0, "count": 1, "precision": word()})
    stops(chip, [model_command(manifest), LIVE, rounds], S.ROWS, 2)
    lines = step_lines(manifest)
    head = lines.head(logits=False, last_only=True)[0]
    rounds = pack(Opcode.ROUND, {"list": head, "count": 1, "precision": word()})
    # The verification's three rows have one argmax; the drafts' single ones are enough.
    stops(chip, [model_command(manifest), LIVE, rounds], S.ROWS, 2)


def test_numbers(chip: Chip) -> None:
    """Inf or NaN among a command's inputs, or logits that overflow."""
    manifest = chip.image.manifest
    place = manifest.regions[Region.EMBED].base
    kept = chip.simulator.read(place, 128 * 97)
    for code in (0x7F80, 0xFF80, 0x7FC0):
        chip.simulator.write(place, code.to_bytes(2, "little") * (64 * 97))
        job = logits_job(manifest, [Segment(0, 0, 1)])
        stops(chip, job[:-1], S.NUMBER, 0, 1)  # NORM reads what EMBED brought
    chip.simulator.write(place, b"\x7f\x7f" * (64 * 97))
    head = step_lines(manifest).head(logits=False, last_only=False)[0]
    line = manifest.jobs + 4
    call = pack(Opcode.CALL, {"list": line, "count": 2})
    found = changed(step_list(manifest)[head], source=0)
    job = [model_command(manifest), ROWS, call, HALT, pack(Opcode.EMBED, {}), found]
    stops(chip, job, S.NUMBER, 0, line + 1)
    chip.simulator.write(place, kept)


def test_no_memory() -> None:
    """Regions that registers lay where no memory is: bus errors."""
    chip = Chip.of()
    manifest, simulator = chip.image.manifest, chip.simulator
    beyond = -(-manifest.size // 4096) * 4096
    job = logits_job(manifest, [Segment(0, 0, 1)])
    for region, status, line in ((Region.NORM, S.READ, 1), (Region.WEIGHTS, S.READ, 2),
                                 (Region.VALUES, S.WRITE, 3), (Region.OPEN_KEYS, S.WRITE, 3),
                                 (Region.LOGITS, S.WRITE, -1)):  # fmt: skip
        simulator.write_register("BASE", beyond, region)
        with pytest.raises(JobError) as stopped:
            finish(chip.host.run(job))
        head = step_lines(manifest).head(logits=True, last_only=False)[0]
        assert (stopped.value.status, stopped.value.line) == (status, head if line < 0 else line)
        simulator.write_register("BASE", manifest.regions[region].base, region)
    finish(chip.host.run(job))


def test_abort_at_every_command() -> None:
    chip = Chip.of()
    manifest, simulator = chip.image.manifest, chip.simulator
    prompts = prompts_of(97, (9,))
    finish(chip.host.put_tokens(0, 0, prompts[0]))
    (job,) = prefill_jobs(manifest, {0: (0, 9)})
    simulator.write(manifest.jobs * 64, b"".join(job))
    simulator.write_register("FIRST_COMMAND", manifest.jobs)
    commands = 0
    while True:
        simulator.write_register("CONTROL", registers.pack("CONTROL", start=1))
        for _ in range(commands + 1):
            simulator.advance()
        if not simulator.busy:
            break
        line = simulator.read_register("COMMAND_INDEX")
        with pytest.raises(ValueError, match="while a job runs"):
            simulator.write_register("FIRST_COMMAND", 0)
        with pytest.raises(ValueError, match="nothing but abort"):
            simulator.write_register("CONTROL", registers.pack("CONTROL", start=1))
        simulator.write_register("CONTROL", registers.pack("CONTROL", abort=1))
        assert simulator.busy
        assert not simulator.advance()
        word_ = registers.unpack("STATUS", simulator.read_register("STATUS"))
        assert word_ == {"busy": 0, "status": S.ABORTED}
        assert simulator.read_register("COMMAND_INDEX") == line
        assert simulator.read_register("IRQ_PENDING") == 1
        with pytest.raises(ValueError, match="status OK, not ABORTED"):
            simulator.write_register("CONTROL", registers.pack("CONTROL", start=1))
        simulator.write_register("CONTROL", registers.pack("CONTROL", clear=1))
        commands += 1
    # MODEL; ROWS, CALL and 9 of the list for either chunk; two CALLs of one; COMMIT; HALT.
    assert commands == 1 + 2 * 11 + 4 + 1 + 1
    assert simulator.read_register("STATUS") == 0
    assert finish(chip.host.generate(prompts, max_new=3, word=word())).sequences[0].tokens


def test_every_status_is_reached() -> None:
    reached = {status for _, _, status in CONTROL.values()} | {case[3] for case in STEP}
    reached |= {status for _, status in MODEL_FIELDS}
    reached |= {S.OK, S.NO_MODEL, S.TOKEN, S.READ, S.WRITE, S.ABORTED}  # by the tests above
    assert reached == set(Status)


def test_encoder(chip: Chip) -> None:
    manifest = chip.image.manifest
    commands = step_list(manifest)
    for command in commands:
        assert pack(*unpack(command)) == command
    lines = step_lines(manifest)
    names = [Opcode(command[0]).name for command in commands]
    assert names[slice(*lines.layers)] == (
        ["EMBED", "NORM", "LINEAR", "STORE", "ATTEND", "LINEAR", "NORM", "LINEAR", "LINEAR"]
    )
    assert names[lines.norm[0] :] == ["NORM", "HEAD", "HEAD", "HEAD", "HEAD"]
    assert sum(lines.whole) - 1 == lines.head(logits=False, last_only=False)[0]
    for logits in (False, True):
        for last_only in (False, True):
            fields = unpack(commands[lines.head(logits=logits, last_only=last_only)[0]])[1]
            assert (fields["logits"], fields["last_only"]) == (logits, last_only)


@pytest.mark.parametrize("rows", [1, 2, 8, 32])
def test_chunks(rows: int) -> None:
    """Every row once, in order; no step too large; none that ends one sequence and not another."""
    wanted = {0: (0, 33), 1: (5, 1), 2: (0, 8), 3: (7, 0), 4: (64, 9)}
    seen: dict[int, list[int]] = {s: [] for s, (_, count) in wanted.items() if count}
    for segments, final in chunks(rows, wanted):
        assert sum(segment.rows for segment in segments) <= rows
        assert len({segment.sequence for segment in segments}) == len(segments)
        for segment in segments:
            seen[segment.sequence] += range(segment.start, segment.start + segment.rows)
            start, count = wanted[segment.sequence]
            assert (segment.start + segment.rows == start + count) == final
    assert seen == {s: [*range(a, a + n)] for s, (a, n) in wanted.items() if n}


def test_long_prompts_are_several_jobs() -> None:
    manifest = Chip.of(shape=PRESETS["tiny"]).image.manifest
    jobs = prefill_jobs(manifest, {0: (0, 1190), 1: (0, 190)})
    assert [len(job) <= JOB_LINES for job in jobs] == [True, True]
    assert all(job[0][0] == Opcode.MODEL and job[-1] == HALT for job in jobs)


def test_listing(chip: Chip) -> None:
    manifest = chip.image.manifest
    job = round_job(manifest, [Live(0, 20, 40)], rounds=3, word=word(midpoint_kv=1), end_ids=(2,))
    shown = text(listed(b"".join(job), 7))
    assert "     7  MODEL     qk_norm 1, p_full 9, width_tiles 1" in shown
    assert "factor_exponent -20" in shown
    assert "precision W6KV6m gamma 2, rounds 3, end_ids 1, end_id_0 2" in shown
    assert shown.splitlines()[-1].split() == ["10", "HALT"]
    assert "epilogue SILU_UP" in text(listed(b"".join(step_list(manifest))))
    with pytest.raises(ValueError, match="line 1: opcode"):
        listed(HALT + b"\xff" * 64)
    with pytest.raises(ValueError, match="multiple of 64 bytes, not 63"):
        listed(HALT[1:])


def test_no_two_fields_share_a_bit() -> None:
    for opcode, fields in FIELDS.items():
        taken: set[tuple[int, int]] = {(0, bit) for bit in range(8)}
        for name, field in fields.items():
            mine = {(field.word, bit) for bit in range(field.low, field.low + field.width)}
            assert not mine & taken, (opcode, name)
            assert field.low + field.width <= 32
            taken |= mine
