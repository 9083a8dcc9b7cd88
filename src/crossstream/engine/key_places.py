"""Which bytes of a key say where its row goes, where rows meet that came on several ways.

These need not be the bytes that the key travels in: what a function made travels pickled (decision 0005), and the same
key on another way is in the serde of a topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any
from uuid import UUID

import msgspec

from crossstream.algebra.values import Bytes, Values
from crossstream.errors import SerdeError
from crossstream.serdes import Serde, arrays, calls
from crossstream.serdes.internal import pickled
from crossstream.serdes.serde import alike

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


def placing_bytes(keys: Values, by: Serde) -> Bytes:
    """The keys in a serde; where it refuses one, or none is known (pickled), in bytes that equal keys share."""
    if alike(by, pickled()):
        return arrays.binary_rows(list(map(_of_object, keys.objects())))
    try:
        return keys.wire(by)
    except SerdeError:
        return arrays.binary_rows([_written(by, key) for key in keys.objects()])


def _written(by: Serde, key: Any) -> bytes | None:
    try:
        return calls.serialize(by, key)
    except SerdeError:
        return _of_object(key)


def _of_object(key: Any) -> bytes | None:
    """The same for equal objects, in every process; others may have them too.

    Pickles of equal objects may differ, and Python's own hash is the same everywhere for numbers only. What a class of
    the user's calls equal nobody else knows: its objects have one place.
    """
    if key is None:
        return None
    if isinstance(key, str):
        return str.encode(key, errors="surrogatepass")
    if isinstance(key, bytes | bytearray | memoryview):
        return bytes(key)
    if isinstance(key, int | float | complex | Decimal | Fraction):
        return _of_number(key)
    if isinstance(key, tuple | list):
        return _of_all(key)
    if isinstance(key, Mapping):
        return _of_items(key)
    if isinstance(key, UUID):
        return key.bytes
    if isinstance(key, date | time | timedelta):
        return _of_time(key)
    if isinstance(key, Enum) and type(key).__eq__ is object.__eq__:
        return _of_all((type(key).__name__, key.name, key.value))
    return _of_all(getattr(key, name, None) for name in _compared(type(key)))


def _of_all(parts: Iterable[Any]) -> bytes:
    return b",".join(_of_object(part) or b"" for part in parts)


def _of_number(key: Any) -> bytes:
    not_a_number = key.is_nan() if isinstance(key, Decimal) else key != key
    return b"nan" if not_a_number else b"%d" % hash(key)


def _of_items(key: Mapping[Any, Any]) -> bytes:
    """In no order; without zeros, for a `Counter` with them equals one without."""
    pairs = [(_of_all([name]), _of_all([entry])) for name, entry in key.items()]
    return b",".join(sorted(name + b":" + entry for name, entry in pairs if entry != b"0"))


def _of_time(key: date | time | timedelta) -> bytes:
    if key != key:  # pandas' NaT
        return b"nan"
    if isinstance(key, timedelta):
        return b"%d" % (key // _MICROSECOND)
    if isinstance(key, datetime):
        return _of_moment(key)
    if isinstance(key, date):
        return date.isoformat(key).encode()
    plain = time(key.hour, key.minute, key.second, tzinfo=key.tzinfo)  # without its fold, as in `_of_moment`
    offset = (plain.utcoffset() or timedelta(0)) // timedelta(seconds=1)
    return b"%d.%d" % ((key.hour * 60 + key.minute) * 60 + key.second - offset, key.microsecond)


def _of_moment(key: datetime) -> bytes:
    """Of the instant, where it is known; without the fold, which times of one zone are compared without."""
    day, clock = (key.year, key.month, key.day), (key.hour, key.minute, key.second, key.microsecond)
    plain = datetime(*day, *clock, tzinfo=key.tzinfo)
    if plain.utcoffset() is None:
        return datetime(*day, *clock).isoformat().encode()
    return b"%d" % ((plain - _EPOCH) // _MICROSECOND)


def _compared(kind: type) -> Sequence[str]:
    """The fields that make objects of a dataclass or struct equal; none where the class has an equality of its own."""
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__ if kind.__eq__ is msgspec.Struct.__eq__ else ()
    owner = next(base for base in kind.__mro__ if "__eq__" in vars(base))
    code = getattr(vars(owner)["__eq__"], "__code__", None)
    if code is None or code.co_filename != "<string>" or "__dataclass_fields__" not in vars(owner):
        return ()  # not written by `dataclass`
    return [field.name for field in fields(owner) if field.compare]
