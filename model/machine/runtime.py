"""What a host does: loads an image, writes jobs, starts them, reads what they left.

The same code drives every `Device`. Greedy decoding runs whole on the chip: the host writes a
prompt, then a ROUND, and reads tokens and trace. For sampled decoding the chip gives logits and the
host accepts (`model.machine.draft`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from model.decoding.loop import CONTEXT, END, LIMIT, Listener, Round, Text
from model.formats import registers
from model.formats.checks import check_int
from model.formats.commands import LINE_BYTES, Region, Status
from model.formats.plt_layout import IMAGE_BYTES, WORD_BYTES
from model.formats.registers import EVENTS, PLANES, TRAFFIC
from model.lm.precision import Precision
from model.machine.device import Device
from model.machine.encode import Segment
from model.machine.image import Image
from model.machine.jobs import Job, Live, logits_job, prefill_jobs, round_job
from model.machine.layout import TRACE_ROUNDS, Manifest
from model.machine.trace import ENTRY_BYTES, Entry


class JobError(OSError):
    """A job that stopped.

    Attributes:
        status: why.
        line: of the command that stopped it, in COMMANDS.
    """

    def __init__(self, status: Status, line: int) -> None:
        super().__init__(f"the job stopped at command {line}: {status.name}")
        self.status, self.line = status, line


@dataclass
class Counters:
    """The chip's counters.

    Attributes:
        traffic: bytes, by the names of `TRAFFIC`.
        planes: bytes of each plane of weights.
        events: by the names of `EVENTS`.
    """

    traffic: dict[str, int]
    planes: list[int]
    events: dict[str, int]

    @property
    def total(self) -> dict[str, int]:
        """All bytes, "READ" and "WRITE"."""
        found = {"READ": sum(self.planes), "WRITE": 0}
        for name, count in self.traffic.items():
            found[name.partition("_")[0]] += count
        return found


@dataclass
class Generated:
    """What `Host.generate` returns.

    Attributes:
        sequences: one for each prompt.
        entries: of the trace, in order.
    """

    sequences: list[Text] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)


class Host:
    """A host of one chip.

    Args:
        device: the chip.
        manifest: of the image that is or will be loaded.

    Attributes:
        context: most positions of a sequence: those that the model was made for, or one less than
            the capacity, which keeps a place for the token behind.
    """

    def __init__(self, device: Device, manifest: Manifest) -> None:
        self.device, self.manifest = device, manifest
        self.context = min(manifest.config.max_positions, manifest.capacity - 1)

    def _address(self, region: Region, offset: int) -> int:
        return self.manifest.regions[region].base + offset

    async def load(self, image: Image) -> None:
        """Writes an image and the registers of its regions.

        Raises:
            ValueError: a chip that the image is not made for, by register.
        """
        for name, wanted in self.manifest.shape.registers().items():
            given = await self.device.read_register(name)
            if given != wanted:
                raise ValueError(f"{name} must be {wanted:#x} for this image, not {given:#x}")
        for region, extent in self.manifest.regions.items():
            await self.device.write_register("BASE", extent.base, region)
            await self.device.write_register("SIZE", extent.lines, region)
        await self.device.write(self.manifest.base, image.data.tobytes())

    async def load_table(self, image: bytes) -> None:
        """Writes the lookup table.

        Raises:
            ValueError: not 64 bytes.
        """
        if len(image) != IMAGE_BYTES:
            raise ValueError(f"a lookup table must have {IMAGE_BYTES} bytes, not {len(image)}")
        for entry in range(IMAGE_BYTES // WORD_BYTES):
            word = image[entry * WORD_BYTES : (entry + 1) * WORD_BYTES]
            await self.device.write_register("PLT", int.from_bytes(word, "little"), entry)

    async def run(self, job: Job) -> None:
        """Writes a job, starts it and waits.

        Raises:
            JobError: it stopped; the status is cleared.
        """
        line = self.manifest.jobs
        await self.device.write(self._address(Region.COMMANDS, line * LINE_BYTES), b"".join(job))
        await self.device.write_register("FIRST_COMMAND", line)
        await self._control(start=1)
        await self.device.wait()
        await self.device.write_register("IRQ_PENDING", 1)
        word = await self.device.read_register("STATUS")
        status = Status(registers.unpack("STATUS", word)["status"])
        if status != Status.OK:
            index = await self.device.read_register("COMMAND_INDEX")
            await self._control(clear=1)
            raise JobError(status, index)

    async def _control(self, **bits: int) -> None:
        await self.device.write_register("CONTROL", registers.pack("CONTROL", **bits))

    async def counters(self, *, clear: bool = False) -> Counters:
        """Reads the counters, and clears them if asked."""
        read = self.device.read_register
        found = Counters(
            {name: await read(name) for name in TRAFFIC},
            [await read("READ_PLANES", plane) for plane in range(PLANES)],
            {name: await read(name) for name in EVENTS},
        )
        if clear:
            await self._control(clear_counters=1)
        return found

    def _token_address(self, sequence: int, position: int) -> int:
        return self._address(Region.TOKENS, 4 * (sequence * self.manifest.capacity + position))

    async def put_tokens(self, sequence: int, position: int, tokens: Sequence[int]) -> None:
        """Writes tokens of a sequence, from a position on."""
        data = np.asarray(tokens, "<u4").tobytes()
        await self.device.write(self._token_address(sequence, position), data)

    async def get_tokens(self, sequence: int, position: int, count: int) -> list[int]:
        """Reads tokens of a sequence, from a position on."""
        data = await self.device.read(self._token_address(sequence, position), 4 * count)
        return [int(token) for token in np.frombuffer(data, "<u4")]

    async def prefill(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        """Feeds prompts to sequences 0, 1, ..; returns each one's first token.

        Raises:
            TypeError, ValueError: a prompt that is empty, too long or holds no token, by index.
        """
        self._check_prompts(prompts)
        for sequence, prompt in enumerate(prompts):
            await self.put_tokens(sequence, 0, prompt)
        wanted = {s: (0, len(prompt)) for s, prompt in enumerate(prompts)}
        for job in prefill_jobs(self.manifest, wanted):
            await self.run(job)
        return [
            (await self.get_tokens(sequence, len(prompt), 1))[0]
            for sequence, prompt in enumerate(prompts)
        ]

    def _check_prompts(self, prompts: Sequence[Sequence[int]]) -> None:
        check_int("prompts", len(prompts), 1, self.manifest.sequences)
        for b, prompt in enumerate(prompts):
            if not 1 <= len(prompt) <= self.context:
                raise ValueError(
                    f"prompts[{b}] must have 1..{self.context} tokens, not {len(prompt)}"
                )
            for t, token in enumerate(prompt):
                check_int(f"prompts[{b}][{t}]", token, 0, self.manifest.config.vocabulary - 1)

    async def rounds(
        self,
        live: Sequence[Live],
        count: int,
        *,
        word: int = 0,
        gamma_limit: int = 0,
        end_ids: Sequence[int] = (),
    ) -> list[Entry]:
        """Runs rounds of greedy decoding whole on the chip.

        Args:
            live: sequences, their lengths and limits.
            count: most rounds, 1..64.
            word: precision and gamma; 0 for the lookup table.
            gamma_limit: most drafted tokens, 0 for the word's.
            end_ids: tokens that end a text, 4 at most.

        Returns:
            What each round did to each sequence.

        Raises:
            JobError: the chip stopped.
        """
        check_int("count", count, 1, TRACE_ROUNDS)
        job = round_job(
            self.manifest,
            live,
            rounds=count,
            word=word,
            gamma_limit=gamma_limit,
            end_ids=end_ids,
            trace_entry=0,
        )
        await self.run(job)
        entries = await self.device.read_register("TRACE_NEXT")
        data = await self.device.read(self._address(Region.TRACE, 0), entries * ENTRY_BYTES)
        return [
            Entry.unpack(data[first : first + ENTRY_BYTES])
            for first in range(0, len(data), ENTRY_BYTES)
        ]

    async def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_new: int,
        word: int = 0,
        gamma_limit: int = 0,
        end_ids: Sequence[int] = (),
        listener: Listener | None = None,
        rounds_a_job: int = 1,
    ) -> Generated:
        """Decodes a batch of prompts greedily.

        Args:
            prompts: tokens of each sequence, at least one each.
            max_new: most new tokens of a sequence.
            word, gamma_limit, end_ids: as in `rounds`.
            listener: told of new tokens after each job, as by `model.decoding.loop`.
            rounds_a_job: the chip works so long without the host.

        Raises:
            TypeError, ValueError: an argument, by name.
            JobError: the chip stopped.
        """
        check_int("max_new", max_new, 1, 1 << 31)
        result = Generated([Text() for _ in prompts])
        limits = [min(len(prompt) + max_new, self.context + 1) for prompt in prompts]
        lengths = [len(prompt) for prompt in prompts]

        def ended(b: int, *, at_end: bool) -> str:
            if at_end:
                return END
            if len(result.sequences[b].tokens) >= max_new:
                return LIMIT
            return CONTEXT if lengths[b] + 1 >= limits[b] else ""

        for b, token in enumerate(await self.prefill(prompts)):
            result.sequences[b].tokens.append(token)
            result.sequences[b].reason = ended(b, at_end=token in end_ids)
            if listener is not None:
                listener(b, (token,), None)
        while live := [
            Live(b, lengths[b], limits[b])
            for b, text in enumerate(result.sequences)
            if not text.reason
        ]:
            entries = await self.rounds(
                live, rounds_a_job, word=word, gamma_limit=gamma_limit, end_ids=end_ids
            )
            result.entries += entries
            for entry in entries:
                round_ = as_round(entry)
                b, text = round_.sequence, result.sequences[round_.sequence]
                text.rounds.append(round_)
                text.tokens += round_.emitted
                lengths[b] += round_.accepted + 1
                state = registers.unpack("STATE", entry.words["state"])
                if not state["live"]:
                    text.reason = ended(b, at_end=bool(state["end"]))
                if listener is not None:
                    listener(b, round_.emitted, round_)
        return result

    async def logits(
        self,
        segments: Sequence[Segment],
        precision: Precision | None = None,
        *,
        head: bool = True,
        last_only: bool = False,
    ) -> Mapping[int, Tensor]:
        """Runs one step on rows whose tokens are in TOKENS.

        Args:
            segments: rows, T_M at most.
            precision: of the step; None for all planes.
            head: whether logits are wanted at all.
            last_only: only those behind each segment's last row.

        Returns:
            For each sequence its logits: float32 (rows, vocabulary); none without the head.

        Raises:
            JobError: the chip stopped.
        """
        await self.run(
            logits_job(self.manifest, segments, precision, head=head, last_only=last_only)
        )
        found: dict[int, Tensor] = {}
        row_bytes = self.manifest.vocabulary_tiles * 4 * LINE_BYTES
        first = 0
        for segment in segments if head else ():
            rows = slice(first + segment.rows - 1 if last_only else first, first + segment.rows)
            first += segment.rows
            data = await self.device.read(
                self._address(Region.LOGITS, rows.start * row_bytes),
                (rows.stop - rows.start) * row_bytes,
            )
            numbers = np.frombuffer(data, "<f4").astype(np.float32).reshape(-1, row_bytes // 4)
            wanted = numbers[:, : self.manifest.config.vocabulary]
            found[segment.sequence] = torch.from_numpy(wanted.copy())
        return found


def as_round(entry: Entry) -> Round:
    """A trace entry as `model.decoding.loop` reports a round."""
    words = entry.words
    new = (*entry.tokens[: words["accepted"]], words["token"])
    return Round(
        sequence=words["sequence"],
        drafted=entry.tokens,
        accepted=words["accepted"],
        token=words["token"],
        emitted=new[: words["emitted"]],
        length=words["length"],
    )
