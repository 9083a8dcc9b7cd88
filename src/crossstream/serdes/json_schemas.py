"""JSON of a Polars or Arrow schema: every field may be null or missing, others are ignored."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

import msgspec
import polars as pl
import pyarrow as pa

from crossstream.errors import SerdeError
from crossstream.gc_pause import paused_gc
from crossstream.serdes import arrays, refusals
from crossstream.serdes import json_shapes as leaves
from crossstream.serdes.json_columns import (
    Columns,
    any_leaf,
    checked,
    conform,
    in_chunks,
    json_text,
    series_of_plain,
    some_fields,
    to_series,
)
from crossstream.serdes.json_rows import Decoder, decode_row, decode_rows, encode_rows, not_finite
from crossstream.serdes.json_shapes import (
    KEPT,
    Field,
    Layout,
    Leaf,
    ListOf,
    NoColumn,
    Shape,
    StructOf,
    list_of,
    nameable,
    optional,
    rows_of,
)
from crossstream.serdes.serde import NO_READER, Bisecting, Readers

NATIVE = (*KEPT, UUID)


def struct_dtype(given: Any) -> pl.Struct | None:
    """The Polars struct of a schema; None if ``given`` is not a schema. Raises CS-404."""
    if isinstance(given, pa.StructType):
        given = pa.schema(list(given))
    if isinstance(given, pa.Schema):
        frame = pl.from_arrow(given.empty_table())
        assert isinstance(frame, pl.DataFrame)
        return pl.Struct(dict(frame.schema))
    if isinstance(given, pl.Struct):
        return given
    if isinstance(given, dict):
        if not all(isinstance(name, str) for name in given):
            raise refusals.unusable_type(given, "not all field names are text")
        try:
            return pl.Struct(dict(pl.Schema(given)))
        except Exception as error:
            raise refusals.unusable_type(given, f"not all values are Polars types ({error})") from error
    return None


def read_schema(dtype: pl.Struct, strict: bool = False) -> Layout:
    """The fields of a schema. ``strict``: unknown ones are errors. Raises CS-404 for a type that JSON does not have."""
    for one in dtype.fields:
        if not nameable(one.name):
            raise refusals.unusable_type(
                dtype, f"{one.name!r} as a field name, with quotes or control characters"
            )
    fields = tuple(
        Field(
            one.name,
            f"f{position}",
            shape_of(_instance(one.dtype), strict),
            True,
            msgspec.field(default=None),
        )
        for position, one in enumerate(dtype.fields)
    )
    return Layout("schema", fields, {"forbid_unknown_fields": strict})


def schema_name(dtype: pl.DataType) -> str:
    """A type as text that no release of Polars changes: ``{id: Int64, tags: [String]}``."""
    if isinstance(dtype, pl.Struct):
        return (
            "{"
            + ", ".join(f"{field.name}: {schema_name(_instance(field.dtype))}" for field in dtype.fields)
            + "}"
        )
    if isinstance(dtype, pl.List):
        return f"[{schema_name(_instance(dtype.inner))}]"
    if isinstance(dtype, pl.Datetime):
        return f"Datetime({dtype.time_unit}, {dtype.time_zone})"
    if isinstance(dtype, pl.Decimal):
        return f"Decimal({dtype.precision}, {dtype.scale})"
    return type(dtype).__name__


Narrow = Callable[[Any], Any]


def narrowing(shape: Shape) -> Narrow | None:
    """A function from a plain value of the shape (never None) to what the column holds; None: nothing to do.

    Changes dicts in place. Raises ValueError for a value that does not fit.
    """
    if isinstance(shape, Leaf):
        return shape.narrow
    if isinstance(shape, ListOf):
        item = narrowing(shape.item)
        return None if item is None else lambda values: [None if one is None else item(one) for one in values]
    return _struct_narrowing(shape)


def _struct_narrowing(shape: StructOf) -> Narrow | None:
    steps = {}
    for field in shape.fields:
        assert not isinstance(field.shape, NoColumn)
        step = narrowing(field.shape)
        if step is not None:
            steps[field.name] = step
    if not steps:
        return None

    def narrow(value: dict[str, Any]) -> dict[str, Any]:
        for name, step in steps.items():
            if value[name] is not None:
                value[name] = step(value[name])
        return value

    return narrow


_LEAVES = {
    pl.Float32(): leaves.float32(),
    pl.Float64(): leaves.FLOAT64,
    pl.String(): leaves.STRING,
    pl.Boolean(): leaves.BOOLEAN,
    pl.Binary(): leaves.BINARY,
    pl.Date(): leaves.DATE,
    pl.Time(): leaves.TIME,
    pl.Duration("us"): leaves.DURATION,
}
_INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)


def shape_of(dtype: pl.DataType, strict: bool = False) -> Shape:
    """The shape of a column. ``strict``: as in `read_schema`. Raises CS-404 for a type that JSON does not have."""
    if isinstance(dtype, pl.Struct):
        struct = read_schema(dtype, strict).struct()
        assert isinstance(struct, StructOf)
        return struct
    if isinstance(dtype, pl.List):
        return list_of(shape_of(_instance(dtype.inner), strict), nullable=True)
    if dtype in _INTEGERS:
        return leaves.integer(dtype)
    if isinstance(dtype, pl.Datetime) and dtype.time_unit != "ns":
        return leaves.timestamp(dtype.time_unit, dtype.time_zone)
    if isinstance(dtype, pl.Decimal):
        return leaves.decimal(dtype.precision or 38, dtype.scale)
    leaf = _LEAVES.get(dtype)
    if leaf is None:
        raise refusals.unusable_type(dtype, f"JSON values are not read as {dtype}; times are of 'us' or 'ms'")
    return leaf


def _instance(dtype: Any) -> pl.DataType:
    """The type itself where Polars takes its class for it."""
    made: pl.DataType = dtype() if isinstance(dtype, type) else dtype
    return made


class _SchemaReading(NamedTuple):
    name: str
    shape: Shape
    decoder: Decoder
    strict: Any
    narrow: Narrow | None


@lru_cache(maxsize=256)
def _schema_reading(dtype: pl.DataType) -> _SchemaReading:
    shape, strict = shape_of(dtype), shape_of(dtype, strict=True)
    decoder = msgspec.json.Decoder(optional(shape.wire, True))
    return _SchemaReading(f"json[{schema_name(dtype)}]", shape, decoder, strict.wire, narrowing(shape))


@lru_cache(maxsize=512)
def _schema_columns(dtype: pl.DataType, names: frozenset[str] | None) -> Columns:
    reading = _schema_reading(dtype)
    if names is None or not isinstance(dtype, pl.Struct):
        return Columns(reading.decoder, reading.shape, None)
    shape = some_fields(read_schema(dtype), names, reading.name)
    assert isinstance(shape, StructOf)
    return Columns(msgspec.json.Decoder(optional(shape.wire, True)), shape, None)


@lru_cache(maxsize=512)
def _checked_schema_columns(dtype: pl.DataType, names: frozenset[str], readers: Readers) -> Columns:
    if not isinstance(dtype, pl.Struct):
        return _schema_columns(dtype, None)
    layout = read_schema(dtype)
    every = [field.name for field in layout.fields]
    return checked(layout, _schema_reading(dtype).decoder, names, every, readers)


def _is_decimal(dtype: Any) -> bool:
    return bool(dtype == pl.Decimal)  # an instance, or the class of which Polars makes one


def _has_odd_decimals(rows: pa.LargeBinaryArray) -> bool:
    """Whether Decimals may be among the texts that a column writes otherwise: 1E+3, or a zero with a sign."""
    positions = arrays.offsets(rows)
    content = arrays.content(rows)[positions[0] : positions[-1]].data
    return any(pattern.search(content) for pattern in _ODD_DECIMALS)


_ODD_DECIMALS = (re.compile(rb"E[+-]"), re.compile(rb'"-0'))


@dataclass(frozen=True, slots=True)
class SchemaJson(Bisecting):
    """JSON objects with the fields of a schema. Objects are dicts of exactly these fields, missing ones None.

    Fields in the text that the schema does not have are ignored; a dict to write must not have any. What expressions
    give may be of another type than a struct: numbers, lists.
    """

    dtype: pl.DataType
    varied: ClassVar[bool] = True
    classes: ClassVar[tuple[type, ...]] = ()

    @property
    def name(self) -> str:
        return _schema_reading(self.dtype).name

    def serialize(self, value: Any) -> bytes | None:
        text: bytes | None = self.encode_objects([value])[0].as_py()
        return text

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        return self._dicts([decode_row(data, _schema_reading(self.dtype).decoder, self.name)])[0]

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        given = self._structs(values)
        rows = encode_rows(given, self.name)
        if not (any_leaf(self.dtype, _is_decimal) and _has_odd_decimals(rows)):
            return rows
        return json_text(series_of_plain(given, _schema_reading(self.dtype).shape), self.name)

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[Any]:
        return self._dicts(decode_rows(data, _schema_reading(self.dtype).decoder, self.name))

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        if values.dtype == pl.Null:
            return arrays.null_rows(len(values))
        return json_text(conform(values, _schema_reading(self.dtype).shape, self.name), self.name)

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        return self._decoded(data, _schema_columns(self.dtype, None if fields is None else frozenset(fields)))

    def decode_checked(
        self, data: pa.LargeBinaryArray, fields: Collection[str], readers: Readers = NO_READER
    ) -> pl.Series:
        """As `Checking.decode_checked`."""
        return self._decoded(data, _checked_schema_columns(self.dtype, frozenset(fields), readers))

    def nulls(self, data: pa.LargeBinaryArray) -> Sequence[bool]:
        """As `Passing.nulls`."""
        return self.decode_checked(data, ()).is_null().to_list()

    def _decoded(self, data: pa.LargeBinaryArray, how: Columns) -> pl.Series:
        return in_chunks(
            data,
            lambda rows: to_series(decode_rows(rows, how.decoder, self.name, how.read), how.shape, self.name),
        )

    def _dicts(self, structs: list[Any]) -> list[Any]:
        narrow = _schema_reading(self.dtype).narrow
        with paused_gc():
            plain: list[Any] = msgspec.to_builtins(structs, builtin_types=KEPT)
            if narrow is None:
                return plain
            try:
                return [None if one is None else narrow(one) for one in plain]
            except ValueError as error:
                raise refusals.undecodable(self.name, str(error)) from error

    def _structs(self, values: Sequence[Any]) -> list[Any]:
        reading = _schema_reading(self.dtype)
        try:
            structs: list[Any] = msgspec.convert(values, rows_of(reading.strict), builtin_types=NATIVE)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise misfit(values, optional(reading.strict, True), self.name, error) from error
        if reading.narrow is None:
            return structs
        try:
            return self._dicts(structs)
        except SerdeError as error:
            raise refusals.no_bytes_for(
                self.name, values[0], error.what, "round it, or widen the schema"
            ) from error


def misfit(values: Sequence[Any], kind: Any, serde: str, error: Exception) -> SerdeError:
    """The error of the first value that is not of this ``kind``."""
    for value in values:
        try:
            msgspec.convert(value, kind, builtin_types=NATIVE)
        except Exception as reason:  # as above
            return not_finite(value, serde) or refusals.misfit(serde, value, str(reason))
    return refusals.misfit(serde, values, str(error))
