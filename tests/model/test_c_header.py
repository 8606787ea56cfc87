"""The header for drivers: it compiles, and a compiler reads the numbers that Python has."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from model.formats import c_header, commands, plt_layout, registers
from model.formats.commands import Opcode, Region, Status

COMPILER = next(filter(None, map(shutil.which, ("cc", "gcc", "g++"))), None)
MACROS = [macro for section in c_header.sections().values() for macro in section]


def _run(folder: Path, body: str) -> list[int]:
    """What a program of this body prints, in numbers."""
    assert COMPILER is not None
    (folder / "bsspec.h").write_text(c_header.header())
    # Included twice, as a driver of several headers does.
    source = '#include "bsspec.h"\n#include "bsspec.h"\n#include <stdio.h>\n'
    (folder / "main.c").write_text(f"{source}int main(void) {{\n{body}\nreturn 0;\n}}\n")
    subprocess.run(
        [COMPILER, "-Wall", "-Wextra", "-Werror", "-pedantic", "-o", "main", "main.c"],
        cwd=folder,
        check=True,
    )
    printed = subprocess.run([folder / "main"], capture_output=True, text=True, check=True).stdout
    return [int(word) for word in printed.split()]


def _print(*expressions: str) -> str:
    return "\n".join(f'printf("%lu\\n", (unsigned long)({each}));' for each in expressions)


def test_names_are_unique_and_say_their_place() -> None:
    names = [name for name, *_ in MACROS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Z][A-Z0-9_]*", name) for name in names)


def test_comments_end_where_they_should() -> None:
    text = c_header.header()
    assert text.count("/*") == text.count("*/")
    assert all("*/" not in comment and "/*" not in comment for *_, comment in MACROS)


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
def test_every_macro_is_its_number(tmp_path: Path) -> None:
    body = _print(*(f"BSSPEC_{name}" for name, *_ in MACROS))
    assert _run(tmp_path, body) == [number for _, number, *_ in MACROS]


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
def test_a_driver_makes_what_python_makes(tmp_path: Path) -> None:
    values = {"p_full": 9, "qk_norm": 1, "width_tiles": 0x123, "kv_heads": 3, "group": 7}
    puts = {
        word: " | ".join(
            f"BSSPEC_PUT(BSSPEC_CMD_MODEL_{name.upper()}, {value})"
            for name, value in values.items()
            if commands.FIELDS[Opcode.MODEL][name].word == word
        )
        for word in (0, 1)
    }
    command = commands.pack(Opcode.MODEL, values)
    precision = {
        "p_w": 6, "p_kv": 7, "gamma": 5, "midpoint_w": 1, "midpoint_kv": 0, "valid": 1
    }  # fmt: skip
    table = " | ".join(
        f"BSSPEC_PUT(BSSPEC_PLT_{name.upper()}, {value})" for name, value in precision.items()
    )
    base = registers.REGISTERS["BASE"]
    wanted = {
        f"BSSPEC_OP_MODEL | {puts[0]}": int.from_bytes(command[:4], "little"),
        puts[1]: int.from_bytes(command[4:8], "little"),
        table: plt_layout.pack(precision),
        "BSSPEC_PUT(BSSPEC_REG_CONTROL_CLEAR, 1)": registers.pack("CONTROL", clear=1),
        "BSSPEC_GET(BSSPEC_REG_STATUS_STATUS, 0x1001)": Status.ABORTED,
        "BSSPEC_STATUS_ABORTED": Status.ABORTED,
        "BSSPEC_REG_BASE + BSSPEC_REGION_TRACE * BSSPEC_REG_BASE_STRIDE": base.offset
        + 8 * Region.TRACE,
        "BSSPEC_REG_IRQ_PENDING": 0x34,
        "BSSPEC_ID": registers.ID,
    }
    assert _run(tmp_path, _print(*wanted)) == list(wanted.values())


def test_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert c_header.main() == 0
    assert capsys.readouterr().out == c_header.header()
