"""Copies of objects that decoding made, where they cost less than to decode the bytes again."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from itertools import chain
from operator import methodcaller
from typing import Any
from uuid import UUID

import msgspec

_NOTHING = type(None)
_FIXED = frozenset(
    {str, int, float, bool, bytes, _NOTHING, Decimal, UUID, dt.datetime, dt.date, dt.time, dt.timedelta}
)
"""Types of objects that cannot be changed."""


Copy = Callable[[Any], Any]

_copy_struct: Copy = methodcaller("__copy__")


def copier_of(objects: Sequence[Any]) -> Copy | None:
    """What makes another object like one of these, which share nothing that can be changed; None: decoding does.

    It takes None where one of them is None.

    >>> copier_of([{"name": "Ada"}]) is dict.copy
    True
    >>> copier_of([{"names": ["Ada"]}]) is None
    True
    """
    kinds = set(map(type, objects))
    there = [one for one in objects if one is not None] if _NOTHING in kinds else objects
    if len(kinds - {_NOTHING}) != 1:
        return None
    kind = type(there[0])
    copy: Copy
    parts_of: Callable[[Any], Iterable[Any]]
    copy, parts_of = (dict.copy, dict.values) if kind is dict else (_copy_struct, msgspec.structs.astuple)
    if kind is not dict and not issubclass(kind, msgspec.Struct):
        return None
    if not _FIXED.issuperset(map(type, chain.from_iterable(map(parts_of, there)))):
        return None
    return copy if there is objects else lambda one: None if one is None else copy(one)
