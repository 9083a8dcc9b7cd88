"""JSON of a declared type: a Python type, whose instances callables get, or a schema, with dicts."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import msgspec
import msgspec.inspect
import polars as pl
import pyarrow as pa

from crossstream.serdes import arrays, refusals, shipping
from crossstream.serdes.json_canonical import add_defaults, in_declared_order
from crossstream.serdes.json_columns import conform, in_chunks, to_series
from crossstream.serdes.json_reading import (
    Columns,
    check_rows,
    checked_columns,
    columns_of,
    reading_of,
)
from crossstream.serdes.json_rows import decode_row, decode_rows, encode_row, encode_rows, nulls
from crossstream.serdes.json_schemas import NATIVE, SchemaJson, misfit, read_schema, struct_dtype
from crossstream.serdes.json_shapes import KEPT, NoColumn, Shape, StructOf, optional, rows_of
from crossstream.serdes.json_text import json_text, plain_columns
from crossstream.serdes.json_untyped import UntypedJson
from crossstream.serdes.serde import NO_READER, Bisecting, Readers, Serde


def json(type: Any = None) -> Serde:
    """JSON, untyped or of a declared type.

    ``type``: None for any value; a dataclass, `msgspec.Struct`, TypedDict or other Python type (``int``,
    ``list[str]``, a generic ``Envelope[Order]``), whose instances callables get; an Arrow schema, a Polars schema
    or struct type, or a dict of Polars types, with which callables get dicts of exactly these fields.

    Raises `SerdeError` (CS-404) for anything else.

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
class TypedJson(Bisecting):
    """JSON of a Python type. Objects are what msgspec decodes for it.

    Columns: int → Int64, float → Float64, bool, str, datetime (with an offset in the text, unless declared
    `Meta(tz=False)`) → UTC microseconds, date, time, timedelta, bytes (base64), Decimal → Decimal(38, 18),
    UUID → String, Enum and Literal → String (or Int64), list, nested classes → Struct. A field of another
    type (a dict, a union, ``int | float`` too, a time with an offset) is for callables only. A column refuses
    what it cannot hold, such as an int of 65 bits. NaN and infinities are refused when they are written (CS-403): JSON
    has no such numbers. Sets are written sorted, and fields of a TypedDict in declared order.
    Objects keep the zeros at the end of a Decimal and the offset of a datetime; columns are written without such
    zeros, and in UTC. Columns are written with all fields, also of a struct with ``omit_defaults``.

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

    @property
    def unfit_for_keys(self) -> str | None:
        """Why equal objects may have different texts; None: they have one (`key_fault`)."""
        return reading_of(self.type).unfit_for_keys

    def serialize(self, value: Any) -> bytes | None:
        reading = reading_of(self.type)
        data = encode_row(self._instances([value])[0], self.name, reading.encoder)
        if reading.checks:
            check_rows(arrays.binary_rows([data]), [value], reading.checks, self.name)
        return data

    def deserialize(self, data: bytes | None) -> Any:
        return None if data is None else decode_row(data, reading_of(self.type).decoder, self.name)

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        reading = reading_of(self.type)
        rows = encode_rows(self._instances(values), self.name, reading.encoder)
        check_rows(rows, values, reading.checks, self.name)
        return rows

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[Any]:
        return decode_rows(data, reading_of(self.type).decoder, self.name)

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        if values.dtype == pl.Null:
            return arrays.null_rows(len(values))
        shape = columns_of(self.type, None).shape
        fitted = conform(values, shape, self.name)
        text = self._text_of(fitted, shape)
        check_rows(text, fitted, reading_of(self.type).column_checks, self.name)
        return text

    def _text_of(self, fitted: pl.Series, shape: Shape) -> pa.LargeBinaryArray:
        if not (isinstance(shape, StructOf) and shape.tagged):
            return json_text(fitted, self.name, shortest=True)
        plain = msgspec.to_builtins(plain_columns(fitted, shortest=True).to_list(), builtin_types=KEPT)
        return encode_rows(msgspec.convert(plain, rows_of(shape.wire)), self.name)

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        return self._decoded(data, columns_of(self.type, None if fields is None else frozenset(fields)))

    def decode_checked(
        self, data: pa.LargeBinaryArray, fields: Collection[str], readers: Readers = NO_READER
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

    def _instances(self, values: Sequence[Any]) -> Sequence[Any]:
        """Objects of the type, of which equal ones have one text."""
        reading = reading_of(self.type)
        try:
            instances: list[Any] = msgspec.convert(values, reading.many, builtin_types=NATIVE)
            if reading.lacks_defaults:
                add_defaults(instances)
        except Exception as error:  # msgspec's errors, and whatever a __post_init__ raises
            raise misfit(values, optional(self.type, True), self.name, error) from error
        if self.type in (Decimal, Decimal | None):  # as expressions write them: 100, not 1E+2
            return [None if value is None else format(value, "f") for value in instances]
        return in_declared_order(instances, reading.order) if reading.order else instances

    def _convert(self, values: list[Any], many: Any) -> list[Any]:
        try:
            wires: list[Any] = msgspec.convert(msgspec.to_builtins(values, builtin_types=KEPT), many)
            return wires
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise refusals.undecodable(self.name, str(error)) from error


def _from_pickle(kind: bytes) -> TypedJson:
    return TypedJson(pickle.loads(kind))


def _check_type(kind: Any) -> None:
    if isinstance(kind, str | pl.DataType | pa.DataType):
        raise refusals.unusable_type(kind, "not a Python type or a schema")
    try:
        hash(kind)
        reading_of(kind)
    except Exception as error:  # msgspec's TypeError, and NameError of an annotation that cannot be resolved
        raise refusals.unusable_type(kind, str(error)) from error
