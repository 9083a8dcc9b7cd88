"""docs/errors.md has every code that the source raises, under its class, and no other."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import crossstream
from crossstream import errors
from tests.docs.pages import PAGES, ROOT, name_of

PAGE = ROOT / "docs" / "errors.md"
SOURCE = sorted((ROOT / "src").rglob("*.py"))
CODE = re.compile(r"CS-\d{3}")
CLASSES = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.CrossStreamError)
}
DEFAULTS = {kind.default_code for kind in CLASSES.values()} - {
    "CS-128",
    "CS-750",
}
RANGES = {
    "CrossStreamError": range(100),
    "TopologyError": range(100, 200),
    "ConfigError": range(200, 300),
    "CopartitionError": range(128, 129),
    "SerdeError": range(400, 500),
    "ProcessingError": range(500, 600),
    "SourceError": range(600, 650),
    "SinkError": range(650, 700),
    "StateError": range(700, 800),
    "IncompatibleStateError": range(750, 751),
}


def rows() -> list[tuple[str, str, str]]:
    """Code, meaning and next step of each row of the page's tables."""
    cells = (
        line.strip("|").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| CS-")
    )
    return [(code.strip(), meaning.strip(), step.strip()) for code, meaning, step in cells]


def raised() -> Counter[str]:
    """The codes in the source: strings that are a code and nothing else, except in errors.py."""
    found: Counter[str] = Counter()
    for path in SOURCE:
        if path.name == "errors.py" and path.parent.name == "crossstream":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
                found[node.value] += 1
    return found


def calls() -> Iterator[tuple[Path, ast.Call, str]]:
    """Every place where an error of ours is made, and its class."""
    for path in SOURCE:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLASSES:
                yield path, node, node.func.id


def test_page_and_source_have_the_same_codes() -> None:
    assert sorted(code for code, _, _ in rows()) == sorted(raised())


def test_every_row_says_what_to_do() -> None:
    assert [code for code, meaning, step in rows() if not meaning or not step] == []


def test_no_error_is_made_without_a_code_of_its_class() -> None:
    wrong = []
    for path, call, kind in calls():
        codes = [keyword.value for keyword in call.keywords if keyword.arg == "code"]
        literal = codes[0].value if codes and isinstance(codes[0], ast.Constant) else None
        if not codes or (literal is not None and int(str(literal)[3:]) not in RANGES[kind]):
            wrong.append(f"{path.name}:{call.lineno}")
    assert wrong == []


def test_no_error_is_made_without_a_next_step() -> None:
    """Nor with one that is nothing, or an empty text."""
    wrong = []
    for path, call, _ in calls():
        steps = [keyword.value for keyword in call.keywords if keyword.arg == "next"]
        if not steps or (isinstance(steps[0], ast.Constant) and not steps[0].value):
            wrong.append(f"{path.name}:{call.lineno}")
    assert wrong == []


def test_defaults_are_never_raised() -> None:
    assert set(raised()) & DEFAULTS == set()


def test_every_public_error_is_on_the_page() -> None:
    text = PAGE.read_text()
    public = [name for name in crossstream.__all__ if name.endswith("Error")]
    assert [name for name in public if f"`{name}`" not in text and f"crossstream.{name}`" not in text] == []


OTHERS = [page for page in PAGES if page.name not in ("CHANGELOG.md", "errors.md")]


@pytest.mark.parametrize("page", OTHERS, ids=name_of)
def test_codes_that_pages_name_exist(page: Path) -> None:
    """Those of a decision that was replaced may be gone."""
    text = page.read_text(encoding="utf-8")
    if "\nReplaced by [" not in text:
        assert set(CODE.findall(text)) - {code for code, _, _ in rows()} == set()
