"""The files and folders that pages of the code name in backticks are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, prose

DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
SOURCE = ROOT / "src" / "crossstream"
_NAMED = re.compile(r"`((?:[\w.<>-]+/)+[\w.<>-]*|[\w-]+\.py)(?:: ?\w+)?`")


def named(page: Path) -> list[str]:
    """The paths in backticks, `<name>` standing for any folder."""
    return sorted({path for line in prose(page) for path in _NAMED.findall(line)})


def is_there(path: str) -> bool:
    if path.startswith("tests/operators/<name>/"):
        return any((ROOT / "tests" / "operators").glob(f"*/{path[len('tests/operators/<name>/') :]}"))
    if path.startswith("operators/<name>"):
        folders = [one.parent for one in SOURCE.glob("operators/*/plan.py")]
        return any((folder / path[len("operators/<name>/") :]).exists() for folder in folders)
    if "/" in path:
        return (SOURCE / path).exists() or (ROOT / path).exists()
    return any(any(root.rglob(path)) for root in (SOURCE, ROOT / "tests"))


def test_paths_are_found() -> None:
    expected = {"graph/nodes.py", "operators/deduplicate", "operators/<name>/", "tests/operators/<name>/law"}
    assert expected <= set(named(ROOT / "docs" / "architecture.md"))


@pytest.mark.parametrize("page", ["architecture.md", "semantics.md"])
def test_files_and_folders_are_there(page: str) -> None:
    assert [path for path in named(ROOT / "docs" / page) if not is_there(path)] == []


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_files_that_a_decision_names_are_there(page: Path) -> None:
    """Not those of a decision that was replaced, whose files are gone."""
    if "\nReplaced by [" not in page.read_text(encoding="utf-8"):
        assert [path for path in named(page) if path.endswith(".py") and not is_there(path)] == []
