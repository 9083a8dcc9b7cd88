"""Keys and values as the columns of a table in a lakehouse: the fields of a struct become columns.

    key      a column named by the user; of a struct its fields, those of structs inside it too
    value    its fields, without those that the user names as the key; of another type the column ``value``
    time     if asked for, the timestamp of the record

Delta and Iceberg have fewer types than Polars: integers have a sign, and times are in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.columns.changes import Changes
from crossstream.columns.order import last_per_key
from crossstream.columns.values import Values
from crossstream.errors import SinkError

Format: TypeAlias = Literal["delta", "iceberg"]
"""The kinds of tables."""

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
    if not fields or DELETED in names_:
        raise NoSuchColumn(f"there must be a column, and none named {DELETED!r}")
    return Layout(pa.schema(fields), tuple(keys), shared)


def _are_whole(*kinds: pa.DataType) -> bool:
    return all(pa.types.is_integer(kind) for kind in kinds)


def table_type(form: Format, kind: pa.DataType, column: str) -> pa.DataType:
    """The type of a column in a table of this format. Raises `NoSuchColumn` if it has none."""
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
    if pa.types.is_time(kind) and form == "iceberg":
        return pa.time64("us")
    if pa.types.is_decimal128(kind):
        return kind
    if pa.types.is_struct(kind) and kind.num_fields:
        return pa.struct([pa.field(f.name, table_type(form, f.type, f"{column}.{f.name}")) for f in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", table_type(form, kind.value_type, f"{column}[]")))
    raise NoSuchColumn(f"{form.capitalize()} tables have no columns of the type of {column!r}: {kind}")


def flat_rows(changes: Changes, layout: Layout, timestamp: str | None, *, upserts: bool) -> pa.Table:
    """Records as rows of the table; ``upserts``: the last change of each key, and the column `DELETED`.

    Raises `pyarrow.ArrowInvalid` for a value that the column cannot hold, such as a time between two microseconds;
    `SinkError` CS-654 for a row whose field is named as the key, and is another one.
    """
    if upserts:
        changes = changes.take(np.sort(last_per_key(changes, changes.hashes(), np.arange(changes.rows))))
    columns = [column for _, column in _leaf_columns(_array_of(changes.key))] if layout.keys else []
    value = _array_of(changes.value)
    parts = (
        dict(zip(value.type.names, value.flatten(), strict=True)) if pa.types.is_struct(value.type) else {}
    )
    for name in layout.shared:
        _check_same(name, columns[layout.keys.index(name)], parts.pop(name))
    columns += parts.values() or [value]
    fields = [field for field in layout.schema if field.name != timestamp]
    cast = [column.cast(field.type) for column, field in zip(columns, fields, strict=True)]
    if timestamp is not None:
        cast.append(pa.array(changes.ts * 1000, pa.int64()).cast(TIME))
    schema = layout.schema
    if upserts:
        cast.append(value.is_null())
        schema = schema.append(pa.field(DELETED, pa.bool_()))
    return pa.table(cast, schema=schema.with_metadata({_KEYS: "\n".join(layout.keys)}))


def _check_same(name: str, keys: pa.Array, fields: pa.Array) -> None:
    """Refuses (CS-654) a field, named as the key, that is not the key of its record. A null says nothing."""
    differ = pc.fill_null(pc.not_equal(keys, fields.cast(keys.type, safe=False)), False)
    if pc.any(differ).as_py():
        row = pc.index(differ, True).as_py()
        key, field = keys[row].as_py(), fields[row].as_py()
        raise SinkError(
            f"key={name!r} makes the key and the field of that name one column, and they differ: {key!r} and {field!r}",
            code="CS-654",
            next=f"make the field the key before: table.to_stream().select_key({name!r}).to_table(key=…); "
            "or give the column of the key another name",
        )


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
