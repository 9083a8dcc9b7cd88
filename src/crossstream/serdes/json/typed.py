"""JSON of a declared type: a Python type, whose instances callables get, or a schema, with dicts."""

from __future__ import annotations

import pickle
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, ClassVar, NamedTuple, get_args

import msgspec
import msgspec.inspect as mi
import polars as pl
import pyarrow as pa

from crossstream.errors import CrossStreamError, SerdeError
from crossstream.serdes import arrays, errors, shipping
from crossstream.serdes.json.bounds import TOO_DEEP, check_exponents, is_too_deep
from crossstream.serdes.json.columns import (
    Columns,
    checked,
    conform,
    fields_read,
    json_text,
    plain_columns,
    some_fields,
)
from crossstream.serdes.json.plain import (
    NATIVE,
    Decimals,
    SchemaJson,
    UntypedJson,
    misfit,
    named,
    text_with_numbers,
)
from crossstream.serdes.json.rows import (
    CHUNK,
    Decoder,
    Encoder,
    decode_row,
    decode_rows,
    encode_row,
    encode_rows,
    nulls,
    with_numbers,
)
from crossstream.serdes.json.shapes import (
    KEPT,
    Layout,
    NoColumn,
    Shape,
    StructOf,
    optional,
    read_schema,
    rows_of,
    struct_dtype,
)
from crossstream.serdes.json.types import (
    Scales,
    add_defaults,
    classes_in,
    derives_values,
    encoder_of,
    field_order,
    in_declared_order,
    lacks_defaults,
    nodes_in,
    read_record,
    read_type,
    type_name,
    unfit_for_keys,
    with_scales,
)
from crossstream.serdes.serde import NO_READER, Readers, Serde


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
class TypedJson:
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
        """Why equal objects may have different texts; None: they have one (`key_fault`)."""
        return reading_of(self.type).unfit_for_keys

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


class Reading(NamedTuple):
    """What is derived from a declared type, once for each process.

    ``checks``, ``column_checks``: see `checks`. ``many``: a list of rows. ``derives``: see `derives_values`.
    ``lacks_defaults``, ``order``, ``encoder``, ``unfit_for_keys``: see `json_types`; ``number_encoder``: that of
    decimals as numbers.
    """

    name: str
    decoder: Decoder
    checks: tuple[Decoder, ...]
    column_checks: tuple[Decoder, ...]
    many: Any
    shape: Shape | NoColumn
    layout: Layout | NoColumn
    derives: bool
    lacks_defaults: bool
    order: Sequence[str]
    encoder: Encoder
    number_encoder: Encoder
    unfit_for_keys: str | None
    classes: tuple[type, ...]


@lru_cache(maxsize=256)
def reading_of(kind: Any) -> Reading:
    node = mi.type_info(kind)
    for scales in (one for one in typing.get_args(kind) if isinstance(one, Scales)):
        node = with_scales(node, dict(scales.by_path))
    layout = read_record(node)
    shape = layout.struct() if isinstance(layout, Layout) else read_type(node)[0]
    decoder = msgspec.json.Decoder(kind | None)
    return Reading(
        name=f"json[{type_name(kind)}]",
        decoder=decoder,
        checks=checks(node, shape, decoder),
        column_checks=column_checks(node, shape, decoder),
        many=rows_of(kind),
        shape=shape,
        layout=layout,
        derives=derives_values(node),
        lacks_defaults=lacks_defaults(node),
        order=field_order(node),
        encoder=encoder_of(node),
        number_encoder=with_numbers(encoder_of(node)),
        unfit_for_keys=unfit_for_keys(node),
        classes=tuple(dict.fromkeys(classes_in(node))),
    )


@lru_cache(maxsize=512)
def columns_of(kind: Any, names: frozenset[str] | None) -> Columns:
    """How columns of a Python type are decoded. Raises CS-404, CS-401."""
    reading = reading_of(kind)
    shape = reading.shape
    if names is not None and isinstance(reading.layout, Layout):
        shape = some_fields(reading.layout, names, reading.name)
    if isinstance(shape, NoColumn):
        raise errors.no_column(reading.name, shape.reason)
    if reading.derives:
        return Columns(reading.decoder, shape, rows_of(shape.wire))
    return Columns(msgspec.json.Decoder(optional(shape.wire, True)), shape, None)


