"""Docstrings as Markdown: their examples become blocks of code."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)


class Examples(griffe.Extension):
    """Puts each example (from ``>>>`` to the next empty line) into a fence."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(r"\1```pycon\n\g<0>\n\1```", obj.docstring.value)
