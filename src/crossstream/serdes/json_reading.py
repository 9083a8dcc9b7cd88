"""What is derived from a declared type, once for each process: how its rows and columns are read, written, checked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import msgspec.inspect as mi
import pyarrow as pa

from crossstream.errors import SerdeError
from crossstream.serdes import refusals
from crossstream.serdes.json_canonical import encoder_of, field_order, lacks_defaults, unfit_for_keys
from crossstream.serdes.json_columns import CHUNK
from crossstream.serdes.json_rows import Decoder, Encoder, Read, decode_row, decode_rows, whole
from crossstream.serdes.json_shapes import Layout, NoColumn, Shape, is_checked, optional, rows_of
from crossstream.serdes.json_types import (
    any_node,
    classes_of,
    derives_values,
    read_record,
    read_type,
    type_name,
)
from crossstream.serdes.serde import Readers


class Columns(NamedTuple):
    """How a column is decoded: by ``decoder``, then ``convert`` (None: nothing to convert) to the ``shape``.

    ``read``: the part of an object that functions read, now or later.
    """

    decoder: Decoder
    shape: Shape
    convert: Any
    read: Read = whole


class Reading(NamedTuple):
    """What is derived from a declared type, once for each process.

    ``checks``, ``column_checks``: see `checks`. ``many``: a list of rows. ``derives``: see `derives_values`.
    ``lacks_defaults``, ``order``, ``encoder``, ``unfit_for_keys``: see `json_canonical`.
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
    unfit_for_keys: str | None
    classes: tuple[type, ...]


@lru_cache(maxsize=256)
def reading_of(kind: Any) -> Reading:
    node = mi.type_info(kind)
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
        unfit_for_keys=unfit_for_keys(node),
        classes=classes_of(node),
    )


@lru_cache(maxsize=512)
def columns_of(kind: Any, names: frozenset[str] | None) -> Columns:
    """How columns of a Python type are decoded. Raises CS-404, CS-401."""
    reading = reading_of(kind)
    shape = reading.shape
    if names is not None and isinstance(reading.layout, Layout):
        shape = some_fields(reading.layout, names, reading.name)
    if isinstance(shape, NoColumn):
        raise refusals.no_column(reading.name, shape.reason)
    if reading.derives:
        return Columns(reading.decoder, shape, rows_of(shape.wire))
    return Columns(msgspec.json.Decoder(optional(shape.wire, True)), shape, None)


@lru_cache(maxsize=512)
def checked_columns(kind: Any, names: frozenset[str], readers: Readers) -> Columns:
    """How columns of some fields of a Python type are decoded, while the others are checked."""
    layout = reading_of(kind).layout
    if not isinstance(layout, Layout):
        return columns_of(kind, None)
    read = _read(layout, names, readers)
    if reading_of(kind).derives:
        return columns_of(kind, read)
    return checked(layout, msgspec.json.Decoder(optional(layout.wire_for(read), True)), names, read, readers)


def checked(
    layout: Layout, decoder: Decoder, names: frozenset[str], fit: Collection[str], readers: Readers
) -> Columns:
    """Columns of these fields, and of others that must ``fit`` into columns where only making the column shows it."""
    made = [
        field.name
        for field in layout.fields
        if field.name in names
        or (field.name in fit and not is_checked(field.shape) and not isinstance(field.shape, NoColumn))
    ]
    shape = layout.struct(made)
    if isinstance(shape, NoColumn):
        raise refusals.no_column(layout.title, shape.reason)
    if readers.callables:
        return Columns(decoder, shape, None)
    read = _read(layout, names, readers)
    fields = [(field.name, attrgetter(field.attribute)) for field in layout.fields if field.name in read]
    return Columns(decoder, shape, None, lambda value: value and {name: get(value) for name, get in fields})


def _read(layout: Layout, names: frozenset[str], readers: Readers) -> frozenset[str]:
    """The fields that are read as columns, now or later."""
    known = frozenset(field.name for field in layout.fields)
    if readers.fields is not None:
        return (names | readers.fields) & known
    return names | {field.name for field in layout.fields if not isinstance(field.shape, NoColumn)}


def some_fields(layout: Layout, names: frozenset[str], serde: str) -> Shape | NoColumn:
    known = [field.name for field in layout.fields]
    if unknown := names.difference(known):
        raise refusals.unknown_fields(serde, unknown, known)
    return layout.struct(names)


_NARROWER = (mi.EnumType, mi.LiteralType, mi.UUIDType)
_LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length")
_UNCHECKED = (mi.StructType, mi.DataclassType, mi.NamedTupleType, mi.FloatType)


def checks(node: mi.Type, shape: Shape | NoColumn, whole: Decoder) -> tuple[Decoder, ...]:
    """The decoders that check whether written rows can be read: if the first refuses, the last one decides.

    ``whole``: the decoder of the type. A wire struct refuses what only objects hold, such as an int of 65 bits. No
    decoder: `msgspec.convert` has checked everything.
    """
    if isinstance(node, mi.FloatType) or not any_node(node, lambda one: isinstance(one, _UNCHECKED)):
        return ()
    return _decoders(node, shape, whole)


def column_checks(node: mi.Type, shape: Shape | NoColumn, whole: Decoder) -> tuple[Decoder, ...]:
    """As `checks`, for columns: they have text for UUIDs and Enums, and no limits."""
    return _decoders(node, shape, whole) if any_node(node, _is_narrower) else ()


def _decoders(node: mi.Type, shape: Shape | NoColumn, whole: Decoder) -> tuple[Decoder, ...]:
    if isinstance(shape, NoColumn) or derives_values(node):
        return (whole,)
    return msgspec.json.Decoder(optional(shape.wire, True)), whole


def _is_narrower(node: mi.Type) -> bool:
    return isinstance(node, _NARROWER) or any(getattr(node, limit, None) is not None for limit in _LIMITS)


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


def _unreadable(rows: pa.LargeBinaryArray, values: Iterable[Any], decoder: Decoder, serde: str) -> SerdeError:
    for row, value in zip(rows, values, strict=True):
        try:
            if row.is_valid:
                decode_row(row.as_py(), decoder, serde)
        except SerdeError as error:
            return refusals.unreadable(serde, value, str(error.__cause__))
    raise AssertionError("rows that cannot be read together, and can one by one")
