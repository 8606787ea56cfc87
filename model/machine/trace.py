"""Trace entries: what a round did to a sequence, for the host to read.

An entry is a header of 16 words and then the drafted tokens, 48 at most.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from model.formats.commands import COMMAND_WORDS, LINE_BYTES, TRACE_LINES

ENTRY_BYTES = TRACE_LINES * LINE_BYTES
ENTRY_WORDS = ENTRY_BYTES // 4
#: Drafted tokens that an entry has room for.
TOKENS_MAX = ENTRY_WORDS - COMMAND_WORDS

#: The header's words; what is not named is 0.
WORDS = {
    "round": "of the ROUND command, from 0",
    "sequence": "which one",
    "length": "committed tokens before the round",
    "drafted": "tokens drafted",
    "accepted": "of them",
    "token": "the target's token behind the accepted ones",
    "emitted": "new tokens, cut at the sequence's end",
    "state": "the bits of STATE after the round",
    "word": "word of the lookup table that the round used",
    "total": "committed tokens of all live sequences before it",
    "cycles_low": "CYCLES at its end, the lower half; 0 in the simulator",
    "cycles_high": "the upper half",
}
#: Words that the simulator leaves 0.
TIMED_WORDS = ("cycles_low", "cycles_high")


@dataclass(frozen=True)
class Entry:
    """A trace entry.

    Attributes:
        words: the header, by the names of `WORDS`; those of `TIMED_WORDS` may be left out.
        tokens: drafted.
    """

    words: dict[str, int]
    tokens: tuple[int, ...]

    @property
    def cycles(self) -> int:
        """CYCLES at the round's end; 0 in the simulator."""
        return self.words["cycles_low"] | self.words["cycles_high"] << 32

    def pack(self) -> bytes:
        """Its bytes."""
        head = [self.words.get(name, 0) for name in WORDS]
        head += [0] * (COMMAND_WORDS - len(head))
        tokens = list(self.tokens[:TOKENS_MAX])
        tokens += [0] * (TOKENS_MAX - len(tokens))
        return struct.pack(f"<{ENTRY_WORDS}I", *head, *tokens)

    @staticmethod
    def unpack(data: bytes) -> Entry:
        """The entry of its bytes."""
        words = struct.unpack(f"<{ENTRY_WORDS}I", data)
        named = dict(zip(WORDS, words, strict=False))
        return Entry(named, words[COMMAND_WORDS : COMMAND_WORDS + named["drafted"]])
