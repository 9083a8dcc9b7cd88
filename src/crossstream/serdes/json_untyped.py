"""JSON without a declared type: plain dicts, lists, text and numbers.

`UntypedJson` is the serde that a user names. `Kept` is that of values for which no serde is named: they stay inside
the engine (decision 0005).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import msgspec
import polars as pl
import pyarrow as pa

from crossstream.errors import SerdeError
from crossstream.serdes import arrays, refusals
from crossstream.serdes.json_rows import Decoder, decode_row, decode_rows, encode_row, encode_rows, nulls
from crossstream.serdes.json_schemas import SchemaJson, shape_of
from crossstream.serdes.json_columns import json_text
from crossstream.serdes.serde import Bisecting, Serde, Way

_decoder: Decoder = msgspec.json.Decoder()
_ARRAY = ord("[")
_SETS = frozenset({set, frozenset})


@dataclass(frozen=True, slots=True)
class UntypedJson(Bisecting):
    """Any JSON value; what msgspec encodes is encoded as msgspec does it.

    Expressions need a declared type. The text ``null`` is a null. Of names that occur twice in an object, the last
    counts. A set is written sorted, but as it comes where it is inside something else: such keys need a declared type.
    """

    name: ClassVar[str] = "json"
    dtype: ClassVar[pl.DataType | None] = None
    varied: ClassVar[bool] = True

    def serialize(self, value: Any) -> bytes | None:
        return encode_row(_listed(value), "json")

    def deserialize(self, data: bytes | None) -> Any:
        return None if data is None else decode_row(data, _decoder, "json")

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        rows = encode_rows(values, "json")
        if not arrays.begins_with(rows, _ARRAY) or _SETS.isdisjoint(map(type, values)):
            return rows
        return encode_rows(list(map(_listed, values)), "json")

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[Any]:
        return decode_rows(data, _decoder, "json")

    def nulls(self, data: pa.LargeBinaryArray) -> Sequence[bool]:
        """As `Passing.nulls`."""
        return nulls(data, _decoder, "json")

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        if values.dtype == pl.Null:
            return arrays.null_rows(len(values))
        return json_text(values, "json", shortest=True)

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        """A column of the type that Arrow reads off the values. Raises `SerdeError` (CS-404) if there is none."""
        try:
            return arrays.series_of(pa.array(self.decode_objects(data)))
        except (pa.ArrowException, OverflowError, RecursionError, pl.exceptions.PolarsError) as error:
            raise refusals.mixed_types("json", error) from error


def _listed(value: Any) -> Any:
    """A set as a list in an order that depends on nothing but its items; anything else unchanged."""
    if type(value) not in _SETS:
        return value
    try:
        return sorted(value)
    except TypeError:  # of items of several types, or without an order
        return sorted(value, key=repr)


_JSON = UntypedJson()
_PLAIN = frozenset({str, int, float, bool, type(None)})
_LISTS = (list, tuple)
_CONTAINERS = frozenset({dict, *_LISTS})
_DEEPEST = 1000
"""Levels that are looked at: a list may hold itself, which the encoder refuses."""


@dataclass(frozen=True, slots=True)
class Kept(Bisecting):
    """Values that JSON gives back unchanged: dicts with text as keys, lists, text, numbers, booleans.

    A tuple comes back as a list. Anything else (a dataclass, an Enum, a datetime, a set) is refused: CS-410.
    """

    only_way: ClassVar[Way] = "objects"
    name: ClassVar[str] = "kept"
    dtype: ClassVar[pl.DataType | None] = None
    varied: ClassVar[bool] = True

    def serialize(self, value: Any) -> bytes | None:
        _check([value])
        return _JSON.serialize(value)

    def deserialize(self, data: bytes | None) -> Any:
        return _JSON.deserialize(data)

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        _check(values)
        return _JSON.encode_objects(values)

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[Any]:
        return _JSON.decode_objects(data)

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        return self.encode_objects(values.to_list())

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        return _JSON.decode_series(data, fields)


def kept() -> Serde:
    """The serde of values without one."""
    return Kept()


def is_kept(serde: Serde | None) -> bool:
    return isinstance(serde, Kept)


def _check(values: Sequence[Any]) -> None:
    """Raises CS-410 for the first value that JSON does not give back. Works by levels, not value by value."""
    level: Any = values
    for _ in range(_DEEPEST):
        kinds = set(map(type, level))
        if not kinds - _PLAIN:
            return
        if not kinds <= _CONTAINERS | _PLAIN:
            raise _refusal(values)
        dicts = level if kinds == {dict} else [value for value in level if type(value) is dict]
        if not {str}.issuperset(map(type, chain.from_iterable(dicts))):
            raise _refusal(values)
        items = chain.from_iterable(map(dict.values, dicts))
        lists = [] if dicts is level else [value for value in level if type(value) in _LISTS]
        level = [*items, *chain.from_iterable(lists)]


def _refusal(values: Sequence[Any]) -> SerdeError:
    for value in values:
        fault = _fault(value)
        if fault is not None:
            return refusals.not_kept(value, fault)
    raise AssertionError("values that cannot be kept together, and can one by one")


def _fault(value: Any) -> str | None:
    """The type that JSON does not give back in a value; None: there is no such type."""
    level = [value]
    while level:
        one = level.pop()
        if type(one) in _PLAIN:
            continue
        if type(one) is dict:
            wrong = [type(key).__name__ for key in one if type(key) is not str]
            if wrong:
                return f"dict with a key of type {wrong[0]}"
            level.extend(one.values())
        elif type(one) in _LISTS:
            level.extend(one)
        else:
            return type(one).__name__
    return None


def typed_as(dtype: pl.DataType) -> Serde | None:
    """The serde in which columns of a type are kept: JSON of this type. None where it has no form for the type."""
    try:
        shape_of(dtype)
    except SerdeError:
        return None
    return SchemaJson(dtype)
