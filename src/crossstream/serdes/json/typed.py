"""JSON of a declared type: a Python type, whose instances callables get, or a schema, with dicts."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, ClassVar, get_args
from uuid import UUID

import msgspec
import polars as pl
import pyarrow as pa

from crossstream.errors import CrossStreamError
from crossstream.serdes import arrays, errors, shipping
from crossstream.serdes.contract import NO_READER, EngineSerde, Readers, Serde
from crossstream.serdes.description import Described, as_data
from crossstream.serdes.json.bounds import TOO_DEEP, check_exponents, is_too_deep
from crossstream.serdes.json.columns import conform
from crossstream.serdes.json.defaults import add_defaults
from crossstream.serdes.json.plain import (
    NATIVE,
    Decimals,
    SchemaJson,
    UntypedJson,
    misfit,
    named,
    text_with_numbers,
)
from crossstream.serdes.json.reading import (
    check_rows,
    checked_columns,
    columns_of,
    passing_decoder,
    reading_of,
)
from crossstream.serdes.json.rows import (
    Decoder,
    Encoder,
    decode_row,
    decode_rows,
    encode_row,
    encode_rows,
    nulls,
)
from crossstream.serdes.json.shapes import (
    KEPT,
    NoColumn,
    Shape,
    StructOf,
    optional,
    read_schema,
    rows_of,
    struct_dtype,
)
from crossstream.serdes.json.text import json_text, plain_columns
from crossstream.serdes.json.types import (
    Scales,
    in_declared_order,
)

KNOWN_TYPES = (str, int, float, bool, bytes, Decimal, UUID, dt.datetime, dt.date, dt.time, dt.timedelta)
"""Types that every process has."""


def json(type: Any = None, *, decimals: Decimals = "text") -> Serde:
    """JSON, untyped or of a declared type.

    ``type``: None for any value; a dataclass, `msgspec.Struct`, TypedDict or other Python type (``int``,
    ``list[str]``, a generic ``Envelope[Order]``), whose instances callables get; an Arrow schema, a Polars schema
    or struct type, or a dict of Polars types, with which callables get dicts of exactly these fields.
    ``decimals``: how declared Decimals are written, as text (``"10.00"``) or as numbers (``10.00``). Both are read,
    with all digits, whatever is written.

    Raises `SerdeError` (CS-404) for anything else.

    >>> json().serialize({"id": 7, "tags": ["new"]})
    b'{"id":7,"tags":["new"]}'
    >>> json({"id": pl.Int64, "price": pl.Float64}).deserialize(b'{"id": 7}')
    {'id': 7, 'price': None}
    >>> json(dict[str, Decimal], decimals="number").serialize({"price": Decimal("10.00")})
    b'{"price":10.00}'
    """
    if decimals not in get_args(Decimals) or (type is None and decimals != "text"):
        raise errors.unusable_type(type, f"decimals={decimals!r}, not 'text', or with a type 'number'")
    if type is None:
        return UntypedJson()
    dtype = struct_dtype(type)
    if dtype is not None:
        if is_too_deep(dtype):
            raise errors.unusable_type(type, TOO_DEEP.reason)
        read_schema(dtype)
        return SchemaJson(dtype, decimals)
    _check_type(type)
    return TypedJson(type, decimals)


def scaled(serde: TypedJson, scales: Mapping[str, int]) -> TypedJson:
    """The serde whose columns of Decimals have these digits after the point, by the paths of the fields."""
    return TypedJson(Annotated[serde.type, Scales(tuple(sorted(scales.items())))], serde.decimals)


@dataclass(frozen=True, slots=True)
class TypedJson(EngineSerde):
    """JSON of a Python type. Objects are what msgspec decodes for it.

    Columns: int → Int64, float → Float64, bool, str, datetime (with an offset in the text, unless declared
    `Meta(tz=False)`) → UTC microseconds, date, time, timedelta, bytes (base64), Decimal → Decimal(38, 18), or with the
    scale of `Meta(extra={"scale": 2})`,
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
    decimals: Decimals = "text"
    varied: ClassVar[bool] = True
    is_text: ClassVar[bool] = True

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_pickle, (shipping.dumps(self.type), self.decimals)

    @property
    def name(self) -> str:
        return named(reading_of(self.type).name, self.decimals)

    @property
    def dtype(self) -> pl.DataType | None:
        shape = reading_of(self.type).shape
        return None if isinstance(shape, NoColumn) else shape.dtype

    @property
    def some_columns(self) -> pl.DataType | None:
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
        """Why equal objects may have different texts; None: they have one."""
        return reading_of(self.type).unfit_for_keys

    def described(self) -> Described:
        if self.type in KNOWN_TYPES and self.decimals == "text":
            return Described(self.name, "known")
        dtype = self.dtype if isinstance(self.dtype, pl.Struct) else None
        fits = dtype is not None and self.unfit_for_keys is None and is_plain(self, dtype)
        columns = None if dtype is None else as_data(dtype)
        return Described(self.name, "class", columns, fits, decimals=self.decimals)

    def serialize(self, value: Any) -> bytes | None:
        encode, checks = self._writing()
        data = encode_row(self._to_write([value])[0], self.name, encode)
        if checks:
            check_rows(arrays.binary_rows([data]), [value], checks, self.name)
        return data

    def deserialize(self, data: bytes | None) -> Any:
        return None if data is None else decode_row(data, reading_of(self.type).decoder, self.name)

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        encode, checks = self._writing()
        rows = encode_rows(self._to_write(values), self.name, encode)
        check_rows(rows, values, checks, self.name)
        return rows

    def _writing(self) -> tuple[Encoder, tuple[Decoder, ...]]:
        """The encoder of objects, and the decoders that check what it writes: NaN of a Decimal is no number."""
        reading = reading_of(self.type)
        if self.decimals == "text":
            return reading.encoder, reading.checks
        return reading.number_encoder, reading.checks or (reading.decoder,)

    def _to_write(self, values: Sequence[Any]) -> Sequence[Any]:
        """Objects of the type, as the encoder takes them: a Decimal as expressions write it, 100 and not 1E+2."""
        made = self.instances(values)
        if self.type not in (Decimal, Decimal | None):
            return made
        try:
            check_exponents(made)
        except ValueError as error:
            raise errors.no_bytes_for(self.name, values[0], str(error), "round it") from error
        texts = [None if value is None else format(value, "f") for value in made]
        if self.decimals == "text":
            return texts
        return [None if text is None else msgspec.Raw(text.encode()) for text in texts]

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
        if self.decimals == "number":
            return text_with_numbers(fitted, shape, self.name, shortest=True)
        if not (isinstance(shape, StructOf) and shape.tagged):
            return json_text(fitted, self.name, shortest=True)
        plain = msgspec.to_builtins(plain_columns(fitted, shortest=True).to_list(), builtin_types=KEPT)
        return encode_rows(msgspec.convert(plain, rows_of(shape.wire)), self.name)

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        return columns_of(self.type, None if fields is None else frozenset(fields)).decoded(data, self.name)

    def decode_checked(
        self, data: pa.LargeBinaryArray, fields: Collection[str], readers: Readers = NO_READER
    ) -> pl.Series:
        return checked_columns(self.type, frozenset(fields), readers).decoded(data, self.name)

    def fitted(self, values: pl.Series) -> pl.Series | None:
        if values.dtype == pl.Null or reading_of(self.type).column_checks:
            return None
        return conform(values, columns_of(self.type, None).shape, self.name)

    def nulls(self, data: pa.LargeBinaryArray) -> Sequence[bool]:
        return nulls(data, passing_decoder(self.type), self.name)

    def instances(self, values: Sequence[Any]) -> Sequence[Any]:
        """Objects of the type, of which equal ones have one text."""
        reading = reading_of(self.type)
        try:
            instances: list[Any] = msgspec.convert(values, reading.many, builtin_types=NATIVE)
            if reading.lacks_defaults:
                add_defaults(instances)
        except Exception as error:  # msgspec's errors, and whatever a __post_init__ raises
            raise misfit(values, optional(self.type, True), self.name, error) from error
        return in_declared_order(instances, reading.order) if reading.order else instances


