"""What `make` would do, by `make --dry-run`: which lock is installed for which target."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")

RUNTIME, DEVELOPERS = "-r requirements-runtime.lock", "-r requirements.lock"


def commands(target: str, environment: Path) -> str:
    """The commands of a target, with the marks of this environment."""
    there = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--dry-run", f"VENV={environment}", target]
    return subprocess.run(command, cwd=ROOT, env=there, capture_output=True, text=True, check=True).stdout


def marked(environment: Path, mark: str, *, is_current: bool = True) -> Path:
    """An environment in which a lock was installed, after the locks were written or before."""
    files = [ROOT / name for name in ("pyproject.toml", "requirements.lock", "requirements-runtime.lock")]
    times = [file.stat().st_mtime for file in files]
    when = max(times) + 5 if is_current else min(times) - 5
    (environment / mark).touch()
    os.utime(environment / mark, (when, when))
    return environment


def test_a_first_demo_installs_what_runs(tmp_path):
    made = commands("demo", tmp_path)
    assert RUNTIME in made
    assert DEVELOPERS not in made
    assert made.index("java") < made.index(
        RUNTIME
    )  # a missing Java is reported before a minute of installing
    assert f"{tmp_path}/bin/crossstream demo" in made


def test_a_second_demo_installs_nothing(tmp_path):
    assert "pip install" not in commands("demo", marked(tmp_path, ".installed-runtime"))


def test_the_demo_in_an_environment_of_a_developer_installs_nothing(tmp_path):
    assert "pip install" not in commands("demo", marked(tmp_path, ".installed"))


def test_the_demo_keeps_an_environment_of_a_developer_complete(tmp_path):
    made = commands("demo", marked(tmp_path, ".installed", is_current=False))
    assert DEVELOPERS in made
    assert RUNTIME not in made


@pytest.mark.parametrize("target", ["test", "test-fast", "check", "bench", "docs", "demo-cdc", "release"])
def test_what_developers_do_needs_all_also_after_the_demo(tmp_path, target):
    made = commands(target, marked(tmp_path, ".installed-runtime"))
    assert DEVELOPERS in made
    assert RUNTIME not in made


def test_the_lock_of_the_demo_is_resolved_last_from_the_one_of_developers(tmp_path):
    developers, _, runtime = (
        line for line in commands("lock", tmp_path).splitlines() if "--output-file" in line
    )
    assert "--output-file requirements.lock" in developers
    assert "--constraint requirements.lock" in runtime
    assert "--output-file requirements-runtime.lock" in runtime
