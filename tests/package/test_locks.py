"""The lock of the demo has the versions of the developers' lock, and nothing that only developers need."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.version import Version

from tests.docs.pages import ROOT

RUNTIME, DEVELOPERS, OLDEST = (
    ROOT / name for name in ("requirements-runtime.lock", "requirements.lock", "requirements-oldest.lock")
)
MACHINES = [
    {"python_full_version": f"{python}.9", "python_version": python, "sys_platform": system}
    for python in ("3.10", "3.11", "3.12", "3.13")
    for system in ("linux", "darwin")
]


@dataclass(frozen=True)
class Pin:
    """A version of a package, where it holds, and the files that are accepted."""

    name: str
    version: str
    marker: str
    hashes: frozenset[str]

    def holds(self, machine: dict[str, str]) -> bool:
        return not self.marker or Marker(self.marker).evaluate(machine)


def pins(path) -> list[Pin]:
    text = re.sub(r"^ *#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = []
    for line in text.replace("\\\n", "").splitlines():
        pin, _, hashes = line.partition("--hash=")
        name_and_version, _, marker = pin.partition(";")
        name, version = name_and_version.strip().split("==")
        found.append(Pin(name.split("[")[0], version, marker.strip(), frozenset(hashes.split(" --hash="))))
    return found


def on(machine: dict[str, str], path) -> dict[str, tuple[str, frozenset[str]]]:
    """The version of each package, and its files, on a machine."""
    return {pin.name: (pin.version, pin.hashes) for pin in pins(path) if pin.holds(machine)}


def dependencies() -> list[Requirement]:
    listed = re.search(
        r"^dependencies = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M | re.S
    )
    assert listed is not None
    return [Requirement(text) for text in re.findall(r'"([^"]+)"', listed[1])]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: "-".join(machine.values()))
def test_the_versions_and_files_are_those_of_the_developers(machine):
    runtime, developers = on(machine, RUNTIME), on(machine, DEVELOPERS)
    assert runtime == {name: developers[name] for name in runtime}


@pytest.mark.parametrize("path", [RUNTIME, DEVELOPERS, OLDEST], ids=lambda path: path.stem)
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: "-".join(machine.values()))
def test_each_lock_has_what_the_package_depends_on_and_what_builds_it(path, machine):
    locked = on(machine, path)
    assert "hatchling" in locked  # the editable install is built without isolation
    for needed in dependencies():
        assert needed.specifier.contains(Version(locked[needed.name][0])), needed


def test_what_only_developers_need_is_not_installed_for_the_demo():
    names = {pin.name for pin in pins(RUNTIME)}
    assert not names & {
        "pytest",
        "mypy",
        "moto",
        "mkdocs",
        "ruff",
        "duckdb",
        "deltalake",
        "pyiceberg",
        "uvicorn",
    }


def test_every_file_has_its_hash():
    for path in (RUNTIME, DEVELOPERS, OLDEST):
        assert [
            pin.name for pin in pins(path) if not all(re.match(r"sha256:", one) for one in pin.hashes)
        ] == []
