"""Keys as those of a Python dict: some it does not take, and some it takes for one that are two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crossstream.errors import StateError


def check_dict_keys(keys: Sequence[Any], marks: Sequence[object], step: str, **where: object) -> None:
    """Raises `StateError` CS-717 where a dict of these keys would not have them all.

    ``marks``: what tells apart keys that are equal for Python; ``step``: what to do instead; ``where``: whose they are.

    >>> check_dict_keys(["a", 1], [b"a", b"1"], "ask for one after the other")
    """
    seen: dict[Any, tuple[Any, object]] = {}
    for key, mark in zip(keys, marks, strict=True):
        try:
            first, other = seen.setdefault(key, (key, mark))
        except TypeError:
            what = f"a key is a {type(key).__name__}, which cannot be a key of the dict to be returned"
            raise StateError(what, code="CS-717", where={**where, "key": key}, next=step) from None
        if other != mark:
            what = f"the keys {first!r} and {key!r} would be one key of the dict to be returned"
            raise StateError(what, code="CS-717", where={**where, "key": key}, next=step)
