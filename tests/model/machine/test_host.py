"""What a host sees beyond tokens: registers of sequences, limits of a round, lists, refusals."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from model.decoding.loop import LIMIT, Options
from model.formats import registers
from model.formats.commands import Opcode, Region, Status, pack
from model.lm.precision import Precision
from model.machine.device import finish
from model.machine.draft import MachineDraft
from model.machine.encode import Segment, model_command, step_lines, step_list
from model.machine.jobs import Live, precision_word, rows_commands
from model.machine.runtime import Host, JobError
from model.machine.shape import PRESETS
from tests.model.machine.chip import SMALL, Chip, prompts_of

HALT = pack(Opcode.HALT, {})


@pytest.fixture(scope="module")
def chip() -> Chip:
    return Chip.of()


def windows(chip: Chip, sequence: int) -> tuple[int, int, dict[str, int]]:
    """LENGTH, COUNT and STATE of a sequence."""
    read = chip.simulator.read_register
    state = registers.unpack("STATE", read("STATE", sequence))
    return read("LENGTH", sequence), read("COUNT", sequence), state


def test_windows_of_a_sequence(chip: Chip) -> None:
    prompts = prompts_of(97, (30, 9))
    finish(chip.host.prefill(prompts))
    resting = {"live": 0, "end": 0, "limit": 0}
    assert windows(chip, 0) == (30, 31, resting)
    assert windows(chip, 1) == (9, 10, resting)
    word = precision_word(Precision.parse("W9KV9"), 3)
    live = [Live(0, 30, 36), Live(1, 9, 60)]
    entries = finish(chip.host.rounds(live, 1, word=word))
    # All are accepted: three drafts and the bonus.
    assert windows(chip, 0) == (34, 35, {**resting, "live": 1})
    assert windows(chip, 1) == (13, 14, {**resting, "live": 1})
    assert [entry.words["total"] for entry in entries] == [39, 39]
    entries = finish(chip.host.rounds([Live(0, 34, 36), Live(1, 13, 60)], 2, word=word))
    # The first one has room for no draft; then the other one is alone.
    assert windows(chip, 0) == (35, 36, {**resting, "limit": 1})
    assert [(e.words["round"], e.words["sequence"], e.words["drafted"]) for e in entries] == [
        (0, 0, 0), (0, 1, 3), (1, 1, 3)
    ]  # fmt: skip
    tokens = finish(chip.host.get_tokens(1, 10, 12))
    places = set()
    for wanted in range(12):
        ends = (tokens[wanted],)
        end = finish(chip.host.rounds([Live(1, 9, 60)], 4, word=word, end_ids=ends))
        place = tokens.index(tokens[wanted])
        places.add(place % 4)
        assert windows(chip, 1)[1:] == (11 + place, {**resting, "end": 1})
        assert sum(entry.words["emitted"] for entry in end) == place + 1
    assert len(places) > 2  # of a round's four tokens


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 8])
def test_gamma_is_what_fits_the_rows(batch: int) -> None:
    """The table asks for 7; T_M / live - 1 fits, more as sequences end."""
    chip = Chip.of(sequences=8)
    prompts = prompts_of(97, [12 + i for i in range(batch)])
    word = precision_word(Precision.parse("W9KV9"), 7)
    finish(chip.host.prefill(prompts))
    live = [Live(b, len(prompts[b]), len(prompts[b]) + (3 if b else 60)) for b in range(batch)]
    entries = finish(chip.host.rounds(live, 4, word=word))
    for number in range(4):
        each = [entry.words for entry in entries if entry.words["round"] == number]
        gamma = 8 // len(each) - 1
        for words in each:
            length, limit = words["length"], live[words["sequence"]].limit
            assert words["drafted"] == min(gamma, limit - length - 2)
    limited = finish(chip.host.rounds([Live(0, 12, 60)], 1, word=word, gamma_limit=2))
    assert limited[0].words["drafted"] == 2


def test_batch_of_four_equals_each_alone() -> None:
    chip = Chip.of(dataclasses.replace(SMALL, heads=4, kv_heads=2), sequences=4)
    prompts = prompts_of(97, (61, 3, 64, 118))
    found = chip.same(prompts, "W6KV6", Options(gamma=1, max_new=8))
    for prompt, text in zip(prompts, found.sequences, strict=True):
        alone = chip.run([prompt], "W6KV6", 1, Options(max_new=8)).sequences[0]
        assert (alone.tokens, alone.rounds[1:]) == (
            text.tokens,
            [dataclasses.replace(r, sequence=0) for r in text.rounds][1:],
        )


def test_a_midpoint_of_all_bits_is_the_exact_value(chip: Chip) -> None:
    prompts = prompts_of(97, (70,))
    finish(chip.host.prefill(prompts))
    rows = [Segment(0, 66, 4)]
    full = finish(chip.host.logits(rows))[0]
    assert torch.equal(finish(chip.host.logits(rows, Precision.parse("W9mKV9m")))[0], full)
    for text in ("W8KV9", "W9KV8", "W9KV8m"):
        assert not torch.equal(finish(chip.host.logits(rows, Precision.parse(text)))[0], full)


def test_weights_that_are_written_anew_are_read_anew() -> None:
    chip = Chip.of()
    finish(chip.host.prefill(prompts_of(97, (9,))))
    rows = [Segment(0, 8, 1)]
    first = finish(chip.host.logits(rows))[0]
    place = chip.image.manifest.regions[Region.WEIGHTS].base + chip.image.manifest.head.line * 64
    kept = chip.simulator.read(place + 64, 512)
    chip.simulator.write(place + 64, bytes(byte ^ 0xFF for byte in kept))  # signs of the head
    assert torch.equal(finish(chip.host.logits(rows))[0][:, :64], -first[:, :64])
    chip.simulator.write(place + 64, kept)
    assert torch.equal(finish(chip.host.logits(rows))[0], first)


def test_last_rows_only(chip: Chip) -> None:
    prompts = prompts_of(97, (20, 20))
    finish(chip.host.prefill(prompts))
    rows = [Segment(0, 17, 3), Segment(1, 15, 5)]
    every = finish(chip.host.logits(rows))
    last = finish(chip.host.logits(rows, last_only=True))
    assert {s: len(logits) for s, logits in last.items()} == {0: 1, 1: 1}
    for s in (0, 1):
        assert torch.equal(last[s][0], every[s][-1])
    assert finish(chip.host.logits(rows, head=False)) == {}


def test_padded_columns_do_not_win() -> None:
    """Logits that are all negative: the padding's +0 would be the largest."""
    config = dataclasses.replace(SMALL, tied=False)
    chip = Chip.of(config)
    extent = chip.image.manifest.regions[Region.WEIGHTS]
    head = chip.image.manifest.head
    tile, k_tiles = 64 + 512 * 9, head.k_tiles
    start = extent.base + head.line * 64
    for n_tile in range(head.n_tiles):  # all signs negative; the padded columns hold 0
        block = start + n_tile * k_tiles * tile
        signs = bytes([255] * 8) * 64 if n_tile == 0 else (b"\xff" * 4 + b"\x01" + bytes(3)) * 64
        chip.simulator.write(block + 64, signs)
    place = chip.image.manifest.regions[Region.EMBED].base
    chip.simulator.write(place, b"\x80\x3f" * (64 * 97))  # ones
    finish(chip.host.put_tokens(0, 0, [5]))
    step = step_list(chip.image.manifest)
    line = chip.image.manifest.jobs + 6
    lines = step_lines(chip.image.manifest)
    logits = step[lines.head(logits=True, last_only=False)[0]]
    bank = chip.image.manifest.bank
    own = [pack(Opcode.EMBED, {"target": bank.side}), pack(Opcode.FENCE, {}), logits]
    job = [
        model_command(chip.image.manifest),
        *rows_commands([Segment(0, 0, 1)], None),
        pack(Opcode.CALL, {"list": line, "count": 3}),
        pack(Opcode.COMMIT, {"append": 1}),
        pack(Opcode.FENCE, {}),
        HALT,
    ]
    finish(chip.host.run([*job, *own]))
    found = chip.bytes_of(Region.LOGITS)[: 128 * 4].view("<f4")
    assert (found[:97] < 0).all()
    assert (found[97:] == 0).all()
    assert finish(chip.host.get_tokens(0, 1, 1)) == [int(found[:97].argmax())]


