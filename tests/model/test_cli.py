"""The command: what it lists, what it refuses and how, what it hands on."""

from __future__ import annotations

import importlib
import subprocess
import sys
import types
from pathlib import Path

import pytest

from model import cli


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A subcommand `probe` whose main the test sets."""
    module = types.ModuleType("bsspec_probe")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(cli.COMMANDS, "probe", (module.__name__, "for a test"))
    return module


def test_every_command_is_a_module_with_main() -> None:
    for module, what in cli.COMMANDS.values():
        assert callable(importlib.import_module(module).main)
        assert what


def test_arguments_and_status_are_handed_on(stand_in: types.ModuleType) -> None:
    seen: list[list[str]] = []
    stand_in.main = lambda argv: seen.append(list(argv)) or 3
    assert cli.main(["probe", "--p", "5", "--help", "x"]) == 3
    assert seen == [["--p", "5", "--help", "x"]]


@pytest.mark.parametrize(
    "error",
    [ValueError("p must be in 5..9,\n not 4"), TypeError("p is a str"), FileNotFoundError("x")],
)
def test_refusals_are_one_line(
    stand_in: types.ModuleType, capsys: pytest.CaptureFixture, error: Exception
) -> None:
    def refuse(argv: list[str]) -> int:
        raise error

    stand_in.main = refuse
    assert cli.main(["probe"]) == 2
    said = " ".join(str(error).split())
    assert capsys.readouterr().err == f"bsspec probe: {said}\n"


def test_interrupt(stand_in: types.ModuleType, capsys: pytest.CaptureFixture) -> None:
    def interrupt(argv: list[str]) -> int:
        raise KeyboardInterrupt

    stand_in.main = interrupt
    assert cli.main(["probe"]) == 130
    assert capsys.readouterr().err == "bsspec probe: interrupted\n"


def test_an_unknown_command_is_refused_by_name(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(["nonsense"])
    assert left.value.code == 2
    assert "invalid choice: 'nonsense'" in capsys.readouterr().err


def test_installed_command_lists_the_subcommands_without_importing_them() -> None:
    command = Path(sys.executable).parent / "bsspec"
    ran = subprocess.run([command, "--help"], capture_output=True, text=True, check=True)
    for name, (_, what) in cli.COMMANDS.items():
        assert f"  {name} " in ran.stdout
        assert what in ran.stdout
    code = "import sys, model.cli; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
