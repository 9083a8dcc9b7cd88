"""JSON whose objects are plain dicts and lists: of a schema, and without a declared type.

In a schema every field may be null or missing, and others are ignored. `UntypedJson` is the serde that a user names.
`InternalJson` is that of values for which no serde is named: they stay inside the engine (decision 0005).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, ClassVar, Literal, NamedTuple
from uuid import UUID

import msgspec
import polars as pl
import pyarrow as pa

from crossstream.errors import CrossStreamError, SerdeError
from crossstream.gc_pause import paused_gc
from crossstream.serdes import arrays, errors
from crossstream.serdes.contract import NO_READER, EngineSerde, Readers
from crossstream.serdes.description import Described, as_data
from crossstream.serdes.json.bounds import is_decimal
from crossstream.serdes.json.columns import Columns, any_leaf, checked, conform, series_of_plain, some_fields
from crossstream.serdes.json.native import native_columns
from crossstream.serdes.json.rows import (
    Decoder,
    decode_row,
    decode_rows,
    encode_row,
    encode_rows,
    encoder,
    not_finite,
    nulls,
    with_numbers,
)
from crossstream.serdes.json.shapes import (
    KEPT,
    Narrow,
    Shape,
    StructOf,
    narrowing,
    optional,
    read_schema,
    rows_of,
    schema_name,
    shape_of,
)
from crossstream.serdes.json.text import json_text, plain_columns

NATIVE = (*KEPT, UUID)


Decimals = Literal["text", "number"]
"""How decimals are written: ``"10.00"`` or ``10.00``. Both are read, with all digits."""

_AS_NUMBERS = ", decimals as numbers"
_number_encoder = with_numbers(encoder)


def named(name: str, decimals: Decimals) -> str:
    """The name of a serde: that of its type, and how it writes decimals, if not as text."""
    return name if decimals == "text" else name[:-1] + _AS_NUMBERS + name[-1]


def text_with_numbers(values: pl.Series, shape: Shape, serde: str, shortest: bool) -> pa.LargeBinaryArray:
    """As `json_text`, with decimals as numbers: by objects of the ``shape``, one for each row."""
    plain = plain_columns(values, shortest).to_list()
    objects = msgspec.convert(msgspec.to_builtins(plain, builtin_types=KEPT), rows_of(shape.wire))
    return encode_rows(objects, serde, _number_encoder)


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
    if not isinstance(dtype, pl.Struct):
        return Columns(reading.decoder, reading.shape, None)
    if names is None:
        fields = reading.shape.fields if isinstance(reading.shape, StructOf) else ()
        native = native_columns(fields, reading.shape, is_open=True)
        return Columns(reading.decoder, reading.shape, None, native=native)
    shape = some_fields(read_schema(dtype), names, reading.name)
    assert isinstance(shape, StructOf)
    native = native_columns(shape.fields, shape, is_open=True)
    return Columns(msgspec.json.Decoder(optional(shape.wire, True)), shape, None, native=native)


@lru_cache(maxsize=512)
def _checked_schema_columns(dtype: pl.DataType, names: frozenset[str], readers: Readers) -> Columns:
    if not isinstance(dtype, pl.Struct):
        return _schema_columns(dtype, None)
    layout = read_schema(dtype)
    every = [field.name for field in layout.fields]
    return checked(layout, _schema_reading(dtype).decoder, names, every, readers)


@dataclass(frozen=True, slots=True)
class SchemaJson(EngineSerde):
    """JSON objects with the fields of a schema. Objects are dicts of exactly these fields, missing ones None.

    Fields in the text that the schema does not have are ignored; a dict to write must not have any. What expressions
    give may be of another type than a struct: numbers, lists.
    """

    dtype: pl.DataType
    decimals: Decimals = "text"
    varied: ClassVar[bool] = True
    classes: ClassVar[tuple[type, ...]] = ()

    @property
    def name(self) -> str:
        return named(_schema_reading(self.dtype).name, self.decimals)

    def described(self) -> Described:
        return Described(self.name, "schema", as_data(self.dtype), decimals=self.decimals)

    def serialize(self, value: Any) -> bytes | None:
        text: bytes | None = self.encode_objects([value])[0].as_py()
        return text

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        return self._dicts([decode_row(data, _schema_reading(self.dtype).decoder, self.name)])[0]

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        given = self._structs(values)
        if any_leaf(self.dtype, is_decimal):  # whose objects have other texts: 1E+3, or a zero with a sign
            return self._text_of(series_of_plain(given, _schema_reading(self.dtype).shape))
        return encode_rows(given, self.name)

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[Any]:
        return self._dicts(decode_rows(data, _schema_reading(self.dtype).decoder, self.name))

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        if values.dtype == pl.Null:
            return arrays.null_rows(len(values))
        return self._text_of(conform(values, _schema_reading(self.dtype).shape, self.name))

    def fitted(self, values: pl.Series) -> pl.Series | None:
        return (
            None if values.dtype == pl.Null else conform(values, _schema_reading(self.dtype).shape, self.name)
        )

    def _text_of(self, values: pl.Series) -> pa.LargeBinaryArray:
        if self.decimals == "number" and any_leaf(self.dtype, is_decimal):
            return text_with_numbers(values, _schema_reading(self.dtype).shape, self.name, shortest=False)
        return json_text(values, self.name)

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        return _schema_columns(self.dtype, None if fields is None else frozenset(fields)).decoded(
            data, self.name
        )

    def decode_checked(
        self, data: pa.LargeBinaryArray, fields: Collection[str], readers: Readers = NO_READER
    ) -> pl.Series:
        return _checked_schema_columns(self.dtype, frozenset(fields), readers).decoded(data, self.name)

    def nulls(self, data: pa.LargeBinaryArray) -> Sequence[bool]:
        return self.decode_checked(data, ()).is_null().to_list()

    def _dicts(self, structs: list[Any]) -> list[Any]:
        narrow = _schema_reading(self.dtype).narrow
        with paused_gc():
            plain: list[Any] = msgspec.to_builtins(structs, builtin_types=KEPT)
            if narrow is None:
                return plain
            try:
                return [None if one is None else narrow(one) for one in plain]
            except ValueError as error:
                raise errors.undecodable(self.name, str(error)) from error

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
            raise errors.no_bytes_for(
                self.name, values[0], error.what, "round it, or widen the schema"
            ) from error


def misfit(values: Sequence[Any], kind: Any, serde: str, error: Exception) -> CrossStreamError:
    """The error of the first value that is not of this ``kind``."""
    for value in values:
        try:
            msgspec.convert(value, kind, builtin_types=NATIVE)
        except Exception as reason:  # as above
            return not_finite(value, serde) or errors.misfit(serde, value, str(reason))
    return errors.misfit(serde, values, str(error))


_decoder: Decoder = msgspec.json.Decoder()
_SETS = frozenset({set, frozenset})


@dataclass(frozen=True, slots=True)
class UntypedJson(EngineSerde):
    """Any JSON value; what msgspec encodes is encoded as msgspec does it.

    Expressions need a declared type. The text ``null`` is a null. Of names that occur twice in an object, the last
    counts. A set is written sorted, but as it comes where it is inside something else: such keys need a declared type.
    """

    name: ClassVar[str] = "json"
    dtype: ClassVar[pl.DataType | None] = None
    varied: ClassVar[bool] = True
    is_text: ClassVar[bool] = True

    def described(self) -> Described:
        return Described(self.name, "known")

    def serialize(self, value: Any) -> bytes | None:
        return encode_row(_listed(value), "json")

    def deserialize(self, data: bytes | None) -> Any:
        return None if data is None else decode_row(data, _decoder, "json")

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        if not _SETS.isdisjoint(map(type, values)):
            values = list(map(_listed, values))
        return encode_rows(values, "json")

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[Any]:
        return decode_rows(data, _decoder, "json")

    def nulls(self, data: pa.LargeBinaryArray) -> Sequence[bool]:
        return nulls(data, _decoder, "json")

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        if values.dtype == pl.Null:
            return arrays.null_rows(len(values))
        return json_text(values, "json", shortest=True)

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        """A column of the type that Arrow reads off the values. Raises `SerdeError` (CS-404) if there is none."""
        try:
            return pl.Series(pa.array(self.decode_objects(data)))
        except (pa.ArrowException, OverflowError, RecursionError, pl.exceptions.PolarsError) as error:
            raise errors.mixed_types("json", error) from error


def _listed(value: Any) -> Any:
    """A set as a list in an order that depends on nothing but its items; anything else unchanged."""
    if type(value) not in _SETS:
        return value
    try:
        return sorted(value)
    except TypeError:  # of items of several types, or without an order
        return sorted(value, key=repr)


_PLAIN = frozenset({str, int, float, bool, type(None)})
_LISTS = (list, tuple)
_CONTAINERS = frozenset({dict, *_LISTS})
_DEEPEST = 1000
"""Levels that are looked at: a list may hold itself, which the encoder refuses."""


@dataclass(frozen=True, slots=True)
class InternalJson(UntypedJson):
    """Values that JSON gives back unchanged: dicts with text as keys, lists, text, numbers, booleans.

    A tuple comes back as a list. Anything else (a dataclass, an Enum, a datetime, a set) is refused: CS-410.
    """

    name: ClassVar[str] = "kept"
    stays_inside: ClassVar[bool] = True

    def serialize(self, value: Any) -> bytes | None:
        _check([value])
        return UntypedJson.serialize(self, value)

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        _check(values)
        return UntypedJson.encode_objects(self, values)

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        return self.encode_objects(values.to_list())


@dataclass(frozen=True, slots=True)
class KeptJson(InternalJson):
    """JSON of results without a serde that are read from outside.

    In stores it is the same as `UntypedJson`, but for values that it does not give back.
    """

    name: ClassVar[str] = "json"

    @property
    def public(self) -> EngineSerde:
        return UntypedJson()


def unnamed(serde: EngineSerde) -> EngineSerde:
    """The serde of a result that takes over the one of its input: of JSON without a type only what it gives back."""
    return KeptJson() if serde == UntypedJson() else serde


def _check(values: Sequence[Any]) -> None:
    """Raises CS-410 for the first value that JSON does not give back."""
    if _fault(values) is None:
        return
    for value in values:
        if (fault := _fault([value])) is not None:
            raise errors.not_kept(value, fault)


def _fault(values: Sequence[Any]) -> str | None:
    """The type that JSON does not give back in the values; None: there is none. Works by levels, not value by value."""
    level: Any = values
    for _ in range(_DEEPEST):
        kinds = set(map(type, level))
        if not kinds - _PLAIN:
            return None
        if wrong := kinds - _CONTAINERS - _PLAIN:
            return min(kind.__name__ for kind in wrong)
        dicts = level if kinds == {dict} else [value for value in level if type(value) is dict]
        if wrong := set(map(type, chain.from_iterable(dicts))) - {str}:
            return f"dict with a key of type {min(kind.__name__ for kind in wrong)}"
        items = chain.from_iterable(map(dict.values, dicts))
        lists = [] if dicts is level else [value for value in level if type(value) in _LISTS]
        level = [*items, *chain.from_iterable(lists)]
    return None


def typed_as(dtype: pl.DataType) -> EngineSerde | None:
    """The serde in which columns of a type are kept: JSON of this type. None where it has no form for the type."""
    try:
        shape_of(dtype)
    except SerdeError:
        return None
    return SchemaJson(dtype)
