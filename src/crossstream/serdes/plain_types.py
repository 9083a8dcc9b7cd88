"""Arrow's types as types of declared columns: every one has its place, or is refused by name.

A map is a list of structs of ``key`` and ``value``; a void column is text that is always null; a UUID is its text of 36
characters. The table for users: docs/dataframes.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.types as kinds

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.serdes import errors
from crossstream.serdes.json.bounds import TOO_DEEP, is_too_deep

Where = Mapping[str, Any]
"""The place that an error names: the operator and the line, or the table."""

_LEAVES: tuple[tuple[Callable[[pa.DataType], bool], pl.DataType], ...] = (
    (kinds.is_boolean, pl.Boolean()),
    (kinds.is_int8, pl.Int8()),
    (kinds.is_int16, pl.Int16()),
    (kinds.is_int32, pl.Int32()),
    (kinds.is_int64, pl.Int64()),
    (kinds.is_uint8, pl.UInt8()),
    (kinds.is_uint16, pl.UInt16()),
    (kinds.is_uint32, pl.UInt32()),
    (kinds.is_uint64, pl.UInt64()),
    (kinds.is_float32, pl.Float32()),
    (kinds.is_float64, pl.Float64()),
    (kinds.is_string, pl.String()),
    (kinds.is_large_string, pl.String()),
    (kinds.is_string_view, pl.String()),
    (kinds.is_null, pl.String()),
    (kinds.is_binary, pl.Binary()),
    (kinds.is_large_binary, pl.Binary()),
    (kinds.is_binary_view, pl.Binary()),
    (kinds.is_fixed_size_binary, pl.Binary()),
    (kinds.is_date, pl.Date()),
)

_LISTS = (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)

CASTS: Mapping[str, str] = MappingProxyType(
    {
        "variant": "cast(… as string) for its JSON, or variant_get(…, '$.field', 'int') for a part of it",
        "interval": "cast(… as string); an interval of days to seconds has a place",
        "interval year": "cast(… as int) for the years",
        "interval month": "cast(… as int) for the months",
        "interval year to month": "cast(… as string), or extract(year from …) * 12 + extract(month from …)",
        "geometry": "st_asbinary(…)",
        "geography": "st_asbinary(…)",
        "a time of nanoseconds": "cast(… as timestamp), which keeps microseconds",
    }
)
"""Types without a place, by the names that Spark has for them, and what to write instead."""


def no_place(path: str, kind: str, where: Where) -> CrossStreamError:
    """The error of a column whose type has no place. ``path``: of the column, or of the field in it."""
    cast = CASTS.get(kind.partition("(")[0], "cast(… as string), where Spark has such a cast")
    step = f"leave it out with columns=[…], or change it before: {cast}"
    return refuse("CS-150", f"column {path} is of type {kind}, which no serde reads", step, **where)


def column_type(field: pa.Field, where: Where) -> pl.DataType:
    """The type of the declared column for a column of a table. Raises CS-150 for one that has no place."""
    dtype = _dtype(field.type, field.name, where)
    if is_too_deep(dtype):
        raise no_place(field.name, TOO_DEEP.reason, where)
    return dtype


def arrow_type(dtype: pl.DataType) -> pa.DataType:
    """The Arrow type to which a column is cast before it becomes one of Polars."""
    if isinstance(dtype, pl.Struct):
        return pa.struct([pa.field(one.name, arrow_type(_instance(one.dtype))) for one in dtype.fields])
    if isinstance(dtype, pl.List):
        return pa.large_list(arrow_type(_instance(dtype.inner)))
    if dtype == pl.String:
        return pa.large_string()
    return pl.Series([], dtype=dtype).to_arrow().type


def check_names(names: Iterable[str], path: str, where: Where) -> None:
    """Raises CS-150 for names of columns or fields that occur twice, or that JSON's fields cannot have."""
    seen: set[str] = set()
    for name in names:
        whole = errors.below(path, name)
        if name in seen:
            step = "rename one of them, or leave one out"
            raise refuse("CS-150", f"there are several columns {whole}", step, **where)
        if any(char in '"\\' or char < " " for char in name):
            what = f"column {whole!r} has a quote, a backslash or a control character in its name"
            raise refuse("CS-150", what, "rename it, or leave it out with columns=[…]", **where)
        seen.add(name)


def _dtype(kind: pa.DataType, path: str, where: Where) -> pl.DataType:
    for is_kind, dtype in _LEAVES:
        if is_kind(kind):
            return dtype
    if kinds.is_dictionary(kind):
        return _dtype(kind.value_type, path, where)
    if kinds.is_struct(kind):
        return _struct(list(kind), path, where)
    if kinds.is_map(kind):
        return pl.List(
            _struct([kind.key_field.with_name("key"), kind.item_field.with_name("value")], path, where)
        )
    if any(is_list(kind) for is_list in _LISTS):
        return pl.List(_dtype(kind.value_type, f"{path}[]", where))
    return _of_parameters(kind, path, where)


def _struct(fields: list[pa.Field], path: str, where: Where) -> pl.Struct:
    check_names([field.name for field in fields], path, where)
    return pl.Struct(
        {field.name: _dtype(field.type, errors.below(path, field.name), where) for field in fields}
    )


def _of_parameters(kind: Any, path: str, where: Where) -> pl.DataType:
    """Types of a precision, a unit or a zone."""
    if kinds.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return pl.Decimal(kind.precision, kind.scale)
    if kinds.is_time(kind):
        return pl.Time()
    if kinds.is_duration(kind) and kind.unit != "ns":
        return pl.Duration("us")
    if kinds.is_timestamp(kind) and kind.unit != "ns":
        return pl.Datetime("us", None if kind.tz is None else "UTC")
    if getattr(kind, "extension_name", None) == "arrow.uuid" and "." not in path and "[" not in path:
        return pl.String()
    raise no_place(path, _name(kind), where)


def _name(kind: Any) -> str:
    """The name of a type without a place."""
    if kinds.is_interval(kind):
        return "interval"
    if (kinds.is_timestamp(kind) or kinds.is_duration(kind)) and kind.unit == "ns":
        return "a time of nanoseconds"
    if isinstance(kind, pa.OpaqueType):
        return str(kind.type_name)
    return str(getattr(kind, "extension_name", kind))


def _instance(dtype: Any) -> pl.DataType:
    made: pl.DataType = dtype() if isinstance(dtype, type) else dtype
    return made