def test_a_host_of_another_chip(chip: Chip) -> None:
    other = Chip.of(shape=PRESETS["tiny"])
    with pytest.raises(ValueError, match="CONFIG must be 0x8021008 for this image, not 0x2021002"):
        finish(Host(other.host.device, chip.image.manifest).load(chip.image))


def test_what_a_host_refuses(chip: Chip) -> None:
    host = chip.host
    for prompts, message in (
        ([], r"prompts must be in 1..2, not 0"),
        ([[1], [1], [1]], r"prompts must be in 1..2, not 3"),
        ([[1], []], r"prompts\[1\] must have 1..191 tokens, not 0"),
        ([[1] * 192], r"prompts\[0\] must have 1..191 tokens, not 192"),
        ([[1, 97]], r"prompts\[0\]\[1\] must be in 0..96, not 97"),
    ):
        with pytest.raises(ValueError, match=message):
            finish(host.prefill(prompts))
    with pytest.raises(ValueError, match="end_ids must be at most 4, not 5"):
        finish(host.rounds([Live(0, 1, 9)], 1, end_ids=(1, 2, 3, 4, 5)))
    with pytest.raises(ValueError, match=r"count must be in 1..64, not 65"):
        finish(host.rounds([Live(0, 1, 9)], 65))
    with pytest.raises(ValueError, match="a lookup table must have 64 bytes, not 63"):
        finish(host.load_table(bytes(63)))
    with pytest.raises(JobError, match="the job stopped at command 66: PRECISION"):
        finish(host.generate([[1]], max_new=4))  # no lookup table was loaded
    assert chip.simulator.why == ""  # cleared with the status
    found = finish(host.generate([[1]], max_new=1))
    assert found.sequences[0].reason == LIMIT


def test_what_a_draft_on_a_chip_refuses(chip: Chip) -> None:
    draft = MachineDraft(chip.host, None)
    draft.start(1, 64)
    with pytest.raises(ValueError, match="none has no draft"):
        draft.draft([[1]])
    with pytest.raises(NotImplementedError, match="laws of a given text"):
        draft.teacher_forced([[1]], [[2]])
    with pytest.raises(NotImplementedError, match="none cannot go back"):
        draft.rewind([0])
    with pytest.raises(ValueError, match=r"batch must be in 1..2, not 3"):
        draft.start(3, 64)


def test_a_status_is_kept_until_it_is_cleared(chip: Chip) -> None:
    simulator, line = chip.simulator, chip.image.manifest.jobs
    simulator.write(line * 64, bytes([8]) + bytes(63) + HALT)
    simulator.write_register("FIRST_COMMAND", line)
    simulator.write_register("CONTROL", registers.pack("CONTROL", start=1))
    assert simulator.busy
    simulator.wait()
    for _ in range(2):
        word = registers.unpack("STATUS", simulator.read_register("STATUS"))
        assert word == {"busy": 0, "status": Status.UNKNOWN_COMMAND}
        assert simulator.why
    simulator.write_register("CONTROL", registers.pack("CONTROL", clear=1))
    assert simulator.read_register("STATUS") == 0
