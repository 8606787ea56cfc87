"""The project's command, ``bsspec NAME ...``: finds the module of a subcommand and runs it.

A subcommand is a module with ``main(argv) -> int``. It is imported only when it is called, so that
``bsspec --help`` answers at once.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

#: Subcommand: (module, what it does in a line).
COMMANDS: dict[str, tuple[str, str]] = {
    "generate": ("model.commands.generate", "text by speculative decoding, and what it cost"),
    "run": ("model.commands.run", "text on the simulated chip: commands, bytes, tokens"),
    "image": ("model.commands.image", "a model laid out in the chip's memory"),
    "verify": ("model.verification.verify", "speculative decoding is lossless, at five levels"),
    "accept": ("model.calibration.accept", "acceptance of drafts on real prompts, measured"),
    "plt": ("model.calibration.plt_command", "calibrates a precision lookup table"),
    "tables": ("model.calibration.tables_command", "the paper's tables and curves, recomputed"),
    "study": ("model.commands.study", "when speculation pays: measured here, factor by factor"),
    "accuracy": ("model.calibration.accuracy", "how close the targets are to the 16-bit model"),
    "example": ("model.datapath.example", "a product small enough to redo by hand"),
    "bench": ("model.commands.bench", "speed of products and of decoding, as ratios in one run"),
}

#: Errors that the project's code raises with a message for whoever called it.
REFUSALS = (TypeError, ValueError, OSError)


def _parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    listed = "\n".join(f"  {name:<{width}}  {what}" for name, (_, what) in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="bsspec",
        description="BS-Spec: self-speculative decoding on block floating point.",
        epilog=f"commands:\n{listed}\n\n'bsspec COMMAND --help' lists the options of one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("command", metavar="COMMAND", choices=list(COMMANDS), help="see below")
    parser.add_argument("arguments", metavar="...", nargs=argparse.REMAINDER, help="its options")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a subcommand.

    Args:
        argv: arguments without the program's name; those of the process where None.

    Returns:
        The subcommand's exit status; 2 with a line on stderr where it was refused, 130 where it
        was interrupted.
    """
    chosen = _parser().parse_args(argv)
    module, _ = COMMANDS[chosen.command]
    run = importlib.import_module(module).main
    try:
        return int(run(chosen.arguments))
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except REFUSALS as error:
        message = " ".join(str(error).split()) or type(error).__name__
        print(f"bsspec {chosen.command}: {message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"bsspec {chosen.command}: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
