"""Rows of plain columns: some are the key, the others a struct, with their types as declared types."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.serdes import arrays
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.json.plain import SchemaJson
from crossstream.serdes.plain_types import Where, arrow_type, check_names, column_type
from crossstream.serdes.primitives import Boolean, Bytes, Number, String

_KEYS: dict[Any, EngineSerde] = {
    pl.String(): String(),
    pl.Binary(): Bytes(),
    pl.Boolean(): Boolean(),
    pl.Int8(): Number("int16"),
    pl.Int16(): Number("int16"),
    pl.Int32(): Number("int32"),
    pl.Int64(): Number("int64"),
    pl.Float32(): Number("float32"),
    pl.Float64(): Number("float64"),
}
"""Serdes of a key of one column; others are JSON of the column's type: a date, a decimal, a struct."""


@dataclass(frozen=True, slots=True)
class PlainRows:
    """How rows of a table become keys and values. ``keys``, ``columns``: the columns of each; ``key``: None without.

    A key of several columns is a struct of them, and so is the value.

    >>> rows = plain_rows(pa.schema([("id", pa.int64()), ("name", pa.string())]), ["id"], None, {})
    >>> batch = pa.record_batch({"id": [7], "name": ["Ada"]})
    >>> rows.key_wire(batch).to_pylist(), rows.value_struct(batch).to_pylist()
    ([b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x07'], [{'name': 'Ada'}])
    """

    key: EngineSerde | None
    value: EngineSerde
    keys: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def read(self) -> tuple[str, ...]:
        """The columns that are read, each once."""
        return tuple(dict.fromkeys((*self.keys, *self.columns)))

    def key_wire(self, batch: pa.RecordBatch) -> pa.LargeBinaryArray:
        """The wire form of the keys; null where a column of the key is null."""
        if self.key is None:
            return arrays.null_rows(batch.num_rows)
        return self.key.encode_series(self.key_series(batch))

    def key_series(self, batch: pa.RecordBatch) -> pl.Series:
        """The keys, if there are any, of the declared type; null where a column of the key is null."""
        assert self.key is not None
        if len(self.keys) == 1:
            return _column(batch, self.keys[0], _dtype(self.key))
        parts = _columns(batch, _dtype(self.key))
        whole = arrays.struct_of(parts, batch.num_rows)
        missing = pl.select(pl.any_horizontal(part.is_null() for part in parts.values())).to_series()
        return arrays.null_where(whole, missing.to_numpy()) if missing.any() else whole

    def value_series(self, batch: pa.RecordBatch) -> pl.Series:
        """The values, a struct of the declared types for each row."""
        return arrays.struct_of(_columns(batch, _dtype(self.value)), batch.num_rows)

    def value_struct(self, batch: pa.RecordBatch) -> pa.Array:
        """As `value_series`, of Arrow."""
        return self.value_series(batch).to_arrow()


def plain_rows(
    schema: pa.Schema, key: Sequence[str], columns: Sequence[str] | None, where: Where
) -> PlainRows:
    """The serdes of a table's rows. ``key``: its columns, none for rows without a key; ``columns``: those of the value,
    None for all that are not of the key. ``where``: the place that errors name.

    Raises `TopologyError` (CS-150) for columns that are not there, that occur twice or differ by case only, for types
    that have no place, and types of which no key is made; and where the value has no column.
    """
    keys = _found(schema, key, "key", where)
    chosen = tuple(name for name in schema.names if name not in keys) if columns is None else ()
    values = chosen or _found(schema, columns or (), "columns", where)
    if not values:
        what = f"no column is left for the value: the columns are {', '.join(schema.names) or 'none'}"
        step = "name columns of the value in columns=[…]; those of the key may be among them"
        raise refuse("CS-150", what, step, **where)
    read = [name for name in schema.names if name in {*keys, *values}]
    check_names(read, "", where)
    _check_case(schema.names, read, where)
    types = {name: column_type(schema.field(name), where) for name in read}
    for name in keys:
        _check_key(name, str(schema.field(name).type), where)
    value = SchemaJson(pl.Struct({name: types[name] for name in values}))
    return PlainRows(_key_serde({name: types[name] for name in keys}), value, keys, values)


def missing_column(name: str, role: str, names: Sequence[str], where: Where) -> CrossStreamError:
    """The error of a column that is not there. ``role``: the argument that names it."""
    close = difflib.get_close_matches(name.lower(), {one.lower(): one for one in names}, n=1, cutoff=0.6)
    meant = [one for one in names if one.lower() in close]
    what = f"{role}: there is no column {name!r}; the columns are {', '.join(names) or 'none'}"
    step = f"write {meant[0]!r}, or name another one" if meant else "correct the name"
    return refuse("CS-150", what, step, **where)


def _found(schema: pa.Schema, names: Sequence[str], role: str, where: Where) -> tuple[str, ...]:
    for name in names:
        if name not in schema.names:
            raise missing_column(name, role, schema.names, where)
    if len(set(names)) < len(names):
        what = f"{role}: a column is named twice in {', '.join(names)}"
        raise refuse("CS-150", what, "name each column once", **where)
    return tuple(names)


def _check_case(names: Sequence[str], read: Sequence[str], where: Where) -> None:
    """Spark, and tables of lakes, find columns without regard to case."""
    for name in read:
        same = [one for one in names if one.lower() == name.lower()]
        if len(same) > 1:
            what = f"the columns {', '.join(same)} differ by case only"
            step = f'keep one of them, or rename one: .withColumnRenamed("{same[1]}", …)'
            raise refuse("CS-150", what, step, **where)


def _check_key(name: str, kind: str, where: Where) -> None:
    if kind == "null":
        why = "it is always null"
    elif "map<" in kind:
        why = "equal maps may have their entries in another order"
    else:
        return
    what = f"key: column {name} is of type {kind}, of which no key is made: {why}"
    raise refuse("CS-150", what, "name another column, or cast it to a string before", **where)


def _key_serde(types: dict[str, pl.DataType]) -> EngineSerde | None:
    if not types:
        return None
    if len(types) > 1:
        return SchemaJson(pl.Struct(types))
    (dtype,) = types.values()
    return _KEYS.get(dtype) or SchemaJson(dtype)


def _dtype(serde: EngineSerde) -> pl.DataType:
    assert serde.dtype is not None
    return serde.dtype


def _columns(batch: pa.RecordBatch, dtype: Any) -> dict[str, pl.Series]:
    return {one.name: _column(batch, one.name, one.dtype) for one in dtype.fields}


def _column(batch: pa.RecordBatch, name: str, dtype: Any) -> pl.Series:
    """A column of the batch in its declared type. Raises `pa.ArrowInvalid` for a value that does not fit into it."""
    column = batch.column(name)
    if getattr(column.type, "extension_name", None) == "arrow.uuid":
        return _uuid_text(column)
    wanted = arrow_type(dtype)
    return pl.Series(column if column.type == wanted else column.cast(wanted)).cast(dtype)


def _uuid_text(column: pa.Array) -> pl.Series:
    digits = pl.Series(column.cast(pa.large_binary())).bin.encode("hex")
    return digits.str.replace(r"^(.{8})(.{4})(.{4})(.{4})(.{12})$", "$1-$2-$3-$4-$5")
