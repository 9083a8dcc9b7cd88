"""Writes the tables of docs/errors.md from the table of error codes: ``python -m website.errors``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from crossstream.error_codes import SECTIONS
from crossstream.error_codes.code import Code

PAGE = Path(__file__).parents[1] / "docs" / "errors.md"
MARK = "<!-- From here on, `python -m website.errors` writes this page. -->\n"


def written(page: str) -> str:
    """The page with its tables as the codes say; what is above the mark stays."""
    head, mark, _ = page.partition(MARK)
    return head + mark + "".join(table(title, codes) for title, codes in SECTIONS.items())


def table(title: str, codes: Mapping[str, Code]) -> str:
    rows = (f"| {name} | {'; or '.join(row.causes)} | {row.next} |\n" for name, row in codes.items())
    return f"\n## {title}\n\n| code | meaning | next |\n|---|---|---|\n{''.join(rows)}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
