"""The small model: what is in the repository is a model, small, and has learnt its text."""

from __future__ import annotations

from model.decoding.drafts.bs_spec import BsSpec
from model.decoding.loop import Options, generate
from model.lm.precision import Precision
from model.lm.stored import store
from model.pydoc_llama import FOLDER, HELD_OUT, PROMPTS, load, text_of, tokens_of
from model.pydoc_llama.train import CONFIG, corpus, files_of, held_out_loss


def test_files() -> None:
    checkpoint = load()
    assert checkpoint.config == CONFIG
    assert sum(path.stat().st_size for path in FOLDER.iterdir() if path.is_file()) < 1_000_000
    for name, content in files_of(checkpoint).items():
        assert (FOLDER / name).read_bytes() == content


def test_it_has_learnt() -> None:
    train, held_out = corpus()
    assert len(HELD_OUT) == 5
    assert 8 * len(held_out) < len(train)
    # A byte at random costs 5.5 nats, one by its frequency in the text 3.1.
    assert held_out_loss(load()) < 1.7


def test_drafts_change_no_token() -> None:
    model = store(load())
    prompt = tokens_of(PROMPTS[0])
    plain = generate(BsSpec(model, None, exact=True), [prompt], Options(max_new=16))
    tokens = plain.sequences[0].tokens
    draft = BsSpec(model, Precision.parse("W6KV6"), exact=True)
    drafted = generate(draft, [prompt], Options(max_new=16, gamma=4)).sequences[0]
    assert drafted.tokens == tokens
    assert sum(each.accepted for each in drafted.rounds) > 0
    assert text_of(tokens).isascii()
