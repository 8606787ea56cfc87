"""The lock pins everything that the environment holds because of the project."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    wishes = [Requirement(line) for line in lines if line and not line.startswith("#")]
    kept = [wish for wish in wishes if wish.marker is None or wish.marker.evaluate()]
    return {wish.name: str(wish.specifier).removeprefix("==") for wish in kept}


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def closure(wishes: list[Requirement]) -> dict[str, str]:
    """{package: installed version} of the wishes and all that they need here."""
    found: dict[str, str] = {}
    todo = [(wish, "") for wish in wishes]
    seen = set()
    while todo:
        wish, extra = todo.pop()
        if wish.marker and not wish.marker.evaluate({"extra": extra}):
            continue
        for key in [(canonical(wish.name), each) for each in ("", *wish.extras)]:
            if key in seen:
                continue
            seen.add(key)
            found[key[0]] = metadata.version(wish.name)
            needs = metadata.requires(wish.name) or []
            todo += [(Requirement(need), key[1]) for need in needs]
    return found


def test_every_installed_package_is_pinned_at_its_version():
    wishes = [Requirement(text) for text in project()["project"]["dependencies"]]
    # torch's CUDA build pins its own libraries; they are no part of the project.
    cuda = re.compile("nvidia|cuda|triton")
    found = {name: version for name, version in closure(wishes).items() if not cuda.match(name)}
    installed = {name: version.split("+")[0] for name, version in found.items()}
    locked = pins()
    assert len(installed) > 40
    assert {name: locked.get(name) for name in installed} == installed


def test_data_packages_and_verilator_are_pinned():
    own = project()["tool"]["bsspec"]
    locked = pins()
    for name in [*own["data-packages"], own["verilator-package"]]:
        assert name in locked, name


def test_every_pin_has_a_reason():
    own = project()["tool"]["bsspec"]
    wishes = [Requirement(text) for text in project()["project"]["dependencies"]]
    known = {*closure(wishes), *own["data-packages"], own["verilator-package"]}
    assert not set(pins()) - known