def _from_pickle(kind: bytes, decimals: Decimals) -> TypedJson:
    return TypedJson(pickle.loads(kind), decimals)


def _check_type(kind: Any) -> None:
    if isinstance(kind, str | pl.DataType | pa.DataType):
        raise errors.unusable_type(kind, "not a Python type or a schema")
    try:
        hash(kind)
        reading_of(kind)
    except Exception as error:  # msgspec's TypeError, and NameError of an annotation that cannot be resolved
        raise errors.unusable_type(kind, str(error)) from error


_SAMPLES: dict[type[pl.DataType], tuple[Any, Any]] = {
    pl.String: ("a", "b"),
    pl.Boolean: (False, True),
    pl.Int64: (7, 8),
    pl.Float64: (0.5, 1.5),
}
"""Two values of each type whose text depends on nothing else."""


def is_plain(serde: TypedJson, dtype: pl.Struct) -> bool:
    """Whether the class writes exactly its fields: no tag, no names or texts of its own."""
    try:
        for which in (0, 1):
            text = SchemaJson(dtype).serialize(_sample(dtype, which))
            if serde.serialize(serde.deserialize(text)) != text:
                return False
    except (CrossStreamError, KeyError):
        return False
    return True


def _sample(dtype: Any, which: int) -> Any:
    if isinstance(dtype, pl.Struct):
        return {field.name: _sample(field.dtype, which) for field in dtype.fields}
    return _SAMPLES[dtype if isinstance(dtype, type) else type(dtype)][which]
