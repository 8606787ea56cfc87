"""A small Llama of our own: bytes of English documentation, 0.7 MB, decoded whole on the RTL.

It is trained by `python -m model.pydoc_llama.train` on what every Python carries, the texts of
`pydoc_data.topics` (licence: PSF, see README.md beside this file). A token is a byte.
"""

from __future__ import annotations

from pathlib import Path

from model.lm.checkpoint import Checkpoint
from model.lm.huggingface import load as load_folder

#: Where the checkpoint lies.
FOLDER = Path(__file__).parent
#: Topics that it was not trained on.
HELD_OUT = ("assert", "dict", "import", "try", "with")
#: What texts of them begin with, for demonstrations.
PROMPTS = (
    'The "try" statement specifies exception handlers and/or cleanup code ',
    'The "import" statement:\n\n   import_stmt     ::= "import" module ',
    "A class definition is an executable statement. ",
)


def load() -> Checkpoint:
    """The checkpoint: 256 tokens, one a byte."""
    return load_folder(FOLDER)[0]


def tokens_of(text: str) -> list[int]:
    """Bytes of a text."""
    return list(text.encode())


def text_of(tokens: list[int]) -> str:
    """The text of bytes; what is no UTF-8 becomes a replacement character."""
    return bytes(tokens).decode(errors="replace")
