"""The decoding loop, written once for all drafts.

`len` counts tokens whose keys and values are committed. The last token of a sequence is *pending*:
it is known, but not yet fed. A round

1. drafts: feeds pending, d1, .. d(gamma-1) and samples d1 .. dgamma from the draft's laws;
2. verifies: feeds pending, d1 .. dgamma in one target pass and gets gamma + 1 laws;
3. judges: accepts the first a drafted tokens, takes one more token from the target;
4. commits pending, d1 .. da; the token of step 3 is the new pending one.

A sequence leaves the batch at an end-of-text token, at its limit of new tokens or at the end of
the context; all of them cut a round short exactly where autoregressive decoding would have stopped.

With no draft, gamma is 0: a round is one autoregressive step. Sequences have a stream of random
numbers each, so that a sequence's tokens do not depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from model.decoding.drafts.base import NOTHING, Draft, Loaded
from model.decoding.sampling import Random, Sampling, draw, judge, probs
from model.formats.checks import check_int

#: Why a sequence ended.
END, LIMIT, CONTEXT = "end of text", "limit of new tokens", "end of context"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the loop is asked for.

    Attributes:
        gamma: drafted tokens a round, from 1 up; a draft's own choice comes before it.
        sampling: how tokens are chosen.
        max_new: most new tokens of a sequence.
        end_ids: tokens that end a text; the output includes the one that did.
        seed: of the random numbers.
        streams: number of each sequence's stream; 0, 1, .. by default.
    """

    gamma: int = 7
    sampling: Sampling = field(default_factory=Sampling)
    max_new: int = 64
    end_ids: tuple[int, ...] = ()
    seed: int = 0
    streams: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_int("gamma", self.gamma, 1, 1 << 16)
        check_int("max_new", self.max_new, 1, 1 << 31)
        check_int("seed", self.seed, 0, (1 << 63) - 1)


@dataclass(frozen=True)
class Round:
    """What one round did to one sequence.

    Attributes:
        sequence: its index.
        drafted: d1 .. dgamma; fewer where a limit was near.
        accepted: how many of them were accepted.
        token: the target's token behind them: a replacement, or the bonus.
        emitted: tokens that became output, cut at the sequence's end.
        length: committed tokens before the round.
    """

    sequence: int
    drafted: tuple[int, ...]
    accepted: int
    token: int
    emitted: tuple[int, ...]
    length: int


@dataclass
class Text:
    """What a sequence has become.

    Attributes:
        tokens: output tokens, the prompt left out.
        rounds: of this sequence; the first token comes from the prompt's pass, without a round.
        reason: why it ended; empty while in work.
    """

    tokens: list[int] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    reason: str = ""


@dataclass
class Output:
    """What `generate` returns.

    Attributes:
        sequences: one for each prompt.
        draft_passes, target_passes: passes of all rounds (the prompts' pass is not counted).
        draft_loaded, target_loaded: bits that they loaded.
        prompt_loaded: bits of the prompts' pass.
    """

    sequences: list[Text]
    draft_passes: int = 0
    target_passes: int = 0
    draft_loaded: Loaded = NOTHING
    target_loaded: Loaded = NOTHING
    prompt_loaded: Loaded = NOTHING

    @property
    def rounds(self) -> list[Round]:
        """Rounds of all sequences."""
        return [round_ for sequence in self.sequences for round_ in sequence.rounds]

    @property
    def new_tokens(self) -> int:
        """Output tokens of all sequences."""
        return sum(len(sequence.tokens) for sequence in self.sequences)


#: Called with the index of a sequence, its new tokens and the round that gave them (None for the
#: token behind the prompt).
Listener = Callable[[int, tuple[int, ...], Round | None], None]


#: From a stream's number to its random numbers.
Streams = Callable[[int], Random]


def philox(seed: int) -> Streams:
    """Independent numpy generators, one for each seed and stream."""
    return lambda stream: np.random.Generator(np.random.Philox(key=(seed, stream)))


def generate(
    draft: Draft,
    prompts: Sequence[Sequence[int]],
    options: Options,
    listener: Listener | None = None,
    random: Streams | None = None,
) -> Output:
    """Decodes a batch of prompts.

    Args:
        draft: the target and its draft; begun anew.
        prompts: tokens of each sequence, at least one each.
        options: gamma, sampling, limits.
        listener: told of every new token as soon as it is decided.
        random: where a stream's random numbers come from; `philox(options.seed)` by default.

    Raises:
        TypeError, ValueError: a prompt that is empty, too long for the context or holds a token
            outside the vocabulary, by index; NaN among logits.
    """
    return _Loop(draft, prompts, options, listener, random or philox(options.seed)).run()


