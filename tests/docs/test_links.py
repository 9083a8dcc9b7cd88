"""Links between pages, and to files of the repository, lead somewhere; every page can be reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, anchors, headings, links, name_of


def is_elsewhere(target: str) -> bool:
    return target.startswith(("http://", "https://", "mailto:"))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in links(page):
        if is_elsewhere(target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def test_every_page_can_be_reached() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        local = (target.partition("#")[0] for target in links(page) if not is_elsewhere(target))
        waiting.extend((page.parent / path).resolve() for path in local if path)
    assert [name_of(page) for page in PAGES if page not in seen] == []


DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_decisions_have_their_parts_and_are_cited_in_the_code(page: Path) -> None:
    number = page.name[:4]
    assert headings(page)[0].startswith(f"{number}: ")
    assert headings(page)[1:] == ["Question", "Choice", "Evidence"]
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    replaced = "\nReplaced by [" in page.read_text(encoding="utf-8")
    assert replaced != (f"ecision {number}" in source)
