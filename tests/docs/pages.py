"""The pages of the documentation as data: their blocks of code, headings and links."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))

_FENCE = re.compile(r"^( *)```(.*)$")
_HEADING = re.compile(r"^#{1,6} +(.*?) *#*$")
_LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
_CODE = re.compile(r"(`+)(?:(?!\1).)*\1")


@dataclass(frozen=True)
class Block:
    """Code of a page. ``line``: of its first line; ``tags``: what the fence says, the language first."""

    page: Path
    line: int
    tags: tuple[str, ...]
    code: str

    @property
    def language(self) -> str:
        return self.tags[0] if self.tags else ""

    def compiled(self) -> object:
        """Python code whose tracebacks point into the page."""
        return compile("\n" * (self.line - 1) + self.code, str(self.page), "exec")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    found = []
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), 1))
    for number, line in lines:
        fence = _FENCE.match(line)
        if fence is None:
            continue
        body = []
        for _, inside in lines:
            if inside.strip() == "```":
                break
            body.append(inside)
        code = textwrap.dedent("\n".join(body)) + "\n"
        found.append(Block(page, number + 1, tuple(fence[2].split()), code))
    return found


def prose(page: Path) -> Iterator[str]:
    """The lines outside of fences."""
    inside = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if _FENCE.match(line):
            inside = not inside
        elif not inside:
            yield line


def headings(page: Path) -> list[str]:
    """The text of the headings, in order."""
    return [found[1] for line in prose(page) if (found := _HEADING.match(line))]


def anchors(page: Path) -> set[str]:
    """What a link to the page may name after ``#``: headings as GitHub writes them."""
    found: set[str] = set()
    for heading in headings(page):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        number = 1
        unique = slug
        while unique in found:
            unique = f"{slug}-{number}"
            number += 1
        found.add(unique)
    return found


def links(page: Path) -> list[str]:
    """The targets of the links of a page, those in code left out."""
    return [target for line in prose(page) for target in _LINK.findall(_CODE.sub("`", line))]
