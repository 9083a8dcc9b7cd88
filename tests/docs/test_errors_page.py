"""docs/errors.md is written from the table of error codes, which has every code of the source and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from website.errors import PAGE, written

import crossstream
from crossstream import errors
from crossstream.error_codes import CODES, SECTIONS, refuse
from tests.docs.pages import PAGES, ROOT, name_of

SOURCE = sorted((ROOT / "src").rglob("*.py"))
TABLE = ROOT / "src" / "crossstream" / "error_codes"
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


def nodes() -> Iterator[tuple[Path, ast.AST]]:
    """Of the source without the table and the classes."""
    for path in SOURCE:
        if path.parent != TABLE and path != TABLE.with_name("errors.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                yield path, node


def raised() -> set[str]:
    """The codes in the source: strings that are a code and nothing else."""
    strings = (node.value for _, node in nodes() if isinstance(node, ast.Constant))
    return {text for text in strings if isinstance(text, str) and CODE.fullmatch(text)}


def made_without_the_table() -> Iterator[tuple[str, str, dict[str | None, ast.expr]]]:
    """Where, class and keyword arguments of each call of a class."""
    for path, node in nodes():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLASSES:
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            yield f"{path.name}:{node.lineno}", node.func.id, given


def test_the_page_is_what_is_written() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page), "run python -m website.errors"


def test_the_table_has_the_codes_of_the_source() -> None:
    assert sorted(CODES) == sorted(raised())


def test_codes_are_in_order_and_in_one_section() -> None:
    listed = [code for section in SECTIONS.values() for code in section]
    assert listed == sorted(set(listed))


@pytest.mark.parametrize("code", CODES)
def test_a_row_of_the_table(code: str) -> None:
    row = CODES[code]
    assert CODE.fullmatch(code)
    assert int(code[3:]) in RANGES[row.kind.__name__]
    assert 1 <= len(row.causes) <= 3
    assert all(row.causes)
    assert row.next
    assert "](" not in row.next, "a link is for the causes: a terminal shows the next step"
    assert row.step.count("`") % 2 == 0, row.step
    assert "|" not in "".join((*row.causes, row.next))


@pytest.mark.parametrize("code", CODES)
def test_an_error_has_the_class_and_the_step_of_its_code(code: str) -> None:
    error = refuse(code, "it is so", topic="orders")
    assert (type(error), error.code, error.what) == (CODES[code].kind, code, "it is so")
    assert (error.next, error.where) == (CODES[code].step, {"topic": "orders"})
    assert refuse(code, "it is so", "do this").next == "do this"


def test_only_commands_are_in_backticks() -> None:
    assert (
        refuse("CS-602", "").next
        == "create it, or correct the name; `crossstream topics list` shows what is there"
    )
    assert refuse("CS-713", "").next == "give the state_dir of an application that has run"


def test_what_is_made_without_the_table_has_a_code_of_its_class_and_a_next_step() -> None:
    wrong = []
    for place, kind, given in made_without_the_table():
        code, step = given.get("code"), given.get("next")
        literal = code.value if isinstance(code, ast.Constant) else None
        misplaced = literal is not None and CODES[str(literal)].kind is not CLASSES[kind]
        empty = step is None or (isinstance(step, ast.Constant) and not step.value)
        if code is None or misplaced or empty:
            wrong.append(place)
    assert wrong == []


def test_defaults_are_never_raised() -> None:
    assert set(CODES) & DEFAULTS == set()


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
        assert set(CODE.findall(text)) - set(CODES) == set()
