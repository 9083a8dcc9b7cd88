"""Decoded values of events as columns, in the form in which a connector wrote them."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import UNSET, UnsetType

from crossstream.serdes.debezium.convert import DIGITS, Logical, bad, digits, instance_of
from crossstream.serdes.json_columns import null_series, struct_of

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


def raw_series(values: list[Any], dtype: Any) -> tuple[pl.Series, Logical | None]:
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
        return null_series(len(values), pl.Null()), own
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
    items, own = raw_series(list(chain.from_iterable(present)), instance_of(dtype.inner))
    if own is not None and own.name != DIGITS:
        raise bad("a list of values in objects of their own")
    there = np.fromiter((isinstance(value, list) for value in values), bool, len(values))
    sizes = np.fromiter(
        (len(value) if isinstance(value, list) else 0 for value in values), np.int64, len(values)
    )
    ends = np.append(0, np.cumsum(sizes))
    return pl.Series(pa.LargeListArray.from_arrays(pa.array(ends), items.to_arrow(), mask=pa.array(~there)))


def _structs(values: list[Any], dtype: pl.Struct) -> pl.Series:
    there = np.fromiter((value is not None and value is not UNSET for value in values), bool, len(values))
    present = [value for value in values if value is not None and value is not UNSET]
    parts = {}
    for place, one in enumerate(dtype.fields):
        parts[one.name] = raw_series(list(map(attrgetter(f"f{place}"), present)), instance_of(one.dtype))[0]
    dense = struct_of(parts, len(present))
    if there.all():
        return dense
    if not len(dense):
        return null_series(len(values), pl.Null())
    return dense.gather(pl.Series(pa.array(np.cumsum(there) - 1, mask=~there), dtype=pl.Int64))


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