class _Loop:
    """One call of `generate`."""

    def __init__(
        self,
        draft: Draft,
        prompts: Sequence[Sequence[int]],
        options: Options,
        listener: Listener | None,
        random: Streams,
    ) -> None:
        _check_prompts(prompts, draft)
        self.draft, self.options, self.listener = draft, options, listener
        self.prompts = prompts
        streams = options.streams or tuple(range(len(prompts)))
        if len(streams) != len(prompts):
            raise ValueError(f"streams must be {len(prompts)}, not {len(streams)}")
        self.random = [random(stream) for stream in streams]
        self.output = Output([Text() for _ in prompts])
        self.pending = [0] * len(prompts)

    def run(self) -> Output:
        draft, options = self.draft, self.options
        longest = max(len(prompt) for prompt in self.prompts)
        draft.start(len(self.prompts), min(draft.context, longest + options.max_new))
        self.output.prompt_loaded = draft.verify_loads([len(p) for p in self.prompts])
        logits = draft.verify(self.prompts, last_only=True)
        draft.commit(self.prompts)
        for b, rows in enumerate(logits):
            token = draw(probs(rows[-1], options.sampling), options.sampling, self.random[b])
            self._emit(b, (token,), None)
            self.pending[b] = token
        while any(not sequence.reason for sequence in self.output.sequences):
            self._round()
        return self.output

    def _emit(self, b: int, tokens: tuple[int, ...], round_: Round | None) -> tuple[int, ...]:
        """Adds tokens to the output of a sequence up to its end; returns those that it took."""
        sequence, options = self.output.sequences[b], self.options
        end = next((i for i, t in enumerate(tokens) if t in options.end_ids), None)
        room = options.max_new - len(sequence.tokens)
        if end is not None and end < room:
            tokens, sequence.reason = tokens[: end + 1], END
        elif len(tokens) >= room:
            tokens, sequence.reason = tokens[:room], LIMIT
        sequence.tokens += tokens
        if round_ is not None:
            round_ = replace(round_, emitted=tokens)
            sequence.rounds.append(round_)
        if not sequence.reason:
            committed = len(self.prompts[b]) + len(sequence.tokens) - 1
            if committed >= self.draft.context:
                sequence.reason = CONTEXT
        if self.listener is not None:
            self.listener(b, tokens, round_)
        return tokens

    def _gammas(self) -> list[int]:
        """Tokens to draft for each sequence; -1 for one that has ended."""
        live = [b for b, text in enumerate(self.output.sequences) if not text.reason]
        wanted = self.draft.begin_round(live)
        gamma = self.options.gamma if wanted is None else wanted
        if not self.draft.drafts:
            gamma = 0
        gammas = []
        for b, sequence in enumerate(self.output.sequences):
            if sequence.reason:
                gammas.append(-1)
                continue
            places = self.draft.context - self.draft.lengths[b] - 1
            room = self.options.max_new - len(sequence.tokens) - 1
            gammas.append(min(gamma, places, room))
        return gammas

    def _round(self) -> None:
        sampling = self.options.sampling
        gammas = self._gammas()
        drafted: list[list[int]] = [[] for _ in gammas]
        laws: list[list[np.ndarray]] = [[] for _ in gammas]
        for step in range(max(gammas)):
            fed = [
                [drafted[b][-1] if step else self.pending[b]] if step < gamma else []
                for b, gamma in enumerate(gammas)
            ]
            self.output.draft_passes += 1
            self.output.draft_loaded += self.draft.draft_loads([(step + 1) * len(f) for f in fed])
            for b, rows in enumerate(self.draft.draft(fed)):
                if fed[b]:
                    law = probs(rows[-1], sampling)
                    laws[b].append(law)
                    drafted[b].append(draw(law, sampling, self.random[b]))

        fed = [
            [self.pending[b], *drafted[b]] if gamma >= 0 else [] for b, gamma in enumerate(gammas)
        ]
        self.output.target_passes += 1
        self.output.target_loaded += self.draft.verify_loads([len(f) for f in fed])
        logits = self.draft.verify(fed)
        committed: list[list[int]] = [[] for _ in gammas]
        lengths = list(self.draft.lengths)
        for b, gamma in enumerate(gammas):
            if gamma < 0:
                continue
            targets = [probs(row, sampling) for row in logits[b]]
            accepted, token = judge(targets, laws[b], drafted[b], sampling, self.random[b])
            committed[b] = fed[b][: accepted + 1]
            new = (*drafted[b][:accepted], token)
            round_ = Round(b, tuple(drafted[b]), accepted, token, new, lengths[b])
            self._emit(b, new, round_)
            self.pending[b] = token
        self.draft.commit(committed)


def _check_prompts(prompts: Sequence[Sequence[int]], draft: Draft) -> None:
    if not prompts:
        raise ValueError("prompts must be at least one, not none")
    for b, prompt in enumerate(prompts):
        if not 1 <= len(prompt) <= draft.context:
            raise ValueError(
                f"prompts[{b}] must have 1..{draft.context} tokens (the context), not {len(prompt)}"
            )
        for t, token in enumerate(prompt):
            check_int(f"prompts[{b}][{t}]", token, 0, draft.vocabulary - 1)
