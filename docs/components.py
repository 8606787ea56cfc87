"""The tree of components of a configuration: who instantiates whom, and how often.

python -m docs.components [--config paper]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from hw.compute.array import Array
from hw.config import Config, ConfigError, load
from hw.library import Library


def tree(config: Config) -> Iterator[str]:
    """One line a component: its place, its module, how many its parent has, how many there are."""
    library = Library()
    top = Array(config)
    library.add(top)
    yield f"{'component':<46}{'module':<28}{'in parent':>9}{'in all':>9}"

    def lines(name: str, depth: int, here: int, total: int) -> Iterator[str]:
        label = "  " * depth + library.modules[name].label
        yield f"{label:<46}{name:<28}{here:>9,}{total:>9,}"
        for child, count in library.children[name].items():
            yield from lines(child, depth + 1, count, total * count)

    yield from lines(top.module_name, 0, 1, 1)


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m docs.components", description=__doc__)
    parser.add_argument("--config", default="paper", help="tiny, small, paper or a .toml")
    try:
        print("\n".join(tree(load(parser.parse_args(argv).config))))
    except ConfigError as error:
        print(f"docs.components: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
