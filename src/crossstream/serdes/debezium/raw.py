"""Rows of events in JSON as columns, in the form in which a connector wrote them."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import polars as pl
from msgspec import UNSET, UnsetType

from crossstream.serdes import arrays
from crossstream.serdes.debezium.convert import DIGITS, NO_SCHEMA, NOT_FINITE, Logical, bad, digits, is_bytes
from crossstream.serdes.debezium.events import Raw
from crossstream.serdes.debezium.settings import Debezium
from crossstream.serdes.json.shapes import Field, column, instance_of

_NAMES = {
    "oid": "$oid",
    "date": "$date",
    "long": "$numberLong",
    "small": "$numberInt",
    "double": "$numberDouble",
    "decimal": "$numberDecimal",
    "binary": "$binary",
    "uuid": "$uuid",
}


class Boxed(msgspec.Struct, gc=False, rename=_NAMES):
    """A value in an object of its own: MongoDB's extended JSON, and decimals whose scale varies."""

    oid: Any = UNSET
    date: Any = UNSET
    long: Any = UNSET
    small: Any = UNSET
    double: Any = UNSET
    decimal: Any = UNSET
    binary: Any = UNSET
    uuid: Any = UNSET
    scale: Any = UNSET
    value: Any = UNSET


LENIENT = int | float | str | bool | Boxed | None | UnsetType
"""What a connector may write for a single value."""
_LENIENTS: msgspec.json.Decoder[Any] = msgspec.json.Decoder(LENIENT)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows as objects (`Image`). ``described``: their schema; ``keys``: they have the columns of the key only."""

    settings: Debezium
    objects: list[Any]
    described: Logical | None
    keys: bool = False

    def there(self) -> np.ndarray:
        if not {type(None), UnsetType} & set(map(type, self.objects)):
            return np.ones(len(self.objects), bool)
        return np.fromiter(
            (one is not None and one is not UNSET for one in self.objects), bool, len(self.objects)
        )

    def have_fields(self) -> bool:
        """Whether every row has at least one of the declared fields."""
        waiting = self.objects
        for place in range(len(self.settings.fields)):
            waiting = [one for one in waiting if getattr(one, f"f{place}") is UNSET]
            if not waiting:
                return True
        return False

    def column(self, rows: np.ndarray, field: Field) -> Raw:
        names = self.settings.keys if self.keys else [one.name for one in self.settings.fields]
        objects = (
            self.objects if len(rows) == len(self.objects) else [self.objects[row] for row in rows.tolist()]
        )
        values = list(map(attrgetter(f"f{list(names).index(field.name)}"), objects))
        dtype = column(field).dtype
        missing = None
        if UnsetType in set(map(type, values)):
            missing = np.fromiter((value is UNSET for value in values), bool, len(values))
            values = [None if value is UNSET else value for value in values]
        if self.keys and field.name == "_id":
            values = [_mongo_key(value) for value in values]
        series, own = _raw_series(values, dtype)
        return Raw(series, own or self._logical(field, dtype), missing)

    def _logical(self, field: Field, dtype: pl.DataType) -> Logical:
        assumed = self.settings.logical(field.name, dtype)
        if self.described is None:
            return assumed
        name = "id" if self.keys and field.name == "_id" else field.name
        found = self.described.inner.get(name, NO_SCHEMA)
        if is_bytes(dtype):
            return assumed
        return assumed if found.name is None and assumed.unit is not None else found


def _mongo_key(value: Any) -> Any:
    """The ``_id`` in the key of a record, which MongoDB's connector writes as a text in JSON."""
    try:
        return _LENIENTS.decode(value) if isinstance(value, str) else value
    except msgspec.MsgspecError:
        return value


