"""JSON of a declared type: a Python type, whose instances callables get, or a schema, with dicts."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

import msgspec
import msgspec.inspect
import polars as pl
import pyarrow as pa

from crossstream.errors import SerdeError
from crossstream.gc_pause import paused_gc
from crossstream.serdes import arrays, refusals, shipping
from crossstream.serdes.json_columns import conform, in_chunks, to_series
from crossstream.serdes.json_decimals import decimals_as_text
from crossstream.serdes.json_defaults import complete
from crossstream.serdes.json_finite import not_finite
from crossstream.serdes.json_omitted import with_the_defaults
from crossstream.serdes.json_omitted_text import text_without_defaults
from crossstream.serdes.json_reading import (
    Columns,
    check_rows,
    checked,
    checked_columns,
    columns_of,
    reading_of,
    some_fields,
)
from crossstream.serdes.json_rows import Decoder, decode_row, decode_rows, encode_row, encode_rows, nulls
from crossstream.serdes.json_schemas import (
    Narrow,
    narrowing,
    read_schema,
    schema_name,
    shape_of,
    struct_dtype,
)
from crossstream.serdes.json_shapes import KEPT, NoColumn, Shape, StructOf, optional, rows_of
from crossstream.serdes.json_text import json_text
from crossstream.serdes.json_untyped import UntypedJson
from crossstream.serdes.serde import NOBODY, Readers, Serde, Way, find_invalid

_NATIVE = (*KEPT, UUID)


def json(type: Any = None) -> Serde:
    """JSON, untyped or of a declared type.

    ``type``: None for any value; a dataclass, `msgspec.Struct`, TypedDict or other Python type (``int``,
    ``list[str]``, a generic ``Envelope[Order]``), whose instances callables get; an Arrow schema, a Polars schema
    or struct type, or a dict of Polars types, with which callables get dicts of exactly these fields.

    Raises `SerdeError` (CS-404) for what is no such type.

    >>> json().serialize({"id": 7, "tags": ["new"]})
    b'{"id":7,"tags":["new"]}'
    >>> json({"id": pl.Int64, "price": pl.Float64}).deserialize(b'{"id": 7}')
    {'id': 7, 'price': None}
    """
    if type is None:
        return UntypedJson()
    dtype = struct_dtype(type)
    if dtype is not None:
        read_schema(dtype)
        return SchemaJson(dtype)
    _check_type(type)
    return TypedJson(type)


@dataclass(frozen=True, slots=True)
class TypedJson:
    """JSON of a Python type. Objects are what msgspec decodes for it.

    Columns: int → Int64, float → Float64, bool, str, datetime (with an offset in the text, unless declared
    `Meta(tz=False)`) → UTC microseconds, date, time, timedelta, bytes (base64), Decimal → Decimal(38, 18),
    UUID → String, Enum and Literal → String (or Int64), list, nested classes → Struct. A field of another
    type (a dict, a union, ``int | float`` too, a time with an offset) is for callables only. A column refuses
    what it cannot hold, such as an int of 65 bits. NaN and infinities are refused when they are written (CS-403): JSON
    has no such numbers. Sets are written sorted, and fields of a TypedDict in declared order.
    Objects keep the zeros at the end of a Decimal and the offset of a datetime; columns are written without such
    zeros, and in UTC. Structs with ``omit_defaults`` are written without what equals a default, both ways.

    Values to write are instances of the type; a dict is taken where it fits. An instance whose fields hold something
    else than the type says (CS-401) is refused, for it could not be read again.
    """

    type: Any
    varied: ClassVar[bool] = True

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_pickle, (shipping.dumps(self.type),)

    @property
    def name(self) -> str:
        return reading_of(self.type).name

    @property
    def dtype(self) -> pl.DataType | None:
        shape = reading_of(self.type).shape
        return None if isinstance(shape, NoColumn) else shape.dtype

    @property
    def some_columns(self) -> pl.DataType | None:
        """As `SomeColumns.some_columns`."""
        layout = reading_of(self.type).layout
        if isinstance(layout, NoColumn):
            return None
        shapes = {field.name: field.shape for field in layout.fields}
        return pl.Struct(
            {name: shape.dtype for name, shape in shapes.items() if not isinstance(shape, NoColumn)}
        )

    @property
    def classes(self) -> tuple[type, ...]:
        return reading_of(self.type).classes

    def serialize(self, value: Any) -> bytes | None:
        data = encode_row(self._spelled([value])[0], self.name)
        if decoders := reading_of(self.type).checks:
            check_rows(arrays.binary_rows([data]), [value], decoders, self.name)
        return data

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        reading = reading_of(self.type)
        value = decode_row(data, reading.decoder, self.name)
        if reading.incomplete:
            self._complete(value)
        return value

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        rows = encode_rows(self._spelled(values), self.name)
        check_rows(rows, values, reading_of(self.type).checks, self.name)
        return rows

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[Any]:
        reading = reading_of(self.type)
        values = decode_rows(data, reading.decoder, self.name)
        if reading.incomplete:
            self._complete(values)
        return values

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        if values.dtype == pl.Null:
            return arrays.null_rows(len(values))
        shape = columns_of(self.type, None).shape
        fitted = conform(values, shape, self.name)
        reading = reading_of(self.type)
        short = text_without_defaults(fitted, self.type, self.name) if reading.omits else None
        if short is not None and not reading.column_checks:
            return short
        text = self._text_of(fitted, shape)
        check_rows(text, fitted, reading.column_checks, self.name)
        if reading.omits and short is None:  # by way of objects, which leave their defaults out
            return self.encode_objects(self.decode_objects(text))
        return text if short is None else short

    def _text_of(self, fitted: pl.Series, shape: Shape) -> pa.LargeBinaryArray:
        if not (isinstance(shape, StructOf) and shape.tagged):
            return json_text(fitted, self.name, shortest=True)
        plain = msgspec.to_builtins(decimals_as_text(fitted, shortest=True).to_list(), builtin_types=KEPT)
        return encode_rows(msgspec.convert(plain, rows_of(shape.wire)), self.name)

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        return self._decoded(data, columns_of(self.type, None if fields is None else frozenset(fields)))

    def decode_checked(
        self, data: pa.LargeBinaryArray, fields: Collection[str], readers: Readers = NOBODY
    ) -> pl.Series:
        """As `Checking.decode_checked`."""
        return self._decoded(data, checked_columns(self.type, frozenset(fields), readers))

    def nulls(self, data: pa.LargeBinaryArray) -> Sequence[bool]:
        """As `Passing.nulls`."""
        return nulls(data, reading_of(self.type).decoder, self.name)

    def _decoded(self, data: pa.LargeBinaryArray, how: Columns) -> pl.Series:
        def decode(rows: pa.LargeBinaryArray) -> pl.Series:
            values = decode_rows(rows, how.decoder, self.name, how.read)
            if how.convert is not None:
                values = self._convert(values, how.convert)
            return to_series(values, how.shape, self.name)

        return in_chunks(data, decode)

    def find_invalid(
        self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None, way: Way | None = None
    ) -> list[tuple[int, str]]:
        return find_invalid(self, data, fields, way)

    def _spelled(self, values: Sequence[Any]) -> Sequence[Any]:
        """Objects of which msgspec makes the same text whenever they are equal."""
        instances, spelled = self._instances(values), reading_of(self.type).spelling
        try:
            return instances if spelled is None else spelled(instances)
        except RecursionError as error:
            raise refusals.unencodable(self.name, "too many objects in one another") from error

    def _instances(self, values: Sequence[Any]) -> list[Any]:
        reading = reading_of(self.type)
        try:
            instances: list[Any] = msgspec.convert(values, reading.many, builtin_types=_NATIVE)
            if reading.incomplete:  # those made of dicts
                complete(instances)
            if not reading.omits:
                return instances
            with paused_gc():
                return with_the_defaults(instances)
        except Exception as error:  # msgspec's errors, and whatever a __post_init__ raises
            raise _misfit(values, optional(self.type, True), self.name, error) from error

    def _complete(self, decoded: Any) -> None:
        try:
            complete(decoded)
        except RecursionError as error:
            raise refusals.undecodable(self.name, str(error)) from error

    def _convert(self, values: list[Any], many: Any) -> list[Any]:
        try:
            wires: list[Any] = msgspec.convert(msgspec.to_builtins(values, builtin_types=KEPT), many)
            return wires
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise refusals.undecodable(self.name, str(error)) from error


def _from_pickle(kind: bytes) -> TypedJson:
    return TypedJson(pickle.loads(kind))


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


@dataclass(frozen=True, slots=True)
class SchemaJson:
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
        return encode_row(self._structs([value])[0], self.name)

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        return self._dicts([decode_row(data, _schema_reading(self.dtype).decoder, self.name)])[0]

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        return encode_rows(self._structs(values), self.name)

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[Any]:
        return self._dicts(decode_rows(data, _schema_reading(self.dtype).decoder, self.name))

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        if values.dtype == pl.Null:
            return arrays.null_rows(len(values))
        return json_text(conform(values, _schema_reading(self.dtype).shape, self.name), self.name)

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        return self._decoded(data, _schema_columns(self.dtype, None if fields is None else frozenset(fields)))

    def decode_checked(
        self, data: pa.LargeBinaryArray, fields: Collection[str], readers: Readers = NOBODY
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

    def find_invalid(
        self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None, way: Way | None = None
    ) -> list[tuple[int, str]]:
        return find_invalid(self, data, fields, way)

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
            structs: list[Any] = msgspec.convert(values, rows_of(reading.strict), builtin_types=_NATIVE)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise _misfit(values, optional(reading.strict, True), self.name, error) from error
        if reading.narrow is None:
            return structs
        try:
            return self._dicts(structs)
        except SerdeError as error:
            raise refusals.no_bytes_for(
                self.name, values[0], error.what, "round it, or widen the schema"
            ) from error


def _misfit(values: Sequence[Any], kind: Any, serde: str, error: Exception) -> SerdeError:
    """The error of the first value that is none of ``kind``."""
    for value in values:
        try:
            msgspec.convert(value, kind, builtin_types=_NATIVE)
        except Exception as reason:  # as above
            return not_finite(value, serde) or refusals.misfit(serde, value, str(reason))
    return refusals.misfit(serde, values, str(error))


def _check_type(kind: Any) -> None:
    if isinstance(kind, str | pl.DataType | pa.DataType):
        raise refusals.unusable_type(kind, "not a Python type or a schema")
    try:
        hash(kind)
        reading_of(kind)
    except Exception as error:  # msgspec's TypeError, and NameError of an annotation that cannot be resolved
        raise refusals.unusable_type(kind, str(error)) from error
