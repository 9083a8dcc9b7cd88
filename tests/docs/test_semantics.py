"""The rules that code and tests cite by their number ("semantics 2.2.4") are on the page of rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, headings

PAGE = ROOT / "docs" / "semantics.md"
OPERATORS = ROOT / "src" / "crossstream" / "operators"

_NUMBER = r"\d+(?:\.\d+)+"
_CITED = re.compile(rf"\b[Ss]emantics\s+({_NUMBER}(?:(?:,|–|\s+(?:and|to|or))\s*{_NUMBER})*)")
_RANGE = re.compile(rf"({_NUMBER})(?:–|\s+to\s+)({_NUMBER})")


def cited(text: str) -> Iterator[tuple[int, str]]:
    """(line, number) of each section that a text cites, those within a range too."""
    for found in _CITED.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        for number in re.findall(_NUMBER, found[1]):
            yield line, number
        for first, last in _RANGE.findall(found[1]):
            chapter, _, start = first.rpartition(".")
            for part in range(int(start) + 1, int(last.rpartition(".")[2])):
                yield line, f"{chapter}.{part}"


def sections() -> list[str]:
    """The numbers of the sections and of the items of the page, in their order."""
    text = PAGE.read_text(encoding="utf-8")
    found = [title.split(" ")[0].rstrip(".") for title in headings(PAGE) if title[0].isdigit()]
    return found + re.findall(rf"^\*\*({_NUMBER})\*\*", text, re.MULTILINE)


def test_sections_are_numbered_in_order() -> None:
    numbers = [tuple(map(int, number.split("."))) for number in sections()]
    assert numbers == sorted(set(numbers))
    for number in numbers:
        before = (*number[:-1], number[-1] - 1)
        assert number[-1] == 1 or before in numbers, f"section {number} follows none"


def test_sections_that_are_cited_exist() -> None:
    known = set(sections())
    files: list[Path] = [path for room in ("src", "tests") for path in sorted((ROOT / room).rglob("*.py"))]
    missing = [
        f"{path.relative_to(ROOT)}:{line}: semantics {number}"
        for path in files
        if path != Path(__file__)
        for line, number in cited(path.read_text(encoding="utf-8"))
        if number not in known
    ]
    assert missing == []


@pytest.mark.parametrize(
    "operator", sorted(path.parent.name for path in OPERATORS.glob("*/__init__.py")), ids=str
)
def test_each_operator_has_its_rules(operator: str) -> None:
    assert f"`operators/{operator}/" in PAGE.read_text(encoding="utf-8")
    assert list(cited((OPERATORS / operator / "__init__.py").read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("Source: semantics 2.2.6, KIP-889", ["2.2.6"]),
        ("(semantics\n    2.2.6)", ["2.2.6"]),
        ("semantics 2.1, 8.1–8.3; KIP-633", ["2.1", "8.1", "8.3", "8.2"]),
        ("semantics 8.12 to 8.14.", ["8.12", "8.14", "8.13"]),
        ("Sources: semantics 3.5 and 5.1.", ["3.5", "5.1"]),
    ],
)
def test_citations_are_found(text: str, numbers: list[str]) -> None:
    assert [number for _, number in cited(text)] == numbers
