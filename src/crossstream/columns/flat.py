"""Keys and values as the columns of a table in a lakehouse or a database: the fields of a struct become columns.

    key      a column named by the user; of a struct its fields, those of structs inside it too
    value    its fields, without those that the user names as the key; of another type the column ``value``
    time     if asked for, the timestamp of the record

Such tables have fewer types than Polars: integers have a sign, and times are in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.columns import in_postgres
from crossstream.columns.changes import Changes
from crossstream.columns.order import by_arrival
from crossstream.columns.values import Values

Format: TypeAlias = Literal["delta", "iceberg", "postgres"]
"""The kinds of tables."""
TypesOf: TypeAlias = Literal["delta", "iceberg", "postgres", "spark"]
"""Whose types a column may have."""

DELETED = "__deleted"
"""The column of changes that says which rows are gone; tables do not have it."""
KEY = "key"
"""The column of keys that have no other name."""
VALUE = "value"
"""The column of values that are no structs."""
TIME = pa.timestamp("us", tz="UTC")
_KEYS = b"crossstream.key"

_SAME = (
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
)
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
_SMALL = (pa.int8(), pa.int16())
_ONLY_SPARK = {
    pa.null(): pa.null(),
    pa.time64("ns"): pa.string(),
    **{pa.duration(unit): pa.duration("us") for unit in ("ms", "us", "ns")},
}


class NoSuchColumn(Exception):
    """A type that tables of this format do not have, or names that are there twice; the text says which."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a table: ``keys`` are those of the key, of which there may be none.

    ``shared``: those that are fields of the value, too.
    """

    schema: pa.Schema
    keys: tuple[str, ...]
    shared: tuple[str, ...] = ()


def layout_of(
    form: Format,
    key: pl.DataType | None,
    value: pl.DataType,
    keys: Sequence[str] | None,
    timestamp: str | None,
) -> Layout:
    """The columns of records of these types. ``keys``: names for those of the key; None: those of its fields, or "key".

    A name other than "key" that is a field of the value, too, is one column. Raises `NoSuchColumn`.
    """
    key_fields = [] if key is None or keys == () else list(_leaves(KEY, _arrow_of(key)))
    named = set(keys or ()) - {KEY}
    if keys is None:
        keys = [field.name for field in key_fields]
    elif keys and len(keys) != len(key_fields):
        names = ", ".join(field.name for field in key_fields)
        raise NoSuchColumn(
            f"the key has {len(key_fields)} columns ({names}), and {len(keys)} names are given"
        )
    fields = [field.with_name(name) for field, name in zip(key_fields, keys or (), strict=False)]
    whole = _arrow_of(value)
    of_value = list(whole) if pa.types.is_struct(whole) else [pa.field(VALUE, whole)]
    shared = tuple(field.name for field in of_value if pa.types.is_struct(whole) and field.name in named)
    types = {field.name: table_type(form, field.type, field.name) for field in fields}
    for field in of_value:
        kind = table_type(form, field.type, field.name)
        if field.name not in shared:
            fields.append(field)
        elif not (types[field.name] == kind or _are_whole(types[field.name], kind)):
            raise NoSuchColumn(
                f"there are two columns {field.name!r}: the key is {types[field.name]}, and the field {kind}"
            )
    fields = [pa.field(field.name, table_type(form, field.type, field.name)) for field in fields]
    if timestamp is not None:
        fields.append(pa.field(timestamp, TIME))
    names_ = [field.name.lower() for field in fields]
    twice = sorted({field.name for field in fields if names_.count(field.name.lower()) > 1})
    if twice:
        raise NoSuchColumn(f"there are two columns {twice[0]!r}, of the key, the value or the time")
    if not fields or "" in names_ or DELETED in names_:
        raise NoSuchColumn(f"there must be a column, none without a name, and none named {DELETED!r}")
    schema = pa.schema(fields)
    for reason in in_postgres.refused(schema) if form == "postgres" else ():
        raise NoSuchColumn(reason)
    return Layout(schema, tuple(keys), shared)


def _are_whole(*kinds: pa.DataType) -> bool:
    return all(pa.types.is_integer(kind) for kind in kinds)


def table_type(form: TypesOf, kind: pa.DataType, column: str) -> pa.DataType:
    """The type of a column in a table of this format. Raises `NoSuchColumn` if it has none."""
    if form == "spark" and kind in _ONLY_SPARK:
        return _ONLY_SPARK[kind]
    if form == "iceberg" and kind in _SMALL:
        return pa.int32()
    if kind in _SAME:
        return kind
    if kind in _WIDER:
        return table_type(form, _WIDER[kind], column)
    if pa.types.is_dictionary(kind):
        return table_type(form, kind.value_type, column)
    if pa.types.is_timestamp(kind):
        return TIME if kind.tz else pa.timestamp("us")
    if pa.types.is_time(kind) and form in ("iceberg", "postgres"):
        return pa.time64("us")
    if pa.types.is_duration(kind) and form == "postgres":
        return pa.duration("us")
    if pa.types.is_decimal128(kind):
        return kind
    if pa.types.is_struct(kind) and kind.num_fields:
        return pa.struct([pa.field(f.name, table_type(form, f.type, f"{column}.{f.name}")) for f in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", table_type(form, kind.value_type, f"{column}[]")))
    raise NoSuchColumn(f"{form.capitalize()} tables have no columns of the type of {column!r}: {kind}")


def flat_rows(changes: Changes, layout: Layout, timestamp: str | None, *, upserts: bool) -> pa.Table:
    """Records as rows of the table; ``upserts``: the last change of each key, and the column `DELETED`.

    Keys are equal if their columns are, whatever their bytes: 0.0 and -0.0 are one key, NaN is one, and so are two
    JSON texts of the same fields.

    Raises `pyarrow.ArrowInvalid` for a value that the column cannot hold, such as a time between two microseconds.
    """
    if upserts:
        changes = _last_per_row(by_arrival(changes), layout)
    fields = [field for field in layout.schema if field.name != timestamp]
    cast = [
        column.cast(field.type) for column, field in zip(flat_columns(changes, layout), fields, strict=True)
    ]
    if upserts:
        cast[: len(layout.keys)] = map(_comparable, cast[: len(layout.keys)])
    if timestamp is not None:
        cast.append(pa.array(changes.ts * 1000, pa.int64()).cast(TIME))
    schema = layout.schema
    if upserts:
        cast.append(pa.array(changes.value.missing()))
        schema = schema.append(pa.field(DELETED, pa.bool_()))
    return pa.table(cast, schema=schema.with_metadata({_KEYS: "\n".join(layout.keys)}))


def flat_columns(changes: Changes, layout: Layout) -> list[pa.Array]:
    """The columns of the key, if there are any, and those of the value, in their own types."""
    fields = _fields(_array_of(changes.value))
    return [*_key_columns(changes, layout), *(column for name, column in fields if name not in layout.shared)]


def other_keys(changes: Changes, layout: Layout) -> Iterator[tuple[int, str, object, object]]:
    """(row, column, key, field) where a column is the key and a field, and the two differ. A null says nothing."""
    if not layout.shared:
        return
    keys = dict(zip(layout.keys, _key_columns(changes, layout), strict=True))
    for name, field in _fields(_array_of(changes.value)):
        if name in layout.shared:
            differ = pc.not_equal(keys[name], field.cast(keys[name].type, safe=False))
            for row in np.flatnonzero(pc.fill_null(differ, False).to_numpy(zero_copy_only=False)).tolist():
                yield row, name, keys[name][row].as_py(), field[row].as_py()


def _fields(value: pa.Array) -> list[tuple[str, pa.Array]]:
    """The columns of values, with their names."""
    if not pa.types.is_struct(value.type):
        return [(VALUE, value)]
    return list(zip(value.type.names, value.flatten(), strict=True))


def _key_columns(changes: Changes, layout: Layout) -> list[pa.Array]:
    return [column for _, column in _leaf_columns(_array_of(changes.key))] if layout.keys else []


def _comparable(key: pa.Array) -> pa.Array:
    """The column of a key, in which equal values have equal bits: 0.0 also for -0.0, and one NaN."""
    if not pa.types.is_floating(key.type):
        return key
    numbers = key.to_numpy(zero_copy_only=False)
    numbers = np.where(np.isnan(numbers), numbers.dtype.type(np.nan), numbers + 0)
    return pa.array(numbers, key.type, mask=key.is_null().to_numpy(zero_copy_only=False))


def _last_per_row(changes: Changes, layout: Layout) -> Changes:
    """The last change of each row of the table; ``changes`` in arrival order."""
    keys = pl.DataFrame({str(n): pl.Series(c) for n, c in enumerate(_key_columns(changes, layout))})
    last = keys.with_row_index("row").unique(keys.columns, keep="last", maintain_order=True)["row"]
    return changes if len(last) == changes.rows else changes.take(last.cast(pl.Int64).to_numpy())


def keys_of(rows: pa.Table) -> list[str]:
    """The columns of the key of what `flat_rows` gave."""
    text = (rows.schema.metadata or {}).get(_KEYS, b"").decode()
    return text.split("\n") if text else []


def _arrow_of(dtype: pl.DataType) -> pa.DataType:
    try:
        return pl.Series([], dtype=dtype).to_arrow().type
    except (pa.ArrowException, pl.exceptions.PolarsError, BaseException) as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise NoSuchColumn(f"Arrow has no columns of the type {dtype}") from error


def _array_of(values: Values) -> pa.Array:
    array = values.series().rechunk().to_arrow()
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _leaves(name: str, kind: pa.DataType) -> Iterator[pa.Field]:
    """The fields of a key, those of structs inside it too."""
    if not pa.types.is_struct(kind):
        yield pa.field(name, kind)
        return
    for field in kind:
        yield from _leaves(field.name, field.type)


def _leaf_columns(column: pa.Array, name: str = "") -> Iterator[tuple[str, pa.Array]]:
    if not pa.types.is_struct(column.type):
        yield name, column
        return
    for field, part in zip(column.type, column.flatten(), strict=True):
        yield from _leaf_columns(part, field.name)


def with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with these columns; those that they do not have are null."""
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
