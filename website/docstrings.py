"""Docstrings as Markdown: examples become blocks of code, and sections of the rule book become links."""

from __future__ import annotations

import re
from typing import Any

import griffe
from tests.docs.pages import ROOT, anchors

_EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)
_SECTIONS = re.compile(r"(?<=semantics )\d+(?:\.\d+)*(?:(?:, | and )\d+(?:\.\d+)+)*")
_RULES = {anchor.partition("-")[0]: anchor for anchor in anchors(ROOT / "docs" / "semantics.md")}
"""Section of the rule book, without its dots → its anchor."""


class Docstrings(griffe.Extension):
    """Makes the project's docstrings fit for the reference."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            text = _EXAMPLE.sub(r"\1```pycon\n\g<0>\n\1```", obj.docstring.value)
            obj.docstring.value = _SECTIONS.sub(lambda found: re.sub(r"[\d.]*\d", linked, found[0]), text)


def linked(section: re.Match[str]) -> str:
    anchor = _RULES.get(section[0].replace(".", ""))
    return f"[{section[0]}](../semantics.md#{anchor})" if anchor else section[0]
