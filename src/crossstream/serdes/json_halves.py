r"""Halves of surrogate pairs, such as the ``"\ud83d"`` that JavaScript writes of an emoji that was cut.

They are legal in the text of JSON, but are no Unicode, so neither a `str` that can be written nor a column holds them.
msgspec refuses any text with one, also where it skips the field. So it is given the text with something else in their
place, and then with something else again: what it makes of both alike does not depend on them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from crossstream.serdes.json_shapes import KEPT

_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""Any escape, whole pairs first; the group is there for a half."""


def without_halves(
    row: bytes, decode: Callable[[bytes], Any], read: Callable[[Any], Any]
) -> tuple[Any, str | None] | None:
    """The value of a row, and the path to the first half in what is ``read`` of it (None: there is none there).

    None for a row that has no halves at all. Raises what ``decode`` raises.
    """
    first, second = (_with_halves_as(row, escape) for escape in (rb"\ufffd", rb"\ufffe"))
    if first == second:
        return None
    value = decode(first)
    return value, _difference(*(_plain(read(one)) for one in (value, decode(second))))


def _with_halves_as(row: bytes, escape: bytes) -> bytes:
    return _ESCAPE.sub(lambda found: escape if found[1] else found[0], row)


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, builtin_types=KEPT)


def _difference(one: Any, other: Any) -> str | None:
    """The path to a part in which two plain values differ; None if they do not."""
    pending = [("", one, other)]
    while pending:
        path, one, other = pending.pop()
        if isinstance(one, dict):
            names = [f"{path}.{name}" if path else str(name) for name in one]
            if list(one) != list(other):
                return next((name for name, its in zip(names, other, strict=False) if its not in one), path)
            pending += zip(names, one.values(), other.values(), strict=True)
        elif isinstance(one, list | tuple):
            if len(one) != len(other):  # of sets
                return f"{path}[]"
            pending += [(f"{path}[]", *pair) for pair in zip(one, other, strict=True)]
        elif one != other and one == one:  # NaN, the default of a field, is no difference
            return path
    return None
