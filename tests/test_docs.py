"""The documents: what they name exists, and what they quote is what the commands print."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
from pathlib import Path

import pytest

from docs import chip_tables, components, kv_picture, pipeline
from hw.compute.array import Array
from hw.config import PRESETS, ConfigError, load
from hw.emit import WAIVERS, emit, ports_text
from hw.library import Library
from model.formats import registers
from model.formats.commands import Opcode, Region
from sim.registry import BENCHES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def page(name: str) -> str:
    """The text of a page."""
    return (ROOT / name).read_text()


def code(text: str) -> str:
    """What a page shows as code: fenced blocks, words between backticks, indented commands."""
    fenced = re.findall(r"^```.*?^```", text, re.DOTALL | re.MULTILINE)
    indented = re.findall(r"^    (?!sudo ).*$", text, re.MULTILINE)
    return "\n".join([*fenced, *indented, *re.findall(r"`[^`\n]+`", text)])


def anchor(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def makefile_targets() -> dict[str, str]:
    """Recipe of every target."""
    found = re.findall(r"^([a-z]+):.*?\n((?:\t.*\n)*)", page("Makefile"), re.MULTILINE)
    return dict(found)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
class TestNames:
    def test_make_targets_exist(self, path: Path) -> None:
        used: set[str] = set()
        for words in re.findall(r"\bmake((?: +[a-z]+\b(?!=))+)", code(path.read_text())):
            used |= set(words.split())
        assert used <= set(makefile_targets())

    def test_options_are_read(self, path: Path) -> None:
        used = re.findall(r"\bmake +[a-z]+((?: +[A-Z]+=\S*)+)", code(path.read_text()))
        known = set(re.findall(r"\$\((?:call on,|if \$\()?([A-Z]+)\b", page("Makefile")))
        assert {name for options in used for name in re.findall(r"([A-Z]+)=", options)} <= known

    def test_modules_exist(self, path: Path) -> None:
        for name in set(re.findall(r"python -m ([\w.]+)", path.read_text())):
            assert importlib.util.find_spec(name.rstrip(".")) is not None, name

    def test_files_exist(self, path: Path) -> None:
        # Paths from the root of the repository; a component that a page adds is its example.
        names = re.findall(r"`((?:hw|model|sim|synth|tests|docs)/[\w./]*)`", path.read_text())
        missing = {name for name in names if not (ROOT / name).exists()}
        assert {name for name in missing if not name.endswith("/largest.py")} == set()

    def test_links_resolve(self, path: Path) -> None:
        for target in re.findall(r"\]\(([^)]+)\)", path.read_text()):
            if target.startswith("https://"):
                continue
            name, _, wanted = target.partition("#")
            linked = (path.parent / name).resolve() if name else path
            assert linked.exists(), target
            if wanted:
                headings = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE)
                assert wanted in map(anchor, headings), target


def test_readme_lists_every_target() -> None:
    described = set(re.findall(r"`make ([a-z]+)`", page("README.md")))
    assert set(makefile_targets()) - {"help"} <= described


def test_readme_links_every_page() -> None:
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)\)", page("README.md")))
    assert linked == {f"docs/{path.name}" for path in PAGES[1:]}


@pytest.mark.parametrize("name", ["README.md", "docs/decoding.md"])
def test_example_prints_what_it_says(name: str) -> None:
    text = page(name)
    source = PYTHON_BLOCK.findall(text)[0]
    said = re.findall(r"^```text\n(.*?)^```$", text[text.index(source) :], re.DOTALL | re.MULTILINE)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, name, "exec"), {"__name__": name})
    assert printed.getvalue() == said[0]


@pytest.mark.parametrize("name", ["README.md", "docs/architecture.md"])
def test_configuration_examples_load(name: str, tmp_path: Path) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```$", page(name), re.DOTALL | re.MULTILINE)
    assert blocks
    for block in blocks:
        (tmp_path / "mine.toml").write_text(block)
        assert load(str(tmp_path / "mine.toml")).p_max == 9


class TestArchitecture:
    TEXT = page("docs/architecture.md")

    def test_tree(self) -> None:
        assert "\n".join(components.tree(PRESETS["paper"])) in self.TEXT

    def test_every_component_is_described(self) -> None:
        library = Library()
        library.add(Array(PRESETS["tiny"]))
        sources = {type(part).__module__ for part in library.modules.values()}
        for name in {source.rpartition(".")[2] for source in sources}:
            assert f"{name}.py`" in self.TEXT, name

    def test_pipeline(self) -> None:
        rows = pipeline.simulate(PRESETS["paper"], 5, 2)
        assert pipeline.text(rows) in self.TEXT
        assert pipeline.svg(rows) == page("docs/pipeline.svg")

    def test_ports(self) -> None:
        assert ports_text(emit(PRESETS["small"])) in self.TEXT

    def test_presets(self) -> None:
        for each in PRESETS.values():
            figures = (each.t_m, each.subarrays, each.fanout, each.lanes, each.fold)
            figures += (each.acc_columns, each.drain, each.acc_width)
            row = " | ".join([f"`{each.name}`", *map(str, figures)])
            assert f"| {row} | {sum(each.memory_bits.values()):,} |" in self.TEXT

    def test_refusal(self, tmp_path: Path) -> None:
        (tmp_path / "bad.toml").write_text(
            'preset = "paper"\nacc_columns = 8\ndrain = 5\nacc_bits = 40\n'
        )
        with pytest.raises(ConfigError) as refused:
            load(str(tmp_path / "bad.toml"))
        assert str(refused.value) in self.TEXT


class TestKvCache:
    TEXT = page("docs/kv-cache.md")

    def test_picture(self) -> None:
        steps = kv_picture.record(60, 7, 2)
        assert kv_picture.text(steps, 56) in self.TEXT
        assert kv_picture.svg(steps, 56) == page("docs/kv-cache.svg")

    def test_the_other_case(self) -> None:
        (*_, last) = kv_picture.record(60, 7, 5)
        assert (last.cells.count("K"), last.block) == (66, "final")

    def test_a_round_that_reaches_no_end_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"gamma must be in 4\.\.256, not 3"):
            kv_picture.record(60, 3, 0)


class TestTraps:
    TEXT = page("docs/verification.md")
    LISTED = re.findall(r"^\| .* \| `([\w/]+\.py)::(\w+)` \|$", TEXT, re.MULTILINE)

    def test_the_list_is_whole(self) -> None:
        assert len(self.LISTED) == len(set(self.LISTED)) == 28

    @pytest.mark.parametrize(("path", "name"), LISTED)
    def test_each_is_a_test(self, path: str, name: str) -> None:
        assert re.search(rf"^ *def {name}\(", page(path), re.MULTILINE), f"{path}::{name}"


class TestBenches:
    TEXT = page("docs/benches.md")

    def test_table(self) -> None:
        lines = []
        for spec in BENCHES.values():
            lists = (spec.full, spec.quick, spec.icarus)
            cells = [", ".join(each.name for each in configs) or "-" for configs in lists]
            lines.append(f"| `{spec.name}` | {spec.what} | {' | '.join(cells)} |")
        table = "\n".join(lines)
        assert f"\n{table}\n\n" in self.TEXT, f"the table should be\n{table}"

    def test_configurations_are_named(self) -> None:
        for name in {config.name for spec in BENCHES.values() for config in spec.full}:
            assert f"`{name}`" in self.TEXT

    def test_waivers(self) -> None:
        for rule, reason in WAIVERS.items():
            assert f"| `{rule}` | {reason.partition(' (')[0]} |" in self.TEXT

    def test_blocks_are_python(self) -> None:
        for source in PYTHON_BLOCK.findall(self.TEXT):
            compile(source, "docs/benches.md", "exec")


class TestChip:
    TEXT = page("docs/chip.md")

    def test_tables(self) -> None:
        assert chip_tables.commands_table() in self.TEXT
        assert chip_tables.trace_table() in self.TEXT
        assert registers.table() in self.TEXT

    def test_every_status_and_region(self) -> None:
        for line in chip_tables.statuses():
            assert line in self.TEXT
        for region in Region:
            assert f"| {region.name} |" in self.TEXT

    def test_traps(self) -> None:
        listed = re.findall(r"^\| .* \| `([\w/]+\.py)::(\w+)` \|$", self.TEXT, re.MULTILINE)
        assert len(listed) == len(set(listed)) == 15
        for path, name in listed:
            assert f"\ndef {name}(" in page(path), f"{path}::{name}"

    def test_every_command_has_its_meaning(self) -> None:
        for opcode in Opcode:
            if opcode != Opcode.HALT:
                assert f"| {opcode.name} |" in self.TEXT