def _raw_series(values: list[Any], dtype: Any) -> tuple[pl.Series, Logical | None]:
    """A column of decoded values, and what they mean if they say so themselves."""
    if isinstance(dtype, pl.Struct):
        return _structs(values, dtype), None
    kinds = set(map(type, values)) - {type(None), UnsetType}
    if isinstance(dtype, pl.List):
        if kinds <= {list}:
            return _lists(values, dtype), None
        return pl.Series(values, dtype=pl.String), None
    own = None
    if Boxed in kinds:
        opened = [_opened(value, dtype) for value in values]
        values = [value for value, _ in opened]
        means = {meaning for value, meaning in opened if value is not None}
        if len(means) > 1:
            raise bad("values in several forms")
        own = next(iter(means), None)
        kinds = set(map(type, values)) - {type(None)}
    if UnsetType in set(map(type, values)):
        values = [None if value is UNSET else value for value in values]
    if not kinds:
        return arrays.null_series(len(values), pl.Null()), own
    if str in kinds and dtype in (pl.Float32, pl.Float64):
        values = [NOT_FINITE.get(value, value) if isinstance(value, str) else value for value in values]
        kinds = set(map(type, values)) - {type(None)}
    return _flat(values, kinds), own


_KINDS: Mapping[type, Any] = {int: pl.Int64, str: pl.String, float: pl.Float64, bool: pl.Boolean}


def _flat(values: list[Any], kinds: set[type]) -> pl.Series:
    if kinds == {int, float}:
        kinds = {float}
    if len(kinds) > 1:
        raise bad("values of several types in one field")
    kind = next(iter(kinds))
    try:
        return pl.Series(values, dtype=_KINDS[kind], strict=kind is not float)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        if kind is not int:
            raise
        try:
            return pl.Series(values, dtype=pl.UInt64)
        except (TypeError, OverflowError, pl.exceptions.PolarsError) as error:
            raise bad(f"an integer beyond 64 bits ({error})") from error


def _lists(values: list[Any], dtype: Any) -> pl.Series:
    present = [value for value in values if isinstance(value, list)]
    items, own = _raw_series(list(chain.from_iterable(present)), instance_of(dtype.inner))
    if own is not None and own.name != DIGITS:
        raise bad("a list of values in objects of their own")
    there = np.fromiter((isinstance(value, list) for value in values), bool, len(values))
    sizes = np.fromiter(
        (len(value) if isinstance(value, list) else 0 for value in values), np.int64, len(values)
    )
    return arrays.list_series(sizes, items, ~there)


def _structs(values: list[Any], dtype: pl.Struct) -> pl.Series:
    there = np.fromiter((value is not None and value is not UNSET for value in values), bool, len(values))
    present = [value for value in values if value is not None and value is not UNSET]
    parts = {}
    for place, one in enumerate(dtype.fields):
        parts[one.name] = _raw_series(list(map(attrgetter(f"f{place}"), present)), instance_of(one.dtype))[0]
    dense = arrays.struct_of(parts, len(present))
    return arrays.series_with_nulls(dense, there) if present else arrays.null_series(len(values), pl.Null())


_DIGITS = Logical(DIGITS)
_MILLIS = Logical("io.debezium.time.Timestamp")


def _opened(value: Any, dtype: Any) -> tuple[Any, Logical | None]:
    """A value out of its object, and what it means."""
    if value is None or value is UNSET:
        return None, None
    if not isinstance(value, Boxed):
        return value, None
    if value.value is not UNSET and value.scale is not UNSET:
        return digits(base64.b64decode(value.value), value.scale), _DIGITS
    if value.oid is not UNSET:
        return value.oid, None
    if value.date is not UNSET:
        return _date(value.date)
    for inner in (value.long, value.small):
        if inner is not UNSET:
            return int(inner), None
    if value.double is not UNSET:
        return float(value.double), None
    if value.decimal is not UNSET:
        return str(value.decimal), _DIGITS
    if value.uuid is not UNSET:
        return value.uuid, None
    if value.binary is not UNSET:
        return _binary(value.binary, dtype), None
    raise bad(f"an object where {dtype} is declared")


def _date(given: Any) -> tuple[Any, Logical | None]:
    inner: Any = given.get("$numberLong") if isinstance(given, dict) else given
    return (inner, None) if isinstance(given, str) else (int(inner), _MILLIS)


def _binary(given: Any, dtype: Any) -> Any:
    """Bytes as base64; a UUID as its text where text is declared."""
    text: Any
    text, kind = (given.get("base64"), given.get("subType")) if isinstance(given, dict) else (given, None)
    if dtype == pl.String and kind in ("04", "4"):
        return str(uuid.UUID(bytes=base64.b64decode(text)))
    return text