@lru_cache(maxsize=512)
def checked_columns(kind: Any, names: frozenset[str], readers: Readers) -> Columns:
    """How columns of some fields of a Python type are decoded, while the others are checked."""
    layout = reading_of(kind).layout
    if not isinstance(layout, Layout):
        return columns_of(kind, None)
    read = fields_read(layout, names, readers)
    if reading_of(kind).derives:
        return columns_of(kind, read)
    return checked(layout, msgspec.json.Decoder(optional(layout.wire_for(read), True)), names, read, readers)


@lru_cache(maxsize=512)
def passing_decoder(kind: Any) -> Decoder:
    """Refuses the texts that the decoder of a Python type refuses. Makes small structs where it can."""
    reading = reading_of(kind)
    layout = reading.layout
    if reading.derives or not isinstance(layout, Layout):
        return reading.decoder
    if any(isinstance(field.shape, NoColumn) for field in layout.fields):
        return reading.decoder
    return msgspec.json.Decoder(optional(layout.wire_for(frozenset()), True))


_NARROWER = (mi.EnumType, mi.LiteralType, mi.UUIDType)
_LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length")
_UNCHECKED = (mi.StructType, mi.DataclassType, mi.NamedTupleType, mi.FloatType)


def checks(node: mi.Type, shape: Shape | NoColumn, whole: Decoder) -> tuple[Decoder, ...]:
    """The decoders that check whether written rows can be read: if the first refuses, the last one decides.

    ``whole``: the decoder of the type. A wire struct refuses what only objects hold, such as an int of 65 bits. No
    decoder: `msgspec.convert` has checked everything.
    """
    if isinstance(node, mi.FloatType) or not any(isinstance(one, _UNCHECKED) for one in nodes_in(node)):
        return ()
    return _decoders(node, shape, whole)


def column_checks(node: mi.Type, shape: Shape | NoColumn, whole: Decoder) -> tuple[Decoder, ...]:
    """As `checks`, for columns: they have text for UUIDs and Enums, and no limits."""
    return _decoders(node, shape, whole) if any(map(_is_narrower, nodes_in(node))) else ()


def _decoders(node: mi.Type, shape: Shape | NoColumn, whole: Decoder) -> tuple[Decoder, ...]:
    if isinstance(shape, NoColumn) or derives_values(node):
        return (whole,)
    return msgspec.json.Decoder(optional(shape.wire, True)), whole


def _is_narrower(node: mi.Type) -> bool:
    return isinstance(node, _NARROWER) or has_limits(node)


def has_limits(node: mi.Type) -> bool:
    """Whether a type has limits of msgspec's `Meta`, such as a greatest number."""
    return any(getattr(node, limit, None) is not None for limit in _LIMITS)


def check_rows(
    rows: pa.LargeBinaryArray, values: Iterable[Any], decoders: Iterable[Decoder], serde: str
) -> None:
    """Raises `SerdeError` (CS-401) for the first value whose row no decoder can read."""
    error: SerdeError | None = None
    for decoder in decoders:
        try:
            for start in range(0, len(rows), CHUNK):
                decode_rows(rows.slice(start, CHUNK), decoder, serde)
            return
        except SerdeError as refusal:
            error, last = refusal, decoder
    if error is not None:
        raise _unreadable(rows, values, last, serde) from error.__cause__


def _unreadable(
    rows: pa.LargeBinaryArray, values: Iterable[Any], decoder: Decoder, serde: str
) -> CrossStreamError:
    for row, value in zip(rows, values, strict=True):
        try:
            if row.is_valid:
                decode_row(row.as_py(), decoder, serde)
        except SerdeError as error:
            return errors.unreadable(serde, value, str(error.__cause__))
    raise AssertionError("rows that cannot be read together, and can one by one")
