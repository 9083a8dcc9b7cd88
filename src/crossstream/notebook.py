"""What streams, tables, stores and applications look like in a notebook: small pieces of HTML, nothing loaded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

LONGEST = 200
"""A cell shows so many characters."""
_CELL = 'style="text-align:{};padding:2px 10px"'


def html_title(name: str, facts: Iterable[str]) -> str:
    """A name, and in grey what is known of it."""
    known = " · ".join(escape(fact) for fact in facts)
    return f'<div><b>{escape(name)}</b> <span style="color:#777">{known}</span></div>'


def html_note(text: str) -> str:
    """A line in grey."""
    return f'<div style="color:#777">{escape(text)}</div>'


def html_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table; numbers stand at the right, and everything is text: what a topic holds is never markup.

    >>> html_table(["a"], [["<b>"]]).count("&lt;b&gt;")
    1
    """
    top = "".join(f"<th {_CELL.format('left')}>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is None:
        text = ""
    elif isinstance(value, str):
        text = value
    else:
        text = f"{value:,}" if is_number else repr(value)
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    return f"<td {_CELL.format('right' if is_number else 'left')}>{escape(text)}</td>"
